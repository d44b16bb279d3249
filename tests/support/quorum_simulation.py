"""Three or five voters in one process, with a simulated network, disk and clock: the same seed is the same run.

After every step that a voter makes:
    one leader a term · entries with one index and term are equal, and so are those before them · committed entries never change, and are
    on a majority of disks · a new leader has all that were committed · states after one index are equal · no command is applied at two
    indexes · a command that was refused is never applied, one that was acknowledged is · a barrier sees all that was acknowledged
    before it · no voter is refused as an older copy that is none · no election without a majority of pre-votes

Time stands still while a voter makes a step; with ``sync_s`` and ``descheduled_s`` it moves within one.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import pytest
from pysyncobj import syncobj

from logdb.errors import LogdbError
from logdb_replication.raft import core, files
from logdb_replication.raft.asked import Asked, Pending, Reading, VotersChange
from logdb_replication.raft.core import QuorumOptions
from logdb_replication.raft.errors import NotQuorumLeader, UnknownOutcome, VoterRolledBack
from logdb_replication.raft.messages import Message, decode, encode
from logdb_replication.raft.node import Node
from logdb_replication.raft.voters import Peer, Voter
from support.memory_io import MemoryIO
from support.power_cut import Killed

DIRECTORY = "/voter"


class Machine:
    """A state that is one checksum of all commands so far: equal only if they and their order are."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation, self.index, self.digest = simulation, 1, 0

    def apply(self, index: int, command: bytes) -> bytes:
        assert index > self.index, f"index {index} is applied after {self.index}"
        self.index, self.digest = index, zlib.crc32(command + index.to_bytes(8, "big"), self.digest)
        self.simulation.note_applied(index, command, self.digest)
        if command.startswith(b"raises"):
            raise ValueError("asked to")
        return b"%d" % index

    def snapshot(self) -> bytes:
        return struct.pack(">QI", self.index, self.digest) + bytes(600_000 if self.simulation.large_snapshots else 10)

    def restore(self, index: int, state: bytes) -> None:
        self.index, self.digest = struct.unpack_from(">QI", state)
        assert self.index <= index
        assert self.simulation.digests.get(self.index, 0) == self.digest


class SimulatedTransport:
    def __init__(self, slot: Slot) -> None:
        self.slot, self.closed, self.start_id = slot, False, 0

    def add(self, peer: Peer) -> None:
        self.on_connected(peer)

    def drop(self, peer: Peer) -> None:
        self.on_disconnected(peer)

    def send(self, peer: Peer, message: Message) -> bool:
        if not self.closed:
            self.slot.simulation.carry(self.slot, peer, encode({**message, "start_id": self.start_id}))
        return True

    def wait(self, timeout_s: float) -> None:
        pass

    def destroy(self) -> None:
        self.closed = True


class Chance(random.Random):
    """What election timeouts are drawn from; rivals draw the same ones."""

    def __init__(self, seed: float, rivalry: bool) -> None:
        super().__init__(seed)
        self.rivalry = rivalry

    def random(self) -> float:
        return round(super().random()) / 50 if self.rivalry else super().random()


class Copy(NamedTuple):
    """Of the directory of a voter that ran: the number of its start, and its term."""

    start: int
    term: int
    files: dict[str, bytes]


