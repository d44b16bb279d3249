"""``logdb compact``: keep only the latest record of each key, now instead of in the background."""

from collections.abc import Sequence
from typing import NamedTuple

import click

import logdb
from logdb.cli.terminal.actions import names
from logdb.cli.terminal.output import counted, emit, say, size_text, table
from logdb.cli.terminal.params import TOPIC
from logdb.cli.terminal.session import Session, common, pass_session
from logdb.cli.terminal.units import WholeNumber


class Compacted(NamedTuple):
    """One partition, before and after."""

    topic: str
    partition: int
    size_bytes_before: int
    size_bytes: int
    segment_count: int
    end_offset: int


def compacted(db: "logdb.Database", topic: str, partition: int) -> Compacted:
    """Compact one partition."""
    log = db.log(topic, partition)
    before = log.size_bytes
    db.compact(topic, partition)
    after = db.describe_topic(topic).partitions[partition]
    return Compacted(topic, partition, before, after.size_bytes, after.segment_count, after.end_offset)


@click.command(short_help="Keep only the latest record of each key, now.")
@common
@names("TOPIC...", "--topic", kind=TOPIC)
@click.option("-p", "--partition", type=WholeNumber(min=0), help="One partition; otherwise all.")
@pass_session
def compact(session: Session, names: Sequence[str], partition: int | None) -> None:
    """Compact topics whose cleanup.policy has compact.

    This deletes each record that has a later record of the same key; offsets stay.
    An open database also compacts in the background.
    """
    rows: list[Compacted] = []
    with session.write() as db:
        for name in names:
            partitions = range(db.describe_topic(name).partition_count) if partition is None else (partition,)
            rows += [compacted(db, name, number) for number in partitions]
    if session.as_json:
        emit([row._asdict() for row in rows])
        return
    shown = [(row.topic, row.partition, size_text(row.size_bytes_before), size_text(row.size_bytes), row.segment_count) for row in rows]
    table(("TOPIC", "PARTITION", "BEFORE", "NOW", "SEGMENTS"), shown)
    saved = sum(row.size_bytes_before - row.size_bytes for row in rows)
    say(f"{counted(len(rows), 'partition')} compacted, {size_text(max(saved, 0))} freed")
