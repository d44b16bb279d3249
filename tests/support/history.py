"""What clients of a cluster have seen, and whether any of it contradicts what was promised.

Anomalies have the names of Jepsen's checker for Kafka (``tests/kafka.clj``).  Gaps between offsets are none: control records lie there.

    lost-write            acknowledged below what was read of the partition, and not there
    duplicate             one value at two offsets                 inconsistent-offsets  two values at one offset
    G1a                   a committed reader saw a value of an aborted transaction
    G1c                   transactions that have read from one another in a circle
    torn-transaction      a committed transaction of which a part is not there
    precommitted-read     a committed reader saw a value before its transaction was asked to commit
    poll-skip             between two polls of one assignment a value was left out
    nonmonotonic-poll     … an offset came again, or an earlier one; ``int-``: within one poll
    nonmonotonic-send     a producer's later send got an earlier offset; ``int-``: within one transaction
    unseen                acknowledged, and no consumer has it at the end

Values are unique over a history.  Times are the monotonic clock of the machine, in ns.
"""

import bisect
import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Partition = tuple[str, int]
Outcome = Literal["ok", "failed", "unknown"]


class Anomaly(NamedTuple):
    name: str
    text: str


@dataclass
class Transaction:
    """One transaction; ``outcome``: of its commit (``failed``: it was aborted).  ``read`` are the values that it has polled."""

    producer: str
    outcome: Outcome = "unknown"
    asked_ns: int | None = None  # when the commit was asked for
    sent: list["Send"] = field(default_factory=list)
    read: list[bytes] = field(default_factory=list)


@dataclass
class Send:
    """One value; ``offset`` is known once it is acknowledged."""

    producer: str
    partition: Partition
    value: bytes
    transaction: Transaction | None = None
    outcome: Outcome = "unknown"
    offset: int | None = None


class Poll(NamedTuple):
    """Records of one poll; a consumer's ``assignment`` grows whenever its position is set anew."""

    consumer: str
    assignment: int
    records: Sequence[tuple[Partition, int, bytes]]
    ended_ns: int
    committed: bool = True  # read_committed


class History:
    """The operations of all clients; each list has the order in which its operations ended.  Threading: any thread."""

    def __init__(self) -> None:
        self.sends: list[Send] = []
        self.polls: list[Poll] = []
        self.transactions: list[Transaction] = []
        self._lock = threading.Lock()

    def begin(self, producer: str) -> Transaction:
        """Of each producer one at a time."""
        with self._lock:
            self.transactions.append(Transaction(producer))
            return self.transactions[-1]

    def send(self, producer: str, partition: Partition, value: bytes, transaction: Transaction | None = None) -> Send:
        """A send that begins; its fields tell later how it ended."""
        send = Send(producer, partition, value, transaction)
        with self._lock:
            self.sends.append(send)
            if transaction is not None:
                transaction.sent.append(send)
        return send

    def poll(self, consumer: str, assignment: int, records: Iterable[tuple[Partition, int, bytes]], *, committed: bool = True) -> None:
        with self._lock:
            self.polls.append(Poll(consumer, assignment, tuple(records), time.monotonic_ns(), committed))


def check(history: History, stored: Mapping[Partition, Mapping[int, bytes]], *, everything_polled: bool = False) -> list[Anomaly]:
    """The anomalies of a history.

    Args:
        stored: Values by offset, as a committed reader finds them at the end, when all faults are over.
        everything_polled: Consumers have read to the end.
    """
    seen = _values_by_offset(history, stored)
    found = itertools.chain(
        _contradictions(seen),
        _lost(history, stored),
        _of_transactions(history, stored),
        _circles(history),
        _of_polls(history, seen),
        _of_sends(history),
        _unseen(history) if everything_polled else (),
    )
    return list(found)


def _values_by_offset(history: History, stored: Mapping[Partition, Mapping[int, bytes]]) -> dict[Partition, dict[int, set[bytes]]]:
    seen: dict[Partition, dict[int, set[bytes]]] = defaultdict(lambda: defaultdict(set))
    for partition, values in stored.items():
        for offset, value in values.items():
            seen[partition][offset].add(value)
    for poll in history.polls:
        for partition, offset, value in poll.records:
            seen[partition][offset].add(value)
    for send in history.sends:
        if send.outcome == "ok" and send.offset is not None and (send.transaction is None or send.transaction.outcome == "ok"):
            seen[send.partition][send.offset].add(send.value)
    return seen


def _contradictions(seen: Mapping[Partition, Mapping[int, set[bytes]]]) -> Iterator[Anomaly]:
    places: dict[bytes, set[tuple[Partition, int]]] = defaultdict(set)
    for partition, offsets in seen.items():
        for offset, values in offsets.items():
            if len(values) > 1:
                yield Anomaly("inconsistent-offsets", f"{partition} has at {offset} {sorted(values)}")
            for value in values:
                places[value].add((partition, offset))
    for value, where in places.items():
        if len(where) > 1:
            yield Anomaly("duplicate", f"{value!r} is at {sorted(where)}")


