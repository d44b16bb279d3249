"""Partitions that a request names: whether there is one, and whether the principal may do with it what was asked."""

from collections.abc import Iterable

from logdb.access.session import AuthorizedSession
from logdb.errors import LogdbError
from logdb.model import TopicPartition
from logdb.requests.resources import Operation
from logdb_kafka_api.errors import Code, code_of


def by_topic(asked: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partitions by their topic, which a request may name twice."""
    topics: dict[str, list[int]] = {}
    for topic, partition in asked:
        topics.setdefault(topic, []).append(partition)
    return topics


def checked(session: AuthorizedSession, operation: Operation, asked: Iterable[TopicPartition]) -> dict[TopicPartition, Code]:
    """The code of each partition: NONE where the request may go on with it."""
    found: dict[TopicPartition, Code] = {}
    for topic, partitions in by_topic(asked).items():
        code, count = Code.NONE, 0
        try:
            session.need(operation, "Topic", topic)
            count = session.partition_count(topic)
        except LogdbError as error:
            code = code_of(error)
        for partition in partitions:
            there = code if code or 0 <= partition < count else Code.UNKNOWN_TOPIC_OR_PARTITION
            found[TopicPartition(topic, partition)] = there
    return found
