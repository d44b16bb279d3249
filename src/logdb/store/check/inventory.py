"""The topics and partitions of a database, from its catalogue, directory names and ``topic.json`` files.

Where the catalogue names a topic, the catalogue wins; other topics are taken from the directories.
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
"""The configs of a topic whose own are lost: neither retention nor compaction deletes records until a user alters it."""


@dataclass(kw_only=True)
class Partition:
    """One partition.  ``catalogued``: the catalogue names it; otherwise ``entry`` is inferred from its directory."""

    topic: TopicEntry
    entry: LogEntry
    segments: list[SegmentEntry] = field(default_factory=list)
    catalogued: bool = True


@dataclass(kw_only=True)
class Inventory:
    """Topics, partitions and intents.  ``inferred`` lists, as text, what the catalogue did not have."""

    topics: dict[str, TopicEntry] = field(default_factory=dict)
    partitions: dict[TopicPartition, Partition] = field(default_factory=dict)
    intents: list[tuple[int, Intent]] = field(default_factory=list)
    inferred: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def take_inventory(io: IO, path: str, dump: CatalogueDump) -> Inventory:
    """Find the topics of the database in ``path``; ``dump`` is the readable part of its catalogue.

    Raises:
        UnsupportedFormat: A newer logdb wrote a ``topic.json``.
    """
    inventory = Inventory(topics=dict(dump.topics), intents=dump.intents)
    unfinished = {intent.topic for _, intent in dump.intents}
    files = {where: file for where, file in _directories(io, path, inventory).items() if where.topic not in unfinished}
    for name in sorted({where.topic for where in files}):
        _take_topic(inventory, name, {where.partition: file for where, file in files.items() if where.topic == name})
    logs = {TopicPartition(entry.topic, entry.partition): entry for entry in dump.logs}
    for topic in inventory.topics.values():
        for number in range(topic.partition_count):
            where = TopicPartition(topic.name, number)
            if topic.name in unfinished and where not in logs:
                continue
            file = files.get(where)
            guess = LogEntry(topic.name, number, start_offset=file.start_offset if file else 0)
            inventory.partitions[where] = Partition(topic=topic, entry=logs.get(where, guess), catalogued=where in logs)
    for segment in dump.segments:
        if (partition := inventory.partitions.get(TopicPartition(segment.topic, segment.partition))) is not None:
            partition.segments.append(segment)
    return inventory


def _directories(io: IO, path: str, inventory: Inventory) -> dict[TopicPartition, TopicFile | None]:
    """The partitions that have a directory, each with its ``topic.json`` if that can be read."""
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
            inventory.notes.append(f"{directory}: its topic.json belongs to {file.topic}-{file.partition}; it is left as it is")
    return found


def _take_topic(inventory: Inventory, name: str, files: dict[int, TopicFile | None]) -> None:
    """Add a topic that only directories name, or partitions that the catalogue does not count."""
    known = inventory.topics.get(name)
    readable = [file for _, file in sorted(files.items()) if file is not None]
    identity = known.topic_id if known else readable[0].topic_id if readable else str(uuid.uuid4())
    strangers = {file.partition for file in readable if file.topic_id != identity}
    inventory.notes.extend(f"{name}-{number}: belongs to another topic of that name; it is left as it is" for number in sorted(strangers))
    own = [number for number in files if number not in strangers]
    if not own:
        return
    count = max(max(own) + 1, *(file.partition_count for file in readable if file.partition not in strangers), 0)
    if known is None:
        config = readable[0].config if readable else dict(KEEP_EVERYTHING)
        inventory.topics[name] = TopicEntry(name, identity, count, config)
        kept = "its configs are lost: no record is deleted until you alter the topic"
        source = "topic.json" if readable else f"the names of its directories; {kept}"
        inventory.inferred.append(f"topic {name} with {count} partitions, by {source}")
    elif count > known.partition_count and any(number >= known.partition_count for number in own):
        inventory.topics[name] = known._replace(partition_count=count)
        inventory.inferred.append(f"topic {name}: {count} partitions by its directories, {known.partition_count} by the catalogue")
