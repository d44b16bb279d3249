"""What PySpark's daemon prints of a worker that cannot flush its last bytes."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, socket, sys
os.environ["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "1"  # as Spark does
from {module} import daemon
sys.path.insert(0, "{directory}")
sys.argv = ["daemon", "pyspark_answers"]
ours, theirs = socket.socketpair()
theirs.close()
sys.exit(daemon.worker(ours, True))
"""
WORKER = """
def main(infile, outfile):
    if {fails}:
        raise ValueError("of the worker")
    outfile.write(b"an answer")
"""


def ended(tmp_path, module, *, fails):
    (tmp_path / "pyspark_answers.py").write_text(WORKER.format(fails=fails))
    program = PROGRAM.format(module=module, directory=tmp_path)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)


def test_a_worker_whose_reader_is_gone_is_no_news(tmp_path):
    pytest.importorskip("pyspark")
    assert "BrokenPipeError" in ended(tmp_path, "pyspark", fails=False).stderr, "PySpark is quiet itself: drop quiet_daemon"
    quiet = ended(tmp_path, "logdb_spark_source.quiet_daemon", fails=False)
    assert (quiet.returncode, quiet.stderr) == (1, "")


def test_what_else_fails_is_told(tmp_path):
    pytest.importorskip("pyspark")
    assert "of the worker" in ended(tmp_path, "logdb_spark_source.quiet_daemon", fails=True).stderr
