"""Errors of Kafka's REST API v2: statuses, codes and the begin of Confluent's messages.

An error without an entry here has the code of the whole door if the client can correct it, otherwise it is a Kafka error.

Source: Confluent's kafka-rest, ``Errors``; rest-utils, ``KafkaExceptionMapper``.
"""

import contextlib
import functools
from typing import NamedTuple

from aiohttp import web

from logdb import errors
from logdb.errors import LogdbError
from logdb_http_api.door.request import Request
from logdb_http_api.door.routing import Handler
from logdb_http_api.errors import ApiError, code_of
from logdb_http_api.v2.formats import CONTROL, V2, accepted

KAFKA_ERROR, RETRIABLE_KAFKA_ERROR = 50002, 50003


class Name(NamedTuple):
    """Status, code and begin of the message of an error."""

    status: int
    code: int
    sentence: str


_ILLEGAL_STATE = Name(409, 40903, "Illegal state: ")
_TOPIC_NOT_FOUND = Name(404, 40401, "Topic not found. ")
_NAMES: dict[type[LogdbError], Name] = {
    errors.UnknownTopic: _TOPIC_NOT_FOUND,
    errors.InvalidTopic: _TOPIC_NOT_FOUND,
    errors.UnknownPartition: Name(404, 40402, "Partition not found. "),
    errors.SerializationError: Name(408, 40801, ""),
    errors.NotAssigned: _ILLEGAL_STATE,
    errors.UnknownMember: _ILLEGAL_STATE,
    errors.IllegalGeneration: _ILLEGAL_STATE,
    errors.InvalidGroup: Name(422, 42204, "Invalid consumer configuration: "),
}
_OF_RECORDS: dict[type[LogdbError], int] = {errors.AuthenticationFailed: 40101, errors.NotAuthorized: 40301}


def told(error: LogdbError) -> Exception:
    """The error in v2's form, or itself if v2 has no special form for it."""
    for kind, (status, code, sentence) in _NAMES.items():
        if isinstance(error, kind):
            return ApiError(status, code, f"{sentence}{error}")
    if isinstance(error, errors.Closed) or (code_of(error)[0] < 500 and not error.retriable):
        return error
    return ApiError(500, RETRIABLE_KAFKA_ERROR if error.retriable else KAFKA_ERROR, f"Kafka error: {error}")


def code_of_record(error: LogdbError) -> int:
    """The code of a record that was not written."""
    return _OF_RECORDS.get(type(error), RETRIABLE_KAFKA_ERROR if error.retriable else KAFKA_ERROR)


def telling(handler: Handler) -> Handler:
    """A handler whose errors have v2's form, in its media type unless the client accepts only plain JSON."""

    @functools.wraps(handler)
    async def handle(request: Request) -> web.StreamResponse:
        with contextlib.suppress(ApiError):
            request.error_type = V2
            request.error_type = accepted(request.http.headers.get("Accept"), CONTROL)
        try:
            return await handler(request)
        except LogdbError as error:
            raise told(error) from error

    return handle
