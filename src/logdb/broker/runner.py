"""Runs one coordinator on one partition of an internal topic: append, accept, commit, answer (``coordinator.effects``).

Responsible for this order, for the requests that wait for an answer, and for what is left to do when a step fails.
Leaves groups and transactions to the coordinator, and the execution of actions to the broker.

    load ──► event ──► handle ──► append ──► accept, timers ──► committed ──► answers, actions ──► event: done or failed
                                    │                             │
                                    │ not accepted                │ not committed
                                    ▼                             ▼
                        error, nothing has changed     error; tried again before the next event, or soon

The log may keep a write that failed (a full disk) and try it again.  The record is then in the partition, and in a later
replay: the shard finishes this write before it handles the next event, and only then accepts its effects.

Threading: any thread.  ``_lock`` is held from loading to accepting; not while a thread waits for the commit, answers or
executes an action.
"""

import contextlib
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
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
from logdb.errors import CoordinatorLoading, LogdbError, SyncFailed, release_frames, without_frames
from logdb.log.protocols import ReplicaLog
from logdb.model import ProducerIdAndEpoch
from logdb.threads import renewed

logger = logging.getLogger(__name__)

C = TypeVar("C", bound=Coordinator)
T = TypeVar("T")
_RETRY: TimerKey = ("runner: finish what a failure left behind",)
_DEFERRED: TimerKey = ("runner: append deferred records",)
_DEFER_MS = 100
_NOTHING = contextlib.nullcontext()

tickets = itertools.count(1)
"""Numbers for requests, one for each."""


