"""Topics as tables of Iceberg: which topics have one, and when it is updated.  The add-on ``logdb_iceberg`` writes the tables.

docs/inside/iceberg.md has the files of a table and the steps of a commit.

Threading: one table is updated at a time, by the thread ``logdb-parquet`` after the sidecars, or by a caller of ``update``.  No lock is
held that appends or reads wait for.
"""

import contextlib
import functools
import json
import logging
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from logdb.announced import announced
from logdb.disk import names_in, read_while, refuse_link, write_error
from logdb.errors import Closed, LogdbError, PolicyViolation, ReadFailed, UnknownPartition, UnknownTopic, missing_package
from logdb.io import IO
from logdb.log.log import Log
from logdb.log.sealed import sidecar_path
from logdb.meta import SegmentEntry, TopicEntry
from logdb.model import RAW_TABLE, TABLE_HISTORY, TABLE_MODE, TABLE_SCHEMA, TOPIC_CONFIGS, ConfigValue
from logdb.store.housekeeping import UNTIL_ASKED
from logdb.store.sidecars import Sidecars
from logdb.store.state import StoreState
from logdb.threads import renewed

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger(__name__)

DIRECTORY = "iceberg"
_INTERVAL_MS = 15_000
_TRIES = 5
METADATA_SIZE_BYTES_MAX = 256 << 20
"""Of one file of metadata, or of a manifest: more of it is not read."""
_METADATA = re.compile(r"v([1-9]\d{0,17})\.metadata\.json")


class TableSegment(NamedTuple):
    """A sealed segment that may be in a table.

    ``sidecar``: the path of the file to be linked; None: it is made of ``read``.  ``crc``: of the sidecar, or else of the segment.
    ``read``: the records from an offset on, with ``codec.parquet.LOG_COLUMNS``.
    """

    base_offset: int
    next_offset: int
    crc: int
    sidecar: str | None
    read: "Callable[[int], Iterator[pyarrow.RecordBatch]]"


class TablePartition(NamedTuple):
    """A partition: where its log begins and ends, and the sealed segments up to the first that may not be in a table yet."""

    partition: int
    start_offset: int
    end_offset: int
    segments: Sequence[TableSegment]


class SchemaVersion(NamedTuple):
    """A schema of a topic's values, as Avro's JSON, and the first offset of each partition that has it; 0 where none is named."""

    text: str
    begins: Mapping[int, int]


class UpdatedTable(NamedTuple):
    """The result of an update.

    ``metadata_location``: the file of the table's current metadata.  ``added``, ``removed``: numbers of data files.  ``file_count``,
    ``record_count``: of the current snapshot.  ``end_offsets``: where the tail begins, by partition.
    """

    topic: str
    metadata_location: str
    snapshot_id: int
    added: int
    removed: int
    file_count: int
    record_count: int
    end_offsets: Mapping[int, int]


class Updater(Protocol):
    """What the add-on announces as ``update`` in the group ``logdb.iceberg``."""

    def __call__(
        self, directory: str, topic: str, topic_id: str, config: Mapping[str, ConfigValue], partitions: Sequence[TablePartition]
    ) -> UpdatedTable:
        """Bring the table in ``directory`` up to date with the segments and the configs of a topic.

        Raises:
            FileNotFoundError: A sidecar was removed meanwhile; a next call with the present ones may succeed.
        """


