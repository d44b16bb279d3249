"""Runs one coordinator on one partition of an internal topic: append, accept, wait, answer (``coordinator.effects``).

Knows the order of these, who waits for an answer, and what is left to be done when one of them fails.  Does not know
groups or transactions, nor how actions are carried out: the broker does.

    load ──► event ──► handle ──► append ──► accept, timers ──► synced ──► answers, actions ──► event: done or failed
                                    │                             │
                                    │ not accepted                │ not synced
                                    ▼                             ▼
                        error, nothing has changed     error; tried again before the next event, or soon

A write that failed may have been kept by the log, to be tried again (a full disk).  It will be in the partition then,
and so in a later replay; therefore it is finished before the shard handles anything else, and only then accepted.

Threading: any thread.  ``_lock`` is held from loading to accepting, not while waiting for a sync, answering or acting.
"""

import contextlib
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from logdb.broker.replay import replay
from logdb.broker.timers import Timers
from logdb.codec import BatchBuilder
from logdb.codec.convert import stamp_producer
from logdb.coordinator.effects import (
    RETRY_MS,
    Action,
    ActionDone,
    ActionFailed,
    Coordinator,
    Effects,
    Reply,
    StateRecord,
    TimerFired,
    TimerKey,
)
from logdb.errors import LogdbError, SyncFailed, release_frames
from logdb.log.log import Log
from logdb.model import Durability, ProducerIdAndEpoch
from logdb.threads import renewed

logger = logging.getLogger(__name__)

C = TypeVar("C", bound=Coordinator)
T = TypeVar("T")
_RETRY: TimerKey = ("runner: finish what a failure left behind",)
_DEFERRED: TimerKey = ("runner: append what could wait",)
_DEFER_MS = 100

tickets = itertools.count(1)
"""Numbers for requests, one for each."""


