"""``logdb import`` and ``logdb export``: files of records; ``record_files`` reads and writes them."""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import IO, TYPE_CHECKING, cast

import click

from logdb.cli.records.consume import offset_of
from logdb.cli.records.produce import uninterrupted
from logdb.cli.records.record_files import FORMATS, BadRow, Columns, Row, format_of, rows_of, write_csv, write_json
from logdb.cli.terminal.output import Stdout, counted, emit, say
from logdb.cli.terminal.params import SINCE, TARGET, TOPIC, OffsetSpec
from logdb.cli.terminal.session import Session, common, pass_session
from logdb.cli.terminal.units import WholeNumber
from logdb.errors import LogdbError
from logdb.model import INTERNAL_TOPICS, TOPIC_CONFIGS

if TYPE_CHECKING:
    import logdb
    from logdb.log.isolation import IsolationLevel

_ROW_COUNT = 5_000  # of one append
_ISOLATION: "IsolationLevel" = "read_committed"


@click.command("import", short_help="Append the rows of CSV, JSON lines or Parquet files.")
@common
@click.argument("topic", type=TOPIC)
@click.argument("paths", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--format", "kind", type=click.Choice([*FORMATS]), help="Format of the files; by default their names say it. FILE '-' is stdin."
)
@click.option("--key", metavar="COLUMN", help="The column, or field, that is the key; it stays in the value.")
@click.option("--timestamp", metavar="COLUMN", help="The column, or field, that is the time: ISO 8601, or a whole number: ms since 1970.")
@click.option("--null", metavar="TEXT", help=r"In CSV, a cell with this text is null, as \N is. --null '' makes empty cells null.")
@click.option("--values", is_flag=True, help="Each row is a value, also where the columns are those of an export.")
@click.option("--partitions", type=WholeNumber(min=1), help="Partitions of the topic if it is created.  [default: 1]")
@pass_session
def import_(
    session: Session,
    topic: str,
    paths: Sequence[str],
    kind: str | None,
    key: str | None,
    timestamp: str | None,
    null: str | None,
    values: bool,
    partitions: int | None,
) -> None:
    r"""Append the rows of files to a topic, which is created if it is missing.

    A file that 'logdb export' has written gives the same records, with new offsets. In any other file each row becomes a
    JSON object. In CSV, numbers become numbers, \N becomes null, and other cells strings: an empty cell is the
    string "". The key chooses the partition. A record with a null in the column of --timestamp gets the time of the import.

    A second import appends everything again. After an error the message says how many records were appended.
    """
    columns, count = Columns(key, timestamp, values, null), 0
    kinds = [format_of(path, kind) for path in paths]
    if null is not None and set(kinds) != {"csv"}:
        raise click.UsageError("--null is for CSV: JSON and Parquet have a null")
    with session.write(create=True) as db:
        db.create_topic(topic, partitions=1 if partitions is None else partitions, if_not_exists=True)
        try:
            for path, of_path in zip(paths, kinds, strict=True):
                try:
                    rows = rows_of(path, of_path, columns)
                    while taken := list(islice(rows, _ROW_COUNT)):
                        with uninterrupted():
                            _append(db, topic, taken)
                            count += len(taken)
                except BadRow as error:
                    raise click.ClickException(f"{path}: {error}; {counted(count, 'record')} appended before it") from None
            db.flush()
        except LogdbError as error:
            error.add_note(f"{counted(count, 'record')} appended before it")
            raise
    if session.as_json:
        emit({"topic": topic, "records": count})
    else:
        say(f"appended {counted(count, 'record')} to {topic}")


def _append(db: "logdb.Database", topic: str, rows: Sequence[Row]) -> None:
    timed = any(row.timestamp_ms is not None for row in rows)
    db.append_many(
        topic,
        [row.value for row in rows],
        [row.key for row in rows],
        headers=[row.headers for row in rows] if any(row.headers for row in rows) else None,
        timestamps_ms=[row.timestamp_ms for row in rows] if timed else None,
    )


@click.command(short_help="Write a topic into a CSV, JSON lines or Parquet file.")
@common
@click.argument("topic", type=TOPIC)
@click.argument("path", metavar="FILE", type=TARGET)
@click.option(
    "--format", "kind", type=click.Choice([*FORMATS]), help="Format of the file; by default its name says it. FILE '-' is stdout."
)
@click.option("--since", metavar="TIME", type=SINCE, help="Begin at a time, or this long ago: 2013-07-04, 2h, 7d.")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@pass_session
def export(session: Session, topic: str, path: str, kind: str | None, since: OffsetSpec | None, overwrite: bool) -> None:
    r"""Write all present records of a topic into a file.

    Its columns are partition, offset, timestamp, key, value and headers; in JSON lines the fields of 'consume --json'. Records
    of open and aborted transactions are left out. CSV holds text only, and null as \N.
    """
    of_path = format_of(path, kind)
    if path != "-" and os.path.lexists(path) and not overwrite:
        raise click.UsageError(f"{path} exists: give --overwrite to replace it")
    if path == "-" and of_path == "parquet":
        raise click.UsageError("Parquet needs a file")
    if topic in INTERNAL_TOPICS:
        raise click.UsageError(f"{topic} is internal: 'logdb dump' shows it")
    with session.read() as db:
        try:
            count = _export(db, topic, path, of_path, since)
        except BadRow as error:
            raise click.ClickException(str(error)) from None
    if path == "-":
        return
    if session.as_json:
        emit({"topic": topic, "records": count, "path": path})
    else:
        say(f"wrote {counted(count, 'record')} of {topic} to {path}")


def _export(db: "logdb.Database", topic: str, path: str, kind: str, since: OffsetSpec | None) -> int:
    """Write the file; returns the number of records."""
    start = None
    if since is not None:
        start = {number: offset_of(db.log(topic, number), since) for number in range(db.describe_topic(topic).partition_count)}
    if kind == "parquet":
        from logdb.codec import parquet  # needs pyarrow

        reader = db.read_arrow(topic, start=start, isolation_level=_ISOLATION)
        with _replacing(path) as out:
            return parquet.write_file(out, reader)
    default = str(TOPIC_CONFIGS["message.timestamp.type"].default)
    timestamp_type = str(db.describe_topic(topic).config.get("message.timestamp.type", default))
    records = db.read(topic, start=start, isolation_level=_ISOLATION)
    with _replacing(path) as out:
        if kind == "jsonl":
            return write_json(out, records, timestamp_type, topic)
        import io

        text = io.TextIOWrapper(out, encoding="utf-8", newline="")
        try:
            return write_csv(text, records)
        finally:
            text.flush()
            text.detach()


@contextlib.contextmanager
def _replacing(path: str) -> Iterator[IO[bytes]]:
    """A file that gets its name at the end of the block, so that a failed export leaves none; ``-``: stdout."""
    if path == "-":
        yield cast(IO[bytes], Stdout())
        sys.stdout.buffer.flush()
        return
    part = f"{path}.part"
    try:
        with open(part, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = path  # a write names no file
        raise
