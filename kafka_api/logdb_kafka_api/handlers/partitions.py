"""Partitions that a request names: whether there is one, and whether the principal may do with it what was asked."""

from collections.abc import Iterable, Mapping

from logdb.access.session import AuthorizedSession
from logdb.errors import LogdbError
from logdb.model import TopicPartition
from logdb.requests.resources import Operation
from logdb_kafka_api.errors import Code, code_of


def checked(session: AuthorizedSession, operation: Operation, asked: Mapping[str, Iterable[int]]) -> dict[TopicPartition, Code]:
    """The code of each partition, by topic: NONE where the request may go on with it."""
    found: dict[TopicPartition, Code] = {}
    for topic, partitions in asked.items():
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