class Shard(Generic[C]):
    """One partition of an internal topic and the coordinator whose state it holds."""

    def __init__(
        self,
        log: Log,
        coordinator: C,
        *,
        clock: Callable[[], int],
        timers: Timers,
        act: Callable[[Action], None],
        while_appending: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
        follows: bool = False,
    ) -> None:
        """Begin with nothing loaded: the first call does that.

        Args:
            clock: Time of day, in ms since 1970.
            act: Carries out an action, or raises what kept it from that.
            while_appending: Entered while records are appended.
            follows: The partition is another process's to write: read on before each query, and handle no events.
        """
        self.log, self._coordinator = log, coordinator
        self._clock, self._timers, self._act, self._follows = clock, timers, act, follows
        self._while_appending = while_appending
        self._lock = renewed(threading.RLock())
        self._load_lock = renewed(threading.RLock())  # taken before ``_lock``
        self._ready = self._recovered = False  # what loading calls for is done; is accepted
        self._loaded_offset = -1  # up to where the partition was replayed
        self._waiting: dict[int, Future[Any]] = {}
        self._appending: tuple[Effects, int] | None = None  # not accepted yet; in the log from that offset on, perhaps
        self._deferred: list[StateRecord] = []  # accepted; to be appended before the next ones
        self._outbox: deque[Effects] = deque()  # accepted; their actions have not begun
        self._failed: SyncFailed | None = None
        self._ended: LogdbError | None = None  # why nothing is handled any more

    # ------------------------------------------------------------ what the broker calls

    def load(self) -> None:
        """Replay the partition, once, and carry out what that calls for."""
        if self._ready:
            return
        if not self._follows:
            self._timers.start()
        with self._load_lock:
            if self._recovered:  # by another thread meanwhile, or by this one, which is at what that called for
                return
            with self._lock:
                if self._loaded_offset < 0:
                    self._loaded_offset = replay(self.log, self._coordinator, self.log.start_offset)
                self._settle()
                effects = Effects() if self._follows else self._carry_out(self._coordinator.recover(self._clock()))
                self._recovered = True
            try:
                self._finish(effects)
            finally:
                self._ready = True

    def query(self, function: Callable[[C], T]) -> T:
        """What ``function`` reads from the coordinator's state."""
        self.load()
        with self._lock:
            if self._follows:
                self._loaded_offset = replay(self.log, self._coordinator, self._loaded_offset)
            return function(self._coordinator)

    def call(self, event: Any) -> Any:
        """Handle a request and return its answer, however long that takes; an error is raised."""
        answer = self.submit(event)
        if isinstance(answer, Future):
            return answer.result()
        if isinstance(answer.result, LogdbError):
            raise answer.result
        return answer.result

    def submit(self, event: Any) -> "Reply | Future[Any]":
        """Handle a request; returns the answer, or a future of it where that comes with a later event.

        Raises:
            LogdbError: What it would change could not be written.
        """
        self.load()
        with self._lock:
            effects = self._step(event)
            answer: Reply | Future[Any] | None = next((reply for reply in effects.replies if reply.ticket == event.ticket), None)
            if answer is None:
                if self._ended is not None:  # what it waits for may never come
                    raise self._ended
                answer = self._waiting[event.ticket] = Future()
        try:
            self._finish(effects)
        except LogdbError:
            self._waiting.pop(event.ticket, None)
            raise
        return answer

    def tell(self, event: Any) -> None:
        """Handle an event that nobody waits for an answer to."""
        self.load()
        with self._lock:
            effects = self._step(event)
        self._finish(effects)

    def fire(self, key: TimerKey) -> None:
        """Called by the timers: ``key`` is due."""
        with self._lock:
            if not self._timers.claim((self, key)):
                return
            try:
                self._settle()
                if key is _DEFERRED:
                    self._write_deferred()
                effects = Effects() if key in (_RETRY, _DEFERRED) else self._step(TimerFired(key))
            except LogdbError as error:
                logger.warning("%s-%d: a timer: %s", self.log.topic, self.log.partition, error)
                if not isinstance(error, SyncFailed):
                    self._timers.set((self, key), RETRY_MS)
                return
        self._finish(effects)

    def append_marker(self, producer: ProducerIdAndEpoch, *, commit: bool, coordinator_epoch: int) -> None:
        """End a producer's transaction on this very partition, and in the state behind it."""
        self.load()
        with self._lock:
            self._settle()
            self.log.append_marker(producer, commit=commit, coordinator_epoch=coordinator_epoch)
            self._coordinator.apply_marker(producer.producer_id, commit=commit)

    def finish(self) -> None:
        """Append what could wait; nothing is lost where that fails."""
        with self._lock, contextlib.suppress(LogdbError):
            self._settle()
            self._write_deferred()

    def end(self, error: LogdbError) -> None:
        """Let nobody wait for an answer any more: who does so, or would, gets ``error``."""
        with self._lock:
            self._ended = error
        self.cancel(error)

    def cancel(self, error: LogdbError) -> None:
        """Answer whoever waits still with ``error``."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.set_exception(error)

    # ------------------------------------------------------------ under the lock

    def _step(self, event: Any) -> Effects:
        self._settle()
        return self._carry_out(self._coordinator.handle(event, self._clock()))

    def _carry_out(self, effects: Effects) -> Effects:
        """Append, accept.

        Raises:
            LogdbError: It could not be written; whoever was to be answered is told so.
        """
        if effects.deferred:
            self._deferred += effects.records
            self._timers.set((self, _DEFERRED), _DEFER_MS)
            self._accept(effects, 0)
        elif effects.records:
            self._write(effects)
        else:
            self._accept(effects, 0)
        return effects

    def _write(self, effects: Effects) -> None:
        """Append records, behind those that could wait, and accept."""
        self._appending = (effects, self.log.end_offset + len(self._deferred))
        try:
            with self._while_appending():
                self._append(effects)
        except LogdbError as error:
            if not getattr(error, "offsets", None):
                self._appending = None
            self._answer(effects, error)
            raise
        self._appended(*self._appending)

    def _write_deferred(self) -> None:
        if self._deferred:
            self._write(Effects())

    def _appended(self, effects: Effects, offset: int) -> None:
        """In this order: whatever interrupts it, ``_settle`` does the rest, and nothing is written twice."""
        self._deferred.clear()
        self._accept(effects, offset)
        self._appending = None

    def _accept(self, effects: Effects, offset: int) -> None:
        self._coordinator.accept(effects, offset)
        if effects.actions:
            self._outbox.append(effects)
        for timer in effects.timers:
            self._timers.set((self, timer.key), timer.delay_ms)

    def _append(self, effects: Effects) -> None:
        """Write the records; a sync comes later, when others may share it."""
        level: Durability | None = "os" if self.log.durability == "fsync" else None
        records = (*self._deferred, *effects.records)
        values, keys = [record.value for record in records], [record.key for record in records]
        if effects.producer is None:
            self.log.append_many(values, keys, durability=level)
        else:
            batches = transactional_batches(values, keys, effects.producer, self._clock())
            self.log.append_batches(batches, durability=level, internal=True)

    def _settle(self) -> None:
        """Finish what a failed write has left, before anything new: what the log has kept is accepted after all.

        Raises:
            LogdbError: It still cannot be written; or what was accepted can never be synced.
        """
        if self._failed is not None:
            raise SyncFailed(self._failed.path, self._failed.reason)
        if self._appending is not None:
            effects, offset = self._appending
            self.log.flush(sync=False)
            if self.log.end_offset > offset - len(self._deferred):  # an interrupted append may have come to nothing
                self._appended(effects, offset)
            self._appending = None

    # ------------------------------------------------------------ without the lock

    def _finish(self, effects: Effects) -> None:
        """Wait until what was accepted is durable, answer, act: also for who was interrupted before it could.

        Raises:
            LogdbError: It is not durable; nobody was answered but with this.
        """
        begun = self._take_outbox() if self._outbox else []
        try:
            self._make_durable(sync=effects.sync or any(other.sync for other in begun))
            self._answer(effects)
            while begun:
                for action in begun[0].actions:
                    self._do(action)
                del begun[0]
        except BaseException as error:
            self._outbox.extendleft(reversed(begun))
            if isinstance(error, LogdbError):
                self._note_failure(effects, error)
            raise

    def _take_outbox(self) -> list[Effects]:
        taken = []
        with contextlib.suppress(IndexError):  # other threads take, too
            while True:
                taken.append(self._outbox.popleft())
        return taken

    def _make_durable(self, *, sync: bool) -> None:
        level = self.log.durability
        if level == "fsync" or (sync and level == "interval"):
            self.log.flush()

    def _note_failure(self, effects: Effects, error: LogdbError) -> None:
        release_frames(error)
        self._answer(effects, error)
        if isinstance(error, SyncFailed):
            self._failed = error
            self.cancel(error)
        else:
            self._timers.set((self, _RETRY), RETRY_MS)

    def _answer(self, effects: Effects, error: LogdbError | None = None) -> None:
        """Give replies to those who wait for them in a future."""
        for ticket, result in effects.replies if self._waiting else ():
            future = self._waiting.pop(ticket, None)
            if future is None:
                continue
            if error is not None or isinstance(result, LogdbError):
                future.set_exception(error or result)
            else:
                future.set_result(result)

    def _do(self, action: Action) -> None:
        """Carry out an action and say how it went; a failure is the coordinator's to deal with."""
        try:
            self._act(action)
            self.tell(ActionDone(action))
        except LogdbError as error:
            logger.warning("%s-%d: %s: %s", self.log.topic, self.log.partition, type(action).__name__, error)
            try:
                self.tell(ActionFailed(action, error))
            except LogdbError as failure:  # not even that can be noted: whoever waits is told
                self.cancel(failure)


# ---------------------------------------------------------------- transactional records


class _Memory(BatchBuilder):
    """Batches in memory."""

    def __init__(self, now_ms: int) -> None:
        super().__init__(next_offset=0, leader_epoch=0, batch_size=1 << 20, write_size=1 << 20, group_size=1 << 20, clock=lambda: now_ms)
        self.batches = bytearray()

    def _write(self, batches: memoryview, _base_offset: int, _next_offset: int, _max_timestamp: int) -> None:
        self.batches += batches


def transactional_batches(values: Sequence[bytes | None], keys: Sequence[bytes], producer: ProducerIdAndEpoch, now_ms: int) -> bytearray:
    """Records as batches of a producer's transaction, without a sequence: as Kafka's coordinators write offsets."""
    memory = _Memory(now_ms)
    memory.append_many(values, keys)
    stamp_producer(memory.batches, producer, -1, transactional=True)
    return memory.batches
