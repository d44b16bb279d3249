"""The replicas of one partition in one process, with a simulated network, disks and clock: the same seed is the same run.

Leaders and followers decide by ``logdb_replication.replica.leader`` and ``follower``, the controller by its own state machine.  The logs,
and what lies between, are models: messages are lost, late and repeated, disks lose what was not synced.

After every step:
    one leader an epoch · the leader is in the in-sync set · the high watermark never goes back within an epoch, and each member of the
    controller's in-sync set has flushed what lies below it · logs are equal below it · a member of the in-sync set has flushed all that was
    ever acknowledged, at the same offsets
"""

from __future__ import annotations

import heapq
import itertools
import random
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from logdb.errors import LogdbError, StaleBrokerEpoch
from logdb.log.epochs import EpochEnd, LeaderEpochs
from logdb.model import TopicPartition
from logdb.requests.nodes import PartitionState
from logdb.store.protocols import DAMAGED_OFFSET, LastFetch, Standing
from logdb_replication.controller import commands
from logdb_replication.controller.errors import PartitionChanged
from logdb_replication.controller.machine import Machine
from logdb_replication.replica.follower import AskEpoch, BeginAnew, Fetch, Follower, LogState, TruncateTo
from logdb_replication.replica.leader import Effects, InSyncChange, Leader, RegisteredNode

WHERE = TopicPartition("t", 0)
TOPIC_ID = "simulated-topic"
LAG_MS = 3_000


class Record(NamedTuple):
    epoch: int
    number: int


