"""The life of connectors and tasks: what a plugin implements.  Kafka's names in Python's spelling (``org.apache.kafka.connect.connector``).

A connector lives in the worker: it validates properties, and says which tasks do the work.  A task does the work, in a thread of its
own.  The worker calls one method of a task at a time:

    source:  start ──► poll, commit, poll, commit, … ──► stop
    sink:    start ──► open ──► put, put, pre_commit, put, … ──► close ──► stop        (open and close at each rebalance)

``stop`` of a source may come from another thread while ``poll`` waits: ``poll`` then returns soon.  A method that raises
``RetriableError`` is called again after a pause; any other error makes the task FAILED, and the trace stands in its status.

The base classes are a convenience: any class with these methods will do.  A connector and its task take no arguments.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from logdb import OffsetAndMetadata, TopicPartition
from logdb_connect.config import ConfigDef
from logdb_connect.data import ConnectRecord, Schema, SinkRecord, SourceRecord, SourceRecords
from logdb_connect.errors import ConfigError

if TYPE_CHECKING:
    from logdb_connect.client import Client

Properties = Mapping[str, str]
"""Properties of a connector or a task, as in a property file."""


class ConnectorContext(Protocol):
    """What a worker offers a connector."""

    def request_task_reconfiguration(self) -> None:
        """Ask the worker to call ``task_configs`` again: there are more tables, files or partitions now."""

    def raise_error(self, error: Exception) -> None:
        """Make the connector FAILED; a connector calls this from threads of its own."""


class Connector:
    """The base of ``SourceConnector`` and ``SinkConnector``.

    Attributes:
        config_def: The properties beside those that every connector has.
        task_class: A ``SourceTask`` or a ``SinkTask``.
        version: Shown by ``/connector-plugins``.
        defaults: Properties that come before the worker's where the connector has none: its converters.
        prefixes: Beginnings of further properties that it knows, of clients of its own.
    """

    config_def: ClassVar[ConfigDef] = ConfigDef()
    task_class: ClassVar[type]
    version: ClassVar[str] = "undefined"
    defaults: ClassVar[Properties] = {}
    prefixes: ClassVar[tuple[str, ...]] = ()

    context: ConnectorContext
    """Set by the worker before ``start``."""

    def start(self, properties: Properties) -> None:
        """Begin; ``properties`` have passed ``config_def`` and ``validate``.  Keeps them as ``_properties``, for ``task_configs``."""
        self._properties = dict(properties)

    def task_configs(self, max_tasks: int) -> Sequence[Properties]:
        """Properties of at most ``max_tasks`` tasks; one task has one entry."""
        raise NotImplementedError

    def validate(self, properties: Properties) -> Mapping[str, str]:
        """Errors that ``config_def`` cannot see, by property: ``{"file": "is a directory"}``; those of ``check``."""
        try:
            config = self.config_def.parse(properties)
        except ConfigError:
            return {}  # the table says it
        try:
            return self.check(config)
        except ConfigError as error:
            return {error.name: str(error)}

    def check(self, config: Mapping[str, Any]) -> Mapping[str, str]:
        """As ``validate``, of values that have passed ``config_def``.

        Raises:
            ConfigError: Another way to say it.
        """
        return {}

    def stop(self) -> None:
        """End; no method is called after this."""


class SourceConnector(Connector):
    """Data in: its tasks are ``SourceTask``."""

    def exactly_once(self, properties: Properties) -> bool:
        """Whether its tasks continue exactly after the last offset that they are given (KIP-618)."""
        return True

    def can_define_transaction_boundaries(self, properties: Properties) -> bool:
        """Whether its tasks end their transactions by ``context.transaction_context`` (KIP-618)."""
        return False

    def alter_offsets(self, properties: Properties, offsets: Mapping[str, Any]) -> None:
        """Check offsets that an administrator sets, and move what the source itself keeps (KIP-875).

        Args:
            offsets: By source partition, as JSON; None forgets one.

        Raises:
            ConnectError: The offsets are not of this connector's shape.
        """


class SinkConnector(Connector):
    """Data out: its tasks are ``SinkTask``.

    Attributes:
        spark: What kind of query it is with ``logdb.runner=spark``: ``objects`` or ``sql``; None: it runs in the worker alone.
    """

    spark: ClassVar[str | None] = None

    def alter_offsets(self, properties: Properties, offsets: Mapping[TopicPartition, int | None]) -> None:
        """As ``SourceConnector.alter_offsets``; an offset of None forgets the partition's."""


class TransactionContext(Protocol):
    """Where a source task ends its transactions (KIP-618).  A transaction that it has not ended goes on with the next ``poll``."""

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """Commit after this record; None: after the records of this ``poll``, or of the next one that gives any."""

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        """Drop the records of the transaction, up to there.  Their offsets are committed: they do not come again."""


