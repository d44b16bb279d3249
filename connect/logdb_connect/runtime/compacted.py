"""A compacted topic as a map: the latest value of each key (``KafkaBasedLog``).

``catch_up`` reads what was written until now, also by others, and waits for transactions that are open there: their records may decide.
Threading: any thread.
"""

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from logdb import AnyRecord, TopicPartition
from logdb_connect.client import Client
from logdb_connect.errors import ConnectError

logger = logging.getLogger(__name__)
OnRecord = Callable[[AnyRecord], None]


class CompactedTopic:
    """Reads a topic from its start, record by record, and gives each to ``on_record``."""

    def __init__(
        self,
        client: Client,
        name: str,
        on_record: OnRecord,
        *,
        partitions: int = 1,
        replication: int | None = None,
        timeout_ms: int = 60_000,
    ) -> None:
        """Create the topic if it is missing.  Nothing is read yet."""
        self._client, self.name, self._on_record, self._timeout_ms = client, name, on_record, timeout_ms
        self._lock = threading.RLock()
        self._positions: dict[int, int] = {}
        if not client.has_topic(name):
            client.create_topic(name, partitions=partitions, replication=client.possible_replication(replication), cleanup_policy="compact")
        policy = client.cleanup_policy(name)
        if policy != "compact":
            raise ConnectError(
                f"Topic '{name}' is required to have 'cleanup.policy=compact' to guarantee consistency and durability of "
                f"connector state, but found the topic currently has 'cleanup.policy={policy}'"
            )
        state = client.topic_state(name)
        self.partition_count, self._topic_id = len(state.partitions), state.topic_id

    def positions(self) -> dict[TopicPartition, int]:
        """Where reading continues in each partition."""
        with self._lock:
            return {TopicPartition(self.name, number): self._positions.get(number, 0) for number in range(self.partition_count)}

    @property
    def position(self) -> int:
        """Of the first partition."""
        with self._lock:
            return self._positions.get(0, 0)

    def catch_up(self, *, waits: bool = True) -> None:
        """Read all records that are written now.

        Args:
            waits: For transactions that are open now; False: read what is decided.

        Raises:
            ConnectError: A transaction stays open too long.
            LogdbError: See ``Log.read``.
        """
        end = time.monotonic() + self._timeout_ms / 1000
        with self._lock:
            state = self._client.topic_state(self.name)
            if state.topic_id != self._topic_id:
                logger.error("topic %s was deleted and created again: what was in it is lost when the workers end", self.name)
                self._topic_id = state.topic_id
                self._positions.clear()
            self.partition_count = len(state.partitions)
            for part in state.partitions:
                position, wanted = max(self._positions.get(part.partition, 0), part.start_offset), part.end_offset
                if position < wanted and not waits:
                    wanted = min(wanted, self._client.committed_end(self.name, part.partition))
                if position >= wanted:
                    continue
                wait_s = 0.001
                while self._client.committed_end(self.name, part.partition) < wanted:
                    if time.monotonic() > end:
                        raise ConnectError(
                            f"a transaction has been open in topic {self.name} for {self._timeout_ms} ms: logdb transactions lists it"
                        )
                    time.sleep(wait_s)
                    wait_s = min(2 * wait_s, 0.1)
                for record in self._client.read(self.name, part.partition, position, wanted):
                    self._give(record)
                self._positions[part.partition] = wanted

    def _give(self, record: AnyRecord) -> None:
        """Whoever may write to the topic can write anything: what nobody understands is left out, and the worker goes on."""
        try:
            self._on_record(record)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            logger.warning(
                "topic %s: the record at offset %d is left out, no worker wrote it: %s: %s",
                self.name,
                record.offset,
                type(error).__name__,
                error,
            )


def decoded(data: bytes | None) -> Any:
    """JSON of a key or a value; None for a tombstone, or bytes that are no JSON."""
    try:
        return None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        return None


def encoded(document: Any) -> bytes:
    """JSON as Kafka's converter writes it: without blanks."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
