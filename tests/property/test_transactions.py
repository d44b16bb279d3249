"""Transactions against a model of what they promise, without I/O: coordinator and partitions in memory, crashes and power cuts as rules.

The model's partitions keep what a log keeps (records, markers, open transactions, epochs); the rules play producers,
old ones too, and the broker that carries out what the coordinator asks for.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from logdb.broker import decisions
from logdb.coordinator.effects import ActionDone, ActionFailed, SyncPartitions, WriteMarkers
from logdb.errors import ConcurrentTransactions, DiskFull, InvalidProducer, InvalidTransactionState, LogdbError, ProducerFenced
from logdb.model import ProducerIdAndEpoch, TopicPartition
from logdb.requests.transactions import AbortTransaction, AddPartitions, EndTransaction, InitProducerId
from support.coordination import FULL, Entry, transaction_runner

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
BUMPS = {"x": True, "y": False}  # whether the client learns the epoch that each transaction gets
IDS = tuple(BUMPS)
PARTITIONS = tuple(TopicPartition("t", number) for number in range(3))
some_partitions = st.sets(st.sampled_from(PARTITIONS), min_size=1)
some_rounds = st.tuples(some_partitions, st.booleans())  # commit
survivals = st.tuples(*[st.sampled_from([0.0, 0.5, 1.0])] * (len(PARTITIONS) + 1))


class Data(NamedTuple):
    producer: ProducerIdAndEpoch
    transaction: int  # the model's number of it


class Mark(NamedTuple):
    producer: ProducerIdAndEpoch
    commit: bool


class Partition:
    """A log, as far as transactions care."""

    def __init__(self) -> None:
        self.entries: list[Data | Mark] = []
        self.synced = 0

    def epoch(self, producer_id: int) -> int:
        return max((entry.producer.producer_epoch for entry in self.entries if entry.producer.producer_id == producer_id), default=-1)

    def outcomes(self) -> dict[int, set[bool | None]]:
        """What became of each transaction's records here; None: still open."""
        found: dict[int, set[bool | None]] = {}
        for at, entry in enumerate(self.entries):
            if isinstance(entry, Data):
                ends = (e.commit for e in self.entries[at:] if isinstance(e, Mark) and e.producer.producer_id == entry.producer.producer_id)
                found.setdefault(entry.transaction, set()).add(next(ends, None))
        return found

    def open(self) -> dict[int, int]:
        """Producer id to epoch of the open transactions."""
        found: dict[int, int] = {}
        for entry in self.entries:
            if isinstance(entry, Mark):
                found.pop(entry.producer.producer_id, None)
            else:
                found[entry.producer.producer_id] = entry.producer.producer_epoch
        return found

    def write(self, data: Data) -> bool:
        """An old epoch is refused."""
        fresh = data.producer.producer_epoch >= self.epoch(data.producer.producer_id)
        if fresh:
            self.entries.append(data)
        return fresh

    def mark(self, action: WriteMarkers, earlier: Callable[[ProducerIdAndEpoch], Mark]) -> None:
        """``earlier``: how another transaction was decided, whose marker a power cut has taken."""
        producer_id, epoch = action.producer
        left = self.open().get(producer_id)
        if left is not None and left < epoch - 1:
            self.entries.append(earlier(ProducerIdAndEpoch(producer_id, left)))
        newer = left is not None and left > action.last_epoch
        if not newer and epoch >= self.epoch(producer_id):
            self.entries.append(Mark(action.producer, action.commit))

    def sync(self) -> None:
        self.synced = len(self.entries)


