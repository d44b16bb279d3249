"""One voter: its ``core`` with files, a machine, connections and what is asked of it.  It does what the core wants, in that order.

No thread, socket or sleep is in here: a loop or the simulation calls ``tick``, a transport calls back with messages.  An error of the disk
leaves ``tick`` or a callback of the transport; the caller then calls ``fail``, and nothing else any more.

The transport may call back while an effect is done, as where a send finds its connection broken.  That is an event of its own, between
two of the core: its effects are done before the rest of the list.

Threading: one thread, but for ``submit`` and ``describe``.
"""

import logging
import random
from collections.abc import Callable
from typing import Any, Protocol

from logdb_replication.raft import effects, snapshots
from logdb_replication.raft.asked import Asked, Reading
from logdb_replication.raft.core import LEADER, Core, Kept, QuorumOptions
from logdb_replication.raft.effects import Effect
from logdb_replication.raft.entries import Entries
from logdb_replication.raft.errors import CannotApply, CommandFailed, QuorumStopped, UnknownOutcome
from logdb_replication.raft.files import VoterFiles
from logdb_replication.raft.inbox import Inbox
from logdb_replication.raft.messages import Message
from logdb_replication.raft.pysyncobj_adapter import Adapter, now
from logdb_replication.raft.snapshots import Snapshot
from logdb_replication.raft.starts import Others
from logdb_replication.raft.voters import Peer, Voter

logger = logging.getLogger(__name__)

STATES = ("follower", "candidate", "leader")


class StateMachine(Protocol):
    """What is replicated.  ``apply`` depends on nothing but the state and its arguments."""

    def apply(self, index: int, command: bytes) -> bytes: ...

    def snapshot(self) -> bytes: ...

    def restore(self, index: int, state: bytes) -> None: ...


class Transport(Protocol):
    """Connections with the other voters.  It calls back in the node's thread, from ``wait`` most often."""

    start_id: int  # of this voter's start, in every message
    on_connected: Callable[[Peer], None]
    on_disconnected: Callable[[Peer], None]
    on_message: Callable[[Peer, Message], None]

    def add(self, peer: Peer) -> None: ...

    def drop(self, peer: Peer) -> None: ...

    def send(self, peer: Peer, message: Message) -> bool: ...

    def wait(self, timeout_s: float) -> None: ...

    def destroy(self) -> None: ...


def _kept(files: VoterFiles) -> Kept:
    """The term, the vote and the state that the directory has."""
    journal, vote, snapshot = files.journal, files.journal.vote, files.snapshot
    term = max(vote.term, journal[-1][2])
    return Kept(
        term=term,
        voted_for=vote.voted_for if term == vote.term else None,
        commit=max(journal.base, vote.commit, snapshot.index),
        log=Entries(journal[:], journal.path),
        snapshot_index=snapshot.index,
        snapshot_voters=snapshot.voters,
        others=Others(files.starts.others),
    )


