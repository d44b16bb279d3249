"""Values of requests that are compared between two brokers, and how a table shows them.

Some values stand for others, which a broker gives or a case has of its own: ids of topics, a member, a producer, a partition.
"""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from support.batches import Rec, encode_batch

NOW = int(time.time() * 1000)
RECORDS = encode_batch([Rec(b"k", b"v")], base_timestamp=NOW)
LONG = "x" * 250
MOST_32, MOST_64 = 2**31 - 1, 2**63 - 1
NAMES = ("", "none", "!")
READERS, LIVE = "readers", "live"
"""Groups: one with an offset and without members, and one with a member that reads ``t``."""
UNKNOWN_ID = bytes(15) + b"1"
T, OWN, FORMER, LAST = (name.encode().ljust(16, b".") for name in ("id of t", "id of own", "a former id", "id of last"))
OTHER_IDS = (bytes(16), UNKNOWN_ID, FORMER)
"""Ids that no topic has; the last one had the topic that ``again`` was before it was created again."""
MEMBER, PRODUCER, BATCH, PARTITION = "the member", 1 << 40, b"a batch in a transaction", 1 << 29
"""The one member of a case's group, the id of its producer, a batch of that producer, and its partition of the topic ``own``."""
_SHOWN: Mapping[Hashable, str] = MappingProxyType(
    {
        RECORDS: "a batch",
        RECORDS * 2: "two batches",
        RECORDS[:-1]: "a batch that is cut off",
        bytes(16): "no id",
        UNKNOWN_ID: "an unknown id",
        FORMER: "the id of a topic that was created again",
        MEMBER: "the member",
        PRODUCER: "the producer",
        BATCH: BATCH.decode(),
        PARTITION: "its own",
    }
)
Values = dict[str, Any]
Base = Callable[[int], Values]
"""A request that nothing is wrong with, by the number of its case."""
Bases = Mapping[str, tuple[int, Base]]
"""By API, those that name topics by ids, or begin in another state, beside the others: the version, and the request."""
Wrong = Mapping[str, Mapping[str, Sequence[Any]]]
"""By row of ``Bases`` and field."""


def text(value: Any) -> str:
    """A value as a table shows it."""
    if isinstance(value, str | bytes | int) and value in _SHOWN:
        return _SHOWN[value]
    if isinstance(value, str) and len(value) > 99:
        return f"{len(value)} times x"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {text(one)}" for name, one in value.items()) + "}"
    return f"[{', '.join(map(text, value))}]" if isinstance(value, list) else repr(value)


def in_topic(topic: str, partition: Values, topics: str = "topics", name: str = "name", partitions: str = "partitions") -> Values:
    return {topics: [{name: topic, partitions: [partition]}]}


def by_id(topic_id: bytes, partition: Values, topics: str = "topics", partitions: str = "partitions") -> Values:
    return {topics: [{"topic_id": topic_id, partitions: [partition]}]}
