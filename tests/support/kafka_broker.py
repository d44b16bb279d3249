"""A Kafka of others for tests: one broker of Kafka 4.3.1, a process that may be killed and started again."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from benches.peers.kafka import broker as kafka
from support.java import JavaProgram
from support.ports import free_port


class KafkaBroker:
    """It runs; ``address``: ``host:port``."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        port = free_port()
        self.address, self._log = f"127.0.0.1:{port}", directory / "broker.log"
        self._command = kafka.prepare(directory, port, kafka.SMALL_HEAP)
        self.start()

    def start(self) -> None:
        self._program = JavaProgram(self._command, self._log)
        self._program.until(self._answers, 180)

    def _answers(self) -> bool:
        with contextlib.suppress(confluent_kafka.KafkaException):
            client = confluent_kafka.Producer({"bootstrap.servers": self.address, "log_level": 0})
            return bool(client.list_topics(timeout=2).brokers)
        return False

    def kill(self) -> None:
        """As a crash would."""
        self._program.kill()


@contextlib.contextmanager
def kafka_broker(directory: Path) -> Iterator[KafkaBroker]:
    """Skip, with the reason, where Java or Maven are missing."""
    if (reason := kafka.missing()) is not None:
        pytest.skip(reason)
    broker = KafkaBroker(directory)
    try:
        yield broker
    finally:
        broker.kill()
