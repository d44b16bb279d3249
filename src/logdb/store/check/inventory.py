"""Which topics and partitions a database has, as far as anything in it still says so.

Knows the catalogue's entries, directory names and ``topic.json``.  Does not know what lies in the logs.
Where the catalogue names a topic it wins; what it does not name is taken from the directories.
"""

import os
import re
import uuid
from dataclasses import dataclass, field

from logdb.disk import names_in
from logdb.errors import CorruptionError, InvalidTopic
from logdb.io import IO
from logdb.meta import Intent, LogEntry, SegmentEntry, TopicEntry
from logdb.meta.dump import CatalogueDump
from logdb.model import ConfigValue, TopicPartition, check_topic_name
from logdb.store import topic_file
from logdb.store.topic_file import TopicFile

KEEP_EVERYTHING: dict[str, ConfigValue] = {"cleanup.policy": "delete", "retention.ms": -1, "retention.bytes": -1}
"""The configs of a topic whose own cannot be read: nothing of it is dropped until it is altered."""


@dataclass(kw_only=True)
class Partition:
    """One partition: ``catalogued`` where the catalogue names it, otherwise ``entry`` is a guess."""

    topic: TopicEntry
    entry: LogEntry
    segments: list[SegmentEntry] = field(default_factory=list)
    catalogued: bool = True


@dataclass(kw_only=True)
class Inventory:
    """``found`` says in words what did not come from the catalogue."""

    topics: dict[str, TopicEntry] = field(default_factory=dict)
    partitions: dict[TopicPartition, Partition] = field(default_factory=dict)
    intents: list[tuple[int, Intent]] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def take_inventory(io: IO, path: str, dump: CatalogueDump) -> Inventory:
    """Count the topics of the database in ``path``, of whose catalogue ``dump`` could be read.

    Raises:
        UnsupportedFormat: A ``topic.json`` is a newer logdb's.
    """
    census = Inventory(topics=dict(dump.topics), intents=dump.intents)
    unfinished = {intent.topic for _, intent in dump.intents}
    files = {where: file for where, file in _directories(io, path, census).items() if where.topic not in unfinished}
    for name in sorted({where.topic for where in files}):
        _take_topic(census, name, {where.partition: file for where, file in files.items() if where.topic == name})
    logs = {TopicPartition(entry.topic, entry.partition): entry for entry in dump.logs}
    for topic in census.topics.values():
        for number in range(topic.partition_count):
            where = TopicPartition(topic.name, number)
            if topic.name in unfinished and where not in logs:
                continue
            file = files.get(where)
            guess = LogEntry(topic.name, number, start_offset=file.start_offset if file else 0)
            census.partitions[where] = Partition(topic=topic, entry=logs.get(where, guess), catalogued=where in logs)
    for segment in dump.segments:
        if (partition := census.partitions.get(TopicPartition(segment.topic, segment.partition))) is not None:
            partition.segments.append(segment)
    return census


def _directories(io: IO, path: str, census: Inventory) -> dict[TopicPartition, TopicFile | None]:
    """The partitions that directories stand for, with their ``topic.json`` where it can be read."""
    found: dict[TopicPartition, TopicFile | None] = {}
    for name in sorted(names_in(io, path)):
        directory = os.path.join(path, name)
        named = re.fullmatch(r"(.+)-(0|[1-9][0-9]*)", name)
        if named is None or name.startswith("catalogue.damaged-") or not os.path.isdir(directory):
            continue
        where = TopicPartition(named[1], int(named[2]))
        try:
            check_topic_name(where.topic)
            file = topic_file.load(io, directory)
        except (FileNotFoundError, CorruptionError):
            if any(file.startswith(topic_file.FILE_NAME) or file.endswith((".log", ".orphan")) for file in names_in(io, directory)):
                found[where] = None
            continue
        except InvalidTopic:
            continue
        if (file.topic, file.partition) == where:
            found[where] = file
        else:
            census.notes.append(f"{directory}: its topic.json is that of {file.topic}-{file.partition}; left alone")
    return found


def _take_topic(census: Inventory, name: str, files: dict[int, TopicFile | None]) -> None:
    """Take in a topic that has directories: its own, or more partitions than the catalogue has."""
    known = census.topics.get(name)
    readable = [file for _, file in sorted(files.items()) if file is not None]
    identity = known.topic_id if known else readable[0].topic_id if readable else str(uuid.uuid4())
    strangers = {file.partition for file in readable if file.topic_id != identity}
    census.notes.extend(f"{name}-{number}: of another topic of that name; left alone" for number in sorted(strangers))
    own = [number for number in files if number not in strangers]
    if not own:
        return
    count = max(max(own) + 1, *(file.partition_count for file in readable if file.partition not in strangers), 0)
    if known is None:
        config = readable[0].config if readable else dict(KEEP_EVERYTHING)
        census.topics[name] = TopicEntry(name, identity, count, config)
        kept = "its configs are lost: nothing of it is dropped until it is altered"
        source = "topic.json" if readable else f"the names of its directories; {kept}"
        census.found.append(f"topic {name} with {count} partitions, by {source}")
    elif count > known.partition_count and any(number >= known.partition_count for number in own):
        census.topics[name] = known._replace(partition_count=count)
        census.found.append(f"topic {name}: {count} partitions by its directories, {known.partition_count} by the catalogue")
