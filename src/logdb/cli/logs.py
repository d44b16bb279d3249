"""What the library logs, on stderr: in words for who called a verb, and line by line with time and level for a server.

Knows forms.  Does not know who logs what.
"""

import contextlib
import datetime
import json
import logging
from collections.abc import Iterator

from logdb.cli.output import say, warn


class _Words(logging.Handler):
    """A warning, as the command's own are shown."""

    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


class _Lines(logging.Handler):
    """What happened when, how bad it is, and who says so: ``TIME LEVEL LOGGER: MESSAGE``, or an object of JSON."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def emit(self, record: logging.LogRecord) -> None:
        line = {
            "time": datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = logging.Formatter().formatException(record.exc_info)
        if self._as_json:
            say(json.dumps(line, ensure_ascii=False))
        else:
            say("{time} {level} {logger}: {message}".format_map(line) + (f"\n{line['traceback']}" if "traceback" in line else ""))


def words() -> contextlib.AbstractContextManager[None]:
    """While this lasts, warnings are shown in words."""
    return _shown(_Words())


def lines(*, as_json: bool) -> contextlib.AbstractContextManager[None]:
    """While this lasts, each warning is a line with time and level."""
    return _shown(_Lines(as_json=as_json))


@contextlib.contextmanager
def _shown(handler: logging.Handler) -> Iterator[None]:
    """Have everything logged go to ``handler`` in place of the one before it."""
    root = logging.getLogger()
    others = [one for one in root.handlers if isinstance(one, _Words | _Lines)]
    for one in others:
        root.removeHandler(one)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        for one in others:
            root.addHandler(one)
