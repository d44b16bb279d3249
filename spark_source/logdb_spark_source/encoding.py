"""Encoding rows into record batches: the partition of each row, and the limits of its topic.

A task encodes without a database and without Spark, by the topics' state in its plan.

Columns are those of Spark's Kafka sink: value, and optionally key, headers, partition, topic; others are ignored.  The partition
is chosen as by a producer of logdb: murmur2 of the key; without a key one for each batch of rows, in turn.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from logdb.client.batches import BATCHES_MAX, Batches
from logdb.client.producer.partitioner import partition_for_key
from logdb.codec import convert
from logdb.errors import InvalidTopic, UnknownPartition, UnknownTopic
from logdb.model import COMPRESSION_TYPES, INTERNAL_TOPICS, PARTITION_COUNT_MAX, LogConfig, TopicInfo, TopicPartition
from logdb_spark_source.staging import StagingFile
from logdb_spark_source.uploading import Uploading

if TYPE_CHECKING:
    import pyarrow

_BATCH_SIZE_BYTES = 64 << 10
_BATCH_SIZE_BYTES_MIN = 16 << 10
_MEMORY_BYTES = 64 << 20  # of the open batches of all partitions; more above 800 partitions

Append: TypeAlias = Callable[..., int]


class Target(NamedTuple):
    """A topic as the driver saw it; all tasks of a batch use the same, so that a key has one partition."""

    name: str
    partition_count: int
    config: LogConfig

    @staticmethod
    def of(info: TopicInfo) -> "Target":
        return Target(info.name, info.partition_count, LogConfig.of(info.config, "interval"))


class Encoder:
    """Encodes the rows of one attempt of a task into its staged file, or its uploads.

    Args:
        targets: The existing topics, by name.
        topic: For all rows; None: the column has it.
    """

    def __init__(self, targets: Mapping[str, Target], topic: str | None, file: StagingFile | Uploading) -> None:
        self._targets, self._topic, self._file = targets, topic, file
        self._builders: dict[tuple[str, int], Batches] = {}
        self._turn = random.randrange(PARTITION_COUNT_MAX)  # noqa: S311 -- tasks begin with different partitions
        count = sum(targets[name].partition_count for name in ([topic] if topic is not None else targets))
        self._batch_size = min(_BATCH_SIZE_BYTES, max(_BATCH_SIZE_BYTES_MIN, _MEMORY_BYTES // (BATCHES_MAX * max(count, 1))))

    def add(self, rows: "pyarrow.RecordBatch") -> None:
        """Encode rows; the sink has refused columns of other types.

        Raises:
            UnknownTopic, UnknownPartition, InvalidTopic: A row names a topic or partition that does not exist.
            RecordTooLarge, InvalidRecord: The topic refuses a row: a missing key, for example.
            DiskFull and others: as ``StagingFile.add``, ``Uploading.add``.
        """
        if not rows.num_rows:
            return
        nothing: list[bytes | None] = [None] * rows.num_rows
        values, keys, headers = _bytes(rows, "value") or nothing, _bytes(rows, "key"), _headers(rows)
        appends = self._appends(rows, keys)
        keys = keys or nothing
        if callable(appends):
            appends(values, keys, headers=headers)
        elif headers is None:
            for append, value, key in zip(appends, values, keys, strict=True):
                append(value, key)
        else:
            for append, value, key, pairs in zip(appends, values, keys, headers, strict=True):
                append(value, key, headers=pairs)

    def finish(self) -> None:
        """Write the open batches of all partitions."""
        for builder in self._builders.values():
            builder._drain()

    def _appends(self, rows: "pyarrow.RecordBatch", keys: list[bytes | None] | None) -> "Callable[..., object] | list[Append]":
        """The function that appends each row, or all of them at once if they go to one partition."""
        topics, partitions = self._topics(rows), _column(rows, "partition")
        if topics is None and partitions is None:
            target = self._targets[str(self._topic)]
            if target.partition_count == 1 or keys is None:
                return self._builder(target, self._sticky(target)).append_many
            return self._by_key(target, keys)
        count = rows.num_rows
        sticky: dict[str, int] = {}  # one partition for all rows without a key
        appends = []
        for topic, partition, key in zip(
            topics or [self._topic] * count, partitions or [None] * count, keys or [None] * count, strict=True
        ):
            target = self._target(topic)
            if partition is not None:
                chosen = partition
            elif key is not None:
                chosen = partition_for_key(key, target.partition_count)
            else:
                chosen = sticky[target.name] if target.name in sticky else sticky.setdefault(target.name, self._sticky(target))
            appends.append(self._builder(target, chosen).append)
        return appends

    def _by_key(self, target: Target, keys: list[bytes | None]) -> list[Append]:
        count, sticky = target.partition_count, self._sticky(target)
        chosen = [sticky if key is None else partition_for_key(key, count) for key in keys]
        appends = {partition: self._builder(target, partition).append for partition in set(chosen)}
        return [appends[partition] for partition in chosen]

    def _sticky(self, target: Target) -> int:
        """The next partition in turn."""
        self._turn += 1
        return self._turn % target.partition_count

    def _topics(self, rows: "pyarrow.RecordBatch") -> list[str | None] | None:
        return None if self._topic is not None else _column(rows, "topic")

    def _target(self, topic: str | None) -> Target:
        if topic is None:
            raise InvalidTopic("null", "a row has no topic: set the column, or the option 'topic'")
        target = self._targets.get(topic)
        if target is None:
            if topic in INTERNAL_TOPICS:
                raise InvalidTopic(topic, "logdb alone writes to it")
            raise UnknownTopic(topic, known=tuple(sorted(self._targets)))
        return target

    def _builder(self, target: Target, partition: int) -> Batches:
        builder = self._builders.get((target.name, partition))
        if builder is None:
            if not 0 <= partition < target.partition_count:
                raise UnknownPartition(target.name, partition, target.partition_count)
            builder = self._builders[target.name, partition] = Batches(target.name, target.config, self._batch_size, None)
            builder.take = self._taker(TopicPartition(target.name, partition), target.config)
        return builder

    def _taker(self, partition: TopicPartition, config: LogConfig) -> Callable[[memoryview, int], None]:
        codec, most, add = COMPRESSION_TYPES.index(config.compression_type), config.max_message_bytes, self._file.add

        def take(batches: memoryview, record_count: int) -> None:
            add(partition, convert.compress_batches(batches, codec, size_bytes_max=most) if codec else batches, record_count)

        return take


# ---------------------------------------------------------------- columns


def _column(rows: "pyarrow.RecordBatch", name: str) -> list[Any] | None:
    found = rows.schema.get_field_index(name)
    return None if found < 0 else rows.column(found).to_pylist()


def _bytes(rows: "pyarrow.RecordBatch", name: str) -> list[bytes | None] | None:
    """A column of strings or bytes, as bytes; None without it."""
    import pyarrow

    found = rows.schema.get_field_index(name)
    if found < 0:
        return None
    column = rows.column(found)
    if pyarrow.types.is_large_string(column.type):
        column = column.cast(pyarrow.large_binary())
    elif pyarrow.types.is_string(column.type):
        column = column.cast(pyarrow.binary())
    bytes_of_rows: list[bytes | None] = column.to_pylist()
    return bytes_of_rows


def _headers(rows: "pyarrow.RecordBatch") -> Iterable[list[tuple[str, bytes | None]]] | None:
    column = _column(rows, "headers")
    if column is None:
        return None
    return [[(header["key"], header["value"]) for header in headers or ()] for headers in column]
