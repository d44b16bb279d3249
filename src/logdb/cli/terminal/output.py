"""Output: JSON for programs, tables for people, messages on stderr.  rich is imported only for a terminal.

Every command prints through this module.  Names, ids, hosts, headers and messages come from clients, so nothing that a
terminal obeys leaves it: ``visible`` stands in front of each line, cell, message and document.
"""

import base64
import contextlib
import datetime
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from logdb.requests.report import Progress

# What a terminal obeys or hides: control characters, line and paragraph separators, marks that turn the direction of text or have no
# width, tags, halves of surrogate pairs.
_HIDDEN = (
    r"\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
)
_IN_LINE, _IN_TEXT = re.compile(f"[{_HIDDEN}]"), re.compile(rf"(?![\n\t])[{_HIDDEN}]")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return _SHORT.get(found[0], f"\\x{number:02x}") if number < 0x80 else _escape_json(found)


def _escape_json(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number < 0x10000:
        return f"\\u{number:04x}"
    high, low = divmod(number - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def visible(text: object) -> str:
    r"""Text of a client for one line; a character that a terminal obeys or hides becomes ``\x1b``, ``\n``, ``\u202e``."""
    shown = str(text)
    return shown if shown.isprintable() else _IN_LINE.sub(_escape, shown)


def visible_text(text: str) -> str:
    """As ``visible``, for several lines: line ends and tabs stay."""
    return _IN_TEXT.sub(_escape, text)


def visible_bytes(data: bytes) -> str:
    r"""As ``visible``, for the bytes of a record; ``\xff`` for a byte that is not UTF-8."""
    return visible(data.decode(errors="backslashreplace"))


def line(*texts: str) -> None:
    """Each text as a line on stdout; a tab stays."""
    if texts:
        click.echo("\n".join("\t".join(map(visible, text.split("\t"))) for text in texts))


def heading(title: str, more: str) -> None:
    """A line on stdout whose first words are bold on a terminal."""
    click.echo(click.style(visible(title), bold=True) + visible(more))


def styled(text: str) -> None:
    """Text of the program itself on stdout, with its colors on a terminal."""
    click.echo(text)


def write_data(content: bytes) -> None:
    """Content of records or files on stdout: as it is for a program, and visible on a terminal."""
    out = sys.stdout.buffer
    out.write(visible_text(content.decode(errors="backslashreplace")).encode() if sys.stdout.isatty() else content)


class Stdout(io.RawIOBase):
    """``write_data`` as a file."""

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        write_data(bytes(content))
        return len(content)


def clear() -> None:
    """Clear stdout if it is a terminal."""
    if sys.stdout.isatty():
        click.echo("\x1b[H\x1b[2J", nl=False)


def say(*texts: str) -> None:
    """A message on stderr, each text on its own line."""
    click.echo("\n".join(map(visible, texts)), err=True)


def warn(text: str) -> None:
    """An error on stderr."""
    click.echo(click.style("logdb: ", fg="red", bold=True) + visible(text), err=True)


def asked(question: str, *, confirmed: bool = False) -> str:
    """A secret that the person at the terminal types."""
    return str(click.prompt(visible(question), hide_input=True, confirmation_prompt=confirmed, err=True))


def json_text(document: Any, *, indent: int | None = None, compact: bool = False, default: Callable[[object], object] | None = None) -> str:
    """A document as JSON, with escapes for what a terminal obeys; ``default``: what to write of a value that JSON lacks."""
    separators = (",", ":") if compact else None
    text = json.dumps(document, indent=indent, separators=separators, ensure_ascii=False, default=default)
    return text if text.isprintable() else _IN_TEXT.sub(_escape_json, text)


def emit(document: Any) -> None:
    """One JSON document on stdout: indented on a terminal, otherwise one line."""
    click.echo(json_text(document, indent=2 if sys.stdout.isatty() else None))


def emit_line(document: Any) -> None:
    """One of several JSON documents on stdout, each on its own line."""
    click.echo(json_text(document))


def emit_error(document: Any) -> None:
    """One JSON document on stderr, on its own line; values that JSON lacks as text."""
    click.echo(json_text(document, default=str), err=True)


def text_or_base64(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes for JSON: text where they are UTF-8, else {"base64": ...}."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def quoted(data: bytes) -> str:
    """Bytes for a message: as text where they are UTF-8, with backslashes for what cannot be seen."""
    try:
        return repr(data.decode())
    except UnicodeDecodeError:
        return repr(data)[1:]


def size_text(size_bytes: int) -> str:
    """A size for people: 812 B, 1.2 MB (powers of 1,000)."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    size = float(size_bytes)
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 999.95:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:.1f} TB"


def time_text(ms: int) -> str:
    """A time for people, UTC; - without one."""
    return "-" if ms < 0 else datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).isoformat(timespec="milliseconds")


def counted(count: int, noun: str) -> str:
    """1 record; 2,000 records; 3 batches."""
    plural = "es" if noun.endswith(("ch", "s", "x")) else "s"
    return f"{count:,} {noun}{'' if count == 1 else plural}"


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """A table on stdout: drawn on a terminal, otherwise columns aligned by spaces.

    Columns have their names in capital letters.  Numbers are right-aligned; in a drawn table, integers have commas.
    """
    columns = [name.upper() for name in columns]
    if sys.stdout.isatty():
        _draw(columns, rows, title)
        return
    shown = [[visible(cell) for cell in row] for row in [columns, *rows]]
    numeric = [_is_numeric(rows, column) for column in range(len(columns))]
    widths = [max(len(row[column]) for row in shown) for column in range(len(columns))]
    for row in shown:
        cells = (cell.rjust(width) if right else cell.ljust(width) for cell, width, right in zip(row, widths, numeric, strict=True))
        click.echo("  ".join(cells).rstrip())


def _is_numeric(rows: Sequence[Sequence[object]], column: int) -> bool:
    """Whether all cells of a column are numbers, or sizes."""
    return bool(rows) and all(_NUMERIC.fullmatch(str(row[column])) for row in rows)


_NUMERIC = re.compile(r"-?[\d.,]+( [kMGT]?B)?")


def _draw(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str | None) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown_title = None if title is None else Text(visible(title))
    drawn = Table(box=box.SIMPLE_HEAD, title=shown_title, title_justify="left", title_style="bold", header_style="bold cyan")
    for number, name in enumerate(columns):
        drawn.add_column(Text(name), justify="right" if _is_numeric(rows, number) else "left", overflow="fold", no_wrap=number == 0)
    for row in rows:
        # Text, not str: brackets in a name must not count as markup
        drawn.add_row(*(Text(f"{cell:,}" if isinstance(cell, int) else visible(cell)) for cell in row))
    Console().print(drawn)


@contextlib.contextmanager
def progress(what: str, *, sized: bool = True) -> Iterator[Progress | None]:
    """A progress bar on stderr; None if stderr is not a terminal.

    Args:
        sized: The steps are bytes, so that a speed can be shown.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, ProgressColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    shown: list[ProgressColumn] = [TextColumn("{task.description}", markup=False), BarColumn(bar_width=20)]
    if sized:
        shown += [DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()]
    with Bars(*shown, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=None)

        def update(done_bytes: int, total_bytes: int, part: str) -> None:
            bars.update(task, completed=done_bytes, total=total_bytes or None, description=visible(part or what))

        yield update
