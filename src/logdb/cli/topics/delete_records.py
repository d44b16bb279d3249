"""``logdb delete-records``: delete the records of a partition before an offset.

Takes a JSON file of offsets, as kafka-delete-records does, or one partition by flags; called by
that tool's name, it deletes at once and prints as it does.
"""

import json
from collections.abc import Mapping
from typing import IO

import click

import logdb
from logdb.cli.terminal.output import counted, emit, line, say, table
from logdb.cli.terminal.params import TOPIC
from logdb.cli.terminal.session import Session, common, pass_session
from logdb.cli.terminal.units import WholeNumber
from logdb.errors import LogdbError, OffsetOutOfRange
from logdb.model import TopicPartition

END = -1


def offsets_of(text: str) -> dict[TopicPartition, int]:
    """The offset to delete before, by partition: ``{"partitions": [{"topic": "t", "partition": 0, "offset": 10}], "version": 1}``.

    Raises:
        click.BadParameter: The file has another form, or names a partition twice.
    """
    try:
        document = json.loads(text)
        if document.get("version", 1) != 1:
            raise ValueError(f"version {document['version']!r} is not 1")
        rows = [(TopicPartition(str(row["topic"]), int(row["partition"])), int(row["offset"])) for row in document["partitions"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        wanted = '{"partitions": [{"topic": "NAME", "partition": 0, "offset": 10}], "version": 1}'
        raise click.BadParameter(f"not offsets as in {wanted}: {error}", param_hint="--offset-json-file") from None
    if doubled := sorted({str(where) for where, _ in rows if sum(where == other for other, _ in rows) > 1}):
        raise click.BadParameter(f"these are named twice: {', '.join(doubled)}", param_hint="--offset-json-file")
    return dict(rows)


def planned(db: "logdb.Database", before: Mapping[TopicPartition, int]) -> list[dict[str, object]]:
    """The offsets that would be deleted, by partition.

    Raises:
        OffsetOutOfRange, UnknownTopic, UnknownPartition: As ``Database.delete_records``.
    """
    rows: list[dict[str, object]] = []
    for where, wanted in before.items():
        log = db.log(*where)
        start, end = log.start_offset, log.end_offset
        offset = end if wanted == END else wanted
        if not start <= offset <= end:
            raise OffsetOutOfRange(*where, wanted, start, end)
        rows.append(
            {"topic": where.topic, "partition": where.partition, "start_offset": start, "new_start_offset": offset, "end_offset": end}
        )
    return rows


def delete_as_kafka(session: Session, db: "logdb.Database", before: Mapping[TopicPartition, int]) -> None:
    """Delete in each partition by itself, and print as kafka-delete-records does."""
    line("Executing records delete operation", "Records delete operation completed:")
    for where, wanted in before.items():
        try:
            line(f"partition: {where}\tlow_watermark: {db.delete_records(*where, wanted)}")
        except LogdbError as error:
            line(f"partition: {where}\terror: {error}")
            session.exit_code = 1


@click.command(short_help="Delete a partition's records before an offset; shows it first.")
@common
@click.argument("topic_argument", metavar="[TOPIC]", required=False, type=TOPIC)
@click.option(
    "--offset-json-file",
    type=click.File(encoding="utf-8"),
    help='{"partitions": [{"topic": "t", "partition": 0, "offset": 10}], "version": 1}; - reads stdin.',
)
@click.option("-t", "--topic", type=TOPIC, help="The topic, instead of the argument.")
@click.option("-p", "--partition", type=WholeNumber(min=0), default=0, show_default=True, help="The partition.")
@click.option("-o", "--offset", type=WholeNumber(min=-1), help="Delete the records before this offset; -1: all.")
@click.option("--execute", "--yes", "execute", is_flag=True, help="Delete; otherwise only show the offsets.")
@pass_session
def delete_records(
    session: Session,
    topic_argument: str | None,
    offset_json_file: IO[str] | None,
    topic: str | None,
    partition: int,
    offset: int | None,
    execute: bool,
) -> None:
    """Delete the records of partitions before given offsets, for good; shows them first, and deletes with --execute.

    Space is freed by whole segments.  A topic with cleanup.policy=compact
    alone is refused.
    """
    if topic is not None and topic_argument is not None:
        raise click.UsageError(f"give one topic, not both {topic_argument!r} and {topic!r}")
    name = topic if topic is not None else topic_argument
    if (offset_json_file is None) == (name is None) or (name is None) != (offset is None):
        raise click.UsageError("give either --offset-json-file, or a topic and --offset")
    before = (
        offsets_of(offset_json_file.read()) if offset_json_file is not None else {TopicPartition(str(name), partition): int(offset or 0)}
    )
    if session.kafka:
        with session.write() as db:
            delete_as_kafka(session, db, before)
        return
    with session.write() if execute else session.read() as db:
        rows = planned(db, before)
        for row, (where, wanted) in zip(rows, before.items(), strict=True) if execute else ():
            row["new_start_offset"] = db.delete_records(*where, wanted)
    if session.as_json:
        emit({"executed": execute, "partitions": rows})
        return
    table(("TOPIC", "PARTITION", "START", "NEW START", "END"), [tuple(row.values()) for row in rows])
    say(f"deleted from {counted(len(rows), 'partition')}" if execute else "nothing was deleted; --execute deletes these records")
