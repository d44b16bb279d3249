"""One voter, hardened: pysyncobj's state machine with what it gets wrong overridden.

No thread, socket or sleep is in here: a loop or the simulation calls ``tick``, a transport calls back with messages.  pysyncobj keeps
the skeleton: elections, the commit rule, falling back without a quorum.

    message ──► handler ──► entries added, acks noted              commands ──► entries added, sent
                                  │                                                 │
    tick:  pre-vote or election · commit · apply, answer · heartbeats · commands · snapshot · sync, then acks · wait

Invariants:
    - Term and vote are on the disk before any message of that term leaves; entries before they are acknowledged or counted.
    - Another voter's start is on the disk before any message of it is taken; before this voter's own start is known, it drops all messages.
    - Committed entries are never removed: a leader that contradicts one stops this voter.
    - ``_applied`` moves before an entry is applied, so none is applied twice by one process.
    - An error of the disk leaves ``tick`` or a callback of the transport; the caller then calls ``fail``, and nothing else any more.

Threading: one thread, but for ``submit``.
"""

import logging
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pysyncobj import syncobj
from pysyncobj.config import SyncObjConf
from pysyncobj.version import VERSION

from logdb.errors import CorruptionError, InvalidMessage
from logdb_replication.lateness import Lateness
from logdb_replication.raft import snapshots
from logdb_replication.raft.errors import (
    CannotApply,
    CommandFailed,
    NotQuorumLeader,
    QuorumStopped,
    UnknownOutcome,
    UnsupportedRaft,
    VotersRefused,
)
from logdb_replication.raft.files import VoterFiles
from logdb_replication.raft.inbox import Asked, Inbox, Pending, Reading, VotersChange
from logdb_replication.raft.journal import Journal
from logdb_replication.raft.messages import COMMAND, VOTERS, Entry, Message
from logdb_replication.raft.snapshots import Snapshot
from logdb_replication.raft.starts import Progress, Start
from logdb_replication.raft.voters import Peer, Voter, decode_voters, encode_voters

logger = logging.getLogger(__name__)

PYSYNCOBJ = "0.3.17"
if VERSION != PYSYNCOBJ:
    raise UnsupportedRaft(VERSION, PYSYNCOBJ)

FOLLOWER, CANDIDATE, LEADER = 0, 1, 2  # as in pysyncobj
STATES = ("follower", "candidate", "leader")
BATCH_SIZE_BYTES = 1 << 20
CHUNK_SIZE_BYTES = 256 << 10
LATE_HALF_LIFE_S = 10.0
LATE_MAX, LATE_TIMES = 3.0, 2.0  # in election timeouts; how many times a delay lengthens them
BACK_OFF_MAX = 3  # doublings
RIVALS_WITHIN = 1 / 3  # of an election timeout: voters that lose their leader's connection ask for votes within it
START_TIMEOUTS = 2.0  # election timeouts that a voter that has started waits for others that do not answer

FIELDS = (
    "raftState", "raftCurrentTerm", "votedForNodeId", "raftLeader", "raftElectionDeadline", "raftLog", "raftCommitIndex", "raftLastApplied",
    "raftNextIndex", "raftMatchIndex", "lastResponseTime", "otherNodes", "connectedNodes", "selfNode", "transport", "noopIDx",
    "newAppendEntriesTime", "conf",
)  # fmt: skip
"""Private fields of SyncObj that this module reads or sets."""
METHODS = (
    "onMessageReceived", "sendAppendEntries", "applyLogEntries", "tryLogCompaction", "onBecomeLeader", "setState", "setCurrentTerm",
    "generateRaftTimeout", "onNodeConnected", "onNodeDisconnected", "onReadonlyNodeConnected", "updateClusterConfiguration",
)  # fmt: skip
"""Private methods of SyncObj that this module overrides or calls."""


class StateMachine(Protocol):
    """What is replicated.  ``apply`` depends on nothing but the state and its arguments."""

    def apply(self, index: int, command: bytes) -> bytes: ...

    def snapshot(self) -> bytes: ...

    def restore(self, index: int, state: bytes) -> None: ...


@dataclass(frozen=True, kw_only=True)
class QuorumOptions:
    """How long and how much.

    Attributes:
        election_timeout_ms: A follower that hears no leader for so long, up to twice that, asks for votes; a leader that hears no majority
            for so long steps down.  300 on SSDs, 2,000 on SD cards.
        heartbeat_ms: Between two messages of a leader that has nothing to say; less than a third of the election timeout.
        pending_count_max, pending_bytes_max: Commands that wait, in the queue and in the journal.
        snapshot_bytes: Of commands applied since the last snapshot, before the next.
        entries_kept: Entries before the snapshot that stay in the journal for voters that are a little behind.
    """

    election_timeout_ms: int = 300
    heartbeat_ms: int = 60
    pending_count_max: int = 10_000
    pending_bytes_max: int = 16 << 20
    snapshot_bytes: int = 8 << 20
    entries_kept: int = 1_000