class Shard(Generic[C]):
    """One partition of an internal topic and the coordinator whose state it holds.

    ==================== ============================== ======================= =============================================
    field                changed by                     under                   to be trusted
    ==================== ============================== ======================= =============================================
    ``_coordinator``     accept, replay, markers        ``_lock``               once ``_ready``, or by the loading thread
    ``_ready``           load                           ``_load_lock``          always; True: loaded, and recovery is carried out
    ``_recovered``       load                           both locks              always; True: replayed, and recovery is accepted
    ``_replayed_offset`` load, query of a reader        ``_lock``               always; -1: nothing is replayed
    ``_accepted_offset`` accept                         ``_lock``               at any time a lower bound: answers wait for it
    ``_waiting``         submit, answers, cancel        pop is atomic           the first answer of a ticket stands
    ``_appending``       append,                        ``_lock``               None: every record of the log is accepted
                         ``_finish_failed_write``
    ``_accepting``       accept                         ``_lock``               None: no accept was interrupted
    ``_deferred``        accept, append                 ``_lock``               always; accepted records that the log lacks
    ``_defers``          accept, fire                   ``_lock``               True: a timer will append the deferred records
    ``_pending``         accept, ``_publish``           popleft is atomic       always; accepted effects whose actions have not begun
    ``_unnoted``         ``_carry_out``,                popleft: ``_lock``      always; how actions ended that no event could tell yet
                         ``_finish_failed_write``
    ``_posted``          post, ``_handle_posted``       pop: ``_lock``          always; events to handle before the next event or query
    ``_failed``          a sync that failed             no lock                 final
    ``_ended``           end                            no lock                 final; nothing is appended once ``end`` has returned
    ``_closing``         stop_waiting                   no lock                 final; replicas are not waited for any more
    ==================== ============================== ======================= =============================================
    """

    def __init__(
        self,
        log: ReplicaLog,
        coordinator: C,
        *,
        epoch: int,
        clock: Callable[[], int],
        timers: Timers,
        execute: Callable[[Action], None],
        while_appending: contextlib.AbstractContextManager[object] = _NOTHING,
        follows: bool = False,
        loads_in_background: bool = False,
    ) -> None:
        """Begin with nothing loaded: the first call loads.

        Args:
            epoch: Leader epoch of the partition in which this node coordinates.
            clock: Time of day, in ms since 1970; the log's.
            execute: Executes an action; raises why it failed.
            while_appending: Entered while records are appended, by several threads at once.
            follows: Another process writes the partition: read on before each query, and handle no events.
            loads_in_background: A request that comes while another thread loads is refused instead of waiting.
        """
        self.log, self.epoch, self._coordinator, self._loads_in_background = log, epoch, coordinator, loads_in_background
        self._clock, self._timers, self._execute, self._follows = clock, timers, execute, follows
        self._while_appending = while_appending
        self._lock = renewed(threading.RLock())
        self._load_lock = renewed(threading.RLock())  # taken before ``_lock``
        self._ready = self._recovered = False
        self._replayed_offset, self._accepted_offset = -1, 0
        self._waiting: dict[int, Future[Any]] = {}
        self._appending: tuple[Effects, int] | None = None  # not accepted; in the log from that offset on, or kept by it
        self._accepting: tuple[Effects, int] | None = None  # effects, and the offset of their records
        self._deferred: list[StateRecord] = []
        self._defers = False
        self._pending: deque[Effects] = deque()
        self._unnoted: deque[ActionFailed] = deque()
        self._posted: deque[Any] = deque()
        self._failed: SyncFailed | None = None
        self._ended: LogdbError | None = None
        self._closing: LogdbError | None = None

    # ------------------------------------------------------------ what the broker calls

    def load(self) -> None:
        """Replay the partition, once, and carry out the recovery.

        Raises:
            CoordinatorLoading: Another thread does so in the background; or the log end was not reached.
            NotCoordinator: It was resigned.
        """
        if self._ready:
            return
        if not self._follows:
            self._timers.start()
        if not self._load_lock.acquire(blocking=not self._loads_in_background):
            raise CoordinatorLoading(self.log.topic, self.log.partition, self.epoch)
        try:
            self._load()
        finally:
            self._load_lock.release()

    def _load(self) -> None:
        if self._recovered:  # by another thread meanwhile, or by this one, which carries the recovery out
            return
        with self._lock:
            self._finish_failed_write()
            if self._replayed_offset < 0:
                offset = replay(self.log, self._coordinator, self.log.start_offset)
                if not self._follows and offset < self.log.end_offset:  # an earlier coordinator has left a write that failed
                    self.log.flush(sync=False)
                    offset = replay(self.log, self._coordinator, offset)
                    if offset < self.log.end_offset:
                        raise CoordinatorLoading(self.log.topic, self.log.partition, self.epoch)
                self._replayed_offset = self._accepted_offset = offset
            if self._follows:
                self._recovered = self._ready = True
                return
            effects = self._coordinator.recover(self._clock())
            self._write(effects) if effects.records else self._accept(effects, 0)
            self._recovered = True
            if self._posted:
                self._timers.set((self, _RETRY), 0)
        try:
            self._finish(effects)
        finally:
            self._ready = True

    def query(self, function: Callable[[C], T]) -> T:
        """The result of ``function``, which reads the coordinator's state."""
        self.load()
        with self._lock:
            self._check_not_ended()
            if self._follows:
                self._replayed_offset = replay(self.log, self._coordinator, self._replayed_offset)
            if self._posted:
                self._finish_failed_write()
                self._handle_posted()
            return function(self._coordinator)

    def call(self, event: Any) -> Any:
        """Handle a request and wait for its answer; an error is raised."""
        answer = self.submit(event)
        try:
            if isinstance(answer, Future):
                return answer.result()
            if isinstance(answer.result, LogdbError):
                raise answer.result
            return answer.result
        finally:
            del answer  # it has the error, whose traceback has this frame

    def submit(self, event: Any) -> "Reply | Future[Any]":
        """Handle a request; returns the answer, or a future of it where a later event brings it.

        Raises:
            LogdbError: Its records could not be written.
        """
        if not self._ready:
            self.load()
        answer: Reply | Future[Any]
        effects = None
        try:
            with self._lock:
                effects = self._step(event)
                for answer in effects.replies:
                    if answer.ticket == event.ticket:
                        break
                else:
                    answer = self._waiting[event.ticket] = Future()
            self._finish(effects)
        except BaseException as error:
            self._waiting.pop(event.ticket, None)
            if effects is not None and not isinstance(error, LogdbError):
                self._leave(effects)
            raise
        return answer

    def _leave(self, effects: Effects) -> None:
        """A Ctrl-C has come out of a call that had accepted its effects: others may wait for their replies."""
        self._pending.append(Effects(replies=effects.replies, sync=effects.sync))
        self._timers.set((self, _RETRY), RETRY_MS)

    def handle(self, event: Any) -> None:
        """Handle an event that has no reply."""
        self.load()
        self._finish(self._step(event))

    def post(self, event: Any) -> None:
        """Have an event without a reply handled before the next one and before the next query, or soon; waits for nothing."""
        self._posted.append(event)
        self._timers.set((self, _RETRY), 0)

    def fire(self, key: TimerKey) -> None:
        """Called by the timers: ``key`` is due."""
        with self._lock:
            if not self._timers.claim((self, key)):
                return
            try:
                self._finish_failed_write()
                self._handle_posted()
                if key is _DEFERRED:
                    self._defers = False
                    self._write_deferred()
                effects = Effects() if key in (_RETRY, _DEFERRED) else self._step(TimerFired(key))
            except LogdbError as error:
                if self._ended is not None:
                    return
                logger.warning("%s-%d: a timer: %s", self.log.topic, self.log.partition, error)
                if not isinstance(error, SyncFailed):
                    self._defers |= key is _DEFERRED
                    self._timers.set((self, key), RETRY_MS)
                return
        try:
            self._finish(effects)
        except LogdbError as error:  # what is left is tried again, or is the next coordinator's
            if self._ended is None:
                logger.warning("%s-%d: a timer: %s", self.log.topic, self.log.partition, error)

    def append_marker(self, producer: ProducerIdAndEpoch, *, commit: bool, coordinator_epoch: int) -> None:
        """End a producer's transaction on this very partition, and in the state behind it."""
        if not self._ready:
            self.load()
        with self._lock:
            if self._ended is not None or self._failed is not None or self._appending is not None or self._unnoted:
                self._finish_failed_write()
            self.log.append_marker(producer, commit=commit, coordinator_epoch=coordinator_epoch)
            self._coordinator.apply_marker(producer.producer_id, commit=commit)

    def finish(self) -> None:
        """Append the deferred records; where that fails they stay deferred."""
        with self._lock, contextlib.suppress(LogdbError):
            self._finish_failed_write()
            self._write_deferred()

    def stop_waiting(self, error: LogdbError) -> None:
        """Let no thread wait for replicas any more, before the threads of the broker are joined: they get ``error``."""
        self._closing = error
        self.log.wake()

    def end(self, error: LogdbError) -> None:
        """Resign: answer all requests, those that wait and later ones, with ``error``.

        When this returns, the shard appends nothing more.  What it has appended is answered once it is committed.
        """
        self._ended = error
        with self._lock:  # a thread that is appending finishes that
            self._timers.forget(lambda key: isinstance(key, tuple) and key[0] is self)
        self.cancel(error)

    def cancel(self, error: LogdbError) -> None:
        """Answer the requests that wait with ``error``."""
        with contextlib.suppress(KeyError):  # other threads answer, too
            while True:
                future = self._waiting.popitem()[1]
                with contextlib.suppress(InvalidStateError):
                    future.set_exception(error)

    def _check_not_ended(self) -> None:
        if self._ended is not None:
            raise self._ended.with_traceback(None)

    def _check_may_wait(self) -> None:
        if self._closing is not None:
            raise self._closing.with_traceback(None)

    # ------------------------------------------------------------ under the lock

    def _step(self, event: Any) -> Effects:
        """Let the coordinator handle an event; append and accept the effects.

        Raises:
            LogdbError: The records could not be written; the requests that the effects answer get this error.
        """
        with self._lock:
            if self._ended is not None or self._failed is not None or self._appending or self._accepting or self._unnoted:
                self._finish_failed_write()
            if self._posted:
                self._handle_posted()
            try:
                effects = self._coordinator.handle(event, self._clock())
                if effects.records and not effects.deferred:
                    self._write(effects)
                else:
                    self._accept(effects, 0)
            except BaseException as error:
                if not isinstance(error, LogdbError):  # a Ctrl-C: what it left undone is done soon
                    self._timers.set((self, _RETRY), RETRY_MS)
                raise
            return effects

    def _handle_posted(self) -> None:
        """Handle the posted events, once the shard is loaded; nobody waits until their records are committed."""
        while self._posted and self._recovered:
            effects = self._coordinator.handle(self._posted[0], self._clock())
            if effects.records:
                self._write(effects)
            self._posted.popleft()

    def _write(self, effects: Effects) -> None:
        """Append records behind the deferred ones, and accept."""
        self._appending = (effects, self.log.end_offset + len(self._deferred))
        try:
            with self._while_appending:
                self._append(effects)
        except LogdbError as error:
            if not error.offsets:
                self._appending = None
            self._answer(effects, error)
            raise
        self._appended(*self._appending)

    def _write_deferred(self) -> None:
        if self._deferred:
            self._write(Effects())

    def _appended(self, effects: Effects, offset: int) -> None:
        """Keep this order: after an interruption anywhere ``_finish_failed_write`` does the rest, and writes no record twice."""
        self._deferred.clear()
        self._accepted_offset = offset + len(effects.records)
        self._accept(effects, offset)
        self._appending = None

    def _accept(self, effects: Effects, offset: int) -> None:
        """After an interruption anywhere it is called again with the same effects, by ``_finish_failed_write``.

        So what must not be done twice comes last, and calls nothing: a signal handler cannot raise there.
        """
        self._accepting = effects, offset
        self._coordinator.accept(effects, offset)
        for timer in effects.timers:
            self._timers.set((self, timer.key), timer.delay_ms)
        if effects.deferred and not self._defers:
            self._timers.set((self, _DEFERRED), _DEFER_MS)
            self._defers = True
        if effects.deferred:
            self._deferred += effects.records
        if effects.actions:
            self._pending += (effects,)
        self._accepting = None

    def _append(self, effects: Effects, count: int = 0) -> None:
        """Write the records behind the first ``count``; ``_publish`` waits for the commit, which others may share."""
        records = (*self._deferred, *effects.records)[count:]
        if not records:
            return
        keys, values = zip(*records, strict=True)
        if effects.producer is None:
            self.log.append_many(values, keys, durability="os")
        else:
            batches = transactional_batches(values, keys, effects.producer, self._clock())
            self.log.append_batches(batches, durability="os", internal=True)

    def _finish_failed_write(self) -> None:
        """Finish a failed write before anything new: effects whose records the log has kept are accepted after all.

        Raises:
            LogdbError: The write fails again; or accepted records can never be synced; or the shard has ended.
        """
        self._check_not_ended()
        if self._failed is not None:
            raise SyncFailed(self._failed.path, self._failed.reason)
        if self._appending is not None:
            effects, offset = self._appending
            self.log.flush(sync=False)
            count = self.log.end_offset - (offset - len(self._deferred))
            if count > 0:  # an interrupted append may have come to nothing
                self._append(effects, count)
                self._appended(effects, offset)
                self._leave(effects)
            self._appending = None
        if self._accepting is not None:
            effects, offset = self._accepting
            self._accept(effects, offset)
            self._leave(effects)
        while self._unnoted:  # they have no records
            effects = self._coordinator.handle(self._unnoted.popleft(), self._clock())
            self._accept(effects, 0)
            self._answer(effects)

    # ------------------------------------------------------------ without the lock

    def _finish(self, effects: Effects) -> None:
        """Answer accepted effects once they are committed, carry out their actions, and so on with the events in which these end.

        Actions that an interrupted thread has left are carried out, too.

        Raises:
            LogdbError: The effects are not committed; their requests were answered with this error.
        """
        actions = [*self._publish(effects)]
        try:
            while actions and self._ended is None:  # the next coordinator's recovery begins them again
                following = self._carry_out(actions[0])
                actions = [*following, *actions[1:]]  # calls nothing: a Ctrl-C in between would lose the following ones
        except BaseException:
            self._pending.appendleft(Effects(actions=tuple(actions)))
            raise

    def _publish(self, effects: Effects) -> deque[Action]:
        """Answer accepted effects once they are committed; returns the actions that may begin now."""
        pending: list[Effects] = []
        try:
            if self._pending:
                self._take_pending(pending)
            sync, actions = effects.sync, deque[Action]()
            for accepted in pending:
                sync |= accepted.sync
                actions += accepted.actions
            self.log.commit_to(self._accepted_offset, sync=sync, leader_epoch=self.epoch, go_on=self._check_may_wait)
            for accepted in (*pending, effects):
                if accepted.replies and self._waiting:
                    self._answer(accepted)
        except BaseException as error:
            self._pending.extendleft(reversed(pending))
            if isinstance(error, LogdbError):
                self._note_failure(effects, error)
            raise
        return actions

    def _take_pending(self, taken: list[Effects]) -> None:
        """Move what others have left to ``taken``; a Ctrl-C, which comes out of calls and loops, loses none of it."""
        with contextlib.suppress(IndexError):  # other threads take, too
            while True:
                first = self._pending[0]
                del self._pending[0]
                taken += (first,)

    def _carry_out(self, action: Action) -> deque[Action]:
        """Carry out an action and handle the event in which it ends; returns the actions that follow from this event."""
        try:
            self._execute(action)
            return self._publish(self._step(ActionDone(action)))
        except LogdbError as error:
            return self._note_failed(ActionFailed(action, without_frames(error)))

    def _note_failed(self, event: ActionFailed) -> deque[Action]:
        """Tell the coordinator that an action failed; before the next event, or soon, if it cannot be told now.

        The error is logged if no request is answered with it.
        """
        try:
            effects = self._step(event)
        except LogdbError as failure:  # an earlier write is not finished: the requests end with its failure
            self._log_failed(event)
            self._unnoted.append(event)
            self.cancel(failure)
            if self._ended is None and not isinstance(failure, SyncFailed):
                self._timers.set((self, _RETRY), RETRY_MS)
            return deque()
        if not effects.replies:
            self._log_failed(event)
        try:
            return self._publish(effects)
        except LogdbError as failure:
            self.cancel(failure)
            return deque()

    def _log_failed(self, event: ActionFailed) -> None:
        logger.warning("%s-%d: %s: %s", self.log.topic, self.log.partition, type(event.action).__name__, event.error)

    def _note_failure(self, effects: Effects, error: LogdbError) -> None:
        release_frames(error)
        self._answer(effects, error)
        if isinstance(error, SyncFailed):
            self._failed = error
            self.cancel(error)
        elif self._ended is None:  # a timer that is set while ``end`` runs fires once, and is not set again
            self._timers.set((self, _RETRY), RETRY_MS)

    def _answer(self, effects: Effects, error: LogdbError | None = None) -> None:
        """Give replies to the futures of waiting requests."""
        for ticket, result in effects.replies:
            future = self._waiting.get(ticket)
            if future is None:
                continue
            with contextlib.suppress(InvalidStateError):  # another thread answers it, too
                if error is not None or isinstance(result, LogdbError):
                    future.set_exception(error or result)
                else:
                    future.set_result(result)
            self._waiting.pop(ticket, None)


def fire(key: Any) -> None:
    """What ``Timers`` of shards call: a shard's timer is due."""
    shard, timer = key
    shard.fire(timer)


# ---------------------------------------------------------------- transactional records


class _Memory(BatchBuilder):
    """Batches in memory."""

    def __init__(self, now_ms: int) -> None:
        super().__init__(next_offset=0, leader_epoch=0, batch_size=1 << 20, write_size=1 << 20, group_size=1 << 20, clock=lambda: now_ms)
        self.batches = bytearray()

    def _write(self, batches: memoryview, _base_offset: int, _next_offset: int, _now_ms: int) -> None:
        self.batches += batches


def transactional_batches(values: Sequence[bytes | None], keys: Sequence[bytes], producer: ProducerIdAndEpoch, now_ms: int) -> bytearray:
    """Records as batches of a producer's transaction, without a sequence: as Kafka's coordinators write offsets."""
    memory = _Memory(now_ms)
    memory.append_many(values, keys)
    stamp_producer(memory.batches, producer, -1, transactional=True)
    return memory.batches
