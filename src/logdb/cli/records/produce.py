"""``logdb produce``: lines of stdin, of files, or of a growing file become records.  ``lines`` parses a line."""

import contextlib
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import repeat
from types import FrameType
from typing import TYPE_CHECKING

import click

import logdb
from logdb.cli.kafka.formats import unescape
from logdb.cli.kafka.lines import PROPERTIES, BadLine, Columns, LineFormat, LineParser, Splitter
from logdb.cli.records.record_files import EnvelopeFormat, is_envelope_line
from logdb.cli.terminal.output import counted, emit, progress, say, size_text
from logdb.cli.terminal.params import PAIR, TOPIC, JavaClass, Pairs
from logdb.cli.terminal.properties import read as read_properties
from logdb.cli.terminal.session import Session, common, pass_session
from logdb.cli.terminal.units import WholeNumber
from logdb.errors import InvalidTopic, LogdbError, RecordTooLarge, UnknownTopic
from logdb.mistakes import one_of
from logdb.model import DURABILITY_LEVELS, TOPIC_CONFIGS, Durability, RecordMetadata
from logdb.requests.report import Progress

if TYPE_CHECKING:
    from logdb.client.producer.transaction import Transaction

CHUNK_SIZE = 1 << 20
TRANSACTION_TIMEOUT_MS = 900_000  # the most that is allowed: input may be slow
POLL_INTERVAL_S = 0.05
OVERHEAD_BYTES = 1000  # of a record batch with one record, and more than that


# ---------------------------------------------------------------- where bytes come from


def read_chunks(path: str) -> Iterator[bytes]:
    """The bytes of a file or of stdin (``-``), as soon as they are available, so that a slow pipe is not delayed."""
    if path == "-":
        stdin = sys.stdin.buffer
        assert isinstance(stdin, io.BufferedIOBase)
        while chunk := stdin.read1(CHUNK_SIZE):
            yield chunk
        return
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_SIZE):
            yield chunk


def tail(path: str, wait: threading.Event | None = None) -> Iterator[bytes | None]:
    """The bytes of a growing file, forever; None where a line ends although its file has no newline.

    A replaced file (log rotation) is read to its end before the new one is begun; a truncated one is read
    from its begin; a missing one is awaited.

    Args:
        wait: Ends the iteration when it is set and everything available was read.
    """
    while True:
        try:
            with open(path, "rb") as file:
                yield from _tail_one(file.fileno(), path, wait)
        except FileNotFoundError:
            pass
        if wait is not None and wait.is_set():
            return
        time.sleep(POLL_INTERVAL_S)


def _tail_one(fd: int, path: str, wait: threading.Event | None) -> Iterator[bytes | None]:
    position = 0
    while True:
        replaced = _replaced(fd, path)  # checked before reading: then the whole old file is read
        while chunk := os.pread(fd, CHUNK_SIZE, position):
            position += len(chunk)
            yield chunk
        if os.fstat(fd).st_size < position:
            say(f"{path} was truncated: reading it from its begin")
            position = 0
            yield None
        elif replaced or (wait is not None and wait.is_set()):
            yield None
            return
        else:
            time.sleep(POLL_INTERVAL_S)


def _replaced(fd: int, path: str) -> bool:
    try:
        return not os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return True


# ---------------------------------------------------------------- where records go


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM until the end of the block, so that the count of records is true."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        caught.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if caught:
            signal.raise_signal(caught[0])


