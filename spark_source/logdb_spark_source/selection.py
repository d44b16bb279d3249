"""The partitions to read: assign, subscribe or subscribePattern."""

import re
from dataclasses import dataclass
from typing import NamedTuple

import logdb
from logdb.errors import InvalidConfig
from logdb.model import TopicPartition


class Partitions(NamedTuple):
    """The partitions to read, and the id of each topic."""

    all: tuple[TopicPartition, ...]
    topic_ids: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The value of ``option``: ``topics``, a ``pattern`` of their names, or ``assigned`` partitions."""

    option: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()

    def names(self, topic: str) -> bool:
        """Whether a topic of that name is selected; a pattern may match any part of it, as in Spark's Kafka source."""
        if self.pattern is not None:
            return re.search(self.pattern, topic) is not None
        return topic in self.topics or any(topic == one.topic for one in self.assigned)

    def partitions(self, database: logdb.Database) -> Partitions:
        """The present partitions, by topic and number.

        Raises:
            InvalidConfig: A named topic or partition does not exist.
        """
        found = {info.name: info for info in database.topics(internal=True) if self._wanted(info)}
        if self.pattern is None:
            self._check(found, database)
        if self.assigned:
            partitions = sorted(self.assigned)
        else:
            partitions = sorted(TopicPartition(name, at) for name, info in found.items() for at in range(info.partition_count))
        return Partitions(tuple(partitions), {name: info.topic_id for name, info in found.items()})

    def _wanted(self, info: logdb.TopicInfo) -> bool:
        return self.names(info.name) and (self.pattern is None or not info.internal)

    def _check(self, found: dict[str, logdb.TopicInfo], database: logdb.Database) -> None:
        for name in self.topics or [one.topic for one in self.assigned]:
            if name not in found:
                there = ", ".join(sorted(info.name for info in database.topics())) or "none yet"
                raise InvalidConfig(self.option, name, f"there is no such topic at {database.path}; its topics: {there}")
        for one in self.assigned:
            count = found[one.topic].partition_count
            if one.partition >= count:
                raise InvalidConfig(self.option, f"{one.topic}-{one.partition}", f"the topic has {count} partitions, numbered from 0")
