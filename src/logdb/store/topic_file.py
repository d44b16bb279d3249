"""``topic.json``: the topic of a partition's directory, from which ``repair`` rebuilds a lost catalogue.

Where the file and the catalogue differ, the catalogue wins.

One line of compact JSON with the keys below, in this order, and a newline:

    {"format":1,"topic":"trades","topic_id":"<uuid>","partition":0,"partition_count":3,
     "config":{"retention.ms":604800000},"start_offset":0,"crc":"<8 hex digits>"}

``crc`` is the CRC-32C of the same line without the key ``crc``.
"""

import os
from typing import Any, NamedTuple

from logdb.disk import read_file, replace_file, write_file
from logdb.io import IO
from logdb.meta import TopicEntry
from logdb.model import ConfigValue, check_config, check_topic_id, check_topic_name
from logdb.store import json_line

FILE_NAME = "topic.json"
FORMAT = 1
_SIZE_BYTES_MAX = 1 << 20


class TopicFile(NamedTuple):
    """The content of one ``topic.json``."""

    topic: str
    topic_id: str
    partition: int
    partition_count: int
    config: dict[str, ConfigValue]
    start_offset: int = 0


def describe(topic: TopicEntry, partition: int, start_offset: int) -> TopicFile:
    """The content of a partition's file."""
    return TopicFile(topic.name, topic.topic_id, partition, topic.partition_count, topic.config, start_offset)


def encode(content: TopicFile) -> bytes:
    return json_line.encode(content._asdict(), FORMAT)


def decode(data: bytes, path: str) -> TopicFile:
    """Parse a ``topic.json``.

    Raises:
        CorruptionError: The data is not exactly what ``encode`` writes.
        UnsupportedFormat: A newer logdb wrote it.
    """
    return json_line.decode(data, path, FORMAT, "a topic description", _checked, encode)


def _checked(fields: dict[str, Any]) -> TopicFile:
    content = TopicFile(**fields)
    check_topic_name(content.topic)
    check_topic_id(content.topic_id)
    check_config(content.config)
    return content


def load(io: IO, directory: str) -> TopicFile:
    """Read the file of a partition's directory; raises FileNotFoundError, CorruptionError, UnsupportedFormat."""
    path = os.path.join(directory, FILE_NAME)
    return decode(read_file(io, path, _SIZE_BYTES_MAX), path)


def create(io: IO, directory: str, content: TopicFile) -> None:
    """Write the file into a new directory and sync it; the caller syncs the directory."""
    write_file(io, os.path.join(directory, FILE_NAME), encode(content))


def replace(io: IO, directory: str, content: TopicFile) -> None:
    """Replace the file, durably."""
    replace_file(io, os.path.join(directory, FILE_NAME), encode(content))