class Tables:
    """The tables of a store that is open for writing."""

    def __init__(self, state: StoreState, log: Callable[[str, int], Log], sidecars: Sidecars) -> None:
        """It starts with the thread of ``sidecars``."""
        self._state, self._log, self._sidecars = state, log, sidecars
        self._background = sidecars.background
        self._background.add("iceberg", self._round, interval_ms=_INTERVAL_MS, needed=is_table)
        sidecars.made = self.altered
        self._updating = renewed(threading.Lock())

    def altered(self) -> None:
        """The sealed segments of a topic with a table changed, or its configs."""
        self._background.ask("iceberg")

    def forget(self, topic: str) -> None:
        """A topic was deleted: its table goes."""
        if not self._updating.acquire(blocking=False):
            self.altered()  # an update may take long: the next round removes it
            return
        try:
            if self._state.catalogue.topic(topic) is None:
                directory = table_directory(self._state.path, topic)
                refuse_links(self._state.io, directory)
                shutil.rmtree(directory, ignore_errors=True)
        except ReadFailed as error:
            logger.warning("the table of the deleted topic %s stays: %s", topic, error)
        finally:
            self._updating.release()

    def update(self, topic: str) -> UpdatedTable:
        """Seal what is in the logs of a topic, and commit it to the topic's table; in the caller's thread."""
        entry = self._state.topic(topic)
        if not is_table(entry.config):
            raise PolicyViolation(f"{topic} has no table: set its config {TABLE_MODE} to {RAW_TABLE}, json or avro")
        for number in range(entry.partition_count):
            if mode_of(entry.config) == RAW_TABLE:
                self._sidecars.make(topic, number)
            else:
                self._sidecars.seal(topic, number)
        return self._update(self._state.topic(topic))

    def _round(self) -> float | None:
        """Update all tables; raises the error of the first failed one, after all others were handled."""
        failure: Exception | None = None
        topics = self._state.catalogue.topics()
        for topic in topics.values():
            if is_table(topic.config) and not self._background.stopping:
                try:
                    self._update(topic)
                except (UnknownTopic, UnknownPartition):  # deleted meanwhile
                    continue
                except Closed:
                    return None
                except Exception as error:  # noqa: BLE001 -- errors of pyiceberg have many types
                    error.add_note(f"the table of {topic.name}")
                    failure = failure or error
        try:
            with self._updating:
                self._remove_others()
        except ReadFailed as error:
            failure = failure or error
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # its traceback has this frame
        return UNTIL_ASKED

    def _remove_others(self) -> None:
        """Remove the tables of topics that were deleted, also if there is another topic of that name now; under the lock."""
        parent = os.path.join(self._state.path, DIRECTORY)
        refuse_link(self._state.io, parent)
        try:
            names = names_in(self._state.io, parent)
        except FileNotFoundError:
            return
        topics = self._state.catalogue.topics()
        for name in names:
            directory, topic = os.path.join(parent, name), topics.get(name)
            if topic is None or table_topic_id(self._state.io, directory) not in {"", topic.topic_id}:
                shutil.rmtree(directory, ignore_errors=True)

    def _update(self, topic: TopicEntry) -> UpdatedTable:
        """Bring a table up to date.

        The segments are collected first, and the configs are read after: so these have the schema of each record.  If they changed
        meanwhile, another update may be newer than the segments, which are collected again.
        """
        updater: Updater = load_updater()
        name, directory, tries = topic.name, table_directory(self._state.path, topic.name), 0
        while True:
            partitions = self._partitions(topic, raw=mode_of(topic.config) == RAW_TABLE)
            with self._updating:
                current = self._state.catalogue.topic(name)
                if current is None or current.topic_id != topic.topic_id:
                    raise UnknownTopic(name)  # deleted meanwhile
                self._state.check_writable()
                refuse_links(self._state.io, directory)
                if current != topic:
                    topic = current
                    continue
                try:
                    return updater(directory, name, topic.topic_id, topic.config, partitions)
                except FileNotFoundError:  # compaction or retention has removed a sidecar meanwhile
                    tries += 1
                    if tries == _TRIES:
                        raise
                except OSError as error:
                    raise write_error(directory, 0, error) from error

    def _partitions(self, topic: TopicEntry, *, raw: bool) -> list[TablePartition]:
        found = []
        for number in range(topic.partition_count):
            with contextlib.suppress(UnknownPartition):  # another node of the cluster holds it
                found.append(self._partition(topic, number, raw=raw))
        return found

    def _partition(self, topic: TopicEntry, number: int, *, raw: bool) -> TablePartition:
        log = self._log(topic.name, number)
        if log.had_producers:
            log.sync()  # the end of the transactions must be durable before their records are in a table
        limit = min(log.view.flushed.offset, log.view.last_stable_offset)
        entry, sealed = self._state.catalogue.view(topic.name, number)
        segments = []
        for named in sealed:
            if named.next_offset <= entry.start_offset:
                continue
            linked = raw and named.base_offset >= entry.start_offset  # a segment that begins below has no sidecar, or a larger one
            if named.next_offset > limit or (linked and named.sidecar is None):
                break
            segments.append(self._segment(log, named, linked=linked))
        return TablePartition(number, entry.start_offset, log.end_offset, segments)

    def _segment(self, log: Log, named: SegmentEntry, *, linked: bool) -> TableSegment:
        path, crc = None, named.crc
        if linked:
            assert named.sidecar is not None
            path, crc = sidecar_path(log.directory, named), named.sidecar.crc
        return TableSegment(named.base_offset, named.next_offset, crc, path, partial(self._read, log, named.next_offset))

    def _read(self, log: Log, end_offset: int, offset: int) -> "Iterator[pyarrow.RecordBatch]":
        from logdb.codec import parquet

        for batch in log.read_arrow(
            offset, end_offset=end_offset, columns=parquet.LOG_COLUMNS, isolation_level="read_committed", use_threads=False
        ):
            if self._background.stopping:
                raise Closed("the database is being closed: a table was not updated")
            yield batch