class Sink:
    """Appends lines to a topic, and counts them."""

    def __init__(
        self, db: "logdb.Database", topic: str, partition: int | None, durability: Durability | None, line_format: LineParser
    ) -> None:
        info = db.describe_topic(topic)
        if info.internal:
            raise InvalidTopic(topic, "logdb alone writes to it")
        if partition is None and info.partition_count == 1:
            partition = 0
        self._db, self._topic, self._durability, self._format = db, topic, durability, line_format
        self._log = None if partition is None else db.log(topic, partition)
        self._line_count = 0
        self._size_bytes_max = int(info.config.get("max.message.bytes", TOPIC_CONFIGS["max.message.bytes"].default)) - OVERHEAD_BYTES
        self.record_count = 0
        self.size_bytes = 0
        self.ranges: dict[int, tuple[int, int]] = {}  # partition -> first and last offset appended

    def lines(self, lines: Sequence[bytes]) -> None:
        """Append one record per line; they are written when this returns.

        Raises:
            click.ClickException: A line lacks a separator; the lines before it were appended.
            RecordTooLarge: So is a line; the lines before it were appended.
        """
        size_bytes = sum(map(len, lines))
        if size_bytes <= self._size_bytes_max:
            self._append_lines(lines, size_bytes)
            return
        begin = 0
        for number, line in enumerate(lines):
            if len(line) > self._size_bytes_max:  # alone, so that an error is of this line
                self._append_lines(lines[begin:number])
                self._append_lines([line])
                begin = number + 1
        self._append_lines(lines[begin:])

    def _append_lines(self, lines: Sequence[bytes], size_bytes: int | None = None) -> None:
        if not lines:
            return
        if not self._line_count and isinstance(self._format, LineFormat) and is_envelope_line(lines[0]):
            say("line 1 is one of consume --json, and becomes a value as it is; -J appends its record")
        try:
            columns = self._format.parse(lines, self._line_count + 1)
        except BadLine as error:
            self._append_lines(lines[: error.number - self._line_count - 1])
            raise click.ClickException(f"{error}; {self.outcome()}") from None
        self._line_count += len(lines)
        with uninterrupted():
            try:
                self._append(columns)
            except RecordTooLarge as error:
                error.add_note(
                    f"record {self._line_count} of the input, to topic {self._topic}" if len(lines) == 1 else f"to topic {self._topic}"
                )
                raise
            self.record_count += len(lines)
            self.size_bytes += sum(map(len, lines)) if size_bytes is None else size_bytes

    def finish(self) -> None:
        """All lines were appended."""

    def outcome(self) -> str:
        """The message about records appended before an error."""
        return f"{counted(self.record_count, 'record')} appended before it"

    def _append(self, columns: Columns) -> None:
        if self._log is not None:
            offsets = self._log.append_many(
                columns.values,
                keys=columns.keys,
                headers=columns.headers,
                timestamps_ms=columns.timestamps_ms,
                durability=self._durability,
            )
            self._note(self._log.partition, offsets[0], offsets[-1])
            return
        for where in self._db.append_many(
            self._topic,
            columns.values,
            keys=columns.keys,
            headers=columns.headers,
            timestamps_ms=columns.timestamps_ms,
            durability=self._durability,
        ):
            self._note(where.partition, where.offset, where.offset)

    def _note(self, partition: int, first_offset: int, last_offset: int) -> None:
        first, _ = self.ranges.get(partition, (first_offset, 0))
        self.ranges[partition] = (first, last_offset)


class TransactionSink(Sink):
    """Appends all lines in one transaction, committed at the end of the call."""

    def __init__(
        self, db: "logdb.Database", topic: str, partition: int | None, line_format: LineParser, transaction: "Transaction"
    ) -> None:
        super().__init__(db, topic, partition, None, line_format)
        self._transaction, self._partition = transaction, partition
        self._delivered: list[RecordMetadata] = []

    def outcome(self) -> str:
        return f"the transaction was aborted with {counted(self.record_count, 'record')}"

    def _append(self, columns: Columns) -> None:
        rows = zip(
            columns.values, columns.keys or repeat(None), columns.headers or repeat(()), columns.timestamps_ms or repeat(None), strict=False
        )
        for value, key, headers, at in rows:
            self._transaction.send(
                self._topic,
                value,
                key,
                partition=self._partition,
                headers=headers,
                timestamp_ms=at,
                on_delivery=self._note_delivery,
            )

    def _note_delivery(self, _error: Exception | None, where: RecordMetadata | None) -> None:
        if where is not None:
            self._delivered.append(where)

    def finish(self) -> None:
        for where in self._delivered:
            self._note(where.partition, where.offset, where.offset)