class SimLog:
    """A log on a disk.  ``chain[offset]``: a checksum of all records below it; ``flushed``: these survive a power cut."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.chain = [0]
        self.epochs = LeaderEpochs()
        self.flushed = self.high_watermark = self.lineage = 0

    @property
    def end(self) -> int:
        return len(self.records)

    @property
    def state(self) -> LogState:
        return LogState(self.epochs, 0, self.end)

    def begin_epoch(self, epoch: int) -> int:
        assert not self.epochs.entries or epoch > self.epochs.latest, f"epoch {epoch} begins after {self.epochs.entries}"
        self.epochs = self.epochs.begun(epoch, self.end)
        return self.end

    def append(self, record: Record) -> None:
        if not self.epochs.entries or record.epoch > self.epochs.latest:
            self.epochs = self.epochs.begun(record.epoch, self.end)
        assert record.epoch == self.epochs.latest, (record, self.epochs.entries)
        self.records.append(record)
        self.chain.append(zlib.crc32(b"%d %d" % record, self.chain[-1]))

    def cut(self, end: int) -> None:
        del self.records[end:], self.chain[end + 1 :]
        self.flushed, self.high_watermark, self.lineage = min(self.flushed, end), min(self.high_watermark, end), self.lineage + 1

    def truncate(self, end: int) -> None:
        self.cut(end)
        self.flushed, self.epochs = end, self.epochs.before(end)

    def restart(self, rng: random.Random, *, power: bool) -> None:
        """The process, or the machine, is started again."""
        if power:
            self.cut(rng.randint(self.flushed, self.end))
            self.flushed = self.end
        self.epochs = self.epochs.until(self.end)
        self.high_watermark = rng.randint(0, min(self.high_watermark, self.end))


class Led(NamedTuple):
    """A leadership; what waits for it: numbers of records by their offset; sessions of followers: their numbers and last fetches."""

    leader: Leader
    awaited: dict[int, int]
    sessions: dict[int, tuple[int, LastFetch]]


class Node:
    """A broker.  ``life`` changes with each start and end; ``ahead``: a flush is under way up to there."""

    def __init__(self, simulation: Simulation, number: int) -> None:
        self.simulation, self.number, self.log = simulation, number, SimLog()
        self.is_up = False
        self.life = self.broker_epoch = 0
        self.state: Any = None
        self.role: tuple[int, int | None] | None = None
        self.led: Led | None = None
        self.follower: Follower | None = None
        self.asked = 0  # the number of the request that an answer is awaited to; 0: none
        self.session, self.known = 1, None  # of the connection, and the last report on it
        self.is_damaged, self.lineage = False, 0
        self.flushing = self.hangs = False
        self.unclean = False

    # ------------------------------------------------------------ life

    def start(self) -> None:
        self.is_up, self.life = True, self.life + 1
        self.state = self.role = self.led = self.follower = self.known = None
        self.session = self.simulation.next_number()
        self.asked, self.flushing, self.hangs = 0, False, False
        self.register()
        self.every(20, self.follow)
        self.every(500, lambda: self.effect(lambda leader: leader.tick(self.log.end, self.simulation.now)))
        self.every(10, self.flush)

    def end(self, *, power: bool) -> None:
        self.is_up, self.life, self.led, self.follower = False, self.life + 1, None, None
        self.log.restart(self.simulation.rng, power=power)

    def every(self, interval_ms: int, do: Callable[[], None]) -> None:
        life = self.life

        def again() -> None:
            if self.life == life:
                do()
                self.simulation.after(self.simulation.rng.uniform(0.5, 1.5) * interval_ms, again)

        again()

    def register(self) -> None:
        simulation, life = self.simulation, self.life
        command = commands.RegisterBroker(self.number, f"{self.number}-{life}", {}, unclean=self.unclean)

        def registered(answer: Any) -> None:
            if self.life != life:
                return
            if not isinstance(answer, commands.Registered):
                simulation.after(100, lambda: self.life == life and self.register())
                return
            self.broker_epoch, self.unclean = answer.broker_epoch, False
            self.every(60, self.hear)
            self.every(200, lambda: simulation.ask(self, commands.UnfenceBroker(self.number, self.broker_epoch), beaten))

        def beaten(answer: Any) -> None:
            if self.life == life and isinstance(answer, StaleBrokerEpoch):  # a late request of a former life has registered since
                self.end(power=False)
                self.start()

        simulation.ask(self, command, registered)

    # ------------------------------------------------------------ what the controller says

    def hear(self) -> None:
        if self.simulation.reaches(self.number, 0):
            state = self.simulation.machine.state
            self.simulation.after(self.simulation.delay(), lambda life=self.life: self.life == life and self.apply(state))

    def apply(self, state: Any) -> None:
        if self.state is not None and state.index <= self.state.index:
            return
        self.state = state
        partition = state.partition(*WHERE)
        if partition is None:
            return
        role = (partition.leader_epoch, partition.leader if self.number in partition.replicas else None)
        if partition.is_elsewhere(self.number):
            self.log.truncate(0)
        if role == self.role:
            self.effect(lambda leader: leader.changed(partition, self.brokers, self.simulation.minimum, self.simulation.now))
            return
        self.role, self.led, self.follower, self.asked = role, None, None, 0
        self.session, self.known = self.simulation.next_number(), None
        if partition.leader == self.number:
            self.lead(partition)
        elif self.role[1] is not None:
            self.follower = Follower()

    @property
    def brokers(self) -> dict[int, RegisteredNode]:
        return {node: RegisteredNode(broker.epoch, broker.fenced) for node, broker in self.state.brokers.items()}

    def lead(self, partition: PartitionState) -> None:
        simulation, log = self.simulation, self.log
        simulation.note_leader(partition.leader_epoch, self)
        start = log.begin_epoch(partition.leader_epoch)
        leader = Leader(
            WHERE,
            self.number,
            partition,
            self.brokers,
            epoch_start_offset=start,
            high_watermark=log.high_watermark,
            flushed_offset=log.flushed,
            in_sync_count_min=simulation.minimum,
            lag_ms=LAG_MS,
            now_ms=simulation.now,
        )
        self.led = Led(leader, {}, {})

    # ------------------------------------------------------------ leading

    def effect(self, event: Callable[[Leader], Effects]) -> None:
        if self.led is None:
            return
        effects = event(self.led.leader)
        if effects.high_watermark is not None:
            self.log.high_watermark = max(self.log.high_watermark, effects.high_watermark)
            self.simulation.note_high_watermark(self)
            for offset in [one for one in self.led.awaited if one < effects.high_watermark]:
                self.simulation.note_acknowledged(self, offset, self.led.awaited.pop(offset))
        if effects.proposal is not None:
            self.propose(self.led, effects.proposal)

    def propose(self, led: Led, change: InSyncChange) -> None:
        simulation, life = self.simulation, self.life
        replicas = tuple(commands.Replica(*pair) for pair in change.in_sync)
        if any(replica.broker_epoch < 0 for replica in replicas):
            simulation.after(1, lambda: answered(None))
            return
        command = commands.AlterInSync(
            self.number, self.broker_epoch, "t", TOPIC_ID, 0, change.leader_epoch, change.partition_epoch, replicas
        )

        def answered(answer: Any) -> None:
            if self.life != life or self.led is not led:
                return
            state = answer.state if isinstance(answer, commands.PartitionIs | PartitionChanged) else None
            self.effect(lambda leader: leader.answered(state, simulation.now))

        simulation.ask(self, command, answered)

    def produce(self, *, of_all: bool) -> None:
        """A client's append."""
        if self.led is not None and (self.led.leader.has_enough_in_sync or not of_all):
            number = self.simulation.next_number()
            self.log.append(Record(self.led.leader.state.leader_epoch, number))
            if of_all:
                self.led.awaited[self.log.end - 1] = number

    def answer_epoch(self, leader_epoch: int, epoch: int) -> EpochEnd | str | None:
        if self.led is None or self.led.leader.state.leader_epoch != leader_epoch:
            return "refused"
        return self.log.epochs.answer(epoch, self.log.end)

    def answer_fetch(
        self, node: int, broker_epoch: int, leader_epoch: int, offset: int, flushed: int, count: int, lineage: int, session: int = 0
    ) -> Any:
        """Batches, the high watermark, and whether the follower may begin anew; or why not.

        ``session``: its number; 0: none repeats the report.
        """
        now, last_fetch = self.simulation.now, LastFetch(self.simulation.now) if session else None
        if self.led is None or self.led.leader.state.leader_epoch != leader_epoch:
            return "refused"
        try:
            self.effect(lambda leader: leader.fetched(node, broker_epoch, flushed, self.log.end, now, lineage, last_fetch))
        except LogdbError:
            return "refused"
        if last_fetch is not None and self.led is not None:
            self.led.sessions[node] = session, last_fetch
        return self.answer_batches(node, offset, count)

    def answer_again(self, node: int, leader_epoch: int, session: int, offset: int, count: int) -> Any:
        """As ``answer_fetch``, where the follower's report is the one before."""
        is_led = self.led is not None and self.led.leader.state.leader_epoch == leader_epoch
        if not is_led or self.led.sessions.get(node, (0,))[0] != session:
            return "refused"
        self.led.sessions[node][1].at_ms = self.simulation.now
        self.simulation.counts["repeated"] += 1
        return self.answer_batches(node, offset, count)

    def answer_batches(self, node: int, offset: int, count: int) -> Any:
        if offset > self.log.end:
            return "out of range"
        may_begin_anew = self.led is not None and self.led.leader.standing(node) is Standing.MAY_BEGIN_ANEW
        return self.log.records[offset : offset + count], self.log.high_watermark, may_begin_anew

    # ------------------------------------------------------------ following

    def follow(self) -> None:
        """Ask the leader what comes next, unless an answer is awaited."""
        if self.follower is None or self.asked or self.role is None:
            return
        simulation, follower, (leader_epoch, leader) = self.simulation, self.follower, self.role
        step = Fetch(0) if self.is_damaged else follower.next(self.log.state)
        self.asked = request = simulation.next_number()

        def taken(answer: Any) -> None:
            if self.asked == request:
                self.asked = 0
                if isinstance(answer, str):  # the connection is gone, or the partition has left the session
                    self.session, self.known = simulation.next_number(), None
                if isinstance(step, AskEpoch):
                    self.epoch_answered(follower, answer)
                else:
                    self.fetched(follower, leader_epoch, answer)

        if isinstance(step, AskEpoch):
            simulation.call(self, leader, lambda peer: peer.answer_epoch(leader_epoch, step.epoch), taken)
        else:
            count = 0 if self.is_damaged else simulation.rng.choice((0, 1, 5, 100))
            report = leader, self.broker_epoch, leader_epoch, step.offset, self.flushed_to_report(), self.lineage
            session, is_known = 0 if self.is_damaged else self.session, report == self.known
            self.known = None if self.is_damaged else report
            if is_known:
                simulation.call(self, leader, lambda peer: peer.answer_again(self.number, leader_epoch, session, step.offset, count), taken)
            else:
                values = (self.number, *report[1:5], count, self.lineage, session)
                simulation.call(self, leader, lambda peer: peer.answer_fetch(*values), taken)
        simulation.after(400, lambda: taken("lost"))

    def flushed_to_report(self) -> int:
        if self.is_damaged:
            return DAMAGED_OFFSET
        return self.log.flushed if self.follower is not None and self.follower.is_checked else -1

    def epoch_answered(self, follower: Follower, answer: Any) -> None:
        if isinstance(answer, str):
            return
        step = follower.epoch_answered(answer, self.log.state)
        if isinstance(step, TruncateTo):
            self.log.truncate(step.offset)
            follower.stepped()
        elif isinstance(step, BeginAnew):
            self.log.truncate(0)
            follower.stepped()

    def fetched(self, follower: Follower, leader_epoch: int, answer: Any) -> None:
        if answer == "out of range":
            assert follower.out_of_range(0, self.log.state) is None
        if isinstance(answer, str):
            return
        records, high_watermark, may_begin_anew = answer
        if self.is_damaged:
            if may_begin_anew:
                self.simulation.counts["repaired"] += 1
                self.log.truncate(0)
                follower.damaged()
                follower.stepped()
                self.is_damaged, self.lineage = False, self.lineage + 1
            return
        for record in records:
            self.log.append(record)
        self.log.high_watermark = max(self.log.high_watermark, min(high_watermark, self.log.end))

    # ------------------------------------------------------------ the disk

    def flush(self) -> None:
        if self.flushing or self.hangs or self.log.flushed == self.log.end:
            return
        self.flushing, end, lineage, life = True, self.log.end, self.log.lineage, self.life

        def flushed() -> None:
            if self.life != life:
                return
            if self.hangs:
                self.simulation.after(100, flushed)
                return
            self.flushing = False
            if self.log.lineage == lineage:
                self.log.flushed = max(self.log.flushed, end)
            self.effect(lambda leader: leader.flushed(self.log.flushed, self.log.end, self.simulation.now))
            self.report()

        self.simulation.after(self.simulation.rng.choice((0, 1, 5, 30, 200)), flushed)

    def report(self) -> None:
        """Tell the leader what was flushed: a message that may come late, or twice."""
        if self.follower is not None and self.role is not None:
            leader_epoch, leader = self.role
            values = (self.number, self.broker_epoch, leader_epoch, self.log.end, self.flushed_to_report(), 0, self.lineage)
            for _ in range(self.simulation.rng.choice((1, 1, 2))):
                self.simulation.call(self, leader, lambda peer: peer.answer_fetch(*values), self.reported(self.follower))

    def reported(self, follower: Follower) -> Callable[[Any], None]:
        def taken(answer: Any) -> None:
            if self.follower is follower and follower.is_checked and not self.is_damaged and not isinstance(answer, str):
                self.log.high_watermark = max(self.log.high_watermark, min(answer[1], self.log.end))

        return taken


