"""``logdb iceberg``: commit records to the Iceberg tables of topics, now instead of in the background."""

from collections.abc import Sequence

import click

from logdb.cli.terminal.actions import names
from logdb.cli.terminal.output import emit, say, table
from logdb.cli.terminal.params import TOPIC
from logdb.cli.terminal.session import Session, here, pass_session
from logdb.errors import DirectoryLocked


@click.command(short_help="Commit topics to their Iceberg tables, now.")
@here
@names("TOPIC...", "--topic", kind=TOPIC)
@pass_session
def iceberg(session: Session, names: Sequence[str]) -> None:
    """Commit all records of these topics to their Iceberg tables.

    The active segment is sealed first. A topic is a table with the config logdb.iceberg.mode: key_value, json or avro.
    An open database commits sealed segments in the background.
    """
    session.refuse_servers("tables are written on the machine of the segments")
    try:
        with session.write() as db:
            rows = [db.update_iceberg(name) for name in names]
    except DirectoryLocked as error:
        error.add_note("that process commits sealed segments in the background; db.update_iceberg(TOPIC) in it commits all records")
        raise
    if session.as_json:
        emit([row._asdict() for row in rows])
        return
    table(
        ("TOPIC", "ADDED", "REMOVED", "FILES", "RECORDS"),
        [(row.topic, row.added, row.removed, row.file_count, row.record_count) for row in rows],
    )
    for row in rows:
        say(row.metadata_location)
