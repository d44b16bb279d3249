"""``logdb enforce-retention``: delete old segments now instead of in the background."""

from collections.abc import Sequence

import click

import logdb
from logdb.cli.actions import names
from logdb.cli.output import counted, emit, say, size_text, table
from logdb.cli.params import TOPIC
from logdb.cli.session import Session, common, pass_session
from logdb.model import ExpiredRecords, TopicPartition


def expired(db: "logdb.Database", names: Sequence[str], *, dry_run: bool) -> dict[TopicPartition, ExpiredRecords]:
    """The deleted offsets, or those to delete, of some topics; without names, of all."""
    found = [gone for name in names or (None,) for gone in db.enforce_retention(name, dry_run=dry_run)]
    return {TopicPartition(gone.topic, gone.partition): gone for gone in found}


@click.command(short_help="Delete records over the limits of topics; shows them first.")
@common
@names("[TOPIC]...", "--topic", kind=TOPIC)
@click.option("--execute", "--yes", "execute", is_flag=True, help="Delete; otherwise only show the offsets.")
@pass_session
def enforce_retention(session: Session, names: Sequence[str], execute: bool) -> None:
    """Delete records over topics' retention.ms and retention.bytes; shows them first, and deletes with --execute.

    Whole segments are deleted, oldest first.  The same happens whenever the database is
    opened or closed, and in the background while it is open.
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
        say("nothing was deleted; --execute does it")
