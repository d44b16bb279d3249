"""Kafka's command-line tools, one after the other in one process of Java."""

import base64
import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benches.peers import SHORT_LIVED
from benches.peers.kafka.jars import BROKER, TOOLS

MAIN = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
}
_PROGRAM = Path(__file__).parents[1] / "integration" / "kafka" / "KafkaTools.java"


class KafkaTools:
    """A call runs a tool of ``MAIN``, or the class of that name: exit code, stdout, stderr."""

    def __init__(self) -> None:
        command = ["java", *SHORT_LIVED, "-cp", f"{TOOLS.directory}/*:{BROKER.directory}/*", _PROGRAM]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def __call__(self, tool: str, *flags: str, stdin: str = "") -> tuple[int, str, str]:
        words = (MAIN.get(tool, tool), stdin, *flags)
        self._process.stdin.write("\t".join(base64.b64encode(word.encode()).decode() for word in words) + "\n")
        self._process.stdin.flush()
        code, said, warned = self._process.stdout.readline().split("\t")
        return int(code), base64.b64decode(said).decode(), base64.b64decode(warned).decode()

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()


@contextlib.contextmanager
def kafka_tools() -> Iterator[KafkaTools]:
    """Skip, with the reason, where Java or Maven are missing."""
    for jars in (TOOLS, BROKER):
        if (reason := jars.missing()) is not None:
            pytest.skip(reason)
    with contextlib.closing(KafkaTools()) as tools:
        yield tools