class Slot:
    """A machine that may run a voter."""

    def __init__(self, simulation: Simulation, voter: Voter) -> None:
        self.simulation, self.voter, self.io = simulation, voter, MemoryIO()
        self.io.on_sync = lambda: self.lose_time(simulation.sync_s)
        self.busy_until = 0.0  # the end of the step that it makes, where steps take time
        self.node: Node | None = None
        self.machine: Machine | None = None
        self.life = 0  # changes with each start and end
        self.tick_at = 0.0
        self.lost_index = 0  # up to here the incarnation before may have acknowledged, and the acknowledgement may be under way
        self.copies: list[Copy] = []
        self.taken_back = False  # its directory is an older copy, and it does not take part yet
        self.paused_until = 0.0
        self.checked_commit = 1
        self._rate, self._begin, self._began_at = 1.0, simulation.now, simulation.now

    def clock(self) -> float:
        """Its own, which may be slow or fast."""
        return self._begin + (self.time() - self._began_at) * self._rate

    def time(self) -> float:
        """By the simulation's clock."""
        return max(self.simulation.now, self.busy_until)

    def lose_time(self, seconds: float) -> None:
        """Within a step: to a disk, or to other processes."""
        if seconds:
            self.busy_until = self.time() + seconds

    def run_at(self, rate: float) -> None:
        self._begin, self._began_at, self._rate = self.clock(), self.time(), rate

    def due(self) -> float:
        """When the next tick must be, by the simulation's clock."""
        return self.time() + (self.node.due() - self.clock()) / self._rate

    def create(self, voters: tuple[Voter, ...]) -> None:
        files.create(self.io, DIRECTORY, "sim", self.voter, voters)

    def start(self) -> None:
        simulation = self.simulation
        self.life += 1
        self.machine = Machine(simulation)
        self.paused_until = 0.0
        with self.fate():
            opened = files.VoterFiles(self.io, DIRECTORY)
            for place, entry in enumerate(opened.journal[:]):
                simulation.note_entry(entry, opened.journal[place - 1][2] if place else None)
            add = opened.journal.add
            opened.journal.add = lambda command, index, term: (
                simulation.note_entry((command, index, term), opened.journal[-1][2]),
                add(command, index, term),
            )
            chance = Chance(simulation.rng.random(), simulation.rivalry)
            self.node = Node(opened, self.voter, SimulatedTransport(self), self.machine, simulation.options, chance)
            if self.taken_back and simulation.waits:  # whether they answer in time is left to no chance
                self.node.core.start_deadline = float("inf")
            self.node.core.takes_part |= not simulation.waits
            self._watch_elections()
            self.checked_commit = self.node._files.snapshot.index
            simulation.plan(self)

    def _watch_elections(self) -> None:
        adapter, core = self.node._adapter, self.node.core
        tick = adapter.tick

        def watched() -> None:
            may = core.takes_part and core.is_voter and 2 * (len(core._pre_votes) + 1) > len(core.voters)
            term = core.term
            tick()
            assert may or core.term == term, f"voter {self.voter.number} begins an election with {len(core._pre_votes)} pre-votes"

        adapter.tick = watched

    def end(self, *, cut: bool) -> None:
        """The process dies; with ``cut``, the machine loses its power."""
        self.node = None
        self.life += 1
        if cut:
            self.io.cut(self.simulation.rng)
        else:
            self.io.new_process()
            self.simulation.flap(self)

    @contextlib.contextmanager
    def fate(self) -> Iterator[None]:
        """What a step may end in: its process dies, or its disk has failed."""
        self.simulation.current = self
        try:
            yield
        except Killed:
            self.simulation.tell("dies in a call", self)
            self.end(cut=self.simulation.rng.random() < 0.7)
        except VoterRolledBack as error:
            if not self.taken_back:
                raise AssertionError("its directory is the latest") from error
            self.simulation.tell(f"is refused: {error.reason}", self)
            self.simulation.counts["refused copies"] += 1
            fresh = self.simulation.replace(self)
            self.simulation.after(0.1, lambda: fresh.node is None and fresh.start())
        except LogdbError as error:
            if not self.io.fails:
                raise
            self.simulation.tell(f"stops: {error}", self)
            if self.node is not None:
                self.node.fail(error)
            self.end(cut=self.simulation.rng.random() < 0.5)


