"""HTML of objects for notebooks.  Names and values come from clients: every cell is escaped."""

from collections.abc import Iterable, Sequence
from html import escape


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; numbers are right-aligned, and have thin spaces between thousands."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<div><code>{escape(title)}</code><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f'<td style="text-align:right">{value:,}</td>'.replace(",", "\u2009")
    return f'<td style="text-align:left">{escape(str(value))}</td>'
