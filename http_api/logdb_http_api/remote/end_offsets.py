"""Start and end offsets of partitions, requested from a server for many partitions at once.

A thread that asks for the end of one partition asks for those of others next: a consumer with a hundred partitions, a table.  So one
request asks for all of them.  The offsets of the others serve one read each, by the same thread, within moments, and only until this
session appends.

Threading: any number of threads; each has answers of its own.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from logdb.errors import NotLeaderOrFollower, UnknownPartition, UnknownTopic
from logdb.log.isolation import IsolationLevel, is_committed
from logdb.model import NOTHING_KNOWN, KnownLog, TopicInfo, TopicPartition
from logdb.requests import coding
from logdb_http_api.protocol import PARTITIONS_PATH, PARTITIONS_WAIT_MS_MAX, LogState, Look
from logdb_http_api.remote.connection import Address
from logdb_http_api.remote.connections import Connections
from logdb_http_api.remote.exchange import Exchange, first_answered
from logdb_http_api.remote.wires import HttpRequest

_GOOD_S = 0.02
_PAUSE_S = 0.05  # before a leader is looked for again
_INTEREST_S = 10.0
_INTEREST_COUNT_MAX = 1_000
_HEADERS = {"Content-Type": "application/json"}


class _Known(threading.local):
    """The offsets that a thread has received, and the partitions that it asks for."""

    def __init__(self) -> None:
        self.interest: dict[TopicPartition, float] = {}  # when each partition was last asked for
        self.ends: dict[TopicPartition, LogState] = {}
        self.starts: dict[TopicPartition, LogState] = {}
        self.isolation_level = ""
        self.until, self.generation = 0.0, 0


class EndOffsets:
    """The offsets of all partitions that a session reads."""

    def __init__(self, connections: Connections, describe: Callable[[str], TopicInfo]) -> None:
        """Begin without offsets.

        Args:
            describe: Returns the description of a topic, or raises.
        """
        self._connections, self._describe = connections, describe
        self._known = _Known()
        self._generation = 0
        self._epochs: dict[TopicPartition, tuple[int, int]] = {}  # where reading ended last, and the leader epoch of the record before it

    def appended(self) -> None:
        """Forget all offsets: this session has appended."""
        self._generation += 1

    def expect(self, partition: TopicPartition) -> None:
        """This thread will ask for the partition soon."""
        self._known.interest[partition] = time.monotonic()

    def state(self, partition: TopicPartition) -> LogState:
        """The state of one partition now."""
        return self._found(partition, self._look({partition: 0}, 0, "read_uncommitted"))

    def states(self, partitions: Sequence[TopicPartition], within_s: float) -> dict[TopicPartition, LogState | None]:
        """The states of partitions now; None: it was deleted.

        Raises:
            NotLeaderOrFollower, ServerUnavailable: Not all leaders have answered ``within_s``.
        """
        states: dict[TopicPartition, LogState | None] = {}
        until = time.monotonic() + within_s
        for at in range(0, len(partitions), _INTEREST_COUNT_MAX):
            some = dict.fromkeys(partitions[at : at + _INTEREST_COUNT_MAX], 0)
            states |= self._look(some, 0, "read_uncommitted", within_s=until - time.monotonic())
        return states

    def end(self, partition: TopicPartition, isolation_level: IsolationLevel) -> LogState:
        """The state of a partition, which says where reading ends now at that level."""
        is_committed(isolation_level)
        known, now = self._known, time.monotonic()
        known.interest[partition] = now
        if not self._are_good(known, now) or known.isolation_level != isolation_level or partition not in known.ends:
            others = self._interesting(known, now)
            self._learn(known, self._look(dict.fromkeys((partition, *others), 0), 0, isolation_level), isolation_level)
        state = known.ends.pop(partition, None) or self._found(partition, {partition: None})
        self._epochs[partition] = state.readable_end_offset, state.leader_epoch
        return state

    def epoch_before(self, partition: TopicPartition, end_offset: int) -> int | None:
        """The leader epoch of the record before ``end_offset``, if reading ended there when ``end`` was asked last; None: not known."""
        known_offset, leader_epoch = self._epochs.get(partition, (-1, -1))
        return leader_epoch if known_offset == end_offset and leader_epoch >= 0 else None

    def forget(self, topic: str) -> None:
        """Forget the leader epochs of a topic: another has its name."""
        for partition in [one for one in list(self._epochs) if one.topic == topic]:
            self._epochs.pop(partition, None)

    def start(self, partition: TopicPartition) -> LogState:
        """The state of a partition, which says where the log begins."""
        known = self._known
        state = known.starts.pop(partition, None) if self._are_good(known, time.monotonic()) else None
        return state or self.state(partition)

    def wait(
        self,
        positions: Mapping[TopicPartition, int],
        timeout_ms: int,
        isolation_level: IsolationLevel,
        of: Mapping[TopicPartition, KnownLog] = NOTHING_KNOWN,
    ) -> bool:
        """See ``Session.wait``; ``of``: what is known of the logs."""
        is_committed(isolation_level)
        known, until = self._known, time.monotonic() + timeout_ms / 1000
        while True:
            left_ms = max(0, int((until - time.monotonic()) * 1000))
            if not positions:
                self._connections.ended.wait(left_ms / 1000)
                self._connections.check_open()
                return False
            states = self._look(positions, min(left_ms, PARTITIONS_WAIT_MS_MAX), isolation_level, of=of)
            known.interest.update(dict.fromkeys(positions, time.monotonic()))
            found = {partition: self._found(partition, states) for partition in positions}
            if any(state.is_elsewhere or state.readable_end_offset > positions[partition] for partition, state in found.items()):
                self._learn(known, states, isolation_level)
                return True
            if time.monotonic() >= until:
                self._learn(known, states, isolation_level)
                return False

    def ends(
        self, positions: Mapping[TopicPartition, int], timeout_ms: int, of: Mapping[TopicPartition, KnownLog] = NOTHING_KNOWN
    ) -> dict[TopicPartition, LogState]:
        """The states of partitions, once ``wait`` would end, or after the timeout; deleted partitions are left out."""
        states = self._look(positions, timeout_ms, "read_uncommitted", of=of)
        return {partition: state for partition, state in states.items() if state is not None}

    def _are_good(self, known: _Known, now: float) -> bool:
        return now < known.until and known.generation == self._generation

    def _interesting(self, known: _Known, now: float) -> Sequence[TopicPartition]:
        """The other partitions that this thread will ask for soon."""
        known.interest = {partition: at for partition, at in known.interest.items() if now - at < _INTEREST_S}
        return list(known.interest)[-_INTEREST_COUNT_MAX:]

    def _learn(self, known: _Known, states: Mapping[TopicPartition, LogState | None], isolation_level: IsolationLevel) -> None:
        known.ends = {partition: state for partition, state in states.items() if state is not None}
        known.starts = dict(known.ends)
        known.isolation_level, known.until, known.generation = isolation_level, time.monotonic() + _GOOD_S, self._generation

    def _look(
        self,
        positions: Mapping[TopicPartition, int],
        timeout_ms: int,
        isolation_level: IsolationLevel,
        *,
        of: Mapping[TopicPartition, KnownLog] = NOTHING_KNOWN,
        within_s: float | None = None,
    ) -> dict[TopicPartition, LogState | None]:
        """The states of partitions, each from its leader.

        Several leaders are waited for side by side, once all have said that there is nothing yet.

        Args:
            within_s: How long it may take beside ``timeout_ms``; None: as any request.

        Raises:
            NotLeaderOrFollower: No node has led one of them for that time.
            ServerUnavailable: A leader has not answered for that time.
        """
        until = time.monotonic() + (self._connections.timeout_s if within_s is None else within_s)
        while True:
            parts = self._by_leader(positions)
            left_s = None if within_s is None else until - time.monotonic()
            states = self._asked(parts, 0 if len(parts) > 1 else timeout_ms, isolation_level, of, left_s)
            if len(parts) > 1 and timeout_ms and not any(_is_past(state, positions[where]) for where, state in states.items()):
                states |= self._asked(parts, timeout_ms, isolation_level, of)
            led = {where: state.leader_address for where, state in states.items() if state is not None and state.leader_address is not None}
            if not led:
                return states
            if time.monotonic() >= until:
                raise NotLeaderOrFollower(*next(iter(led)), None, -1)
            if not all(led.values()) or self._by_leader(positions) == parts:
                self._connections.ended.wait(_PAUSE_S)
                self._connections.check_open()

    def _by_leader(self, positions: Mapping[TopicPartition, int]) -> list[dict[TopicPartition, int]]:
        """Positions by the leader of their partition, as far as it is known."""
        leaders = self._connections.leaders
        if not leaders:
            return [dict(positions)]
        parts: dict[Address | None, dict[TopicPartition, int]] = {}
        for where, offset in positions.items():
            parts.setdefault(leaders.get(where), {})[where] = offset
        return list(parts.values())

    def _asked(
        self,
        parts: Sequence[Mapping[TopicPartition, int]],
        timeout_ms: int,
        isolation_level: IsolationLevel,
        of: Mapping[TopicPartition, KnownLog],
        within_s: float | None = None,
    ) -> dict[TopicPartition, LogState | None]:
        """The states of each part, from its leader; of those that wait, the first that is answered."""
        patience_ms = timeout_ms if within_s is None else timeout_ms + round((within_s - self._connections.timeout_s) * 1000)
        looks = [
            Look(part, timeout_ms, isolation_level, {where: of[where] for where in part if where in of} if of else NOTHING_KNOWN)
            for part in parts
        ]
        requests = [
            HttpRequest("POST", PARTITIONS_PATH, coding.encode(look), _HEADERS, key=next(iter(look.positions), None)) for look in looks
        ]
        exchanges = [Exchange(self._connections, request, patience_ms=patience_ms) for request in requests]
        states: dict[TopicPartition, LogState | None] = {}
        try:
            due = first_answered(exchanges, timeout_ms / 1000) if timeout_ms and len(exchanges) > 1 else exchanges
            for part, exchange in zip(parts, exchanges, strict=True):
                if exchange in due:
                    answer = exchange.answer()
                    found: list[LogState | None] = answer.decoded(list[LogState | None])
                    states |= zip(part, found, strict=False)
                    for where, state in zip(part, found, strict=False):
                        if state is not None and state.leader_address is not None:
                            self._connections.redirected(where, state.leader_address)
        finally:
            for exchange in exchanges:
                exchange.abandon()
        return states

    def _found(self, partition: TopicPartition, states: Mapping[TopicPartition, LogState | None]) -> LogState:
        """The state of a partition; raises if the server has none."""
        state = states.get(partition)
        if state is not None:
            return state
        count = self._describe(partition.topic).partition_count
        if partition.partition >= count:
            raise UnknownPartition(*partition, count)
        raise UnknownTopic(partition.topic)  # it was created again at this moment


def _is_past(state: LogState | None, offset: int) -> bool:
    """Whether a partition has records from an offset on; what is not known is an answer, too, and so is another log."""
    return state is None or state.leader_address is not None or state.is_elsewhere or state.readable_end_offset > offset