def feed(sink: Sink, paths: Sequence[str], splitter: Splitter, *, whole: bool, bar: Progress | None) -> None:
    """Append the lines of files, one after the other, or each file as one record."""
    total_bytes = sum(os.path.getsize(path) for path in paths if path != "-")
    done_bytes = 0
    for path in paths:
        if whole:
            sink.lines([b"".join(read_chunks(path))])
            continue
        for chunk in read_chunks(path):
            sink.lines(splitter.feed(chunk))
            done_bytes += len(chunk)
            if bar is not None:
                bar(done_bytes, total_bytes, os.path.basename(path))
        sink.lines(splitter.finish())


def feed_tail(sink: Sink, path: str, splitter: Splitter) -> None:
    """Append the lines of a growing file, until interrupted."""
    for chunk in tail(path):
        sink.lines(splitter.finish() if chunk is None else splitter.feed(chunk))


# ---------------------------------------------------------------- the verb


def line_format(key_separator: str | None, key: str | None, headers: Pairs, null_marker: str | None, properties: Pairs) -> LineFormat:
    """The form of lines from the options; properties are the console producer's.

    Raises:
        click.BadParameter: An unknown property.
    """
    given = dict(properties)
    for name in given:
        if name not in PROPERTIES:
            raise click.BadParameter(f"property {name!r}: must be {one_of(PROPERTIES)}", param_hint="--property")
    if key_separator is None and given.get("parse.key", "").lower() == "true":
        key_separator = given.get("key.separator", "\\t")
    marker = given.get("null.marker", null_marker)
    return LineFormat(
        key_separator=None if key_separator is None else unescape(key_separator),
        parse_headers=given.get("parse.headers", "").lower() == "true",
        headers_delimiter=unescape(given.get("headers.delimiter", "\\t")),
        headers_separator=unescape(given.get("headers.separator", ",")),
        headers_key_separator=unescape(given.get("headers.key.separator", ":")),
        null_marker=None if marker is None else marker.encode(),
        lenient=given.get("ignore.error", "").lower() == "true",
        key=None if key is None else key.encode(),
        headers=tuple((name, value.encode()) for name, value in headers),
    )


def transaction_of(db: "logdb.Database", transactional_id: str | None) -> "contextlib.AbstractContextManager[Transaction | None]":
    """The transaction of the call; None without an id."""
    if transactional_id is None:
        return contextlib.nullcontext()
    return db.transaction(transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)


def open_sink(
    db: "logdb.Database",
    topic: str,
    partition: int | None,
    durability: Durability | None,
    line: LineParser,
    transaction: "Transaction | None",
) -> Sink:
    """The target of the lines.

    Raises:
        UnknownTopic: With a note that says how to create it.
    """
    try:
        if transaction is not None:
            return TransactionSink(db, topic, partition, line, transaction)
        return Sink(db, topic, partition, durability, line)
    except UnknownTopic as error:
        error.add_note(f"create it: logdb topics create {topic}")
        raise


def summary(session: Session, topic: str, sink: Sink, seconds: float) -> None:
    if session.as_json:
        partitions = [
            {"partition": partition, "first_offset": first, "last_offset": last} for partition, (first, last) in sorted(sink.ranges.items())
        ]
        emit({"topic": topic, "records": sink.record_count, "size_bytes": sink.size_bytes, "partitions": partitions})
    elif not session.kafka:
        say(f"appended {counted(sink.record_count, 'record')} ({size_text(sink.size_bytes)}) to {topic} in {seconds:.1f} s")


