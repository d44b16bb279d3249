"""The library's log messages on stderr: as text for a verb, as lines with time and level for a server."""

import contextlib
import datetime
import logging
from collections.abc import Iterator

from logdb.cli.terminal.output import json_text, say, warn

_OWN, _ROOT = ("logdb", "logdb_http_api", "logdb_kafka_api", "logdb_replication", "logdb_connect", "logdb_spark_source"), ""


class _Words(logging.Handler):
    """A warning, in the form of the command's own."""

    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


class _Lines(logging.Handler):
    """Time, level, logger and message: ``TIME LEVEL LOGGER: MESSAGE``, or an object of JSON."""

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
            say(json_text(line))
        else:
            say("{time} {level} {logger}: {message}".format_map(line), *line.get("traceback", "").splitlines())


def words() -> contextlib.AbstractContextManager[None]:
    """Within the block, logdb's own warnings are printed as text; other loggers are unchanged."""
    return _shown(_Words(), *_OWN)


def lines(*, as_json: bool) -> contextlib.AbstractContextManager[None]:
    """Within the block, each warning of any logger is a line with time and level."""
    return _shown(_Lines(as_json=as_json), _ROOT)


@contextlib.contextmanager
def _shown(handler: logging.Handler, *names: str) -> Iterator[None]:
    """Send the messages of these loggers to ``handler`` instead of the handler before."""
    with contextlib.ExitStack() as stack:
        for logger in map(logging.getLogger, (*_OWN, _ROOT)):
            for other in [one for one in logger.handlers if isinstance(one, _Words | _Lines)]:
                logger.removeHandler(other)
                stack.callback(logger.addHandler, other)
        for logger in map(logging.getLogger, names):
            logger.addHandler(handler)
            stack.callback(logger.removeHandler, handler)
        yield
