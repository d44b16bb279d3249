"""``logdb log-dirs``: the size of each partition on the disk.  JSON as kafka-log-dirs writes it."""

import os
from collections.abc import Sequence

import click

from logdb.cli.terminal.output import counted, emit, json_text, line, say, size_text, table
from logdb.cli.terminal.params import TOPIC
from logdb.cli.terminal.session import Session, common, pass_session
from logdb.cli.topics.topics import on_disk
from logdb.model import TopicInfo

_QUERYING = "Querying brokers for log directories information\nReceived log directory information from brokers"


def document(place: str, topics: Sequence[TopicInfo], brokers: Sequence[int]) -> dict[str, object]:
    """What kafka-log-dirs prints, version 1; each broker has one directory, here with the partitions that it leads."""

    def log_dir(broker: int) -> dict[str, object]:
        partitions = [
            {"partition": f"{topic.name}-{p.partition}", "size": on_disk(p), "offsetLag": 0, "isFuture": False}
            for topic in topics
            for p in topic.partitions
            if p.leader == broker
        ]
        return {"error": None, "logDir": place, "partitions": partitions}

    return {"version": 1, "brokers": [{"broker": broker, "logDirs": [log_dir(broker)]} for broker in brokers]}


@click.command("log-dirs", short_help="Show the size of each partition on the disk.")
@common
@click.argument("names", metavar="[TOPIC]...", nargs=-1, type=TOPIC)
@click.option("--describe", is_flag=True, hidden=True)  # kafka-log-dirs requires it; there is no other action
@click.option("--topic-list", help="Topics, separated by commas.", metavar="TOPIC,...")
@pass_session
def log_dirs(session: Session, names: Sequence[str], describe: bool, topic_list: str | None) -> None:
    """Show the size of each partition on the disk."""
    wanted = [*names, *(topic_list.split(",") if topic_list else ())]
    place = session.place if session.bootstrap else os.path.abspath(session.place)
    with session.read() as db:
        serving, known = db._session.cluster_nodes().serving, [topic.name for topic in db.topics(internal=True)]
        if session.kafka and wanted:  # kafka-log-dirs leaves out unknown topics
            wanted = [name for name in wanted if name in known]
            known = []
        found = [db.describe_topic(name) for name in wanted or known]
    leaders = {p.leader for topic in found for p in topic.partitions if p.leader is not None}
    brokers = sorted({*serving, *leaders}) or [0]
    if session.as_json:
        emit(document(place, found, brokers))
        return
    if session.kafka:
        answered = f"{_QUERYING} {','.join(map(str, brokers))}"
        line(*answered.splitlines(), json_text(document(place, found, brokers), compact=True))
        return
    rows = [
        (f"{topic.name}-{p.partition}", size_text(on_disk(p)), p.segment_count, p.start_offset, p.end_offset)
        for topic in found
        for p in topic.partitions
    ]
    table(("PARTITION", "SIZE", "SEGMENTS", "START", "END"), rows)
    total = sum(on_disk(p) for topic in found for p in topic.partitions)
    say(f"{counted(len(rows), 'partition')}, {size_text(total)} in {place}")
