"""Partitions that a request names: whether there is one, and whether the principal may do with it what was asked."""

from collections.abc import Iterable

from logdb.access.session import AuthorizedSession
from logdb.errors import LogdbError
from logdb.model import TopicPartition
from logdb.requests.resources import Operation
from logdb_kafka_api.errors import Code, code_of


def checked(session: AuthorizedSession, operation: Operation, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Code]:
    """The code of each partition: NONE where the request may go on with it."""
    topics: dict[str, tuple[Code, int]] = {}
    found: dict[TopicPartition, Code] = {}
    for where in partitions:
        if where.topic not in topics:
            topics[where.topic] = _partition_count(session, operation, where.topic)
        code, count = topics[where.topic]
        found[where] = code if code or 0 <= where.partition < count else Code.UNKNOWN_TOPIC_OR_PARTITION
    return found


def _partition_count(session: AuthorizedSession, operation: Operation, topic: str) -> tuple[Code, int]:
    try:
        session.need(operation, "Topic", topic)
        return Code.NONE, session.partition_count(topic)
    except LogdbError as error:
        return code_of(error), 0
