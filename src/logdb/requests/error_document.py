"""An error of logdb as a document, from which a client raises the same error again: its class, message, fields and notes."""

from typing import Any

from logdb import errors
from logdb.errors import LogdbError

_PLAIN = (str, int, float, type(None))


def document(error: LogdbError) -> dict[str, Any]:
    """The error as a value of JSON."""
    fields = {name: _plain(value) for name, value in vars(error).items() if not name.startswith("_")}
    found = {"message": str(error), "error": type(error).__name__, "fields": fields}
    notes = getattr(error, "__notes__", None)
    return found | {"notes": list(map(str, notes))} if notes else found


def _plain(value: object) -> Any:
    if isinstance(value, range):
        return [value.start, value.stop]
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value if isinstance(value, _PLAIN) else str(value)


def rebuild(body: object) -> LogdbError | None:
    """The error that ``document`` was given; None if it was not one of logdb's.

    Args:
        body: Any JSON.
    """
    if not isinstance(body, dict):
        return None
    kind = getattr(errors, str(body.get("error")), None)
    if not (isinstance(kind, type) and issubclass(kind, LogdbError)):
        return None
    error = kind.__new__(kind)
    error.args = (str(body.get("message")),)
    fields, notes = body.get("fields"), body.get("notes")
    if isinstance(fields, dict):
        vars(error).update({name: _tupled(value) for name, value in fields.items() if _is_field(kind, name)})
        if fields.get("retriable") is False:
            error.retriable = False
        match fields.get("offsets"):
            case [int(first), int(stop)]:
                error.offsets = range(first, stop)
    for note in notes if isinstance(notes, list) else ():
        error.add_note(str(note))
    return error


def _is_field(kind: type[LogdbError], name: str) -> bool:
    return name.isidentifier() and not name.startswith("_") and not hasattr(kind, name)


def _tupled(value: object) -> object:
    return tuple(map(_tupled, value)) if isinstance(value, list) else value
