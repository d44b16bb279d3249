"""What the captures of all databases have in common: first the snapshot, then the changes."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, ClassVar

from logdb_connect.config import ConfigDef
from logdb_connect.connectors.capture.events import Change, Recorder, expression_faults
from logdb_connect.connectors.sql.settings import check_offsets
from logdb_connect.data import SourceBatch, SourceRecord, SourceRecords
from logdb_connect.errors import ConnectError, RetriableError
from logdb_connect.plugin import Properties, SourceConnector, SourceTask

Offset = Mapping[str, Any]
Snapshot = Iterator[Sequence[Change]]

_ATTEMPTS, _BACKOFF = 20, 0.5


class CaptureTask(SourceTask):
    """Reads the snapshot, some rows at a time, and then changes.

    An offset of the snapshot has ``snapshot``: a task that finds one begins the snapshot again.  The last one of a snapshot has none.
    """

    config_def: ClassVar[ConfigDef]

    _snapshot: Snapshot | None = None
    _waits = False

    def start(self, properties: Properties) -> None:
        config = self.config_def.parse(properties)
        if faults := expression_faults(config):
            raise ConnectError("; ".join(faults.values()))
        self._config = config
        self._partition = {"server": config["topic.prefix"]}
        for attempt in count(1):
            try:
                self._begin(properties)
            except RetriableError as error:
                if attempt == _ATTEMPTS or self.context.is_stopping():
                    raise ConnectError(f"{attempt} attempts failed. {error}") from error
                self.context.wait(_BACKOFF)
            else:
                return

    def _begin(self, properties: Properties) -> None:
        self._recorder = self._connect(properties)
        known = self.context.offset(self._partition)
        mode = self._config["snapshot.mode"]
        unfinished = known is None or bool(known.get("snapshot"))
        if mode == "always" or (unfinished and mode in {"initial", "initial_only"}):
            self._begin_snapshot(with_rows=True)
        elif known is not None and not unfinished:
            self._continue(known)
        else:
            self._begin_snapshot(with_rows=False)

    def poll(self) -> SourceRecords:
        if self._snapshot is not None:
            return self._more_of_snapshot()
        if self._config["snapshot.mode"] == "initial_only":
            self.context.wait(self._config["poll.interval.ms"] / 1000)
            return None
        if self._waits:
            self._pause(self._config["poll.interval.ms"] / 1000)
        found = self._changes()
        self._waits = not found
        return found or None

    # ------------------------------------------------------------ of each database

    def _connect(self, properties: Properties) -> Recorder:
        """Check the database and the settings."""
        raise NotImplementedError

    def _begin_snapshot(self, *, with_rows: bool) -> None:
        """Set ``_snapshot``; before its end it sets ``_snapshot_position``."""
        raise NotImplementedError

    def _continue(self, offset: Offset) -> None:
        """Read changes behind ``offset``."""
        raise NotImplementedError

    def _changes(self) -> list[SourceRecord]:
        """The next changes; none if there are none now."""
        raise NotImplementedError

    def _snapshot_ended(self) -> None:
        """Read changes from the position of the snapshot on."""

    def _pause(self, seconds: float) -> None:
        """Wait for changes."""
        self.context.wait(seconds)

    # ------------------------------------------------------------ the snapshot

    _snapshot_position: Offset = {}  # noqa: RUF012 -- replaced, never changed

    def _more_of_snapshot(self) -> SourceRecords:
        assert self._snapshot is not None
        changes = next(self._snapshot, None)
        if changes is None:
            self._snapshot = None
            self._snapshot_ended()
            return SourceBatch(source_partition=self._partition, offset=self._snapshot_position, topic="", values=[])  # the offset alone
        offset = {**self._snapshot_position, "snapshot": True}
        return [record for change in changes for record in self._recorder.records(change, self._partition, offset)]


class CaptureConnector(SourceConnector):
    """One task captures all tables, for the order of their changes."""

    task_class: ClassVar[type]

    def task_configs(self, max_tasks: int) -> Sequence[Properties]:
        return [self._properties] if max_tasks else []

    def validate(self, properties: Properties) -> Mapping[str, str]:
        return expression_faults(self.config_def.parse(properties))

    def alter_offsets(self, properties: Properties, offsets: Mapping[str, Any]) -> None:
        check_offsets(offsets, ("server",), ("lsn", "txId", "events", "pos", "event", "row"))
