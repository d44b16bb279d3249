"""The targets of a reset of a group's offsets, and the offsets that they lead to."""

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import click

import logdb
from logdb.errors import UnknownGroup
from logdb.model import TopicPartition


@dataclass(frozen=True)
class Target:
    """A target.  ``number``: an offset, a time (ms since 1970), a number of records, or a time span (ms)."""

    kind: Literal["earliest", "latest", "current", "offset", "time", "shift", "duration", "from-file"]
    number: int | None = None
    offsets: Mapping[str | None, Mapping[TopicPartition, int]] = field(default_factory=dict)  # by group; None: the named group


def parse_offsets(text: str) -> dict[str | None, dict[TopicPartition, int]]:
    """Lines of ``topic,partition,offset``, or with the group in front of them, as kafka-consumer-groups exports them.

    Raises:
        click.BadParameter: A line has another form.
    """
    found: dict[str | None, dict[TopicPartition, int]] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        try:
            *group, topic, partition, offset = row
            if len(group) > 1:
                raise ValueError
            found.setdefault(group[0] if group else None, {})[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            line = ",".join(row)
            raise click.BadParameter(f"line {number} is not [group,]topic,partition,offset: {line}", param_hint="--from-file") from None
    return found


def written_offsets(plans: Mapping[str, Mapping[TopicPartition, int]]) -> str:
    """Lines for ``parse_offsets``; with the group if there are several."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for group_id, plan in plans.items():
        for (topic, partition), offset in plan.items():
            writer.writerow([*([group_id] if len(plans) > 1 else []), topic, partition, offset])
    return out.getvalue()


def planned(db: "logdb.Database", group_id: str, partitions: Iterable[TopicPartition], target: Target) -> dict[TopicPartition, int]:
    """The new offset of each partition, clamped to its log, as in kafka-consumer-groups.

    Raises:
        click.ClickException: The shift of an offset that is not committed.
        UnknownTopic, UnknownPartition: see ``logdb.errors``.
    """
    try:
        committed = {row.partition: row.committed.offset for row in db.group_offsets(group_id) if row.committed is not None}
    except UnknownGroup:
        committed = {}
    if target.kind == "from-file":
        wanted = {**target.offsets.get(None, {}), **target.offsets.get(group_id, {})}
    else:
        wanted = {partition: _wanted(db.log(*partition), committed.get(partition), target) for partition in partitions}
    return {partition: _nearest(db.log(*partition), offset) for partition, offset in wanted.items()}


def _wanted(log: "logdb.Log", committed: int | None, target: Target) -> int:
    start, end, number = log.start_offset, log.end_offset, target.number or 0
    match target.kind:
        case "earliest":
            return start
        case "latest":
            return end
        case "offset":
            return number
        case "current":
            return end if committed is None else committed
        case "shift":
            if committed is None:
                where = f"{log.topic}-{log.partition}"
                raise click.ClickException(f"Cannot shift offset for partition {where} since there is no current committed offset")
            return committed + number
        case _:
            at_ms = number if target.kind == "time" else logdb.IO().clock_ms() - number
            found = log.offset_for_timestamp(at_ms)
            return end if found is None else found


def _nearest(log: "logdb.Log", offset: int) -> int:
    return min(max(offset, log.start_offset), log.end_offset)
