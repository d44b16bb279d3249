"""``logdb parquet``: make Parquet files of topics, now instead of in the background."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from logdb.cli.terminal.actions import names
from logdb.cli.terminal.output import counted, emit, progress, say, size_text, table
from logdb.cli.terminal.params import TOPIC
from logdb.cli.terminal.session import Session, here, pass_session
from logdb.cli.terminal.units import WholeNumber
from logdb.errors import DirectoryLocked

if TYPE_CHECKING:
    from logdb.store.sidecars import MadeSidecars


@click.command(short_help="Make Parquet files beside the log, now.")
@here
@names("TOPIC...", "--topic", kind=TOPIC)
@click.option("-p", "--partition", type=WholeNumber(min=0), help="One partition; otherwise all.")
@pass_session
def parquet(session: Session, names: Sequence[str], partition: int | None) -> None:
    """Make a Parquet file of each segment of these topics that has none.

    The active segment is rolled first. Existing files are checked, and rebuilt if damaged.
    With the topic's config logdb.parquet=true an open database does this in the background.
    db.topic_dataset(TOPIC) and the Spark source's scan() read these files.
    """
    session.refuse_servers("Parquet files are made on the machine of the segments")
    rows: list[MadeSidecars] = []
    try:
        with session.write() as db, progress("writing Parquet") as bar:
            for name in names:
                rows += db.make_parquet(name, partition, progress=bar)
    except DirectoryLocked as error:
        error.add_note("only that process can make them: db.make_parquet(TOPIC), or the topic's config logdb.parquet=true")
        raise
    if session.as_json:
        emit([row._asdict() for row in rows])
        return
    shown = [(row.topic, row.partition, row.made, row.damaged, row.file_count, size_text(row.size_bytes)) for row in rows]
    table(("TOPIC", "PARTITION", "MADE", "DAMAGED", "FILES", "SIZE"), shown)
    say(f"{counted(sum(row.made for row in rows), 'file')} made")
