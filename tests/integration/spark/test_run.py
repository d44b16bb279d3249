"""logdb spark run: a program of its own, with its arguments, its neighbours and its failures."""

import subprocess
import sys
from pathlib import Path

import logdb
from support.spark import JAVA_OPTIONS

EXAMPLES = Path(__file__).parents[3] / "examples" / "spark"

PROGRAM = """
import sys
from pyspark.sql import SparkSession
import neighbour

if __name__ == "__main__":
    neighbour.main(["--path", sys.argv[1], "--checkpoint", sys.argv[2]])
    spark = SparkSession.builder.getOrCreate()
    print(sys.argv[0], *sys.argv[3:], spark.sparkContext.master, spark.conf.get("spark.sql.shuffle.partitions"))
    topics = "missing"
    spark.read.format("logdb").options(path=sys.argv[1], subscribe=topics).load().count()
"""


def test_a_program_finds_its_session_and_its_failure_is_one_line(tmp_path):
    program, path = tmp_path / "program.py", tmp_path / "db"
    program.write_text(PROGRAM)
    (tmp_path / "neighbour.py").write_text((EXAMPLES / "word_count.py").read_text())
    with logdb.open(path) as db:
        db.create_topic("streams-plaintext-input")
        db.append("streams-plaintext-input", b"a b a")
    conf = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": JAVA_OPTIONS, "spark.sql.shuffle.partitions": "3"}
    options = ["--master", "local[2]", *(part for key, value in conf.items() for part in ("--conf", f"{key}={value}"))]
    arguments = [str(path), str(tmp_path / "checkpoint"), "--follow", "-x"]  # an option of the program's is none of ours
    command = [sys.executable, "-m", "logdb.cli", "spark", "run", *options, str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.stdout == f"{program} --follow -x local[2] 3\n", done.stderr
    assert done.returncode == 1
    assert "BrokenPipeError" not in done.stderr
    told = done.stderr.splitlines()
    assert told[0] == "starting Spark, which takes up to a minute"
    assert any(line.startswith("stream ") and line.endswith(": its first batch") for line in told)
    last = told[-1]
    line = PROGRAM.splitlines().index('    spark.read.format("logdb").options(path=sys.argv[1], subscribe=topics).load().count()') + 1
    assert f"{program}:{line}: " in last
    assert "missing" in last
    assert f'File "{program}"' not in done.stderr, "Spark's workers may complain, the program may not"
    with logdb.open(path, mode="r") as db:
        assert dict(db.table("streams-wordcount-output").items()) == {b"a": b"2", b"b": b"1"}
