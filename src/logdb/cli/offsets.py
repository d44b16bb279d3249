"""``logdb offsets``: where partitions begin and end, or where a moment lies in them.

Printed as kafka-get-offsets does (``topic:partition:offset``) where a time is asked for.
"""

import re
from collections.abc import Sequence

import click

import logdb
from logdb.cli.consume import offset_of
from logdb.cli.output import emit, table
from logdb.cli.params import TIME, TOPIC, Place
from logdb.cli.session import Session, common, pass_session
from logdb.cli.topics import matching
from logdb.model import TopicPartition


class OffsetTime(click.ParamType):
    """latest (-1), earliest (-2), or a moment."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        if isinstance(value, Place):
            return value
        if value in ("latest", "-1"):
            return Place("end")
        if value in ("earliest", "-2"):
            return Place("beginning")
        moment = TIME.convert(value, param, ctx)
        if moment < 0:
            self.fail(f"{value!r} is none of -1 (latest), -2 (earliest), and no time", param, ctx)
        return Place("from-time", moment)


def numbers(text: str) -> set[int]:
    """Partition numbers: ``0,2`` and ``1-3`` (without the 3, as kafka-get-offsets has it).

    Raises:
        ValueError: It is neither.
    """
    found: set[int] = set()
    for part in text.split(","):
        first, dash, beyond = part.partition("-")
        found.update(range(int(first or 0), int(beyond)) if dash else [int(part)])
    return found


def selected(db: "logdb.Database", pattern: str, known: Sequence[str]) -> list[TopicPartition]:
    """Partitions that ``topic``, ``topic:partition`` or ``topic:first-beyond`` names; the topic may be a regular expression.

    Raises:
        click.BadParameter: The partition is no number.
    """
    topic, _, partitions = pattern.partition(":")
    try:
        wanted = numbers(partitions) if partitions else None
    except ValueError:
        raise click.BadParameter(f"{partitions!r} is no partition; write TOPIC:0 or TOPIC:0-3", param_hint="--topic-partitions") from None
    if topic in known or not known:
        names = [topic]  # unknown where there are none: the library says so
    else:
        names = [name for name in known if re.fullmatch(topic, name)] or matching(db, topic)
    return [
        TopicPartition(name, partition)
        for name in names
        for partition in (range(db.describe_topic(name).partition_count) if wanted is None else sorted(wanted))
    ]


@click.command()
@common
@click.argument("names", metavar="[TOPIC]...", nargs=-1, type=TOPIC)
@click.option("-t", "--topic", "patterns", multiple=True, type=TOPIC, help="A topic, or a regular expression of them.")
@click.option("--partitions", metavar="N,...", help="Only these partitions.")
@click.option("--topic-partitions", metavar="TOPIC:N,...", help="Only these: TOPIC, TOPIC:0 or TOPIC:0-3, with commas between.")
@click.option("--time", "moment", type=OffsetTime(), help="latest (-1), earliest (-2), or a time: ms, 2013-07-04T12:00:00 (UTC).")
@click.option("--exclude-internal-topics", is_flag=True, hidden=True)
@pass_session
def offsets(
    session: Session,
    names: Sequence[str],
    patterns: Sequence[str],
    partitions: str | None,
    topic_partitions: str | None,
    moment: Place | None,
    exclude_internal_topics: bool,
) -> None:
    """Show where partitions begin and end, or the first offset at a --time."""
    if session.kafka and moment is None:
        moment = Place("end")
    wanted = [*names, *patterns, *(topic_partitions.split(",") if topic_partitions else ())]
    with session.read() as db:
        known = [topic.name for topic in db.topics(internal=not exclude_internal_topics)]
        found = [one for pattern in wanted or known for one in selected(db, pattern, known)]
        if partitions is not None:
            only = numbers(partitions)
            found = [one for one in found if one.partition in only]
        logs = [db.log(topic, partition) for topic, partition in dict.fromkeys(found)]
        if moment is None:
            bounds = [(log.topic, log.partition, log.start_offset, log.end_offset) for log in logs]
        else:
            rows = [(log.topic, log.partition, _at(log, moment)) for log in logs]
    if moment is None:
        columns = ("topic", "partition", "start_offset", "end_offset")
        if session.as_json:
            emit([dict(zip(columns, row, strict=True)) for row in bounds])
        else:
            table(("TOPIC", "PARTITION", "START", "END"), bounds)
    elif session.as_json:
        emit([{"topic": topic, "partition": partition, "offset": offset} for topic, partition, offset in rows])
    else:
        for topic, partition, offset in rows:
            click.echo(f"{topic}:{partition}:{'' if offset is None else offset}")


def _at(log: "logdb.Log", moment: Place) -> int | None:
    return log.offset_for_timestamp(moment.number) if moment.kind == "from-time" else offset_of(log, moment)