def load_updater() -> Updater:
    """The add-on's function; raises ModuleNotFoundError, which names the package that is not installed."""
    point = announced("logdb.iceberg").get("update")
    try:
        if point is None:
            raise ModuleNotFoundError(name="logdb_iceberg")
        updater: Updater = point.load()
    except ModuleNotFoundError as error:
        raise missing_package("an Iceberg table", str(error.name)) from None
    return updater


def mode_of(config: Mapping[str, ConfigValue]) -> str:
    """The mode of the table of a topic with these configs."""
    return str(config.get(TABLE_MODE, TOPIC_CONFIGS[TABLE_MODE].default))


def schema_versions(config: Mapping[str, ConfigValue]) -> list[SchemaVersion]:
    """The schemas of the values of a topic with these configs, the oldest first; the last one is the current one."""
    versions, begins = [], dict[int, int]()
    for earlier in json.loads(str(config.get(TABLE_HISTORY, "")) or "[]"):
        versions.append(SchemaVersion(json.dumps(earlier["schema"]), begins))
        until = {int(partition): offset for partition, offset in earlier["until"].items()}
        begins = {partition: max(begins.get(partition, 0), until.get(partition, 0)) for partition in sorted({*begins, *until})}
    return [*versions, SchemaVersion(str(config.get(TABLE_SCHEMA, "")), begins)]


def is_table(config: Mapping[str, ConfigValue]) -> bool:
    """Whether a topic with these configs has a table."""
    return mode_of(config) != "disabled"


def table_directory(path: str, topic: str) -> str:
    """The directory of a topic's table in the database at ``path``."""
    return os.path.join(path, DIRECTORY, topic)


def refuse_links(io: IO, directory: str) -> None:
    """Raise ReadFailed if the directory of a table, the one above or one in it is a symbolic link.

    An update writes files there, and deletes all others.
    """
    refuse_link(io, os.path.dirname(directory), directory, *(os.path.join(directory, name) for name in ("data", "metadata")))


def metadata_version(name: str) -> int | None:
    """The number of a file of metadata, by its name; None for other files."""
    found = _METADATA.fullmatch(name)
    return None if found is None else int(found[1])


def current_metadata(io: IO, directory: str) -> tuple[int, str] | None:
    """Number and path of the current metadata of the table in a directory; None if there is none.  Older ones have smaller numbers."""
    parent = os.path.join(directory, "metadata")
    try:
        names = names_in(io, parent)
    except (FileNotFoundError, NotADirectoryError):
        return None
    number = max((version for name in names if (version := metadata_version(name)) is not None), default=0)
    return (number, os.path.join(parent, f"v{number}.metadata.json")) if number else None


def read_metadata(io: IO, path: str) -> Any:
    """The JSON document in a file of metadata.

    Raises:
        FileNotFoundError: There is none.
        ValueError: It is damaged, or too large.
        ReadFailed, CorruptionError: It is a symbolic link, a pipe, or cannot be read.
    """
    data = read_while(io, path, METADATA_SIZE_BYTES_MAX, lambda piece: 0 not in piece)  # a sparse file has zeroes, JSON has none
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def table_topic_id(io: IO, directory: str) -> str:
    """The id of the topic whose table is in a directory; empty if there is none, or its metadata is damaged."""
    if (found := current_metadata(io, directory)) is None:
        return ""
    try:
        return _id_in(io, found[1], io.path_version(found[1]))
    except (OSError, LogdbError, ValueError, LookupError, TypeError, AttributeError):
        return ""


@functools.lru_cache(256)
def _id_in(io: IO, path: str, _version: tuple[int, ...] | None) -> str:
    """The id in a file of metadata, which stays as it is."""
    return str(read_metadata(io, path)["properties"].get("logdb.topic-id", ""))
