"""Answers of a server: their JSON, every part of which may be wrong, and the errors that they stand for."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from logdb.errors import AuthenticationFailed, Closed, InvalidAnswer, LogdbError
from logdb.requests import coding
from logdb.requests.error_document import rebuild


class HttpAnswer(NamedTuple):
    """The answer of a server."""

    url: str
    status: int
    headers: Mapping[str, str]  # by names in lower case
    body: bytes | memoryview

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            InvalidAnswer: The body is not JSON.
        """
        try:
            return json.loads(bytes(self.body))
        except (ValueError, RecursionError) as error:
            raise InvalidAnswer(self.url, f"no JSON: {error}") from None

    def decoded(self, kind: Any) -> Any:
        """The body as a value of that type.

        Raises:
            InvalidAnswer: The body is not one.
        """
        try:
            return coding.decode_answer(kind, self.body)
        except (ValueError, RecursionError) as error:
            raise InvalidAnswer(self.url, str(error)) from None

    def number(self, header: str) -> int:
        """A header that is a whole number, 0 or more.

        Raises:
            InvalidAnswer: The header is absent, or not one.
        """
        given = self.headers.get(header.lower())
        if given is None or not (given.isascii() and given.isdigit() and len(given) <= 19):
            raise InvalidAnswer(self.url, f"the header {header} is {given!r:.40}: must be a number")
        return int(given)


class RefusedUnread(Exception):
    """The server was full, or about to stop, and has not begun the request.

    Attributes:
        error: What it said.
    """

    def __init__(self, error: LogdbError) -> None:
        super().__init__(str(error))
        self.error = error


def check(answer: HttpAnswer) -> None:
    """Raise the error of an answer with a status of 400 or more; RefusedUnread: see there."""
    if answer.status < 400:
        return
    error = _refusal(answer)
    raise RefusedUnread(error) if error.offsets is None and _is_refused_unread(answer) else error


def _refusal(answer: HttpAnswer) -> LogdbError:
    """The error of an answer with a status of 400 or more."""
    try:
        body = json.loads(bytes(answer.body))
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        shown = bytes(answer.body[:200]).decode(errors="replace")
        return InvalidAnswer(answer.url, f"status {answer.status}: {shown!r}")
    error = rebuild(body)
    if error is not None:
        return error
    message = str(body.get("message"))[:1000]
    if answer.status == 401:
        return AuthenticationFailed(message)
    return InvalidAnswer(answer.url, f"status {answer.status}: {message}")


def _is_refused_unread(answer: HttpAnswer) -> bool:
    if answer.status != 503:
        return False
    try:
        body = json.loads(bytes(answer.body))
    except (ValueError, RecursionError):
        return False
    return isinstance(body, dict) and body.get("error") in (None, Closed.__name__)