def _private(name: str) -> Any:
    """A field of SyncObj under a name of ours."""
    field = f"_SyncObj__{name}"
    return property(lambda self: getattr(self, field), lambda self, value: setattr(self, field, value))


def _pysyncobj_config(options: QuorumOptions) -> SyncObjConf:
    timeout_s = options.election_timeout_ms / 1000
    return SyncObjConf(
        autoTick=False,
        appendEntriesUseBatch=True,
        appendEntriesPeriod=options.heartbeat_ms / 1000,
        raftMinTimeout=timeout_s,
        raftMaxTimeout=2 * timeout_s,
        leaderFallbackTimeout=timeout_s,
        connectionTimeout=2 * timeout_s,
    )


class Node(syncobj.SyncObj):  # type: ignore[misc]  # pysyncobj ships no types
    """A voter.

    Field            Changed by                     Trusted
    ``_term``        ``setCurrentTerm``             always; on disk
    ``_log``         handlers, ``_enter``           entries up to ``_log.synced`` are durable
    ``_commit``      ``_onTick``, ``_on_append``    always: a majority has it on disk
    ``_applied``     ``applyLogEntries``, install   always; at most ``_commit``
    ``_next``        replies                        a guess: a follower's reply corrects it
    ``_match``       replies of this term           while leader: durable on that follower
    ``_told``        ``sendAppendEntries``          while leader: the commit index that followers were sent last
    ``_rounds``      replies of this term           while leader: the last round that a follower has answered
    ``_acks``        handlers; sent after a sync    within the term: emptied when it changes
    ``_starts_of``   ``_on_start``                  the starts of others whose messages are taken, by their ids
    ``_known_by``    ``_on_start_reply``            others that know this voter's start
    ``_takes_part``  ``_look_whether_known``        never False again
    ``_voters``      ``_adopt_voters``              the last change in the log, committed or not
    ``_waiting``     ``_enter``, apply              commands by index, with the term of their entry
    ``_late``        ``_onTick``, messages          a measure: timeouts grow with it
    ``_lost``        ``setState``, ``_hear``        elections in a row without a leader
    """

    _state: Any = _private("raftState")
    _term: Any = _private("raftCurrentTerm")
    _voted_for: Any = _private("votedForNodeId")
    _leader: Any = _private("raftLeader")
    _deadline: Any = _private("raftElectionDeadline")
    _log: Journal = _private("raftLog")
    _commit: Any = _private("raftCommitIndex")
    _applied: Any = _private("raftLastApplied")
    _next: Any = _private("raftNextIndex")
    _match: Any = _private("raftMatchIndex")
    _answered: Any = _private("lastResponseTime")
    _others: Any = _private("otherNodes")
    _connected: Any = _private("connectedNodes")
    _self: Any = _private("selfNode")
    _transport: Any = _private("transport")
    _noop: Any = _private("noopIDx")
    _conf: Any = _private("conf")

    def __init__(
        self, files: VoterFiles, voter: Voter, transport: Any, machine: StateMachine, options: QuorumOptions, chance: random.Random
    ) -> None:
        """A follower, with the state that snapshot and journal give."""
        self._files, self._machine, self._options, self._chance = files, machine, options, chance
        self._timeout_s = options.election_timeout_ms / 1000
        self._start_id = chance.getrandbits(63)
        self._starts_of: dict[Peer, int] = {}
        self._known_by: set[Peer] = set()
        self._refused: set[int] = set()  # starts of others, that each is logged once
        self._takes_part = False
        self._votes: set[Peer] = set()
        self._pre_votes: set[Peer] = set()
        self._heard_at = self._asked_at = -math.inf
        self._late, self._lost = Lateness(LATE_HALF_LIFE_S, LATE_MAX * self._timeout_s), 0
        self._due_at = math.inf
        self._acks: dict[Peer, tuple[int, int]] = {}
        self._round, self._rounds = 0, dict[Peer, int]()
        self._told = 0
        self._sending: dict[Peer, tuple[int, int]] = {}  # index and offset of the snapshot that a follower is sent
        self._incoming, self._incoming_of = bytearray(), (0, 0)  # and of one that this follower is sent: term and index
        self._inbox = Inbox(options.pending_count_max, options.pending_bytes_max)
        self._waiting: dict[int, tuple[int, Pending | VotersChange]] = {}
        self._readings: list[Reading] = []
        self._voters: tuple[Voter, ...] = ()
        self._voters_index = 0
        self._snapshot_due_bytes = options.snapshot_bytes
        self._again = False
        self.failure: QuorumStopped | None = None
        super().__init__(Peer(voter), (), _pysyncobj_config(options), transport=transport)
        self._poller = self  # ``poll`` is the last step of a tick
        self._recover()
        files.starts.begin(self._start_id)
        transport.start_id = self._start_id
        self._start_deadline = now() + START_TIMEOUTS * self._timeout_s
        self._adopt_voters()
        self._look_whether_known()

    def _recover(self) -> None:
        """The term, the vote and the state that the directory has."""
        journal, snapshot = self._files.journal, self._files.snapshot
        self._log = journal
        self._term = max(journal.getCurrentTerm(), journal[-1][2])
        self._voted_for = journal.getVotedForNodeId() if self._term == journal.getCurrentTerm() else None
        self._commit = max(journal.getRaftCommitIndex(), snapshot.index)
        self._applied = snapshot.index
        if snapshot.index > 1:
            self._machine.restore(snapshot.index, snapshot.load().state)

    def submit(self, what: Asked) -> None:
        """Queue it for the next tick; any thread, which then wakes the node's.

        Raises:
            CommandTooLarge, TooManyCommands, QuorumStopped: It was not queued.
        """
        self._inbox.put(what)

    # ------------------------------------------------------------ time

    def due(self) -> float:
        """When the next tick must be, on pysyncobj's clock, if no message comes."""
        if self._again or not self._inbox.empty:
            return 0.0
        return float(self._SyncObj__newAppendEntriesTime if self._state == LEADER else self._deadline)

    def tick(self) -> None:
        """One round; waits in the transport until something is due or comes."""
        self._onTick(0.0)

    def _onTick(self, timeToWait: float = 0.0) -> None:
        self._again = False
        self._late.note(now() - self._due_at, now())
        self._conf.leaderFallbackTimeout = self._patience_s
        if self._state != LEADER and now() > self._deadline:
            self._ask_for_pre_votes()
        super()._onTick(timeToWait)

    def poll(self, _timeout: float) -> None:
        """The end of a tick: one sync for all its entries, the acks that it allows, a commit index that no message has told, then wait."""
        self._again = self._log.sync() and self._state == LEADER
        acks, self._acks = self._acks, {}
        for peer, (following, round_) in acks.items():
            self._answer_append(peer, following, round_, success=True)
        if self._state == LEADER and self._told < self._commit:  # followers apply it now, not at the next heartbeat
            self._SyncObj__sendAppendEntries()
        began, due = now(), self.due()
        self._due_at = max(began, due)
        self._transport.wait(max(0.0, due - began))

    @property
    def _patience_s(self) -> float:
        """The election timeout of a machine that runs as late as this one did, or as the leader's messages came."""
        return self._timeout_s + LATE_TIMES * self._late.at(now())

    def _SyncObj__generateRaftTimeout(self) -> float:
        """Candidates that have lost choose from a longer time, so that one of them is alone at last."""
        spread: int = 1 << min(self._lost, BACK_OFF_MAX)
        return self._patience_s * (1 + self._chance.random() * spread)

    # ------------------------------------------------------------ elections

    @property
    def is_leader(self) -> bool:
        return bool(self._state == LEADER)

    def _majority(self, count: int) -> bool:
        """Whether so many of the others, and this voter, are one."""
        return 2 * (count + 1) > len(self._others) + 1

    def _ask_for_pre_votes(self) -> None:
        """Without a majority that would vote for it, a candidate leaves term and leader of the others alone.

        pysyncobj begins the election where the deadline is over: it is moved as long as no majority has said yes.
        """
        self._look_whether_known()
        if not self._takes_part:
            for peer in self._others - self._known_by:
                self._tell_start(peer)
        elif not self._is_voter:
            self._deadline = math.inf
        elif not self._majority(len(self._pre_votes)):
            self._deadline = now() + self._SyncObj__generateRaftTimeout()
            self._pre_votes.clear()
            self._leader, self._asked_at = None, now()
            for peer in self._others:
                self._send(peer, "pre_vote", term=self._term + 1, last_log_index=self._log.last, last_log_term=self._log[-1][2])

    def _on_vote_request(self, peer: Peer, message: Message) -> None:
        pre, term = message["type"] == "pre_vote", message["term"]
        if self._state == LEADER or now() - self._heard_at < self._timeout_s:
            return  # there is a leader: a voter that was removed, or cannot hear it, does not disturb it
        if not pre and term > self._term:
            self._follow(term)
        current = (message["last_log_term"], message["last_log_index"]) >= (self._log[-1][2], self._log.last)
        if pre:
            granted = current and term > self._term and not self._goes_first(peer, message)
            if granted:  # two candidates at once would each vote for themselves
                self._deadline = max(self._deadline, now() + self._patience_s * RIVALS_WITHIN)
            self._send(peer, "pre_vote_reply", term=term if granted else self._term, granted=granted)
            return
        granted = current and term == self._term and self._voted_for in {None, peer.id}
        if granted and self._voted_for is None:
            self._SyncObj__setCurrentTerm(term, peer.id)
            self._deadline = now() + self._SyncObj__generateRaftTimeout()
        self._send(peer, "response_vote", term=self._term, granted=granted)

    def _goes_first(self, peer: Peer, message: Message) -> bool:
        """Whether this voter has just asked for pre-votes, too, and is the one of the two that goes on."""
        own = (self._log[-1][2], self._log.last, self._self.id)
        is_asking = now() - self._asked_at < self._patience_s * RIVALS_WITHIN
        return is_asking and own > (message["last_log_term"], message["last_log_index"], peer.id)

    def _on_pre_vote_reply(self, peer: Peer, message: Message) -> None:
        if message["granted"] and message["term"] == self._term + 1 and self._state != LEADER and peer in self._others:
            self._pre_votes.add(peer)
            if self._majority(len(self._pre_votes)):
                self._deadline = 0.0
                self._again = True

    def _on_vote(self, peer: Peer, message: Message) -> None:
        if self._state == CANDIDATE and message["granted"] and peer in self._others:
            self._votes.add(peer)
            if self._majority(len(self._votes)):
                self._SyncObj__onBecomeLeader()

    def _follow(self, term: int) -> None:
        """A newer term."""
        self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__setState(FOLLOWER)
        self._leader = None

    def _SyncObj__onNodeDisconnected(self, peer: Peer) -> None:
        """A leader whose connection ends is not waited for: most often its process has died.  A majority must have lost it."""
        super()._SyncObj__onNodeDisconnected(peer)
        self._files.starts.keep()
        if self._state == FOLLOWER and peer == self._leader and self._is_voter:
            self._heard_at = -math.inf
            self._deadline = min(self._deadline, now() + self._patience_s * RIVALS_WITHIN * self._chance.random())

    def _hear(self, peer: Peer) -> None:
        """A message of this term's leader."""
        if peer == self._leader:
            self._late.note(now() - self._heard_at - self._options.heartbeat_ms / 1000, now())
        self._heard_at, self._lost = now(), 0
        if self._is_voter:
            self._deadline = self._heard_at + self._SyncObj__generateRaftTimeout()
        self._pre_votes.clear()
        self._SyncObj__setState(FOLLOWER)
        self._leader = peer

    def _SyncObj__setCurrentTerm(self, term: int, voted_for: tuple[int, int] | None) -> None:
        if term != self._term:
            self._votes.clear()
            self._acks.clear()
        self._pre_votes.clear()
        super()._SyncObj__setCurrentTerm(term, voted_for)

    def _SyncObj__setState(self, state: int) -> None:
        if self._state == LEADER != state:
            self._again = True
            for reading in self._readings:
                self._inbox.settle(reading, NotQuorumLeader(None))
            self._readings.clear()
        if state != FOLLOWER:
            self._lost = self._lost + 1 if state == CANDIDATE else 0
        super()._SyncObj__setState(state)

    def _SyncObj__onBecomeLeader(self) -> None:
        self._rounds.clear()
        self._sending.clear()
        super()._SyncObj__onBecomeLeader()
        self._log.sync()  # the commit rule counts this voter for every entry that it has
        self._again = True
        logger.info("voter %s leads in term %d", self._self.voter.number, self._term)

    # ------------------------------------------------------------ messages

    def _send(self, peer: Peer, kind: str, **fields: Any) -> None:
        self._transport.send(peer, {"type": kind, **fields})

    def _SyncObj__onMessageReceived(self, peer: Peer, message: Message) -> None:
        if (about_start := _ABOUT_STARTS.get(kind := message["type"])) is not None:
            about_start(self, peer, message)
            return
        if self._starts_of.get(peer) != message["start_id"]:
            self._answer_start(peer, message["start_id"])
            return
        if not self._takes_part:
            return
        term = message["term"]
        if kind not in {"pre_vote", "pre_vote_reply"}:  # these have a term that their sender need not be in
            self._files.starts.note(peer.id, Progress(term, kind in _SENT_AFTER_VOTING or message.get("granted", False)))
        if kind in {"pre_vote", "request_vote"}:
            self._on_vote_request(peer, message)
            return
        if kind == "pre_vote_reply" and message["granted"]:
            self._on_pre_vote_reply(peer, message)
            return
        if term > self._term:
            self._follow(term)
        if term < self._term:
            if kind in {"append_entries", "snapshot"}:  # a stale leader learns the newer term
                self._answer_append(peer, self._log.last + 1, message["round"])
            return
        if (handler := _HANDLERS.get(kind)) is not None:
            handler(self, peer, message)

    # ------------------------------------------------------------ starts: docs/inside/decisions/0009-older-copies-of-voters.md

    def _SyncObj__onNodeConnected(self, peer: Peer) -> None:
        super()._SyncObj__onNodeConnected(peer)
        self._tell_start(peer)

    def _look_whether_known(self) -> None:
        """Take part once all others know this start, or a majority does and the others had time to say no."""
        if self._takes_part:
            return
        known = self._others & self._known_by
        all_know = self._is_voter and known == self._others  # one that is no voter yet may not know all of them
        self._takes_part = all_know or (now() >= self._start_deadline and self._majority(len(known)))
        self._deadline = now() + (self._SyncObj__generateRaftTimeout() if self._takes_part else self._timeout_s / 2)

    def _tell_start(self, peer: Peer) -> None:
        last, own = self._log.synced, self._files.starts.own
        progress = Progress(self._term, self._voted_for is not None, last if self._log.term(last) == self._term else 0)
        self._send(peer, "start", number=own.number, ids=own.ids[1:], **progress._asdict())

    def _on_start(self, peer: Peer, message: Message) -> None:
        """Remember it on the disk, then take its messages; or refuse it, where more is remembered of that voter."""
        if any(voter.number == peer.voter.number and voter.id != peer.id for voter in self._voters):
            return  # another incarnation has the vote
        starts, id_ = self._files.starts, message["start_id"]
        start = Start(message["number"], (id_, *message["ids"]))
        progress = Progress(message["term"], message["voted"], message["durable"])
        known = starts.known(peer.id)
        if known is not None and (reason := known.refuses(start, progress)):
            if id_ not in self._refused:
                self._refused.add(id_)
                logger.error("voter %s is refused, its directory is an older copy: %s", peer, reason)
            self._answer_start(peer, id_, refused=reason)
            return
        starts.remember(peer.id, start, progress)
        if self._starts_of.get(peer) != id_:
            self._starts_of[peer] = id_
            if self._state == LEADER and peer in self._others:
                self._match[peer] = 0  # what it has acknowledged before this start, it acknowledges again
        self._answer_start(peer, id_, known=True)
        if peer not in self._known_by:
            self._tell_start(peer)

    def _answer_start(self, peer: Peer, of: int, *, known: bool = False, refused: str = "") -> None:
        """Say whether a start is known, or why it is refused; else the other voter is to tell it."""
        self._send(peer, "start_reply", of=of, known=known, data=refused.encode())

    def _on_start_reply(self, peer: Peer, message: Message) -> None:
        if message["of"] != self._start_id:
            return
        if message["data"]:
            reason = f"voter {peer} says: {message['data'].decode(errors='replace')}"
            self._files.starts.refuse(reason)
            self._files.starts.check()
        if message["known"]:
            self._known_by.add(peer)
            self._look_whether_known()
        else:
            self._tell_start(peer)

    def _note_durable(self, peer: Peer, index: int) -> None:
        """Another voter has this journal's entries up to ``index`` on its disk; in the terms before this one some may go again."""
        if self._log.term(index) == self._term:
            self._files.starts.note(peer.id, Progress(self._term, False, index))

    def _SyncObj__onReadonlyNodeConnected(self, peer: Peer) -> None:
        """No transport of ours knows observers."""

    def _on_append(self, peer: Peer, message: Message) -> None:
        """Entries of the leader: equal ones are skipped, only a contradiction deletes, and never what is committed."""
        self._hear(peer)
        log, previous, previous_term = self._log, message["prevLogIdx"], message["prevLogTerm"]
        entries: list[Entry] = message["entries"]
        top = previous + len(entries)
        if previous < log.base:  # the snapshot has them, and it is committed
            entries = [entry for entry in entries if entry[1] > log.base]
            previous, previous_term, top = log.base, log.term(log.base), max(top, log.base)
        if log.term(previous) != previous_term:
            following = log.last + 1 if previous > log.last else max(log.base, self._commit) + 1
            self._answer_append(peer, following, message["round"], reset=True)
            return
        new = [entry for entry in entries if log.term(entry[1]) != entry[2]]
        if new:
            self._replace(new[0][1], entries[new[0][1] - previous - 1 :])
        self._note_ack(peer, top + 1, message["round"])
        committed = min(message["commit_index"], top)
        self._note_durable(peer, committed)
        self._advance(committed)

    def _replace(self, index: int, entries: list[Entry]) -> None:
        """Take entries from ``index`` on, in place of those that contradict them."""
        log, removed = self._log, False
        if index <= log.last:
            if index <= self._commit:
                raise CorruptionError(log.path, 0, f"the leader contradicts index {index}; {self._commit} is committed")
            log.deleteEntriesFrom(index - log.base)
            removed = True
        for entry in entries:
            log.add(*entry)
        if removed or any(command[:1] == VOTERS for command, _, _ in entries):
            self._adopt_voters()

    def _advance(self, commit: int) -> None:
        if commit > self._commit:
            self._commit = commit
            self._log.setRaftCommitIndex(commit)
            self._again = True

    def _note_ack(self, peer: Peer, following: int, round_: int) -> None:
        """Of entries below ``following``: sent when they are durable."""
        known = self._acks.get(peer, (0, 0))
        self._acks[peer] = max(known[0], following), max(known[1], round_)

    def _answer_append(self, peer: Peer, following: int, round_: int, *, reset: bool = False, success: bool = False) -> None:
        self._send(peer, "next_node_idx", term=self._term, round=round_, next_node_idx=following, reset=reset, success=success)

    def _on_append_reply(self, peer: Peer, message: Message) -> None:
        """A success moves forward only, a reset back only, and never below what the follower has on disk."""
        if self._state != LEADER or peer not in self._others:
            return
        self._note_answer(peer, message)
        following = min(message["next_node_idx"], self._log.last + 1)
        if message["success"]:
            self._note_durable(peer, following - 1)
            self._match[peer] = max(self._match[peer], following - 1)
            self._next[peer] = max(self._next[peer], following)
        elif message["reset"]:
            self._next[peer] = max(min(self._next[peer], following), self._match[peer] + 1)
        if self._next[peer] <= self._log.last:
            self._replicate(peer)

    def _note_answer(self, peer: Peer, message: Message) -> None:
        late_s = now() - self._answered[peer] - self._options.heartbeat_ms / 1000
        if late_s < self._timeout_s:  # one that was away is not late
            self._late.note(late_s, now())
        self._answered[peer] = now()
        self._rounds[peer] = max(self._rounds.get(peer, 0), message["round"])
        self._answer_readings()

    def _SyncObj__sendAppendEntries(self) -> None:
        self._SyncObj__newAppendEntriesTime = now() + self._options.heartbeat_ms / 1000
        self._told = self._commit
        for peer in self._others:
            if peer in self._connected:
                self._replicate(peer)

    def _replicate(self, peer: Peer) -> None:
        """Send a follower the entries that come next, or the snapshot that has them; nothing new: a heartbeat."""
        log, index = self._log, self._next[peer]
        if index <= log.base:
            self._send_chunk(peer)
            return
        entries = log.entries(index, BATCH_SIZE_BYTES)
        self._next[peer] = index + len(entries)
        self._send(
            peer,
            "append_entries",
            term=self._term,
            round=self._round,
            commit_index=self._commit,
            prevLogIdx=index - 1,
            prevLogTerm=log.term(index - 1),
            entries=entries,
        )

    # ------------------------------------------------------------ snapshots

    def _send_chunk(self, peer: Peer) -> None:
        file = self._files.snapshot
        index, offset = self._sending.get(peer, (0, 0))
        if index != file.index:
            index, offset = self._sending[peer] = file.index, 0
        data = file.read(offset, CHUNK_SIZE_BYTES)
        self._send(peer, "snapshot", term=self._term, round=self._round, index=index, offset=offset, size_bytes=file.size_bytes, data=data)

    def _on_snapshot_reply(self, peer: Peer, message: Message) -> None:
        if self._state != LEADER or peer not in self._others:
            return
        self._note_answer(peer, message)
        index, offset = self._sending.get(peer, (0, 0))
        if message["index"] == index and self._next[peer] <= self._log.base:
            self._sending[peer] = index, message["offset"]
            if message["offset"] > offset:
                self._send_chunk(peer)  # what was lost is sent again by the next heartbeat

    def _on_snapshot(self, peer: Peer, message: Message) -> None:
        """A piece of the leader's snapshot; the last one makes it this voter's."""
        self._hear(peer)
        index, size_bytes = message["index"], message["size_bytes"]
        if index <= self._commit:
            self._note_ack(peer, index + 1, message["round"])
            return
        if self._incoming_of != (self._term, index):
            self._incoming, self._incoming_of = bytearray(), (self._term, index)
        fits = len(self._incoming) + len(message["data"]) <= size_bytes <= snapshots.SIZE_BYTES_MAX
        if message["offset"] == len(self._incoming) and fits:
            self._incoming += message["data"]
        if len(self._incoming) < size_bytes:
            self._send(peer, "snapshot_reply", term=self._term, round=message["round"], index=index, offset=len(self._incoming))
            return
        data, self._incoming, self._incoming_of = bytes(self._incoming), bytearray(), (0, 0)
        try:
            snapshot = snapshots.decode(data, f"the snapshot of voter {peer}")
        except CorruptionError as error:
            logger.error("%s", error)
            return
        self._install(snapshot, data)
        self._note_ack(peer, index + 1, message["round"])

    def _install(self, snapshot: Snapshot, data: bytes) -> None:
        """The snapshot is durable first, then the journal gives up what it replaces; an opening finishes that (``files``)."""
        self._files.snapshot.store(data)
        if self._log.term(snapshot.index) != snapshot.term:
            self._log.reset(snapshot.index, snapshot.term)
        self._log.setRaftCommitIndex(snapshot.index)
        self._commit = self._applied = snapshot.index
        self._machine.restore(snapshot.index, snapshot.state)
        for index in [index for index in self._waiting if index <= snapshot.index]:
            self._inbox.settle(self._waiting.pop(index)[1], UnknownOutcome("a snapshot has taken the place of its entry"))
        self._adopt_voters()

    def _SyncObj__tryLogCompaction(self) -> None:
        if self._snapshot_due_bytes > 0:
            return
        log, index = self._log, self._applied
        term = log.term(index)
        assert term is not None
        self._snapshot_due_bytes = self._options.snapshot_bytes
        self._files.snapshot.store(snapshots.encode(Snapshot(index, term, self._voters_at(index)[0], self._machine.snapshot())))
        log.deleteEntriesTo(index - self._options.entries_kept - log.base)
        log.note_commit()

    # ------------------------------------------------------------ commands

    def _checkCommandsToApply(self) -> None:
        """Take what waits in the inbox: as entries of this term, one message and one sync for all of them."""
        if self._inbox.empty:
            return
        round_ = self._round
        while (what := self._inbox.take()) is not None:
            if self._state != LEADER:
                self._inbox.settle(what, NotQuorumLeader(self._leader.voter.number if self._leader is not None else None))
            elif isinstance(what, Reading):
                self._round = round_ + 1
                what.index, what.round = max(self._commit, self._noop), self._round
                self._readings.append(what)
            elif isinstance(what, VotersChange):
                self._change_voters(what)
            else:
                self._enter(COMMAND + what.data, what)
        if self._state == LEADER:
            self._SyncObj__sendAppendEntries()
            self._answer_readings()

    def _enter(self, command: bytes, what: Pending | VotersChange) -> None:
        index = self._log.last + 1
        self._log.add(command, index, self._term)
        self._waiting[index] = self._term, what

    def _answer_readings(self) -> None:
        """A barrier holds once a majority has answered a later round, and the state has all that was committed when it was asked."""
        waiting = []
        for reading in self._readings:
            if reading.index <= self._applied and self._majority(sum(self._rounds.get(peer, 0) >= reading.round for peer in self._others)):
                self._inbox.settle(reading, self._applied)
            else:
                waiting.append(reading)
        self._readings = waiting

    def _SyncObj__applyLogEntries(self) -> bool:
        while self._applied < self._commit:
            command, index, term = self._log.entry(self._applied + 1)
            self._applied = index  # first: what raises is not applied again
            self._snapshot_due_bytes -= len(command)
            outcome: bytes | Exception = b""
            if command[:1] == COMMAND:
                try:
                    outcome = self._machine.apply(index, command[1:])
                except CannotApply:
                    raise
                except Exception as error:
                    logger.exception("applying index %d failed", index)
                    outcome = CommandFailed(index, repr(error))
            if (waiting := self._waiting.pop(index, None)) is not None:
                self._inbox.settle(waiting[1], outcome if waiting[0] == term else NotQuorumLeader(None))
        self._answer_readings()
        return False

    # ------------------------------------------------------------ voters

    @property
    def _is_voter(self) -> bool:
        return any(voter.id == self._self.id for voter in self._voters)

    def _voters_at(self, index: int) -> tuple[tuple[Voter, ...], int]:
        """The voters after the entry at ``index``, and the index of the entry that made them so (0: the snapshot's)."""
        for command, at, _ in reversed(self._log[: index - self._log.base + 1]):
            if command[:1] == VOTERS:
                try:
                    return decode_voters(command, 1)[0], at
                except InvalidMessage as error:
                    raise CorruptionError(self._log.path, 0, f"the voters at index {at}: {error}") from None
        return self._files.snapshot.voters, 0

    def _adopt_voters(self) -> None:
        """Voters count from the entry on that names them, committed or not; where it is removed, those before it do again."""
        self._voters, self._voters_index = self._voters_at(self._log.last)
        self._SyncObj__updateClusterConfiguration([Peer(voter) for voter in self._voters if voter.id != self._self.id])
        for peer in self._others:
            self._answered.setdefault(peer, now())
        if self._deadline == math.inf and self._is_voter:
            self._deadline = now() + self._SyncObj__generateRaftTimeout()

    def _change_voters(self, change: VotersChange) -> None:
        """One voter at a time, each after the last is committed, and only where a majority of the new ones answers."""
        voter = change.voter
        same = [known for known in self._voters if known.number == voter.number]
        reason = ""
        if self._commit < max(self._noop, self._voters_index):
            reason = "the change before it, or the begin of the leader's term, is not committed yet"
        elif change.add and same:
            reason = f"voter {same[0]} is one of them"
        elif not change.add and voter.id not in [known.id for known in same]:
            reason = f"voter {voter} is none of them"
        elif voter.id == self._self.id:
            reason = "the leader cannot be removed: stop it first"
        voters = [known for known in self._voters if known.id != voter.id] + ([voter] if change.add else [])
        alive = sum(self._answered[peer] > now() - self._timeout_s for peer in self._others if peer.id != voter.id) + 1
        if not reason and 2 * alive <= len(voters):
            reason = f"{alive} of the {len(voters)} that it would have answer"
        if reason:
            self._inbox.settle(change, VotersRefused(reason))
            return
        self._enter(VOTERS + encode_voters(voters), change)
        self._adopt_voters()

    # ------------------------------------------------------------ the end, and what is told

    def close(self) -> None:
        """Stop in good order: an opening knows what was committed."""
        self._log.sync()
        self._log.note_commit()
        self._files.starts.keep()
        self.fail("it was closed")

    def fail(self, reason: object) -> None:
        """Stop: nothing is sent, answered or written any more.  Commands in the journal have an unknown outcome."""
        self.failure = QuorumStopped(str(reason))
        self._inbox.close(self.failure)
        self._state, self._leader = FOLLOWER, None
        self._transport.destroy()
        for _, entered in self._waiting.values():
            self._inbox.settle(entered, UnknownOutcome(str(self.failure)))
        for reading in self._readings:
            self._inbox.settle(reading, self.failure)
        self._waiting.clear()
        self._readings.clear()
        self._files.close()

    def describe(self) -> dict[str, Any]:
        """What ``logdb quorum`` shows; of any thread, so each value is of its own moment."""
        leader, log, heard = self._leader, self._log, now()
        others = {peer.id: peer for peer in self._others}
        return {
            "voter": self._self.voter.number,
            "state": "stopped" if self.failure is not None else STATES[self._state] if self._is_voter else "observer",
            "failure": None if self.failure is None else self.failure.reason,
            "start": self._files.starts.own.number,
            "term": self._term,
            "late_ms": round(self._late.at(heard) * 1000),
            "starved": self._late.at(heard) > self._timeout_s / 3,
            "leader": None if leader is None else leader.voter.number,
            "committed": self._commit,
            "applied": self._applied,
            "journal_start": log.base,
            "journal_end": log.last + 1,
            "snapshot": self._files.snapshot.index,
            "voters": [
                {
                    "number": voter.number,
                    "incarnation": f"{voter.incarnation:016x}",
                    "address": f"{voter.host}:{voter.port}",
                    "matched": log.synced if voter.id == self._self.id else self._match.get(peer) if self._state == LEADER else None,
                    "answered_ms_ago": round((heard - self._answered.get(peer, heard)) * 1000) if self._state == LEADER and peer else None,
                }
                for voter in self._voters
                for peer in (others.get(voter.id),)
            ],
        }


_SENT_AFTER_VOTING = {"request_vote", "append_entries", "snapshot"}
"""Their senders, candidates and leaders, have voted for themselves."""
_ABOUT_STARTS: dict[str, Callable[[Node, Peer, Message], None]] = {"start": Node._on_start, "start_reply": Node._on_start_reply}
_HANDLERS: dict[str, Callable[[Node, Peer, Message], None]] = {
    "append_entries": Node._on_append,
    "next_node_idx": Node._on_append_reply,
    "pre_vote_reply": Node._on_pre_vote_reply,
    "response_vote": Node._on_vote,
    "snapshot": Node._on_snapshot,
    "snapshot_reply": Node._on_snapshot_reply,
}


def now() -> float:
    """pysyncobj's clock, by the name under which it reads it itself."""
    return float(syncobj.monotonicTime())