class Node:
    """A voter with its directory.

    Field        Changed by      Trusted
    ``core``     its events      of any thread for ``describe``: each value is of its own moment
    ``_undone``  ``_do``         after an error: the effects that were not done, the one that failed first
    ``failure``  ``fail``        why it has stopped; None: it runs
    """

    def __init__(
        self, files: VoterFiles, voter: Voter, transport: Transport, machine: StateMachine, options: QuorumOptions, chance: random.Random
    ) -> None:
        """A follower, with the state that snapshot and journal give.  Its start is on the disk."""
        self._files, self._machine, self._transport = files, machine, transport
        self._inbox = Inbox(options.pending_count_max, options.pending_bytes_max)
        self._undone: list[Effect] = []
        self.failure: QuorumStopped | None = None
        start_id = chance.getrandbits(63)
        if files.snapshot.index > 1:
            machine.restore(files.snapshot.index, files.snapshot.load().state)
        files.starts.begin(start_id)
        self.core = Core(voter, files.starts.own, _kept(files), options, chance.random, now())
        self._adapter = Adapter(self.core, options)
        transport.start_id = start_id
        transport.on_connected = lambda peer: self._event(self.core.connected, peer)
        transport.on_disconnected = lambda peer: self._event(self.core.disconnected, peer)
        transport.on_message = lambda peer, message: self._event(self.core.receive, peer, message)
        self._event(self.core.begin)

    def submit(self, what: Asked) -> None:
        """Queue it for the next tick; any thread, which then wakes the node's.

        Raises:
            CommandTooLarge, TooManyCommands, QuorumStopped: It was not queued.
        """
        self._inbox.put(what)

    def due(self) -> float:
        """When the next tick must be, on the clock of ``now``, if no message comes."""
        return 0.0 if not self._inbox.empty else self.core.due()

    def tick(self) -> None:
        """One round; waits in the transport until something is due or comes."""
        core = self.core
        self._event(core.wake)
        self._event(self._adapter.tick)
        self._event(core.apply)
        if not self._inbox.empty:
            self._event(core.asking)
            while (what := self._inbox.take()) is not None:
                self._event(core.ask, what)
            self._event(core.asked)
        self._event(core.compact)
        self._event(core.finish)
        began = now()
        core.due_at = max(began, self.due())
        self._transport.wait(core.due_at - began)

    @property
    def is_leader(self) -> bool:
        return self.core.state == LEADER

    # ------------------------------------------------------------ effects

    def _event(self, event: Callable[..., None], *of: Any) -> None:
        """Tell the core, and do what it wants; what it raises comes after that."""
        self.core.now = now()
        try:
            event(*of)
        finally:
            self._do(self.core.take())

    def _do(self, wanted: list[Effect]) -> None:
        done = 0
        try:
            for effect in wanted:
                _DOERS[type(effect)](self, effect)
                done += 1
        except BaseException:
            self._undone += wanted[done:]
            raise

    def _send(self, effect: effects.Send) -> None:
        self._transport.send(effect.peer, effect.message)

    def _send_piece(self, effect: effects.SendPiece) -> None:
        file = self._files.snapshot
        data = file.read(effect.message["offset"], effect.size_bytes)
        self._transport.send(effect.peer, {**effect.message, "size_bytes": file.size_bytes, "data": data})

    def _connect(self, effect: effects.Connect) -> None:
        self._transport.add(effect.peer)

    def _disconnect(self, effect: effects.Disconnect) -> None:
        self._transport.drop(effect.peer)

    def _store_vote(self, effect: effects.StoreVote) -> None:
        self._files.journal.vote.store(*effect)
        self.core.stored(now())

    def _store_starts(self, effect: effects.StoreStarts) -> None:
        self._files.starts.store(*effect)
        self.core.stored(now())
        self._files.starts.check()

    def _append(self, effect: effects.Append) -> None:
        for entry in effect.entries:
            self._files.journal.add(*entry)

    def _sync(self, _effect: effects.Sync) -> None:
        self._files.journal.sync()

    def _cut(self, effect: effects.Cut) -> None:
        self._files.journal.cut(effect.at)

    def _drop(self, effect: effects.Drop) -> None:
        self._files.journal.drop(effect.at)

    def _reset(self, effect: effects.Reset) -> None:
        self._files.journal.reset(*effect)

    def _take_snapshot(self, effect: effects.TakeSnapshot) -> None:
        self._files.snapshot.store(snapshots.encode(Snapshot(*effect, self._machine.snapshot())))

    def _store_snapshot(self, effect: effects.StoreSnapshot) -> None:
        self._files.snapshot.store(effect.data)

    def _restore(self, effect: effects.Restore) -> None:
        self._machine.restore(*effect)

    def _apply(self, effect: effects.Apply) -> None:
        outcome: bytes | Exception
        try:
            outcome = self._machine.apply(effect.at, effect.command)
        except CannotApply:
            raise
        except Exception as error:
            logger.exception("applying index %d failed", effect.at)
            outcome = CommandFailed(effect.at, repr(error))
        if effect.what is not None:
            self._inbox.settle(effect.what, outcome)

    def _settle(self, effect: effects.Settle) -> None:
        self._inbox.settle(*effect)

    def _tell(self, effect: effects.Tell) -> None:
        logger.log(effect.level, "%s", effect.text)

    # ------------------------------------------------------------ the end, and what is told

    def close(self) -> None:
        """Stop in good order."""
        self._event(self.core.close)
        self.fail("it was closed")

    def fail(self, reason: object) -> None:
        """Stop: nothing is sent, answered or written any more.  Commands in the journal have an unknown outcome."""
        self.failure = failure = QuorumStopped(str(reason))
        self._inbox.close(failure)
        self.core.stop(failure)
        self._transport.destroy()
        for effect in self._undone:
            what = effect.what if isinstance(effect, effects.Apply | effects.Settle) else None
            if what is not None:
                self._inbox.settle(what, failure if isinstance(what, Reading) else UnknownOutcome(str(failure)))
        self._undone.clear()
        self._do(self.core.take())
        self._files.close()

    def describe(self) -> dict[str, Any]:
        """What ``logdb quorum`` shows; of any thread, so each value is of its own moment."""
        core = self.core
        leader, log, heard, leads = core.leader, core.log, now(), core.state == LEADER
        late_s = core.late.at(heard)
        others = {peer.id: peer for peer in core.others}
        return {
            "voter": core.peer.voter.number,
            "state": "stopped" if self.failure is not None else STATES[core.state] if core.is_voter else "observer",
            "failure": None if self.failure is None else self.failure.reason,
            "start": core.start.number,
            "term": core.term,
            "late_ms": round(late_s * 1000),
            "starved": late_s > core.timeout_s / 3,
            "leader": None if leader is None else leader.voter.number,
            "committed": core.commit,
            "applied": core.applied,
            "journal_start": log.base,
            "journal_end": log.last + 1,
            "snapshot": core.snapshot_index,
            "voters": [
                {
                    "number": voter.number,
                    "incarnation": f"{voter.incarnation:016x}",
                    "address": f"{voter.host}:{voter.port}",
                    "matched": core.synced if voter.id == core.peer.id else core.match.get(peer) if leads and peer is not None else None,
                    "answered_ms_ago": round((heard - core.answered.get(peer, heard)) * 1000) if leads and peer is not None else None,
                }
                for voter in core.voters
                for peer in (others.get(voter.id),)
            ],
        }


_DOERS: dict[type, Callable[[Node, Any], None]] = {
    effects.Send: Node._send,
    effects.SendPiece: Node._send_piece,
    effects.Connect: Node._connect,
    effects.Disconnect: Node._disconnect,
    effects.StoreVote: Node._store_vote,
    effects.StoreStarts: Node._store_starts,
    effects.Append: Node._append,
    effects.Sync: Node._sync,
    effects.Cut: Node._cut,
    effects.Drop: Node._drop,
    effects.Reset: Node._reset,
    effects.TakeSnapshot: Node._take_snapshot,
    effects.StoreSnapshot: Node._store_snapshot,
    effects.Restore: Node._restore,
    effects.Apply: Node._apply,
    effects.Settle: Node._settle,
    effects.Tell: Node._tell,
}
