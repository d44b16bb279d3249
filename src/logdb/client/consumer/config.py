"""The options of a consumer, with their defaults and ranges."""

from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

from logdb.client.consumer.assignors import Assignor
from logdb.client.producer.interceptor import Interceptor
from logdb.errors import InvalidConfig
from logdb.log.isolation import ISOLATION_LEVELS, IsolationLevel
from logdb.mistakes import one_of
from logdb.model import Duration, duration_ms
from logdb.serde import Deserializer

OffsetReset: TypeAlias = Literal["earliest", "latest", "none"]

_CHOICES = {"auto_offset_reset": ("earliest", "latest", "none"), "isolation_level": ISOLATION_LEVELS}
_LEAST = {
    "auto_commit_interval_ms": 0,
    "heartbeat_interval_ms": 0,
    "max_poll_interval_ms": 1,
    "max_poll_records": 1,
    "iteration_timeout_ms": 0,
}


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig:
    """Options of a consumer, with Kafka's names and meanings where Kafka has them.

    Times are milliseconds or a ``timedelta``.

    Attributes:
        group_id: The group that assigns partitions and keeps committed offsets; None: neither.
        group_instance_id: A name of this member that stays the same after a restart (KIP-345).  A member that is back within
            ``max_poll_interval_ms`` gets the same partitions, without a rebalance.  Also after ``close``: nobody else gets them meanwhile.
        auto_offset_reset: Where to begin without a committed offset, and after retention has deleted the position:
            ``"earliest"``, ``"latest"``, or ``"none"``, which raises an error.
        enable_auto_commit: Commit in ``poll`` what earlier polls returned, every ``auto_commit_interval_ms``, and when
            partitions are revoked or the consumer is closed.
        isolation_level: ``"read_committed"`` returns no records of open or aborted transactions.
        max_poll_records: Most records of one ``poll``.
        max_poll_interval_ms: A member that does not poll for so long is removed from the group.
        heartbeat_interval_ms: How often a consumer that polls asks whether its group is being rebalanced, and whether there are new
            topics and partitions.  None: every 100 ms.  Behind a URL each check is a request, so the interval begins at 100 ms after
            a rebalance and doubles, up to 3 s, or to a third of ``max_poll_interval_ms`` if that is less.
        partition_assignment_strategy: Names of assignors, the preferred one first (``assignors``).  If all of them are
            cooperative, a rebalance takes away only what moves to another member (KIP-429).
        key_deserializer, value_deserializer: One of ``logdb.serde``, or a callable that takes bytes; records are then of class
            ``ConsumedRecord``.
        interceptors: See all records last, after deserialization.
        iteration_timeout_ms: ``for record in consumer`` ends after so long without a record; None: never.
        client_id: The name of this member in the group's description.
    """

    group_id: str | None = None
    group_instance_id: str | None = None
    auto_offset_reset: OffsetReset = "latest"
    enable_auto_commit: bool = False
    auto_commit_interval_ms: Duration = 5_000
    isolation_level: IsolationLevel = "read_uncommitted"
    max_poll_records: int = 500
    max_poll_interval_ms: Duration = 300_000
    heartbeat_interval_ms: Duration | None = None
    partition_assignment_strategy: tuple[str | Assignor, ...] = ("range", "cooperative-sticky")
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    interceptors: tuple[Interceptor, ...] = ()
    iteration_timeout_ms: Duration | None = None
    client_id: str = "logdb"

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if (allowed := _CHOICES.get(option.name)) is not None and value not in allowed:
                raise InvalidConfig(option.name, value, f"must be {one_of(allowed)}")
            least = _LEAST.get(option.name)
            number = duration_ms(value) if least is not None and option.name.endswith("_ms") else value
            if least is not None and number is not None and (type(number) is not int or number < least):
                raise InvalidConfig(option.name, value, f"must be a whole number, {least} or more")
        for name in ("group_id", "group_instance_id"):
            given = getattr(self, name)
            if given is not None and not (isinstance(given, str) and given):
                raise InvalidConfig(name, given, "must be a str of one character or more")
        if self.group_id is None and self.group_instance_id is not None:
            raise InvalidConfig("group_instance_id", self.group_instance_id, "it needs a group_id")
        if self.group_id is None and self.enable_auto_commit:
            raise InvalidConfig("enable_auto_commit", True, "it needs a group_id")