@click.command(short_help="Append lines of stdin or of files.")
@common
@click.argument("words", metavar="[TOPIC] [FILE]...", nargs=-1, type=TOPIC)
@click.option("-t", "--topic", type=TOPIC, help="The topic; all other arguments are then files.")
@click.option("-p", "--partition", type=WholeNumber(min=0), help="Append to this partition; without it the key chooses.")
@click.option("-K", "--key-separator", metavar="TEXT", help="A line is the key, this text, and the value.")
@click.option("-k", "--key", metavar="TEXT", help="The key of every record whose line has none.")
@click.option("-H", "--header", "headers", type=PAIR, multiple=True, help="A header of every record: -H source=web.")
@click.option("-D", "--delimiter", metavar="TEXT", default="\\n", help=r"The end of a line; \n, \t, \0, \xHH are understood.")
@click.option("-Z", "empty_is_null", is_flag=True, help="An empty key or value is null.")
@click.option("--null-marker", metavar="TEXT", help="A key or value equal to this text is null.")
@click.option("-J", "--envelope", is_flag=True, help="Lines are those of consume --json: key, value, headers and time of a record.")
@click.option("--whole", is_flag=True, help="Each file is one record.")
@click.option("-l", "by_lines", is_flag=True, hidden=True)  # kcat's "files are lines", the default here
@click.option("--follow", metavar="FILE", help="Append FILE's lines and wait for more, also after a rotation, until Ctrl-C.")
@click.option("--durability", type=click.Choice(DURABILITY_LEVELS), help="fsync: each record is on the disk before the next is read.")
@click.option("--property", "--reader-property", "properties", type=PAIR, multiple=True, help="A property of kafka-console-producer.")
@click.option("--reader-config", "properties_file", type=click.Path(exists=True, dir_okay=False), hidden=True)
@click.option("--line-reader", hidden=True, expose_value=False, type=JavaClass("org.apache.kafka.tools.LineMessageReader"))
@click.option("--request-required-acks", type=click.Choice(["0", "1", "-1", "all"]), hidden=True)  # a written record is acknowledged
@click.option("--sync", is_flag=True, hidden=True)  # records are always written in order
@click.option("--transactional-id", metavar="ID", help="Append all in one transaction of this id; fences the id's earlier producer.")
@click.option("-q", "--quiet", is_flag=True, help="No message at the end.")
@pass_session
def produce(
    session: Session,
    words: Sequence[str],
    topic: str | None,
    partition: int | None,
    key_separator: str | None,
    key: str | None,
    headers: Pairs,
    delimiter: str,
    empty_is_null: bool,
    null_marker: str | None,
    envelope: bool,
    whole: bool,
    by_lines: bool,
    follow: str | None,
    durability: Durability | None,
    properties: Pairs,
    properties_file: str | None,
    request_required_acks: str | None,
    sync: bool,
    transactional_id: str | None,
    quiet: bool,
) -> None:
    """Append records to a topic, one per line of stdin or of a file.

    The key chooses the partition, as in Kafka; records without a key go to
    partitions in turn, a batch each.
    """
    name, paths = (topic, words) if topic is not None else (words[0] if words else None, words[1:])
    if name is None:
        raise click.UsageError("name a topic")
    if follow is not None and paths:
        raise click.UsageError("--follow reads its own FILE: give no other")
    if transactional_id is not None and (follow is not None or durability is not None):
        raise click.UsageError("--transactional-id excludes --follow, which has no end, and --durability: a commit syncs")
    for path in paths:
        if path != "-" and not os.path.isfile(path):
            raise click.UsageError(f"no file {path!r}")
    properties = (*(read_properties(properties_file).items() if properties_file else ()), *properties)
    splitter = Splitter(unescape(delimiter), strip=b"\r" if session.kafka and delimiter == "\\n" else b"")  # as Java reads lines
    line: LineParser = line_format(key_separator, key, headers, "" if empty_is_null else null_marker, properties)
    if envelope:
        if key_separator or key or headers or empty_is_null or null_marker is not None or whole or properties:
            raise click.UsageError("-J: each line has its key, value and headers; give no option that does")
        line = EnvelopeFormat()
    if follow is None and not paths and sys.stdin.isatty() and not quiet:
        say("one record a line; Ctrl-D ends")
    session.follows = follow is not None
    began = time.monotonic()
    with session.write() as db:
        sink: Sink | None = None
        try:
            with transaction_of(db, transactional_id) as transaction:
                sink = open_sink(db, name, partition, durability, line, transaction)
                if follow is not None:
                    feed_tail(sink, follow, splitter)
                else:
                    with progress("appending") if paths else contextlib.nullcontext() as bar:
                        feed(sink, paths or ["-"], splitter, whole=whole, bar=bar)
            sink.finish()
        except LogdbError as error:
            if sink is not None:
                error.add_note(sink.outcome())
            raise
        finally:
            if sink is not None and sink.ranges and (not quiet or session.as_json):
                summary(session, name, sink, time.monotonic() - began)
