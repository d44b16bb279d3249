"""``logdb enforce-retention``: delete old segments now instead of in the background."""

from collections.abc import Mapping, Sequence

import click

import logdb
from logdb.cli.terminal.actions import names
from logdb.cli.terminal.output import counted, emit, say, size_text, table
from logdb.cli.terminal.params import TOPIC
from logdb.cli.terminal.session import Session, common, pass_session
from logdb.model import DELETING_CONFIGS, ExpiredRecords, TopicPartition


def expired(db: "logdb.Database", names: Sequence[str], *, dry_run: bool) -> dict[TopicPartition, ExpiredRecords]:
    """The deleted offsets, or those to delete, of some topics; without names, of all."""
    found = [gone for name in names or (None,) for gone in db.enforce_retention(name, dry_run=dry_run)]
    return {TopicPartition(gone.topic, gone.partition): gone for gone in found}


def may_alter(session: Session, db: "logdb.Database", names: Sequence[str], config: Mapping[str, object], *, execute: bool) -> bool:
    """Whether configs of topics may be changed: they delete nothing, or the caller said so; otherwise shows what they delete.

    Under the names of Kafka's tools, which have no preview, everything may be changed.
    """
    given = {key: value for key, value in config.items() if key in DELETING_CONFIGS}
    if execute or session.kafka or not given:
        return True
    rows = [gone for name in names for gone in db.enforce_retention(name, dry_run=True, config=given)]
    compacted = [name for name in names if _compacts(db, name, given)]
    if not rows and not compacted:
        return True
    if session.as_json:
        emit({"executed": False, "partitions": [row._asdict() for row in rows], "compacted": compacted})
        return False
    if rows:
        shown = [(*row[:-1], size_text(row.size_bytes)) for row in rows]
        table(("TOPIC", "PARTITION", "START", "NEW START", "SEGMENTS", "SIZE"), shown)
    for name in compacted:
        say(f"compaction of {name} deletes all but the latest record of each key, and records without a key")
    say("nothing was altered, because the change would delete records; --execute makes the change")
    return False


def _compacts(db: "logdb.Database", name: str, config: Mapping[str, object]) -> bool:
    """Whether a topic with records becomes a compacted one."""
    topic = db.describe_topic(name)
    is_compacted = "compact" in str(topic.config.get("cleanup.policy", ""))
    has_records = any(one.end_offset > one.start_offset for one in topic.partitions)
    return "compact" in str(config.get("cleanup.policy") or "") and not is_compacted and has_records


EXECUTE = click.option("--execute", "--yes", "execute", is_flag=True, help="Alter even if that deletes records; otherwise only show them.")


@click.command(short_help="Delete records over the limits of topics; shows them first.")
@common
@names("[TOPIC]...", "--topic", kind=TOPIC)
@click.option("--execute", "--yes", "execute", is_flag=True, help="Delete; otherwise only show the offsets.")
@pass_session
def enforce_retention(session: Session, names: Sequence[str], execute: bool) -> None:
    """Delete records over topics' retention.ms and retention.bytes; shows them first, and deletes with --execute.

    Whole segments are deleted, oldest first.  An open database also does this in the
    background, when it is opened or closed, and when a limit is changed.
    """
    with session.read() as db:
        found = expired(db, names, dry_run=True)
    if execute:
        with session.write() as db:  # the opening may already delete some
            found = expired(db, names, dry_run=False) | found
    rows = sorted(found.values())
    if session.as_json:
        emit({"executed": execute, "partitions": [row._asdict() for row in rows]})
        return
    shown = [(*row[:-1], size_text(row.size_bytes)) for row in rows]
    table(("TOPIC", "PARTITION", "START", "NEW START", "SEGMENTS", "SIZE"), shown)
    given_back = size_text(sum(row.size_bytes for row in rows))
    if not rows:
        say("no segment is over a limit")
    elif execute:
        say(f"deleted from {counted(len(rows), 'partition')}, {given_back} freed")
    else:
        say("nothing was deleted; --execute deletes these segments")