class Simulation:
    """The nodes, numbered from 1, and the controller, which is 0."""

    def __init__(self, seed: int, count: int = 3, minimum: int = 2) -> None:
        self.rng, self.now, self.minimum = random.Random(seed), 0, minimum
        self.loss, self.late = 0.0, 0.0
        self.cuts: set[tuple[int, int]] = set()
        self.machine, self._index = Machine("sim"), itertools.count(1)
        self._numbers = itertools.count(1)
        self._queue: list[tuple[float, int, Callable[[], object]]] = []
        self.counts: Counter[str] = Counter()
        self.story: list[str] = []
        self.leaders: dict[int, tuple[int, int]] = {}
        self.committed = [0]  # the chain of what was below a leader's high watermark
        self.acknowledged = 0  # the end of what was
        self.nodes = {number: Node(self, number) for number in range(1, count + 1)}
        for node in self.nodes.values():
            self.apply(commands.RegisterBroker(node.number, "before", {}))
            self.apply(commands.UnfenceBroker(node.number, self.machine.state.brokers[node.number].epoch))
        self.apply(commands.CreateTopic("t", TOPIC_ID, {"min.insync.replicas": minimum}, 1, count))
        for node in self.nodes.values():
            node.start()

    def tell(self, what: str) -> None:
        self.story.append(f"{self.now:8.0f} {what}")

    def next_number(self) -> int:
        return next(self._numbers)

    # ------------------------------------------------------------ time, network

    def after(self, delay_ms: float, do: Callable[[], object]) -> None:
        heapq.heappush(self._queue, (self.now + delay_ms, self.next_number(), do))

    def run(self, duration_ms: float, until: Callable[[], object] = lambda: False) -> bool:
        end = self.now + duration_ms
        while self._queue and self._queue[0][0] <= end:
            self.now, _, do = heapq.heappop(self._queue)
            do()
            self.check()
            if until():
                return True
        self.now = end
        return False

    def delay(self) -> float:
        return self.rng.uniform(0.1, 2) if self.rng.random() >= self.late else self.rng.uniform(50, 3_000)

    def reaches(self, sender: int, receiver: int) -> bool:
        return (sender, receiver) not in self.cuts and self.rng.random() >= self.loss

    def call(self, sender: Node, receiver: int, do: Callable[[Node], Any], taken: Callable[[Any], None]) -> None:
        """A request and its answer; either may be lost."""
        life = sender.life

        def arrive() -> None:
            peer = self.nodes[receiver]
            if peer.is_up and self.reaches(sender.number, receiver):
                answer = do(peer)
                if self.reaches(receiver, sender.number):
                    self.after(self.delay(), lambda: sender.life == life and taken(answer))

        self.after(self.delay(), arrive)

    def apply(self, command: Any) -> Any:
        """The answer of the state machine, or its refusal."""
        try:
            return commands.decode_answer(self.machine.apply(next(self._index), commands.encode(command)))
        except LogdbError as error:
            return error

    def ask(self, node: Node, command: Any, taken: Callable[[Any], None] = lambda _: None) -> None:
        """A proposal: carried out once, twice or never, now or late; the answer, or None once its time is over."""
        answered: list[bool] = []

        def tell(answer: Any) -> None:
            if not answered:
                answered.append(True)
                taken(answer)

        life = node.life

        def arrive() -> None:
            if isinstance(command, commands.RegisterBroker) and node.life != life:
                return  # the listener takes none while the node's next process has a session
            if self.reaches(node.number, 0):
                answer = self.apply(command)
                if self.reaches(0, node.number):
                    self.after(self.delay(), lambda: tell(answer))

        for _ in range(self.rng.choice((1, 1, 1, 2))):
            self.after(self.delay(), arrive)
        self.after(1_000, lambda: tell(None))

    # ------------------------------------------------------------ what holds

    def note_leader(self, epoch: int, node: Node) -> None:
        assert self.leaders.setdefault(epoch, (node.number, node.life)) == (node.number, node.life), f"epoch {epoch} has two leaders"
        self.tell(f"{node.number} leads in epoch {epoch} from {node.log.end}, high watermark {node.log.high_watermark}")
        self.counts["epochs"] += 1

    def note_high_watermark(self, node: Node) -> None:
        chain, offset = node.log.chain, node.led.leader.high_watermark
        assert chain[: min(offset + 1, len(self.committed))] == self.committed[: offset + 1], f"another history below {offset}"
        self.committed += chain[len(self.committed) : offset + 1]

    def note_acknowledged(self, node: Node, offset: int, number: int) -> None:
        assert node.log.records[offset].number == number, f"another record lies at {offset}"
        self.acknowledged = max(self.acknowledged, offset + 1)
        self.counts["acknowledged"] += 1

    def check(self) -> None:
        partition = self.machine.state.partition(*WHERE)
        if partition is None:
            return
        assert partition.leader is None or partition.leader in partition.in_sync, partition
        for number in partition.in_sync:
            log = self.nodes[number].log
            assert log.flushed >= self.acknowledged, f"{number} is in sync and has flushed {log.flushed} of {self.acknowledged}"
            assert log.chain[self.acknowledged] == self.committed[self.acknowledged], f"{number} is in sync and has other records"
        for node in self.nodes.values():
            log = node.log
            assert log.chain[log.high_watermark] == self.committed[log.high_watermark], f"{node.number} shows other records"
            if node.led is not None and node.led.leader.state.leader_epoch == partition.leader_epoch:
                offset = node.led.leader.high_watermark
                assert all(self.nodes[one].log.flushed >= offset for one in partition.in_sync), f"{node.number} counts too few: {offset}"


