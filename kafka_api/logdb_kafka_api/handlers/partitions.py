"""Partitions that a request names: some are refused, and the rest of the request is made."""

from typing import Any, TypeVar

from logdb.access.session import AuthorizedSession
from logdb.errors import LogdbError
from logdb.model import TopicPartition, by_topic
from logdb.requests.request import Request
from logdb_kafka_api.errors import Code, code_of

Q = TypeVar("Q", bound=Request[Any])


def possible(session: AuthorizedSession, request: Q) -> tuple[Q, dict[TopicPartition, Code]]:
    """The request for those of its partitions that there are and that the principal may name, and the codes of the others.

    Raises:
        NotAuthorized: The principal may make no part of it.
    """
    request, refused = session.permitted(request)
    codes = {one: code_of(error) for one, error in refused.items()}
    unknown: dict[TopicPartition, Code] = {}
    for topic, partitions in by_topic(request.named_partitions).items():
        code, count = Code.UNKNOWN_TOPIC_OR_PARTITION, 0
        try:
            count = session.partition_count(topic)
        except LogdbError as error:
            code = code_of(error)
        unknown |= {TopicPartition(topic, one): code for one in partitions if not 0 <= one < count}
    return request.without(unknown), codes | unknown