class Simulation:
    def __init__(self, seed: int, *, voters: int = 3, options: QuorumOptions | None = None) -> None:
        self.seed, self.rng = seed, random.Random(seed)
        self.waits = True  # a voter that was taken back, for all others
        self.now = 1_000.0
        self.rivalry, self.slowness_s = False, 0.0001  # between a message and the tick after it
        self.sync_s = self.descheduled_s = 0.0  # that a sync takes; a voter that reads the clock may wait so long for a processor
        self.batch_size_bytes, self.chunk_size_bytes = core.BATCH_SIZE_BYTES, core.CHUNK_SIZE_BYTES
        self.options = options or QuorumOptions(
            snapshot_bytes=self.rng.choice((300, 3_000, 1 << 20)), entries_kept=self.rng.choice((0, 5, 50))
        )
        self.large_snapshots = False
        self.slots = [Slot(self, Voter(number, 100 + number, f"node{number}", 9000)) for number in range(1, voters + 1)]
        self.story: list[str] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        # the network
        self.loss = self.duplicates = self.late = 0.0
        self.cuts: set[tuple[int, int]] = set()
        # what was seen
        self.leaders: dict[int, int] = {}
        self.entries: dict[tuple[int, int], tuple[bytes, int | None]] = {}
        self.committed: dict[int, tuple[int, bytes]] = {}
        self.digests: dict[int, int] = {}
        self.index_of: dict[bytes, int] = {}
        self.refused: set[bytes] = set()
        self.acknowledged_index = 0
        self.counts = dict.fromkeys(("acknowledged", "unknown", "refused", "barriers", "leaders", "messages", "snapshots", "lost"), 0)
        self.counts |= dict.fromkeys(("older copies", "refused copies"), 0)

    # ------------------------------------------------------------ time

    @contextlib.contextmanager
    def running(self) -> Iterator[Simulation]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(syncobj, "monotonicTime", self.clock)
            patch.setattr(core, "BATCH_SIZE_BYTES", self.batch_size_bytes)
            patch.setattr(core, "CHUNK_SIZE_BYTES", self.chunk_size_bytes)
            voters = tuple(slot.voter for slot in self.slots)
            for slot in self.slots:
                slot.create(voters)
                slot.start()
            yield self

    def clock(self) -> float:
        """That of the voter whose turn it is."""
        if self.descheduled_s and self.rng.random() < 0.1:
            self.current.lose_time(self.rng.uniform(0, self.descheduled_s))
        return self.current.clock()

    def after(self, delay_s: float, do: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + delay_s, self._count, do))

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Go on for so long; True once ``until`` is."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            if until():
                return True
            self.now, _, do = heapq.heappop(self._events)
            do()
        self.now = end
        return until()

    def plan(self, slot: Slot, delay_s: float | None = None) -> None:
        """The next tick of a voter."""
        if slot.node is None:
            return
        due = max(self.now, slot.paused_until, slot.busy_until, slot.due() if delay_s is None else self.now + delay_s)
        if due == float("inf"):
            return
        due += 0.00001  # a tick takes time
        slot.tick_at = due
        self.after(due - self.now, partial(self._tick, slot, slot.life, due))

    def _tick(self, slot: Slot, life: int, due: float) -> None:
        if slot.life == life and slot.tick_at == due:
            self.step(slot, slot.node.tick)

    def step(self, slot: Slot, do: Callable[[], object]) -> None:
        with slot.fate():
            do()
        if slot.node is not None:
            self.check(slot)
            self.plan(slot)

    # ------------------------------------------------------------ network

    def flap(self, slot: Slot) -> None:
        """The connections of a voter end, and are made again: its process has died, or the network has failed for a moment."""
        for other in self.slots:
            if other is not slot and other.node is not None:
                self.after(self.rng.uniform(0.0002, 0.003), partial(self._flap, other, other.life, Peer(slot.voter)))

    def replace(self, slot: Slot) -> Slot:
        """A machine with an empty disk takes the place of another, for a new incarnation of its voter."""
        lost_index = max(each.node.core.log.last for each in self.slots if each.node is not None)
        if slot.node is not None:
            slot.end(cut=True)
        slot.life += 1
        fresh = Slot(self, slot.voter._replace(incarnation=slot.voter.incarnation + 1_000))
        fresh.lost_index = lost_index
        self.slots[self.slots.index(slot)] = fresh
        fresh.create(())
        return fresh

    def _flap(self, slot: Slot, life: int, peer: Peer) -> None:
        if slot.life == life and slot.node is not None:
            with slot.fate():
                slot.node._transport.on_disconnected(peer)
                slot.node._transport.on_connected(peer)
            self.plan(slot)

    def carry(self, sender: Slot, peer: Peer, data: bytes) -> None:
        target = next((slot for slot in self.slots if slot.voter.id == peer.id), None)
        if target is None:
            return
        self.counts["messages"] += 1
        for _ in range(2 if self.rng.random() < self.duplicates else 1):
            if self.rng.random() >= self.loss:
                delay = self.rng.uniform(0.0002, 0.003) + sender.time() - self.now
                if self.rng.random() < self.late:
                    delay += self.rng.expovariate(5.0)
                self.after(delay, partial(self._deliver, sender.voter, target, data))

    def _deliver(self, sender: Voter, target: Slot, data: bytes) -> None:
        if target.node is None or (sender.number, target.voter.number) in self.cuts:
            return
        if (ready := max(target.paused_until, target.busy_until)) > self.now:
            self.after(ready - self.now, partial(self._deliver, sender, target, data))
            return
        message = decode(data)
        self.counts["snapshots"] += message["type"] == "snapshot"
        with target.fate():
            target.node._transport.on_message(Peer(sender), message)
        if target.node is not None:
            self.check(target)
            if target.tick_at < target.time() or target.tick_at > self.now + self.slowness_s:
                self.plan(target, self.rng.uniform(0, self.slowness_s))

    # ------------------------------------------------------------ clients

    def submit(self, slot: Slot, what: Asked) -> None:
        if slot.node is None:
            return
        with contextlib.suppress(LogdbError):
            slot.node.submit(what)
            self.plan(slot, 0.0)

    def propose(self, slot: Slot, command: bytes) -> Pending:
        what = Pending(command)
        what.future.add_done_callback(lambda future: self._outcome(command, future))
        self.submit(slot, what)
        return what

    def _outcome(self, command: bytes, future) -> None:
        error = future.exception()
        if error is None:
            self.counts["acknowledged"] += 1
            index = self.index_of[command]
            assert future.result() == b"%d" % index
            assert index in self.committed or any(slot.node and slot.node.core.commit >= index for slot in self.slots)
            self.acknowledged_index = max(self.acknowledged_index, index)
        elif isinstance(error, UnknownOutcome):
            self.counts["unknown"] += 1
        elif isinstance(error, NotQuorumLeader):
            self.counts["refused"] += 1
            assert command not in self.index_of, f"{command!r} was refused, and applied at {self.index_of[command]}"
            self.refused.add(command)

    def barrier(self, slot: Slot) -> Reading:
        what, acknowledged, machine = Reading(), self.acknowledged_index, slot.machine

        def done(future) -> None:
            if future.exception() is None:
                self.counts["barriers"] += 1
                assert future.result() >= acknowledged, f"a barrier holds at {future.result()}; {acknowledged} was acknowledged before"
                assert machine.index >= acknowledged

        what.future.add_done_callback(done)
        self.submit(slot, what)
        return what

    def leader(self) -> Slot | None:
        """The one that leads in the highest term."""
        leading = [slot for slot in self.slots if slot.node is not None and slot.node.is_leader]
        return max(leading, key=lambda slot: slot.node.core.term, default=None)

    # ------------------------------------------------------------ invariants

    def tell(self, what: str, slot: Slot | None = None) -> None:
        self.story.append(f"{self.now - 1_000:8.3f} {slot.voter.number if slot else ' '} {what}")

    def note_entry(self, entry: tuple[bytes, int, int], previous_term: int | None) -> None:
        command, index, term = entry
        if index == 1 or previous_term is None:
            return
        assert self.entries.setdefault((index, term), (command, previous_term)) == (command, previous_term), f"two entries {index, term}"

    def note_applied(self, index: int, command: bytes, digest: int) -> None:
        assert self.digests.setdefault(index, digest) == digest, f"two states after index {index}"
        assert self.index_of.setdefault(command, index) == index, f"{command!r} at {self.index_of[command]} and {index}"
        assert command not in self.refused, f"{command!r} was refused, and is applied at {index}"

    def check(self, slot: Slot) -> None:
        voter = slot.node
        log = voter.core.log
        if voter.is_leader and voter.core.term not in self.leaders:
            self.leaders[voter.core.term] = slot.voter.number
            self.counts["leaders"] += 1
            self.tell(f"leads in term {voter.core.term}", slot)
            self.after(0, lambda: slot.node is voter and self.barrier(slot))
            for index, (term, _) in self.committed.items():
                assert index <= voter._files.snapshot.index or log.term(index) == term, f"leader of {voter.core.term} lacks {index}"
        assert not voter.is_leader or self.leaders[voter.core.term] == slot.voter.number, f"two leaders in term {voter.core.term}"
        assert voter.core.applied <= voter.core.commit
        assert voter._files.snapshot.index == voter.core.snapshot_index <= voter.core.commit
        journal = voter._files.journal
        assert (journal.base, journal.last, journal.synced, journal[-1]) == (log.base, log.last, voter.core.synced, log[-1])
        for index in range(max(slot.checked_commit + 1, log.base + 1), voter.core.commit + 1):
            command, _, term = log.entry(index)
            assert self.committed.setdefault(index, (term, command)) == (term, command), f"index {index} was committed as another"
        if voter.is_leader and voter.core.commit > slot.checked_commit:
            term = log.term(voter.core.commit)
            durable = sum(
                each.node is None
                or each.lost_index >= voter.core.commit
                or (each.node.core.synced >= voter.core.commit and each.node.core.log.term(voter.core.commit) in {term, None})
                for each in self.slots
            )
            assert 2 * durable > len(voter.core.voters), f"index {voter.core.commit} is committed, and on {durable} disks"
        slot.checked_commit = max(slot.checked_commit, voter.core.commit)
        slot.taken_back &= not voter.core.takes_part


