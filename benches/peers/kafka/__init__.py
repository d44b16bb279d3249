"""Kafka's storage engine, driven by a small Java program over the jars from Maven Central.

Knows java, javac and mvn.  Shown as missing, with the reason, where one of them is.
"""

import functools
import json
import shutil
import subprocess
from pathlib import Path

from benches.workload import CACHE, Measure, Work, Wrong, rate, records_file

Command = list[str | Path]

_HERE = Path(__file__).parent
_JARS, _CLASSES = CACHE / "kafka" / "jars", CACHE / "kafka" / "classes"
_CLASS_PATH = f"{_CLASSES}:{_JARS}/*"
_HEAP = ("-Xms1g", "-Xmx1g", "-XX:+AlwaysPreTouch")  # Kafka's default size; untouched memory would cost more than the work


@functools.cache
def missing() -> str | None:
    """Fetch and compile at the first call."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            return f"there is no {tool}"
    try:
        if not _JARS.exists():
            fetch: Command = ["mvn", "-q", "-B", "-f", _HERE / "pom.xml", "dependency:copy-dependencies", f"-DoutputDirectory={_JARS}"]
            subprocess.run(fetch, check=True, capture_output=True, text=True, timeout=300)
        compile_: Command = ["javac", "-d", _CLASSES, "-cp", _CLASS_PATH, _HERE / "KafkaStorage.java"]
        subprocess.run(compile_, check=True, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired as error:
        return f"{error.cmd[0]} took more than {error.timeout:.0f} s"
    except subprocess.CalledProcessError as error:
        return f"{error.cmd[0]} failed: {(error.stderr or error.stdout).strip()[:200]}"
    return None


def _run(operation: str, work: Work) -> Measure:
    command = ["java", *_HEAP, "-cp", _CLASS_PATH, "KafkaStorage", operation, str(records_file(work.value_size))]
    command += [str(work.count), str(work.value_size), str(work.directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Wrong(done.stderr.strip()[-500:])
    counted = json.loads(done.stdout)
    return rate(counted["count"], counted["seconds"])


OPERATIONS = {name: functools.partial(_run, name) for name in ("append_many", "append_ready", "read", "read_batches")}
