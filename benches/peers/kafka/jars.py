"""Java programs of other people, fetched from Maven Central once, for the benches and the tests.

Knows java, javac, mvn and the poms beside it.  Does not know what the jars are for.
"""

import fcntl
import functools
import hashlib
import shutil
from pathlib import Path

from benches.peers import failure

CACHE = Path(__file__).parents[2] / ".cache" / "kafka"
_POMS = Path(__file__).parent


class Jars:
    """What one pom names.

    Attributes:
        directory: Where its jars lie; another pom, another directory.
    """

    def __init__(self, name: str) -> None:
        self._name, self._pom = name, _POMS / f"{name}.xml"
        self.directory = CACHE / f"{name}-{hashlib.sha256(self._pom.read_bytes()).hexdigest()[:8]}"

    @functools.cache  # noqa: B019 - there is one of each pom
    def missing(self) -> str | None:
        """Why they are not to be had here; None if they are.  Fetches them at the first call, one process at a time."""
        for tool in ("java", "javac", "mvn"):
            if shutil.which(tool) is None:
                return f"there is no {tool}"
        CACHE.mkdir(parents=True, exist_ok=True)
        with (CACHE / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return None if self.directory.exists() else self._fetch()

    def _fetch(self) -> str | None:
        """What went wrong; the jars get their name when all of them are there."""
        part = CACHE / f"{self._name}.part"
        shutil.rmtree(part, ignore_errors=True)
        command = ["mvn", "-q", "-B", "-f", str(self._pom), "dependency:copy-dependencies", f"-DoutputDirectory={part}"]
        reason = failure(command, 200)
        if reason is None:
            part.rename(self.directory)
        return reason


TOOLS = Jars("tools")
"""Kafka's storage engine and its command-line tools."""
BROKER = Jars("broker")
"""A whole Kafka."""
PLATFORM = Jars("platform")
"""Kafka Streams with its examples, Connect with the file connectors, MirrorMaker, and the command-line tools."""
SPARK_SOURCE = Jars("spark_source")
"""Spark's Kafka source, for the Spark of ``benches.peers.spark``."""
ICEBERG = Jars("iceberg")
"""Iceberg's runtime, for the Spark ``environment.ICEBERG`` of ``benches.peers.spark``."""
HDFS = Jars("hdfs")
"""Hadoop's file system in one process."""
DEBEZIUM = Jars("debezium")
"""Debezium's engine with its connector of PostgreSQL."""
SPARK_WRITERS = Jars("spark_writers")
"""For Spark 4: its writer of Avro, and Hadoop's file system for S3."""
