"""What a server says, and what of it is an error.

Knows the JSON of answers and that all of it may be wrong.  Does not know connections.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from logdb.errors import AuthenticationFailed, Closed, InvalidAnswer, LogdbError
from logdb.requests import coding
from logdb_http_api.errors import rebuild


class Answer(NamedTuple):
    """What a server said."""

    url: str
    status: int
    headers: Mapping[str, str]  # by names in lower case
    body: bytes | memoryview

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            InvalidAnswer: It is none.
        """
        try:
            return json.loads(bytes(self.body))
        except (ValueError, RecursionError) as error:
            raise InvalidAnswer(self.url, f"no JSON: {error}") from None

    def decoded(self, kind: Any) -> Any:
        """The body as a value of that type.

        Raises:
            InvalidAnswer: It is none.
        """
        try:
            return coding.decode(kind, self.body)
        except (ValueError, RecursionError) as error:
            raise InvalidAnswer(self.url, str(error)) from None

    def number(self, header: str) -> int:
        """A header that is a whole number, 0 or more.

        Raises:
            InvalidAnswer: It is none.
        """
        given = self.headers.get(header.lower())
        if given is None or not (given.isascii() and given.isdigit() and len(given) <= 19):
            raise InvalidAnswer(self.url, f"the header {header} is {given!r:.40}, wanted is a number")
        return int(given)


def refusal(answer: Answer) -> LogdbError:
    """The error that an answer with a status of 400 or more stands for."""
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
    return LogdbError(f"the server refused the request ({answer.status}): {message}")


def is_refused_unread(answer: Answer) -> bool:
    """Whether the server has no room for the request now, or is about to end, and has done nothing of it."""
    if answer.status != 503:
        return False
    try:
        body = json.loads(bytes(answer.body))
    except (ValueError, RecursionError):
        return False
    return isinstance(body, dict) and body.get("error") in (None, Closed.__name__)
