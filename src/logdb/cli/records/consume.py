"""``logdb consume``: records of a topic to stdout, once or forever.  ``formats`` writes a record."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

import logdb
from logdb.cli.kafka.formats import Record, Render, console, envelope, kcat
from logdb.cli.records import consume_group
from logdb.cli.terminal.output import say, write_data
from logdb.cli.terminal.params import OFFSET_SPEC, PAIR, SINCE, TIME, TOPIC, JavaClass, OffsetSpec, Pairs, matching_names
from logdb.cli.terminal.properties import read as read_properties
from logdb.cli.terminal.session import Session, common, pass_session
from logdb.cli.terminal.units import MILLISECONDS, WholeNumber
from logdb.cli.terminal.waiting import wait
from logdb.errors import UnknownTopic
from logdb.mistakes import one_of
from logdb.model import TOPIC_CONFIGS

if TYPE_CHECKING:
    from logdb.log.isolation import IsolationLevel

WAIT_MS = 50  # per partition, while several are followed
FLUSH_COUNT = 512


# ---------------------------------------------------------------- which records


@dataclass
class Source:
    """One partition, the position in it, and the leader epoch of the record before, if this has read it (else -1)."""

    log: "logdb.Log"
    position: int
    end_offset: int | None  # None: the log end
    isolation_level: "IsolationLevel" = "read_uncommitted"
    leader_epoch: int = -1

    def read(self) -> Iterator[Record]:
        """The present records from ``position`` on."""
        if self.end_offset is not None and self.position >= self.end_offset:
            return
        level = self.isolation_level
        for record in self.log.read(self.position, end_offset=self.end_offset, leader_epoch=self.leader_epoch, isolation_level=level):
            self.position, self.leader_epoch = record.offset + 1, record.leader_epoch
            yield record

    def wait(self, timeout_ms: int) -> Record | None:
        """The next record, after a wait of that length at most."""
        for record in self.log.follow(self.position, timeout_ms=timeout_ms, isolation_level=self.isolation_level):
            self.position, self.leader_epoch = record.offset + 1, record.leader_epoch
            return record
        return None


def offset_of(log: "logdb.Log", place: OffsetSpec) -> int:
    """The present offset of a spec; the log end if no record is that late."""
    if place.kind == "beginning":
        return log.start_offset
    if place.kind == "offset":
        return place.number
    if place.kind == "tail":
        return max(log.start_offset, log.end_offset - place.number)
    found = log.offset_for_timestamp(place.number) if place.kind in ("from-time", "to-time") else None
    return log.end_offset if found is None else found


def stream(sources: Sequence[Source], *, follow: bool, timeout_ms: int | None) -> Iterator[Record | None]:
    """The records of all sources, and None when there are no more for now.

    Args:
        follow: At the end, wait for more records.
        timeout_ms: End when no record came for so long; None: wait forever.
    """
    idle_since, turn = time.monotonic(), 0
    while True:
        found = False
        for source in sources:
            for record in source.read():
                found = True
                yield record
        if not follow:
            return
        if found:
            idle_since = time.monotonic()
        yield None
        rest_ms = WAIT_MS if timeout_ms is None else min(WAIT_MS, timeout_ms - int(1000 * (time.monotonic() - idle_since)))
        if rest_ms <= 0:
            return
        next_record = sources[turn % len(sources)].wait(rest_ms)
        turn += 1
        if next_record is not None:
            idle_since = time.monotonic()
            yield next_record


def stream_of_server(sources: Sequence[Source], *, timeout_ms: int | None) -> Iterator[Record | None]:
    """As ``stream`` with ``follow``, for logs of a server: one request waits for all of them."""
    grown = threading.Event()
    with contextlib.ExitStack() as watches:
        for source in sources:
            source.log.watch(grown)
            watches.callback(source.log.unwatch, grown)
        idle_since = time.monotonic()
        while True:
            grown.clear()
            for source in sources:
                for record in source.read():
                    idle_since = time.monotonic()
                    yield record
            yield None
            rest_s = None if timeout_ms is None else timeout_ms / 1000 - (time.monotonic() - idle_since)
            if rest_s is not None and (rest_s <= 0 or not grown.wait(rest_s)):
                return
            wait(grown)


def write(records: Iterator[Record | None], render: Render, count_max: int | None, *, counted: bool = False) -> None:
    """Write records to stdout, and flush when there are no more for now, and at the end, also by an error or a signal.

    ``counted``: say at the end how many.
    """
    count = 0
    parts: list[bytes] = []

    def flush(*, through: bool) -> None:
        nonlocal count
        ready = b"".join(parts)
        count += len(parts)
        parts.clear()  # first, so that a signal does not have them written twice
        write_data(ready)
        if through:
            sys.stdout.buffer.flush()

    try:
        for record in records if count_max != 0 else ():
            if record is not None:
                parts.append(render(record))
            is_last = count + len(parts) == count_max
            if record is None or is_last or len(parts) == FLUSH_COUNT:
                flush(through=record is None)
            if is_last:
                break
    finally:
        flush(through=True)
        if counted:
            say(f"Processed a total of {count} messages")


# ---------------------------------------------------------------- the verb


def topic_names(db: "logdb.Database", topic: str | None, include: str | None) -> list[str]:
    """The topics: one by name, or those whose whole name matches a regular expression."""
    if topic is not None:
        return [topic]
    names = [info.name for info in db.topics()]
    found = matching_names(include or "", names)
    if not found:
        raise UnknownTopic(include or "", known=tuple(names))
    return found


def open_sources(
    db: "logdb.Database",
    names: Sequence[str],
    partitions: Sequence[int],
    begin: OffsetSpec,
    end: OffsetSpec | None,
    isolation_level: "IsolationLevel",
    otherwise: OffsetSpec | None,
) -> list[Source]:
    """``otherwise``: where to begin in a partition that does not have the offset; None: that is an error when it is read."""
    sources = []
    for name in names:
        for partition in partitions or range(db.describe_topic(name).partition_count):
            log = db.log(name, partition)
            end_offset = None if end is None else offset_of(log, end)
            position = offset_of(log, begin)
            if otherwise is not None and not log.start_offset <= position <= log.end_offset:
                position = offset_of(log, otherwise)
            sources.append(Source(log, position, end_offset, isolation_level))
    return sources


def begin_and_end(
    places: Sequence[OffsetSpec], *, from_beginning: bool, timestamp_ms: int | None, default: str
) -> tuple[OffsetSpec, OffsetSpec | None]:
    """The begin and the end from the options.

    Raises:
        click.UsageError: Several options set the begin, or the end.
    """
    begins = [place for place in places if place.kind != "to-time"]
    ends = [place for place in places if place.kind == "to-time"]
    if timestamp_ms is not None:
        begins.append(OffsetSpec("from-time", timestamp_ms))
    if from_beginning:
        begins.append(OffsetSpec("beginning"))
    if len(begins) > 1 or len(ends) > 1:
        raise click.UsageError("give one of --offset, --since, --tail, --timestamp and --from-beginning")
    fallback = OffsetSpec("end") if default == "end" else OffsetSpec("beginning")
    return (begins[0] if begins else fallback), (ends[0] if ends else None)


def choose_format(
    session: Session,
    *,
    text: str | None,
    as_envelope: bool,
    key_separator: str | None,
    delimiter: str,
    null: bool,
    properties: Pairs,
    timestamp_types: dict[str, str],
) -> Render:
    """The format from the options.

    Raises:
        click.BadParameter: An unknown letter or property.
    """
    try:
        if session.as_json or as_envelope:
            return envelope(timestamp_types)
        if text is not None:
            return kcat(text, null=b"NULL" if null else b"")
        given = {"line.separator": delimiter, **dict(properties)}
        if key_separator is not None:
            given = {"print.key": "true", "key.separator": key_separator, **given}
        if null:
            given = {"null.literal": "NULL", **given}
        return console(given, timestamp_types)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--property" if text is None else "--format") from None


_ISOLATION_LEVELS: tuple["IsolationLevel", ...] = ("read_uncommitted", "read_committed")


def _isolation_level(text: str) -> "IsolationLevel":
    for level in _ISOLATION_LEVELS:
        if level == text:
            return level
    raise click.UsageError(f"isolation.level={text}: must be {one_of(_ISOLATION_LEVELS)}")


LETTERS = """\b
The letters of -f are kcat's: %t topic, %p partition, %o offset, %k key, %s value, %T timestamp in ms,
%h headers, %K and %S sizes of key and value, %% a percent; \\n, \\t, \\xHH are understood.
\b
Examples:
  logdb consume clicks -o -10                         the last ten of each partition
  logdb consume clicks --timestamp 2013-07-04 -c 100  a hundred from that day on
  logdb consume clicks -f '%p %o %k %s\\n'             places, keys and values
  logdb consume clicks --group reports                the records that the group has not read yet
  logdb consume clicks --json | jq .payload           JSON lines, kcat's envelope"""


