"""Kafka's storage engine, driven by a small Java program over the jars from Maven Central.

Shown as missing, with the reason, where java, javac or mvn is.
"""

import functools
import json
import subprocess
from pathlib import Path

from benches.peers import failure
from benches.peers.kafka.jars import CACHE, TOOLS
from benches.workload import Measure, Work, Wrong, rate, records_file

_HERE = Path(__file__).parent
_CLASSES = CACHE / "classes"
_CLASS_PATH = f"{_CLASSES}:{TOOLS.directory}/*"
_HEAP = ("-Xms1g", "-Xmx1g", "-XX:+AlwaysPreTouch")  # Kafka's default size; untouched memory would cost more than the work


@functools.cache
def missing() -> str | None:
    """Fetch and compile at the first call."""
    if reason := TOOLS.missing():
        return reason
    return failure(["javac", "-d", _CLASSES, "-cp", _CLASS_PATH, _HERE / "KafkaStorage.java"], 120)


def _run(operation: str, work: Work) -> Measure:
    command = ["java", *_HEAP, "-cp", _CLASS_PATH, "KafkaStorage", operation, str(records_file(work.value_size))]
    command += [str(work.count), str(work.value_size), str(work.directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Wrong(done.stderr.strip()[-500:])
    counted = json.loads(done.stdout)
    return rate(counted["count"], counted["seconds"])


OPERATIONS = {name: functools.partial(_run, name) for name in ("append_many", "append_ready", "read", "read_zstd", "read_batches")}
