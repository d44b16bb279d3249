"""The audit log: a line for each denied request, each failed authentication, and each change of users, tokens, ACLs and quotas.

A change of a topic's configs that decide which records are deleted is a line, too.

At most ``LINE_COUNT_MAX`` refusals are written in a second; every change is.  No payload, password or token reaches this module.

    logdb.audit: principal=User:eve host=10.0.0.7 operation=Write resource=Topic:'orders' allowed=no
    logdb.audit: host=10.0.0.7 user='eve' authenticated=no reason='wrong password'
    logdb.audit: principal=User:root host=10.0.0.7 change=add_acls of="Allow User:alice@* Read Topic 'orders'"
    logdb.audit: 1250 more refusals in the last 1000 ms

Names are quoted, so that a line break in a name begins no second line.
"""

import logging
from collections.abc import Callable

from logdb.line_limit import LineLimit
from logdb.requests.principals import Principal

logger = logging.getLogger("logdb.audit")

LINE_COUNT_MAX = 100
"""Lines of refusals in a second."""
_WINDOW_MS = 1_000
_LENGTH_MAX = 200


class Audit:
    """Writes the lines of one access control.

    Threading: any number of threads.
    """

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._limit = LineLimit(logger, "refusals", monotonic_ms, count_max=LINE_COUNT_MAX, window_ms=_WINDOW_MS)

    def refused(self, principal: Principal, host: str, operation: str, resource_type: str, name: str) -> None:
        """An operation was denied to a principal."""
        if self._limit.may_write():
            resource = f"{resource_type}:{_quoted(name)}"
            logger.warning("principal=%s host=%s operation=%s resource=%s allowed=no", _plain(str(principal)), host, operation, resource)

    def not_authenticated(self, host: str, user: str | None, reason: str) -> None:
        """An authentication failed; ``user`` is None where the client gave no name (a token)."""
        if self._limit.may_write():
            who = "" if user is None else f" user={_quoted(user)}"
            logger.warning("host=%s%s authenticated=no reason=%s", host, who, _quoted(reason))

    def changed(self, principal: Principal, host: str, change: str, of: str) -> None:
        """A principal changed users, tokens, ACLs or quotas."""
        logger.warning("principal=%s host=%s change=%s of=%s", _plain(str(principal)), host, change, _quoted(of))


def _plain(text: str) -> str:
    """A name as it is, unless a part of it could be taken for another field."""
    return text if text.isascii() and text.isprintable() and " " not in text and len(text) <= _LENGTH_MAX else _quoted(text)


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _LENGTH_MAX else text[:_LENGTH_MAX] + "…")
