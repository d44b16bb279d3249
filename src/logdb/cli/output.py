"""Output: JSON for programs, tables for people, messages on stderr.  rich is imported only for a terminal."""

import base64
import contextlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from logdb.store.check.report import Progress


def say(text: str) -> None:
    """A message on stderr."""
    click.echo(text, err=True)


def warn(text: str) -> None:
    """An error on stderr."""
    click.echo(click.style("logdb: ", fg="red", bold=True) + text, err=True)


def emit(document: Any) -> None:
    """One JSON document on stdout: indented on a terminal, otherwise one line."""
    click.echo(json.dumps(document, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False))


def emit_line(document: Any) -> None:
    """One of several JSON documents on stdout, each on its own line."""
    click.echo(json.dumps(document, ensure_ascii=False))


def emit_error(document: Any) -> None:
    """One JSON document on stderr, on its own line; values that JSON lacks as text."""
    click.echo(json.dumps(document, ensure_ascii=False, default=str), err=True)


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


def counted(count: int, noun: str) -> str:
    """1 record; 2,000 records; 3 batches."""
    plural = "es" if noun.endswith(("ch", "s", "x")) else "s"
    return f"{count:,} {noun}{'' if count == 1 else plural}"


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """A table on stdout: drawn on a terminal, otherwise columns aligned by spaces.

    Numbers are right-aligned; in a drawn table, integers have commas.
    """
    if sys.stdout.isatty():
        _draw(columns, rows, title)
        return
    shown = [[str(cell) for cell in row] for row in [columns, *rows]]
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

    drawn = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", header_style="bold cyan")
    for number, name in enumerate(columns):
        drawn.add_column(name, justify="right" if _is_numeric(rows, number) else "left", overflow="fold", no_wrap=number == 0)
    for row in rows:
        # Text, not str: brackets in a name must not count as markup
        drawn.add_row(*(Text(f"{cell:,}" if isinstance(cell, int) else str(cell)) for cell in row))
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

    shown: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn(bar_width=20)]
    if sized:
        shown += [DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()]
    with Bars(*shown, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=None)

        def update(done_bytes: int, total_bytes: int, part: str) -> None:
            bars.update(task, completed=done_bytes, total=total_bytes or None, description=part or what)

        yield update