# ---------------------------------------------------------------- faults


FAULTS = ("kill", "power", "call", "disk", "pause", "isolate", "deaf", "mute", "pair", "blackout", "lose", "flap")


class Storm:
    """Faults and clients at random, by the seed; then peace, in which all must become well."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation, self.rng = simulation, simulation.rng
        self.kinds: tuple[str, ...] = FAULTS
        self._number = 0
        self._over = False

    @classmethod
    def of_copies(cls, seed: int) -> Storm:
        """Voters that are taken back to older copies, between partitions."""
        storm = cls(Simulation(seed))
        storm.kinds = ("copy", "copy", "isolate", "isolate", "kill")
        return storm

    @classmethod
    def of(cls, seed: int) -> Storm:
        """A storm of a kind that the seed chooses."""
        simulation = Simulation(seed, voters=random.Random(seed).choice((1, 3, 3, 3, 3, 3, 5, 5)))
        rng = simulation.rng
        simulation.loss = rng.choice((0.0, 0.0, 0.02, 0.2))
        simulation.duplicates = rng.choice((0.0, 0.05, 0.5))
        simulation.late = rng.choice((0.0, 0.01, 0.1, 0.3))
        simulation.rivalry = rng.random() < 0.3
        simulation.slowness_s = rng.choice((0.0001, 0.0001, 0.02, 0.2))
        simulation.batch_size_bytes = rng.choice((1, 200, 1 << 20))
        simulation.chunk_size_bytes = rng.choice((16, 1 << 18))
        storm = cls(simulation)
        storm.kinds += ("copy",) * rng.choice((0, 0, 5, 30))
        return storm

    @classmethod
    def of_slow(cls, seed: int) -> Storm:
        """Slow disks and busy processors: time passes within a step."""
        storm = cls.of(seed)
        simulation = storm.simulation
        simulation.sync_s = simulation.rng.choice((0.001, 0.02, 0.1, 0.3))
        simulation.descheduled_s = simulation.rng.choice((0.0, 0.001, 0.05))
        return storm

    def rage(self, seconds: float) -> None:
        simulation, rng = self.simulation, self.rng
        if rng.random() < 0.5:
            for slot in simulation.slots:
                slot.run_at(rng.choice((0.1, 0.5, 1.0, 1.0, 2.0)))
        clients, faults = rng.choice((0.005, 0.02, 0.1)), rng.choice((0.1, 0.4, 1.5))
        self._repeat(clients, self._client)
        self._repeat(faults, self._fault)
        self._repeat(0.3, self._mend)
        self._repeat(0.3, self._copy)
        simulation.run(seconds)
        self._over = True

    def calm(self) -> None:
        """Faults end, every voter runs: a command must be acknowledged soon, and all voters must get the same state."""
        simulation = self.simulation
        simulation.loss = simulation.duplicates = simulation.late = 0.0
        simulation.slowness_s = 0.0001
        simulation.cuts.clear()
        for slot in simulation.slots:
            slot.run_at(1.0)
            slot.paused_until = 0.0
            slot.io.fails, slot.io.kill_in = {}, None
            if slot.node is None:
                slot.start()
            else:
                simulation.plan(slot, 0.0)
            slot.node.core.start_deadline = min(slot.node.core.start_deadline, simulation.now + 2)
        simulation.sync_s = simulation.descheduled_s = 0.0
        self._replace_left_behind()
        simulation.tell("calm")
        acknowledged = simulation.counts["acknowledged"]

        def done() -> bool:
            return simulation.counts["acknowledged"] > acknowledged

        def ask() -> None:
            if not done() or not all(map(self._votes, simulation.slots)):
                self._mend()
                if (leader := simulation.leader()) is not None:
                    self._number += 1
                    simulation.propose(leader, b"calm %d" % self._number)
                simulation.after(0.3, ask)

        ask()
        assert simulation.run(10, done), "nothing is acknowledged in peace"
        assert simulation.run(10, lambda: simulation.leader() is not None), "no voter leads without faults"
        assert simulation.run(10, lambda: all(map(self._votes, simulation.slots))), "who lost a disk does not come back"
        last, slots = simulation.leader().node.core.log.last, simulation.slots
        assert simulation.run(10, lambda: all(slot.node.core.applied >= last for slot in slots)), [slot.node.describe() for slot in slots]
        assert len({slot.machine.digest for slot in slots if slot.machine.index == slots[0].machine.index}) == 1
        assert simulation.refused.isdisjoint(simulation.index_of)

    def _replace_left_behind(self) -> None:
        """What an operator does with a voter that was away while so many were replaced that the rest of those it knows is no majority."""
        simulation = self.simulation
        present = {slot.voter.id for slot in simulation.slots}
        for slot in list(simulation.slots):
            core = slot.node.core
            if core.is_voter and not core.takes_part and 2 * sum(voter.id in present for voter in core.voters) <= len(core.voters):
                simulation.tell("was left behind", slot)
                simulation.replace(slot).start()

    @staticmethod
    def _votes(slot: Slot) -> bool:
        return slot.node is not None and slot.node.core.is_voter and not slot.taken_back

    def _repeat(self, mean_s: float, do: Callable[[], None]) -> None:
        def again() -> None:
            if not self._over:
                do()
                self.simulation.after(self.rng.expovariate(1 / mean_s), again)

        self.simulation.after(self.rng.expovariate(1 / mean_s), again)

    def _client(self) -> None:
        leading = [slot for slot in self.simulation.slots if slot.node is not None and slot.node.is_leader]
        slot = self.rng.choice(leading if leading and self.rng.random() < 0.8 else self.simulation.slots)
        if slot.node is None:
            return
        if self.rng.random() < 0.2:
            self.simulation.barrier(slot)
        else:
            self._number += 1
            kind = b"raises" if self.rng.random() < 0.02 else b"command"
            self.simulation.propose(slot, b"%s %06d " % (kind, self._number) + bytes(self.rng.choice((0, 0, 100, 3_000))))

    def _fault(self) -> None:
        simulation, rng = self.simulation, self.rng
        slot = simulation.leader() if rng.random() < 0.4 else None
        slot = slot or rng.choice(simulation.slots)
        number, back = slot.voter.number, rng.expovariate(1.0)
        others = [other.voter.number for other in simulation.slots if other is not slot]
        kind = rng.choice(self.kinds)
        if kind in {"lose", "copy"}:
            self._lose(slot) if kind == "lose" else self._take_back(slot)
            simulation.after(back, self._restart)
            return
        if kind in {"kill", "power", "call", "disk", "pause"} and slot.node is None:
            return
        simulation.tell(kind, slot)
        if kind in {"kill", "power"}:
            slot.end(cut=kind == "power")
        elif kind == "call":
            slot.io.kill_in = rng.randrange(12)
        elif kind == "disk":
            slot.io.fails[rng.choice(("fdatasync", "pwrite", "rename", "fsync_dir"))] = rng.choice((errno.EIO, errno.ENOSPC))
        elif kind == "pause":
            slot.paused_until = simulation.now + back
            simulation.plan(slot)
        elif kind == "flap":
            simulation.flap(slot)
        elif kind == "blackout":
            for each in simulation.slots:
                if each.node is not None:
                    each.end(cut=True)
        else:
            cut = {(number, other) for other in others if kind in {"isolate", "mute"}}
            cut |= {(other, number) for other in others if kind in {"isolate", "deaf"}}
            if kind == "pair":
                cut = {(number, rng.choice(others))} if others else set()
            simulation.cuts |= cut
            simulation.after(back, lambda: simulation.cuts.difference_update(cut))
        simulation.after(back, self._restart)

    def _lose(self, slot: Slot) -> None:
        """A disk is lost: the voter comes back as a new incarnation.  One at a time: the majority of the others has what it had."""
        if self._may_lose():
            self.simulation.tell("lose", slot)
            self.simulation.replace(slot)
            self.simulation.counts["lost"] += 1

    def _may_lose(self) -> bool:
        """Whether all voters have what they promised, as far as they run, and none is to come or go."""
        simulation, leader = self.simulation, self.simulation.leader()
        if leader is None or len(simulation.slots) < 3 or any(slot.taken_back for slot in simulation.slots):
            return False
        settled = leader.node.core.voters_index <= leader.node.core.commit
        return settled and {voter.id for voter in leader.node.core.voters} == {slot.voter.id for slot in simulation.slots}

    def _copy(self) -> None:
        slot = self.rng.choice(self.simulation.slots)
        if slot.node is not None:
            slot.copies.append(Copy(slot.node.core.start.number, slot.node.core.term, slot.io.copied()))

    def _take_back(self, slot: Slot) -> None:
        """The directory of a voter is replaced by an older copy of it, of those that decision 0009 promises to notice."""
        simulation = self.simulation
        copies = [copy for copy in slot.copies if self._is_noticed(slot, copy)]
        if not copies or not self._may_lose():
            return
        copy = self.rng.choice(copies)
        simulation.tell(f"is taken back to start {copy.start}, term {copy.term}", slot)
        slot.lost_index = max(each.node.core.log.last for each in simulation.slots if each.node is not None)
        others = [(each, each.life) for each in simulation.slots if each is not slot]
        if slot.node is not None:
            slot.end(cut=True)
        for each, life in others:  # they see the connection end
            simulation._flap(each, life, Peer(slot.voter))
        if all(each.life == life for each, life in others):
            slot.io.restore(copy.files)
            slot.taken_back = True
            simulation.counts["older copies"] += 1

    def _is_noticed(self, slot: Slot, copy: Copy) -> bool:
        """Whether each other voter knows a later start; or runs, and knows the progress of this one, which has not led since the copy."""
        led = any(number == slot.voter.number for term, number in self.simulation.leaders.items() if term >= copy.term)
        for each in self.simulation.slots:
            if each is slot:
                continue
            known = each.node.core.starts.known(slot.voter.id) if each.node is not None else None
            if known is None or (known.number <= copy.start and (led or slot.node is None or not self._hears(each, slot))):
                return False
        return True

    @staticmethod
    def _hears(slot: Slot, other: Slot) -> bool:
        return slot.node.core.starts_of.get(Peer(other.voter)) == other.node.core.start.ids[0]

    def _mend(self) -> None:
        """What an operator does: remove the voter that is lost, then add its new incarnation."""
        simulation, leader = self.simulation, self.simulation.leader()
        if leader is None:
            return
        wanted = {slot.voter.id: slot.voter for slot in simulation.slots}
        lost = [voter for voter in leader.node.core.voters if voter.id not in wanted]
        new = [voter for id_, voter in wanted.items() if id_ not in {known.id for known in leader.node.core.voters}]
        if lost or new:
            simulation.submit(leader, VotersChange((lost or new)[0], add=not lost))

    def _restart(self) -> None:
        for slot in self.simulation.slots:
            if slot.node is None and not self._over and self.rng.random() < 0.8:
                self.simulation.tell("starts", slot)
                slot.start()
