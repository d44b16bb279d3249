"""The source of object stores: reads what the sink wrote, in the order of the offsets in the names.

The records of ``topics/<topic>/…/<source>+<partition>+<offset>.<extension>`` go to the topic ``<topic>``.  A source partition is the store,
the topic, ``<source>`` and ``<partition>``.  Its offset is the last object and how many of its records were read.
"""

import logging
import re
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from logdb_connect.config import ConfigDef, ConfigKey, at_least
from logdb_connect.connectors.objects.formats import Rows, format_of
from logdb_connect.connectors.objects.settings import FORMAT, STORE
from logdb_connect.connectors.objects.stores import NoSuchObject, open_store
from logdb_connect.data import SourceBatch
from logdb_connect.errors import ConnectError, DataError, RetriableError
from logdb_connect.plugin import Properties, SourceConnector, SourceTask

_log = logging.getLogger(__name__)

_TASK, _TASKS = "logdb.task", "logdb.tasks"
_IDLE_S = 0.2


class _Object(NamedTuple):
    """An object of the sink, by the parts of its name; objects sort by offset."""

    begin: int
    name: str


_Part = tuple[str, str, int]
"""Topic, the topic in the last part of the name, and partition."""


class ObjectStoreSourceTask(SourceTask):
    """Reads the objects of some partitions.

    State:
        _listed_s: When the store was listed last.
        _waiting: Objects that were listed and not read yet.
        _missing: The object that was listed last, and could not be read because there was none.
        _rows: Values of the present object that are not given yet, with the number of those that were.
    """

    def start(self, properties: Properties) -> None:
        config = ObjectStoreSourceConnector.config_def.parse(properties)
        self._store, self._format, self._batch_size = open_store(config), format_of(config), config["batch.size"]
        self._topics_dir, self._delimiter = config["topics.dir"].strip(), config["directory.delim"]
        self._pattern = re.compile(f"(.+){re.escape(config['file.delim'])}([0-9]+){re.escape(config['file.delim'])}([0-9]+)")
        self._topics = re.compile(config["topic.regex"])
        self._keeps_partition: bool = config["keep.partition"]
        self._prefix: str = config["topic.prefix"]
        self._poll_s = config["s3.poll.interval.ms"] / 1000
        self._share = int(properties.get(_TASK, 0)), int(properties.get(_TASKS, 1))
        self._listed_s = -self._poll_s
        self._waiting: list[tuple[_Part, _Object]] = []
        self._missing = ""
        self._done: dict[_Part, tuple[int, int]] = {}
        self._rows: list[Rows] = []
        self._read = 0

    def poll(self) -> SourceBatch | None:
        while not self._rows:
            if not self._waiting and not self._list():
                self.context.wait(_IDLE_S)
                return None
            self._fetch()
        schema, values = self._rows[0]
        part, object_ = self._waiting[0]
        given, rest = values[: self._batch_size], values[self._batch_size :]
        self._read += len(given)
        if rest:
            self._rows[0] = (schema, rest)
        else:
            del self._rows[0]
        self._done[part] = object_.begin, self._read
        if not self._rows:
            del self._waiting[0]
            self._done[part] = object_.begin, -1
        topic, _, partition = part
        return SourceBatch(
            source_partition=self._source_partition(part),
            offset={"object": object_.name, "offset": object_.begin, "records": self._read},
            topic=self._prefix + topic,
            values=given,
            value_schema=schema,
            partition=partition if self._keeps_partition else None,
        )

    def _source_partition(self, part: _Part) -> dict[str, Any]:
        return {"store": self._store.name, "topic": part[0], "source": part[1], "partition": part[2]}

    def _list(self) -> bool:
        """Find objects that come after what was read."""
        now = time.monotonic()
        if now - self._listed_s < self._poll_s:
            return False
        self._listed_s = now
        found = []
        for name in self._store.names(self._topics_dir):
            if (parsed := self._parse(name)) is None:
                continue
            part, object_ = parsed
            begin, read = self._position(part)
            if object_.begin > begin or (object_.begin == begin and read >= 0):
                found.append((part, object_))
        found.sort(key=lambda each: (each[0], each[1]))
        self._waiting = found
        return bool(found)

    def _parse(self, name: str) -> tuple[_Part, _Object] | None:
        """The parts of a name, or None for an object that is none of the sink's, or another task's."""
        *directories, last = name.split(self._delimiter)
        if self._topics_dir:
            directories = directories[len(self._topics_dir.split(self._delimiter)) :]
        if not directories or not last.endswith(self._format.extension) or not self._topics.fullmatch(directories[0]):
            return None
        found = self._pattern.fullmatch(last[: len(last) - len(self._format.extension)])
        if found is None:
            return None
        part = directories[0], found[1], int(found[2])
        number, count = self._share
        if zlib.crc32(repr(part).encode()) % count != number:
            return None
        return part, _Object(int(found[3]), name)

    def _position(self, part: _Part) -> tuple[int, int]:
        """First offset of the last object, and how many of its records were read: -1 where it was read to its end."""
        if part not in self._done:
            offset = self.context.offset(self._source_partition(part))
            self._done[part] = (-1, -1) if offset is None else (int(offset["offset"]), int(offset["records"]))
        return self._done[part]

    def _fetch(self) -> None:
        part, object_ = self._waiting[0]
        begin, read = self._position(part)
        skip = read if object_.begin == begin else 0
        try:
            rows = list(self._format.read(self._store.get(object_.name)))
        except NoSuchObject as error:
            self._list_again(object_.name, error)
            return
        except DataError as error:
            raise ConnectError(f"Cannot read the object {object_.name} of {self._store.name}: {error}") from error
        self._read, self._rows, self._missing = skip, [], ""
        for schema, values in rows:
            if rest := values[skip:]:
                self._rows.append((schema, rest))
            skip = max(0, skip - len(values))
        if not self._rows:
            self._done[part] = object_.begin, -1
            del self._waiting[0]

    def _list_again(self, name: str, error: NoSuchObject) -> None:
        """An object was removed, or is written anew: the store is listed before a later object is read."""
        self._waiting, self._listed_s = [], time.monotonic() - self._poll_s
        if name == self._missing:
            raise RetriableError(f"{self._store.name} lists {name}, which it cannot read; the task tries again") from error
        _log.warning("%s: %s was removed before it was read: its records are left out unless it is listed again", self._store.name, name)
        self._missing = name


