"""HTML of objects for notebooks.  Names, keys and values come from clients: every cell is escaped."""

import datetime
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape

_TEXT_COUNT_MAX = 200  # characters of a cell, and bytes of a key or value
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _TEXT_COUNT_MAX


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; numbers are right-aligned, and have thin spaces between thousands."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<div><code>{escape(_cut(title))}</code><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def configs(given: Mapping[str, object]) -> str:
    """The configs of a topic, in one cell."""
    return ", ".join(f"{name}={value}" for name, value in given.items())


def moment(timestamp_ms: int) -> str:
    """The time of a record, in UTC; "" without one."""
    try:
        return "" if timestamp_ms == -1 else str(_EPOCH + datetime.timedelta(milliseconds=timestamp_ms))
    except OverflowError:
        return str(timestamp_ms)


def _cell(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= 64:
        return f'<td style="text-align:right">{value:,}</td>'.replace(",", "\u2009")
    return f'<td style="text-align:left">{escape(_text(value))}</td>'


def _text(value: object) -> str:
    """A part of the value; characters that are no text, or that turn its direction, are shown by their numbers."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        value, more = value[:_TEXT_COUNT_MAX], len(value) > _TEXT_COUNT_MAX
        return f"{value!r}…" if more else repr(value)
    if isinstance(value, str):
        return _cut(value)
    try:
        return _cut(_REPR.repr(value))
    except ValueError:  # a number of thousands of digits
        return f"<{type(value).__name__}>"


def _cut(text: str) -> str:
    shown = text[:_TEXT_COUNT_MAX]
    return (shown if shown.isprintable() else repr(shown)) + ("…" if len(text) > _TEXT_COUNT_MAX else "")
