"""A session without a broker: topics and logs of a store, and waiting for records.  Goes when the database sits on a broker."""

import time
from collections.abc import Mapping

from logdb.log.log import IsolationLevel, Log
from logdb.model import TopicInfo, TopicPartition
from logdb.store.store import Store


class StoreSession:
    """Enough of a session for consumers without a group."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def topics(self, *, internal: bool = False) -> list[TopicInfo]:
        return self._store.topics(internal=internal)

    def partition_count(self, topic: str) -> int:
        return self._store.partition_count(topic)

    def log(self, topic: str, partition: int = 0) -> Log:
        return self._store.log(topic, partition)

    def wait(
        self, positions: Mapping[TopicPartition, int], timeout_ms: int, *, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> bool:
        until = time.monotonic() + timeout_ms / 1000
        logs = [(self.log(*partition), position) for partition, position in positions.items()]
        while True:
            if any(log.readable_end_offset() > position for log, position in logs):
                return True
            if time.monotonic() >= until:
                return False
            time.sleep(0.001)