class ObjectStoreSourceConnector(SourceConnector):
    """Objects that the sink wrote, as records: a topic is restored under its name."""

    task_class = ObjectStoreSourceTask
    version = "1.0"
    config_def: ClassVar[ConfigDef] = (
        STORE
        + FORMAT
        + ConfigDef(
            ConfigKey("topic.regex", "STRING", ".*", "Topics to read: their names in the store match this", "MEDIUM"),
            ConfigKey("topic.prefix", "STRING", "", "What the names of the topics that are written begin with", "MEDIUM"),
            ConfigKey(
                "keep.partition",
                "BOOLEAN",
                False,
                "Whether a record goes to the partition that it was read from. The topic then needs as many partitions",
                "LOW",
            ),
            ConfigKey("batch.size", "INT", 2000, "The maximum number of records of one poll", "LOW", at_least(1)),
            ConfigKey(
                "s3.poll.interval.ms",
                "LONG",
                60_000,
                "Frequency in milliseconds to poll for new or removed folders: how often the store is listed",
                "MEDIUM",
                at_least(0),
            ),
        )
    )

    def task_configs(self, max_tasks: int) -> Sequence[Properties]:
        return [{**self._properties, _TASK: str(number), _TASKS: str(max_tasks)} for number in range(max_tasks)]

    def check(self, config: Mapping[str, Any]) -> Mapping[str, str]:
        try:
            re.compile(config["topic.regex"])
            format_of(config)
            open_store(config)
        except re.error as error:
            return {"topic.regex": f"Invalid value {config['topic.regex']} for configuration topic.regex: {error}"}
        return {}

    def alter_offsets(self, properties: Properties, offsets: Mapping[str, Any]) -> None:
        for offset in offsets.values():
            if offset is not None and not (isinstance(offset, Mapping) and {"offset", "records"} <= set(offset)):
                raise ConnectError("Offset objects should either be null or contain the keys 'offset' and 'records'")