def _lost(history: History, stored: Mapping[Partition, Mapping[int, bytes]]) -> Iterator[Anomaly]:
    there = {partition: set(values.values()) for partition, values in stored.items()}
    for send in history.sends:
        is_final = send.transaction is None or send.transaction.outcome == "ok"
        if send.outcome == "ok" and is_final and send.value not in there.get(send.partition, ()):
            yield Anomaly("lost-write", f"{send.value!r} was acknowledged at {send.partition} {send.offset}, and is not there")


def _of_transactions(history: History, stored: Mapping[Partition, Mapping[int, bytes]]) -> Iterator[Anomaly]:
    there = {value for values in stored.values() for value in values.values()}
    for transaction in history.transactions:
        visible = [send for send in transaction.sent if send.value in there]
        if transaction.outcome == "failed":
            yield from (Anomaly("G1a", f"{send.value!r} of an aborted transaction is there") for send in visible)
        elif visible and len(visible) < sum(send.outcome != "failed" for send in transaction.sent):
            missing = [send.value for send in transaction.sent if send.value not in there]
            yield Anomaly("torn-transaction", f"{visible[0].value!r} is there, and {missing} of the same transaction are not")
    sent = {send.value: send.transaction for transaction in history.transactions for send in transaction.sent}
    for poll in history.polls:
        if not poll.committed:
            continue
        for _, _, value in poll.records:
            by = sent.get(value)
            if by is not None and by.outcome == "failed":
                yield Anomaly("G1a", f"{poll.consumer} has read {value!r} of an aborted transaction")
            elif by is not None and (by.asked_ns is None or poll.ended_ns < by.asked_ns):
                yield Anomaly("precommitted-read", f"{poll.consumer} has read {value!r} before its commit")


def _circles(history: History) -> Iterator[Anomaly]:
    """Circles of transactions that have read from one another; one of each."""
    wrote = {send.value: number for number, one in enumerate(history.transactions) for send in one.sent}
    reads = [
        {wrote[value] for value in one.read if value in wrote and wrote[value] != number} for number, one in enumerate(history.transactions)
    ]
    state = [0] * len(reads)  # 1: on the path, 2: no circle leads back from it
    for root in range(len(reads)):
        path = [(root, iter(reads[root]))] if not state[root] else []
        while path:
            number, left = path[-1]
            state[number] = 1
            follower = next(left, None)
            if follower is None:
                state[number] = 2
                path.pop()
            elif state[follower] == 1:
                yield Anomaly("G1c", f"transactions {[one for one, _ in path]} have read from one another")
            elif not state[follower]:
                path.append((follower, iter(reads[follower])))


def _of_polls(history: History, seen: Mapping[Partition, Mapping[int, set[bytes]]]) -> Iterator[Anomaly]:
    offsets = {partition: sorted(values) for partition, values in seen.items()}
    visible = {send.value for send in history.sends if send.transaction is None or send.transaction.outcome == "ok"}
    positions: dict[tuple[str, int, Partition], int] = {}
    for poll in history.polls:
        within: set[Partition] = set()
        for partition, offset, value in poll.records:
            kind, key = ("int-" if partition in within else ""), (poll.consumer, poll.assignment, partition)
            last = positions.get(key)
            if last is not None and offset <= last:
                yield Anomaly(f"{kind}nonmonotonic-poll", f"{poll.consumer} has read {partition} at {last}, then {offset} ({value!r})")
            elif last is not None:
                skipped = [one for one in _between(offsets[partition], last, offset) if seen[partition][one] & visible]
                if skipped:
                    yield Anomaly(f"{kind}poll-skip", f"{poll.consumer} has read {partition} at {last}, then {offset}, without {skipped}")
            positions[key] = offset
            within.add(partition)


def _between(offsets: Sequence[int], last: int, offset: int) -> Sequence[int]:
    return offsets[bisect.bisect_right(offsets, last) : bisect.bisect_left(offsets, offset)]


def _of_sends(history: History) -> Iterator[Anomaly]:
    last: dict[tuple[str, Partition], Send] = {}
    for send in history.sends:
        if send.outcome != "ok" or send.offset is None:
            continue
        key = send.producer, send.partition
        former = last.get(key)
        if former is not None and former.offset is not None and send.offset <= former.offset:
            kind = "int-" if send.transaction is not None and send.transaction is former.transaction else ""
            yield Anomaly(
                f"{kind}nonmonotonic-send", f"{send.producer}: {former.value!r} at {former.offset}, then {send.value!r} at {send.offset}"
            )
        last[key] = send


def _unseen(history: History) -> Iterator[Anomaly]:
    polled = {value for poll in history.polls for _, _, value in poll.records}
    for send in history.sends:
        if send.outcome == "ok" and (send.transaction is None or send.transaction.outcome == "ok") and send.value not in polled:
            yield Anomaly("unseen", f"{send.value!r} was acknowledged, and no consumer has read it")