class Storm:
    """Faults at random; then calm, in which all must come together."""

    def __init__(self, seed: int, *, reassigns: bool = False) -> None:
        rng, self.reassigns = random.Random(seed), reassigns
        self.simulation = Simulation(seed, rng.choice((2, 3, 3, 3, 5)), rng.choice((1, 2, 2)))
        self.simulation.loss = rng.choice((0.0, 0.0, 0.02, 0.2))
        self.simulation.late = rng.choice((0.0, 0.01, 0.1, 0.3))
        self.fault_ms, self.client_ms = rng.choice((50, 300, 1_500)), rng.choice((5, 20, 100))
        self.is_over = False
        self._damages = random.Random(f"damage {seed}") if seed % 5 == 0 else None

    def rage(self, duration_ms: int) -> None:
        if self._damages is not None:
            self.simulation.after(0, lambda: self._damage(self._damages))
        self._repeat(self.client_ms, self._produce)
        self._repeat(self.fault_ms, self._fault)
        self._repeat(300, self._session)
        if self.reassigns:
            self._repeat(400, self._reassign)
        self.simulation.run(duration_ms)
        self.is_over = True

    def calm(self) -> None:
        simulation = self.simulation
        simulation.loss = simulation.late = 0.0
        simulation.cuts.clear()
        simulation.tell("calm")
        for node in simulation.nodes.values():
            node.hangs = False
            if not node.is_up:
                node.start()
        acknowledged = simulation.counts["acknowledged"]
        if self.reassigns:
            self._reassign(tuple(simulation.nodes))
            simulation.counts["reassigned"] -= 1

        def ask() -> None:
            self._produce(of_all=True)
            simulation.after(50, ask)

        ask()
        partition = lambda: simulation.machine.state.partition(*WHERE)
        assert simulation.run(30_000, lambda: simulation.counts["acknowledged"] > acknowledged), f"nothing is acknowledged: {partition()}"
        assert simulation.run(30_000, lambda: len(partition().in_sync) == len(simulation.nodes)), f"not all are in sync: {partition()}"
        assert len({node.log.chain[simulation.acknowledged] for node in simulation.nodes.values()}) == 1

    def _repeat(self, mean_ms: float, do: Callable[[], None]) -> None:
        def again() -> None:
            if not self.is_over:
                do()
                self.simulation.after(self.simulation.rng.expovariate(1 / mean_ms), again)

        again()

    def _produce(self, of_all: bool | None = None) -> None:
        rng = self.simulation.rng
        for node in self.simulation.nodes.values():  # also one that was replaced and does not know it
            if node.is_up and node.led is not None:
                node.produce(of_all=rng.random() < 0.7 if of_all is None else of_all)

    def _reassign(self, target: tuple[int, ...] | None = None) -> None:
        """An operator wants other replicas, or cancels what is under way."""
        simulation, rng = self.simulation, self.simulation.rng
        if target is None:
            nodes = list(simulation.nodes)
            target = tuple(rng.sample(nodes, rng.randint(min(simulation.minimum, len(nodes)), len(nodes)))) if rng.random() < 0.9 else ()
        known = simulation.machine.state.partition(*WHERE)
        simulation.tell(f"reassign {known.replicas} to {target}")
        answer = simulation.apply(commands.Reassign("t", TOPIC_ID, 0, target, known.replicas))
        simulation.counts["reassigned"] += isinstance(answer, commands.PartitionIs)

    def _session(self) -> None:
        """The controller fences who is gone."""
        for number, broker in self.simulation.machine.state.brokers.items():
            if not self.simulation.nodes[number].is_up and not broker.fenced and self.simulation.rng.random() < 0.5:
                self.simulation.apply(commands.FenceBroker(number, broker.epoch))

    def _damage(self, rng: random.Random) -> None:
        """A follower finds a range of its log lost."""
        node = self.simulation.nodes[rng.choice(list(self.simulation.nodes))]
        if node.follower is not None and not self.is_over:
            self.simulation.tell(f"damage {node.number}")
            self.simulation.counts["damage"] += 1
            node.is_damaged = True
        self.simulation.after(rng.expovariate(1 / 400), lambda: self._damage(rng))

    def _fault(self) -> None:
        simulation, rng = self.simulation, self.simulation.rng
        node = simulation.nodes[rng.choice(list(simulation.nodes))]
        kind = rng.choice(("kill", "power", "fence", "resign", "isolate", "deaf", "mute", "alone", "hang", "blackout", "wipe"))
        state, back = simulation.machine.state, rng.expovariate(1 / 1_000)
        partition = state.partition(*WHERE)
        simulation.counts[kind] += 1
        simulation.tell(f"{kind} {node.number}")
        others = [number for number in (*simulation.nodes, 0) if number != node.number]
        cuts: set[tuple[int, int]] = set()
        match kind:
            case "kill" | "power" if node.is_up:
                node.end(power=kind == "power")
            case "blackout":
                for each in simulation.nodes.values():
                    if each.is_up:
                        each.end(power=True)
            case "wipe" if node.number not in partition.in_sync and node.is_up:
                # first: until it is known, the disk of a follower that is about to be added counts as one of a member
                simulation.apply(commands.RegisterBroker(node.number, f"wiped {simulation.next_number()}", {}, unclean=True))
                node.end(power=True)
                node.log, node.unclean, node.is_damaged = SimLog(), True, False
            case "fence":  # it may live: the controller errs
                simulation.apply(commands.FenceBroker(node.number, state.brokers[node.number].epoch))
            case "resign":
                simulation.apply(commands.ResignLeader("t", 0, partition.leader_epoch))
            case "hang":
                node.hangs = True
                simulation.after(back * 3, lambda: setattr(node, "hangs", False))
            case "isolate" | "deaf" | "mute":
                cuts = {(one, node.number) for one in others if kind != "mute"} | {(node.number, one) for one in others if kind != "deaf"}
            case "alone":  # only the controller is away
                cuts = {(node.number, 0), (0, node.number)}
        simulation.cuts |= cuts
        simulation.after(back, lambda: (simulation.cuts.difference_update(cuts), self._restart()))

    def _restart(self) -> None:
        for node in self.simulation.nodes.values():
            if not node.is_up and not self.is_over and self.simulation.rng.random() < 0.8:
                self.simulation.tell(f"start {node.number}")
                node.start()