class SourceTaskContext(Protocol):
    """What a worker offers a source task."""

    @property
    def transaction_context(self) -> TransactionContext | None:
        """None, unless the connector has ``transaction.boundary=connector``, and the worker is exactly once."""

    @property
    def client(self) -> "Client":
        """The worker's database, which records go to: for topics and groups that the task looks after."""

    def offset(self, source_partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The last committed ``source_offset`` of a part of the source, or None: begin at its start."""

    def is_stopping(self) -> bool:
        """Whether ``poll`` must return soon."""

    def wait(self, seconds: float) -> None:
        """Sleep, but wake up when the task is stopped: for a source that has nothing now."""


class SourceTask:
    """Reads a source.

    A task may have a method ``written(offsets: Mapping[TopicPartition, range])``.  It is called before ``commit``, with the offsets that
    the records have got: from the first of each partition to the last, where other records may lie in between.
    """

    context: SourceTaskContext
    """Set by the worker before ``start``."""

    def start(self, properties: Properties) -> None:
        """Open the source, and continue at ``context.offset``."""

    def poll(self) -> SourceRecords:
        """The next records.  Waits for a moment (``context.wait``) where there are none, then gives None."""
        raise NotImplementedError

    def commit(self) -> None:
        """All records that ``poll`` has given are stored, with their offsets: the source may forget them."""

    def stop(self) -> None:
        """Close the source.  Called once, also after a failure of ``start``; maybe while ``poll`` waits."""


class SinkTaskContext(Protocol):
    """What a worker offers a sink task."""

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The committed offset and its metadata, as ``pre_commit`` gave them.  For ``open``."""

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at ``offset`` with the next ``put``: for a sink that keeps offsets beside its data."""

    def report(self, record: SinkRecord, error: Exception) -> None:
        """This record could not be stored: to the dead letter queue if there is one; else this raises ``error`` (KIP-610)."""

    def wait(self, seconds: float) -> None:
        """Sleep, but wake up when the task is stopped."""


class SinkTask:
    """Writes to a target."""

    context: SinkTaskContext
    """Set by the worker before ``start``."""

    def start(self, properties: Properties) -> None:
        """Open the target."""

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions are the task's from now on, beside those that it has."""

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Store records, or keep them until ``pre_commit``.  Also called with none, at least once in ``offset.flush.interval.ms``."""
        raise NotImplementedError

    def flush(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Store what ``put`` has kept.  For a sink that needs no ``pre_commit`` of its own, which calls this."""

    def pre_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Flush, and say which offsets to commit.

        Args:
            offsets: The position after the last record of each partition that ``put`` got.

        Returns:
            Positions up to which the target keeps the records for sure.  Their metadata comes back as ``context.committed``: a note of
            the sink about its target.  The worker therefore also calls this before the first ``put`` of a partition.
        """
        self.flush(offsets)
        return offsets

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions are no longer the task's.  Comes after a ``pre_commit``, except where the task failed."""

    def stop(self) -> None:
        """Close the target.  Called once, also after a failure."""


class Configurable:
    """A converter, transform or predicate: made without arguments, then configured once.

    Attributes:
        config_def: Its properties, without the prefix that they have in the connector's.
    """

    config_def: ClassVar[ConfigDef] = ConfigDef()

    def configure(self, config: Mapping[str, Any]) -> None:
        """``config`` are the values of ``config_def``, parsed."""

    def close(self) -> None:
        """Release what it holds."""


Columns = tuple[list[Schema | None], list[Any]]
"""The schemas and the values of many records."""


def columns(pairs: Sequence[tuple[Schema | None, Any]]) -> Columns:
    """Of records with a schema and a value each."""
    return [schema for schema, _ in pairs], [value for _, value in pairs]


class Converter(Configurable):
    """Between a value and the bytes of a record.  ``configure`` gets ``converter.type`` beside its own properties: key, value or header."""

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """The bytes of a value.

        Raises:
            DataError: The value does not fit ``schema``, or has no such form.
        """
        raise NotImplementedError

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """The schema and the value of bytes.

        Raises:
            DataError: The bytes are none of this format's.
        """
        raise NotImplementedError

    def from_connect_many(self, topic: str, schema: Schema | None, values: Sequence[Any]) -> list[bytes | None]:
        """As ``from_connect``, of many values of one schema: where speed counts."""
        return [self.from_connect(topic, schema, value) for value in values]

    def to_connect_many(self, topic: str, data: Sequence[bytes | None]) -> Columns:
        """As ``to_connect``, of many values: all schemas, and all values."""
        return columns([self.to_connect(topic, each) for each in data])


class HeaderConverter(Configurable):
    """Between a header's value and its bytes."""

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        """The bytes of a header's value."""
        raise NotImplementedError

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """The schema and the value of a header's bytes."""
        raise NotImplementedError


class Transform(Configurable):
    """Changes a record, or drops it."""

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        """The record that takes its place; None drops it.

        Raises:
            DataError: The record is none that this transform can work with.
        """
        raise NotImplementedError


class Predicate(Configurable):
    """Decides which records a transform applies to."""

    def test(self, record: ConnectRecord) -> bool:
        """Whether the predicate holds for the record."""
        raise NotImplementedError
