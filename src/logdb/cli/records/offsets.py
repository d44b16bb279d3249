"""``logdb offsets``: the begin and end of partitions, or the offset at a time.

With a time, printed as kafka-get-offsets does (``topic:partition:offset``).
"""

import re
from collections.abc import Sequence
from itertools import pairwise

import click

import logdb
from logdb.cli.records.consume import offset_of
from logdb.cli.terminal.output import emit, line, table
from logdb.cli.terminal.params import TOPIC, OffsetSpec, bounds, matching_names, numbers, parse_time
from logdb.cli.terminal.session import Session, common, pass_session
from logdb.cli.terminal.units import Kind
from logdb.errors import UnknownTopic
from logdb.model import TopicPartition

_SPECS = {
    **dict.fromkeys(("-1", "latest"), OffsetSpec("end")),
    **dict.fromkeys(("-2", "earliest", "-4", "earliest-local"), OffsetSpec("beginning")),
    **dict.fromkeys(("-3", "max-timestamp"), OffsetSpec("latest-time")),
    **dict.fromkeys(("-5", "latest-tiered", "-6", "earliest-pending-upload"), OffsetSpec("none")),  # nothing lies in other storage
}


class OffsetTime(Kind):
    """latest (-1), earliest (-2), max-timestamp (-3), or a time.

    A negative number is a name, as for Kafka: a time before 1970 is in ISO 8601.
    """

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> OffsetSpec:
        if isinstance(value, OffsetSpec):
            return value
        if value in _SPECS:
            return _SPECS[str(value)]
        try:
            if re.fullmatch(r"-\d+", str(value)):
                raise ValueError("the name of no offset")
            return OffsetSpec("from-time", parse_time(str(value)))
        except ValueError:
            known = ", ".join(f"{name} ({number})" for number, name in pairwise(_SPECS) if number.startswith("-"))
            times = "milliseconds since 1970, or like 2013-07-04T12:00:00; before 1970: like 1969-12-31T23:59:59"
            self.fail(f"{value!r} is none of {known}, and no time: {times}", param, ctx)


OFFSET_TIME = OffsetTime()


def selected(db: "logdb.Database", pattern: str, known: Sequence[str]) -> list[TopicPartition]:
    """Partitions that ``topic``, ``topic:partition`` or ``topic:first-beyond`` names.

    The topic may be a regular expression; of ``:partition`` it is any, and of ``topic:first-`` the last partition is the topic's.

    Raises:
        click.BadParameter: The partition is not a number, or the topic neither a name nor a regular expression.
        UnknownTopic: No topic matches.
    """
    topic, _, partitions = pattern.partition(":")
    names = [topic] if topic in known else list(known) if not topic else matching_names(topic, known)
    if not names:
        raise UnknownTopic(topic, known=tuple(known))
    counts = {name: db.describe_topic(name).partition_count for name in names}
    try:
        wanted = {name: range(*bounds(partitions, count) if partitions else (count,)) for name, count in counts.items()}
    except ValueError:
        raise click.BadParameter(f"{partitions!r} is no partition; write TOPIC:0 or TOPIC:0-3", param_hint=repr(pattern)) from None
    return [TopicPartition(name, partition) for name, found in wanted.items() for partition in found if topic or partition < counts[name]]


def queries(
    db: "logdb.Database", patterns: Sequence[str], known: Sequence[str], moment: OffsetSpec | None
) -> dict[TopicPartition, OffsetSpec | None]:
    """The time asked for, by partition; a pattern of three parts, kcat's ``topic:partition:time``, has its own."""
    asked: dict[TopicPartition, OffsetSpec | None] = {}
    for pattern in patterns:
        topic, *rest = pattern.split(":", 2)  # a time may have colons; the name of a topic has none
        if len(rest) == 2:
            asked |= dict.fromkeys(selected(db, f"{topic}:{rest[0]}", known), OFFSET_TIME.convert(rest[1], None, None))
        else:
            asked |= dict.fromkeys(selected(db, pattern, known), moment)
    return asked


def answer(log: "logdb.Log", moment: OffsetSpec | None) -> dict[str, object]:
    """The begin and end of a partition, or its offset at a time (None if no record is that late)."""
    where: dict[str, object] = {"topic": log.topic, "partition": log.partition}
    if moment is None:
        return {**where, "start_offset": log.start_offset, "end_offset": log.end_offset}
    match moment.kind:
        case "from-time":
            offset = log.offset_for_timestamp(moment.number)
        case "latest-time":
            offset = (log.latest_record() or (None,))[0]
        case "none":
            offset = None
        case _:
            offset = offset_of(log, moment)
    return {**where, "offset": offset}


@click.command(short_help="Show where partitions start and end, or the offset at a time.")
@common
@click.argument("names", metavar="[TOPIC]...", nargs=-1, type=TOPIC)
@click.option("-t", "--topic", "patterns", multiple=True, type=TOPIC, help="A topic, or a regular expression of them.")
@click.option("--partitions", metavar="N,...", help="Only these partitions.")
@click.option("--topic-partitions", metavar="TOPIC:N,...", help="Only these: TOPIC, TOPIC:0 or TOPIC:0-3, separated by commas.")
@click.option(
    "--time", "moment", type=OFFSET_TIME, help="latest (-1), earliest (-2), max-timestamp (-3), or a time: ms, 2013-07-04T12:00:00 (UTC)."
)
@click.option("--exclude-internal-topics", is_flag=True, hidden=True)
@pass_session
def offsets(
    session: Session,
    names: Sequence[str],
    patterns: Sequence[str],
    partitions: str | None,
    topic_partitions: str | None,
    moment: OffsetSpec | None,
    exclude_internal_topics: bool,
) -> None:
    """Show the start and end offsets of partitions, or the first offset at a --time."""
    if session.kafka and moment is None:
        moment = OffsetSpec("end")
    try:
        only = None if partitions is None else numbers(partitions)
    except ValueError:
        raise click.BadParameter(f"{partitions!r} are no partitions; write 0,2 or 0-3", param_hint="--partitions") from None
    wanted = [*names, *patterns, *(topic_partitions.split(",") if topic_partitions else ())]
    with session.read() as db:
        known = [topic.name for topic in db.topics(internal=not exclude_internal_topics)]
        asked = queries(db, wanted or known, known, moment)
        if session.kafka:
            asked = dict(sorted(asked.items()))
        answers = [answer(db.log(*one), when) for one, when in asked.items() if only is None or one.partition in only]
    if session.as_json:
        emit(answers)
    elif answers and all("offset" not in found for found in answers):
        table(("TOPIC", "PARTITION", "START", "END"), [tuple(found.values()) for found in answers])
    else:
        for found in answers:
            if session.kafka and found["offset"] is None:  # kafka-get-offsets leaves out a partition without a record that late
                continue
            line(":".join("" if value is None else str(value) for value in found.values()))
