"""The database in a directory: a store and a broker in this process."""

import contextlib
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from logdb.client.addresses import path_of
from logdb.client.database import Database
from logdb.client.offline import verify
from logdb.io import IO
from logdb.log.isolation import IsolationLevel
from logdb.log.log import Log
from logdb.mistakes import OF_THE_CALL, checked_call, explained, must_be
from logdb.model import INTERNAL_TOPICS, Durability
from logdb.requests.report import Copied, Progress, Report
from logdb.store.cleaner import CLEANER_BYTES_PER_SECOND
from logdb.store.retention import CHECK_INTERVAL_MS
from logdb.store.sidecars import MadeSidecars
from logdb.store.state import Mode
from logdb.store.store import Store
from logdb.threads import renewed

if TYPE_CHECKING:
    from logdb.broker.broker import Broker
    from logdb.client.security_admin import SecurityAdmin
    from logdb.client.table.view import TopicViews
    from logdb.store.tables import UpdatedTable
    from logdb.store.tiers import TopicTiers


class LocalDatabase(Database):
    """Topics and partitions in a directory."""

    def __init__(self, store: Store, offsets_retention_minutes: int | None = None) -> None:
        super().__init__(store)
        self._store, self._offsets_retention_minutes = store, offsets_retention_minutes
        self._broker: Broker | None = None
        self._broker_lock = renewed(threading.Lock())
        if store.mode == "a" and INTERNAL_TOPICS[1] in store.topic_names():
            session = self._session  # without it, compaction deletes no transaction's decision
            if not store.was_closed:
                try:
                    session.dangling.start()
                except BaseException:
                    self.close()
                    raise

    @property
    def _session(self) -> "Broker":
        """The session of producers and consumers; made at its first use."""
        broker = self._broker
        if broker is not None:
            return broker
        from logdb.broker.broker import Broker  # an application that only appends and reads needs none
        from logdb.coordinator.groups import GroupConfig

        minutes = self._offsets_retention_minutes
        config = GroupConfig() if minutes is None else GroupConfig(offsets_retention_ms=minutes * 60_000)
        with self._broker_lock:
            if self._broker is None:
                self._check_not_ended()
                self._broker = Broker(self._store, self._store, group_config=config)
            return self._broker

    @property
    def path(self) -> str:
        return self._store.path

    @property
    def mode(self) -> Mode:
        return self._store.mode

    def log(self, topic: str, partition: int = 0) -> Log:
        try:
            log = self._store.open_log(topic, partition)
        except OF_THE_CALL as error:
            raise error.with_traceback(None) from error.__cause__
        except (TypeError, AttributeError) as error:
            raise explained(error, Database.log, topic=topic, partition=partition) from error.__cause__
        if self._broker is not None or log.open_transactions():
            self._session.log(topic, partition)  # which ends what an earlier process left open
        return log

    def _appended_log(self, topic: str, partition: int) -> Log:
        return self._store.open_log(topic, partition)

    def _count_of(self, topic: str) -> int:
        return self._store.topic(topic).partition_count

    def _open_views(self) -> "TopicViews":
        from logdb.client.table.view import TopicViews

        store = self._store
        directory = os.path.join(store.path, "views") if store.mode == "a" else None
        return TopicViews(self._session, directory, clean_offset=store.clean_offset, io=store.io, clock_ms=store.clock_ms)

    @property
    def security(self) -> "SecurityAdmin":
        from logdb.access.security import DocumentCredentialStore  # few programs need it
        from logdb.client.security_admin import SecurityAdmin

        return SecurityAdmin(DocumentCredentialStore(self._store.security, self._store.io.clock_ms))

    @checked_call
    def verify(self, progress: Progress | None = None) -> Report:
        return verify(self.path, progress=progress)

    @checked_call
    def snapshot(self, path: str | os.PathLike[str], *, progress: Progress | None = None) -> Copied:
        from logdb.store.copy.snapshot import snapshot  # few programs need it

        return snapshot(self._store, path_of(path), progress)

    @checked_call
    def backup(
        self, path: str | os.PathLike[str], *, base: str | os.PathLike[str] | None = None, progress: Progress | None = None
    ) -> Copied:
        from logdb.broker.decisions import step_of  # few programs need it
        from logdb.store.copy.backup import backup
        from logdb.store.directories import check_outside

        check_outside(os.path.abspath(target := path_of(path)), self.path)
        return backup(self._store, target, None if base is None else path_of(base), progress, step_of=step_of)

    @checked_call
    def make_parquet(self, topic: str, partition: int | None = None, *, progress: Progress | None = None) -> list[MadeSidecars]:
        self._base.check_open(writable=True)
        numbers = range(self._count_of(topic)) if partition is None else (partition,)
        return [self._store.make_sidecars(topic, number, progress) for number in numbers]

    @checked_call
    def update_iceberg(self, topic: str) -> "UpdatedTable":
        self._base.check_open(writable=True)
        return self._store.update_table(topic)

    @checked_call
    def topic_tiers(self, topic: str, *, isolation_level: IsolationLevel = "read_uncommitted") -> "TopicTiers":
        from logdb.store.tiers import topic_tiers  # few programs need it

        return topic_tiers(self._store, topic, isolation_level)

    def _tiers(self, topic: str, isolation_level: IsolationLevel) -> "TopicTiers | None":
        return self.topic_tiers(topic, isolation_level=isolation_level)

    def _closing(self, closing: contextlib.ExitStack) -> None:
        super()._closing(closing)
        with self._broker_lock:  # wait for one that is being made
            if self._broker is not None:
                closing.callback(self._broker.close)


def open_database(
    path: str | os.PathLike[str],
    *,
    mode: Mode = "a",
    durability: Durability = "interval",
    batch_size: int = 16_384,
    linger_ms: int = 5,
    retention_check_interval_ms: int = CHECK_INTERVAL_MS,
    cleaner_bytes_per_second: int = CLEANER_BYTES_PER_SECOND,
    offsets_retention_minutes: int | None = None,
    io: IO | None = None,
    clock: Callable[[], int] | None = None,
) -> LocalDatabase:
    """The database in a directory; see ``client.opening``."""
    if offsets_retention_minutes is not None and offsets_retention_minutes < 1:
        raise ValueError(must_be("offsets_retention_minutes", offsets_retention_minutes, "a whole number, 1 or more, or None"))
    store = Store.open(
        path,
        mode=mode,
        durability=durability,
        batch_size=batch_size,
        linger_ms=linger_ms,
        retention_check_interval_ms=retention_check_interval_ms,
        cleaner_bytes_per_second=cleaner_bytes_per_second,
        io=io,
        clock=clock,
    )
    try:
        return LocalDatabase(store, offsets_retention_minutes)
    except BaseException:  # also a Ctrl-C, which leaves the caller no handle
        store.close()
        raise