@click.command(epilog=LETTERS, short_help="Print records, once or continuously.")
@common
@click.argument("topic_argument", metavar="[TOPIC]", required=False, type=TOPIC)
@click.option("-t", "--topic", type=TOPIC, help="The topic, instead of the argument.", hidden=True)
@click.option("--include", "--whitelist", metavar="REGEX", help="All topics whose name matches, instead of one.")
@click.option("-p", "--partition", "partitions", type=WholeNumber(min=0), multiple=True, help="Only this partition.")
@click.option("--from-beginning", is_flag=True, help="Begin at the oldest record (the default).")
@click.option(
    "-o",
    "--offset",
    "places",
    type=OFFSET_SPEC,
    multiple=True,
    help="Begin at: beginning, end, N, -N (N before the end), a date, s@TIME; e@TIME: end there.",
)
@click.option("--timestamp", type=TIME, help="Begin at the first record at or after a time: ms, or 2013-07-04T12:00:00 (UTC).")
@click.option("-g", "--group", "group_id", metavar="NAME", help="Read as a member of this group, from its committed offsets, and commit.")
@click.option(
    "--isolation-level",
    type=click.Choice(_ISOLATION_LEVELS),
    help="read_committed: without records of open and aborted transactions.",
)
@click.option("--since", metavar="TIME", type=SINCE, help="Begin at a time, or this long ago: 2013-07-04, 2h, 7d.")
@click.option("--tail", metavar="N", type=WholeNumber(min=0), help="Begin N records before the end of each partition, as -o -N.")
@click.option("-c", "-n", "--max-messages", metavar="N", type=WholeNumber(min=-1), help="End after N records.")
@click.option("--follow/--exit", " /-e", default=None, help="At the end: wait for more, or exit (the default).")
@click.option("--timeout-ms", metavar="N", type=MILLISECONDS, help="Wait for more; end when none came for N ms, or a time like 10s.")
@click.option("-f", "--format", "text", metavar="FORMAT", help="kcat's format, such as '%k: %s\\n'.")
@click.option("-J", "as_envelope", is_flag=True, help="As --json: kcat's envelope, one a line.")
@click.option("-K", "--key-separator", metavar="TEXT", help="Print the key and this text before the value.")
@click.option("-D", "--delimiter", metavar="TEXT", default="\\n", help="Printed after each record instead of a newline.")
@click.option("-Z", "null", is_flag=True, help="Print NULL for a null key or value.")
@click.option("--property", "--formatter-property", "properties", type=PAIR, multiple=True, help="A property of kafka-console-consumer.")
@click.option("--formatter-config", "properties_file", type=click.Path(exists=True, dir_okay=False), hidden=True)
@click.option("--formatter", hidden=True, expose_value=False, type=JavaClass("org.apache.kafka.tools.consumer.DefaultMessageFormatter"))
@pass_session
def consume(
    session: Session,
    topic_argument: str | None,
    topic: str | None,
    include: str | None,
    partitions: Sequence[int],
    from_beginning: bool,
    places: Sequence[OffsetSpec],
    timestamp: int | None,
    since: OffsetSpec | None,
    tail: int | None,
    group_id: str | None,
    isolation_level: "IsolationLevel | None",
    max_messages: int | None,
    follow: bool | None,
    timeout_ms: int | None,
    text: str | None,
    as_envelope: bool,
    key_separator: str | None,
    delimiter: str,
    null: bool,
    properties: Pairs,
    properties_file: str | None,
) -> None:
    """Print the records of a topic, up to its current end or continuously.

    Partitions come one after the other; in each, records come in order.  With --group, no other process may have the
    directory open for writing.  If a server has, use -b URL.
    """
    places = [*places, *([since] if since else []), *([] if tail is None else [OffsetSpec("tail", tail)])]
    client = session.servers.client_properties()
    if group_id is not None and client.get("group.id", group_id) != group_id:
        raise click.UsageError(f"two groups are given, {group_id!r} by --group and {client['group.id']!r} by the property group.id")
    group_id = group_id or client.get("group.id")
    from_beginning = from_beginning or (client.get("auto.offset.reset") == "earliest" and not places and timestamp is None)
    isolation_level = isolation_level or _isolation_level(client.get("isolation.level", "read_uncommitted"))
    wanted = [name for name in (topic_argument, topic) if name is not None]
    if len(wanted) + (include is not None) != 1:
        raise click.UsageError("name a topic, or give --include REGEX")
    begin, end = begin_and_end(
        places, from_beginning=from_beginning, timestamp_ms=timestamp, default="end" if session.kafka else "beginning"
    )
    if follow is None:
        follow = end is None and (session.kafka or timeout_ms is not None)
    if follow and end is not None:
        raise click.UsageError("e@TIME sets an end: --follow has none")
    if group_id is not None and (partitions or places or timestamp is not None):
        raise click.UsageError("--group begins at its committed offsets: --partition and options that name a place need a call without it")
    session.follows = follow
    with session.read() if group_id is None else session.write() as db:
        names = topic_names(db, wanted[0] if wanted else None, include)
        types = {name: db.describe_topic(name).config for name in names}
        default = str(TOPIC_CONFIGS["message.timestamp.type"].default)
        render = choose_format(
            session,
            text=text,
            as_envelope=as_envelope,
            key_separator=key_separator,
            delimiter=delimiter,
            null=null,
            properties=(*(read_properties(properties_file).items() if properties_file else ()), *properties),
            timestamp_types={name: str(config.get("message.timestamp.type", default)) for name, config in types.items()},
        )
        count_max = None if max_messages == -1 else max_messages
        if group_id is None:
            reset = OffsetSpec("beginning" if client.get("auto.offset.reset") == "earliest" else "end") if session.kafka else None
            sources = open_sources(db, names, partitions, begin, end, isolation_level, reset)
            by_server = follow and session.bootstrap is not None
            records = (
                stream_of_server(sources, timeout_ms=timeout_ms) if by_server else stream(sources, follow=follow, timeout_ms=timeout_ms)
            )
            write(records, render, count_max, counted=session.kafka)
        else:
            earliest = begin.kind == "beginning"
            with consume_group.member(db, names, group_id, from_beginning=earliest, isolation_level=isolation_level) as consumer:
                records = consume_group.stream(consumer, follow=follow, timeout_ms=timeout_ms)
                write(records, render, count_max, counted=session.kafka)