class TransactionMachine(RuleBasedStateMachine):
    outlives_kills = True  # open transactions do

    def __init__(self) -> None:
        super().__init__()
        self.runner = transaction_runner(abort_on_recovery=False) if self.outlives_kills else transaction_runner(defer_additions=True)
        self.partitions = {partition: Partition() for partition in PARTITIONS}
        self.given: list[tuple[str, ProducerIdAndEpoch]] = []  # every identity that was ever given
        self.count = 0
        self.current: dict[str, int] = {}  # the transaction that is open, by the model's number
        self.written: dict[int, set[TopicPartition]] = {}
        self.waiting: dict[int, tuple[str, Any]] = {}  # ticket: id, and what to do with the answer
        self.asked: set[int] = set()  # transactions whose commit was asked for
        self.promised: dict[int, bool] = {}

    # ------------------------------------------------------------ answers

    def ask(self, kind: type, transactional_id: str, then: Any, **fields: Any) -> None:
        before = len(self.runner.log)
        ticket = self.runner.start(kind, transactional_id=transactional_id, **fields)
        refused = isinstance(self.runner.replies.get(ticket), ProducerFenced | InvalidProducer | InvalidTransactionState)
        assert not refused or len(self.runner.log) == before, "what is refused changes nothing"
        self.waiting[ticket] = transactional_id, then
        self.look()

    def look(self) -> None:
        """Take in the answers that have come."""
        for ticket in [ticket for ticket in self.waiting if not self.runner.waits(ticket)]:
            transactional_id, then = self.waiting.pop(ticket)
            result = self.runner.replies[ticket]
            if isinstance(result, LogdbError):
                expected = ProducerFenced | InvalidProducer | InvalidTransactionState | ConcurrentTransactions | DiskFull
                assert isinstance(result, expected)
            else:
                then(transactional_id, result)

    def got(self, transactional_id: str, producer: ProducerIdAndEpoch) -> None:
        assert producer.producer_epoch < 2**15 - 1
        assert (transactional_id, producer) not in self.given, "no two instances are one"
        self.given.append((transactional_id, producer))

    def state(self, transactional_id: str) -> str:
        return str(self.runner.coordinator.describe(transactional_id).state)

    # ------------------------------------------------------------ producers

    @rule(transactional_id=st.sampled_from(IDS))
    def init(self, transactional_id: str) -> None:
        self.ask(InitProducerId, transactional_id, self.got, transaction_timeout_ms=10_000)

    @rule(transactional_id=st.sampled_from(IDS))
    def go_on(self, transactional_id: str) -> None:
        mine = [producer for of, producer in self.given if of == transactional_id]
        if mine:

            def then(transactional_id: str, producer: ProducerIdAndEpoch) -> None:
                if (transactional_id, producer) not in self.given:  # a repeated call gets the same one
                    self.given.append((transactional_id, producer))

            self.ask(InitProducerId, transactional_id, then, transaction_timeout_ms=10_000, producer=mine[-1])

    @precondition(lambda self: self.given)
    @rule(data=st.data(), partitions=some_partitions)
    def add(self, data: Any, partitions: set[TopicPartition]) -> None:
        self.add_as(*data.draw(st.sampled_from(self.given[-4:])), partitions)

    @rule(transactional_id=st.sampled_from(IDS), rounds=st.lists(some_rounds, max_size=3))
    def work(self, transactional_id: str, rounds: list[tuple[set[TopicPartition], bool]]) -> None:
        self.work_as(transactional_id, rounds)

    def work_as(self, transactional_id: str, rounds: list[tuple[set[TopicPartition], bool]]) -> None:
        """As a producer does it: transactions one after the other, and one more that is open."""
        if (
            not self.known(transactional_id)
            or (transactional_id, self.runner.coordinator.describe(transactional_id).producer) not in self.given
        ):
            self.init(transactional_id)
            while self.runner.actions:
                self.act_once(fails=False, some=0)
        for partitions, commit in (*rounds, ({PARTITIONS[0]}, None)):
            mine = [producer for of, producer in self.given if of == transactional_id]
            if not mine:
                return
            self.add_as(transactional_id, mine[-1], partitions)
            for partition in sorted(partitions):
                self.write_as(transactional_id, mine[-1], partition)
            if commit is not None:
                self.end_as(transactional_id, mine[-1], commit=commit)
                while self.runner.actions:
                    self.act_once(fails=False, some=0)

    def add_as(self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: set[TopicPartition]) -> None:
        open_before = self.known(transactional_id) and self.state(transactional_id) == "Ongoing"

        def then(transactional_id: str, _: None) -> None:
            if not open_before:
                self.count += 1
                self.current[transactional_id] = self.count
                self.written[self.count] = set()

        self.ask(AddPartitions, transactional_id, then, producer=producer, partitions=tuple(partitions))

    def known(self, transactional_id: str) -> bool:
        return any(info.transactional_id == transactional_id for info in self.runner.coordinator.transactions())

    @precondition(lambda self: self.given)
    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS))
    def write(self, data: Any, partition: TopicPartition) -> None:
        self.write_as(*data.draw(st.sampled_from(self.given[-4:])), partition)

    def write_as(self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition) -> None:
        if not self.known(transactional_id):
            return
        info = self.runner.coordinator.describe(transactional_id)
        if info.state != "Ongoing" or partition not in info.partitions:
            return
        try:
            self.runner.call(AddPartitions, transactional_id=transactional_id, producer=producer, partitions=(partition,))
        except LogdbError:
            return
        transaction = self.current[transactional_id]
        if self.partitions[partition].write(Data(producer, transaction)):
            self.written[transaction].add(partition)

    @precondition(lambda self: self.given)
    @rule(data=st.data(), commit=st.booleans())
    def end(self, data: Any, commit: bool) -> None:
        self.end_as(*data.draw(st.sampled_from(self.given[-4:])), commit=commit)

    def end_as(self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool) -> None:
        ongoing = self.known(transactional_id) and self.state(transactional_id) == "Ongoing"
        transaction = self.current.get(transactional_id) if ongoing else None
        if transaction is not None and commit and producer == self.runner.coordinator.describe(transactional_id).producer:
            self.asked.add(transaction)

        def then(transactional_id: str, answer: ProducerIdAndEpoch) -> None:
            if transaction is not None:
                assert self.promised.setdefault(transaction, commit) == commit, "a transaction ends once"
            if (transactional_id, answer) not in self.given:
                self.given.append((transactional_id, answer))

        self.ask(EndTransaction, transactional_id, then, producer=producer, commit=commit, bump_epoch=BUMPS[transactional_id])

    @rule(transactional_id=st.sampled_from(IDS))
    def abort(self, transactional_id: str) -> None:
        self.ask(AbortTransaction, transactional_id, lambda *_: None)

    # ------------------------------------------------------------ the broker

    @precondition(lambda self: self.runner.actions)
    @rule(fails=st.sampled_from([False, False, False, True]), some=st.integers(0, 2))
    def act(self, fails: bool, some: int) -> None:
        self.act_once(fails=fails, some=some)

    def act_once(self, *, fails: bool, some: int) -> None:
        action = self.runner.actions.pop(0)
        partitions = sorted(action.partitions)[: some if fails else None]
        if isinstance(action, WriteMarkers):
            self.check_decided(action)
        for partition in partitions:
            if isinstance(action, SyncPartitions):
                self.partitions[partition].sync()
            else:
                self.partitions[partition].mark(action, partial(self.decided, partition))
        if isinstance(action, WriteMarkers) and not fails and action.last_epoch == action.producer.producer_epoch:
            for partition in partitions:  # the next transaction may have the same epoch
                self.partitions[partition].sync()
        self.runner.handle(ActionFailed(action, FULL) if fails else ActionDone(action))
        self.look()

    def check_decided(self, action: WriteMarkers) -> None:
        """Markers only behind a decision that is on the disk."""
        info = self.runner.coordinator.describe(action.transactional_id)
        if info.producer == action.producer and info.state.startswith("Prepare"):
            assert info.state == ("PrepareCommit" if action.commit else "PrepareAbort")
            assert self.runner.synced == len(self.runner.log) or self.durably_prepared(action)

    def durably_prepared(self, action: WriteMarkers) -> bool:
        shadow = transaction_runner(abort_on_recovery=False)
        shadow.log = self.runner.log[: self.runner.synced]
        shadow.open()
        return any(again.producer == action.producer and again.commit == action.commit for again in shadow.actions)

    @rule(refuses=st.booleans())
    def disk(self, refuses: bool) -> None:
        self.runner.refuses = refuses

    @rule(delay_ms=st.sampled_from([1, 1_000, 11_000]))
    def time(self, delay_ms: int) -> None:
        self.runner.advance(delay_ms)
        self.look()

    @rule(transactional_id=st.sampled_from(IDS), rounds=st.lists(some_rounds, min_size=1, max_size=2), survives=survivals)
    def work_and_power_cut(self, transactional_id: str, rounds: list[tuple[set[TopicPartition], bool]], survives: Any) -> None:
        self.work_as(transactional_id, rounds)
        self.restart_from(survives)

    @rule(survives=st.none() | survivals)
    def restart(self, survives: tuple[float, ...] | None) -> None:
        self.restart_from(survives)

    def restart_from(self, survives: tuple[float, ...] | None) -> None:
        """``survives``: so much of what each log had not synced is there after a power cut."""
        self.runner.refuses = False
        self.waiting.clear()
        if survives is not None:
            for partition, part in zip(self.partitions.values(), survives, strict=False):
                del partition.entries[partition.synced + round(part * (len(partition.entries) - partition.synced)) :]
            del self.runner.log[self.runner.synced + round(survives[-1] * (len(self.runner.log) - self.runner.synced)) :]
        if self.outlives_kills:
            self.runner.config["abort_on_recovery"] = survives is not None  # what was open may have lost records
        self.runner.reopen()
        for partition in self.partitions.values():
            partition.synced = min(partition.synced, len(partition.entries))
        self.end_orphans()
        for transactional_id in IDS:
            if self.known(transactional_id) and self.state(transactional_id) != "Ongoing":
                self.current.pop(transactional_id, None)

    def end_orphans(self) -> None:
        """What is open in a log and unknown to the coordinator is ended there as it was decided, as the broker does."""
        for name, partition in self.partitions.items():
            for producer_id, epoch in partition.open().items():
                producer = ProducerIdAndEpoch(producer_id, epoch)
                if not self.runner.coordinator.is_open(producer, name):
                    partition.entries.append(self.decided(name, producer))

    def decided(self, name: TopicPartition, producer: ProducerIdAndEpoch) -> Mark:
        records = (entry.record for entry in self.runner.log if isinstance(entry, Entry))
        decision = decisions.find([(0, records)], producer, name)
        return Mark(decision.producer, decision.commit)

    # ------------------------------------------------------------ what always holds

    @invariant()
    def all_or_nothing(self) -> None:
        found: dict[int, set[bool | None]] = {}
        for partition in self.partitions.values():
            for transaction, outcomes in partition.outcomes().items():
                found.setdefault(transaction, set()).update(outcomes)
        for transaction, outcomes in found.items():
            assert not {True, False} <= outcomes, f"{transaction} is torn"
            if True in outcomes:
                assert transaction in self.asked, f"{transaction} is committed though no client asked for it"
                there = {name for name, partition in self.partitions.items() if transaction in partition.outcomes()}
                assert there >= self.written[transaction], f"{transaction} is committed without all of its records"
            if transaction in self.promised:
                ends = {self.promised[transaction]}  # or, where a power cut took the marker, it will come again
                assert outcomes <= ends | {None}, f"{transaction} was promised otherwise"
        for transaction, commit in self.promised.items():
            assert not commit or transaction in found or not self.written[transaction], f"{transaction} is lost"

    @invariant()
    def replay_gives_the_same(self) -> None:
        shadow = transaction_runner(abort_on_recovery=False)
        shadow.log = [*self.runner.log, *self.runner.deferred]
        shadow.open()
        assert shadow.coordinator.transactions() == self.runner.coordinator.transactions()

    def teardown(self) -> None:
        """In the end nothing hangs: whatever is open ends by itself."""
        self.runner.refuses = False
        for _ in range(4):
            self.runner.advance(11_000)
            while self.runner.actions:
                self.act_once(fails=False, some=0)
        self.all_or_nothing()
        assert all(not partition.open() for partition in self.partitions.values())
        assert not self.waiting


class DeferringMachine(TransactionMachine):
    """As on a single node: a kill takes the deferred records, and its recovery aborts what was open."""

    outlives_kills = False

    def add_as(self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: set[TopicPartition]) -> None:
        for partition in sorted(partitions):
            super().add_as(transactional_id, producer, {partition})


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(max_examples=25 * SCALE, stateful_step_count=40)
TestDeferredAdditions = DeferringMachine.TestCase
TestDeferredAdditions.settings = TestTransactions.settings
