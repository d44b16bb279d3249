"""One voter's rules, without I/O, clock, chance and threads: a state, an event, the time → effects.

    event   begin · connected · disconnected · receive · wake, apply, ask, asked, compact, finish: the steps of a tick · stop
            stored: an effect ``StoreVote`` or ``StoreStarts`` is done
    time    ``now``, which the caller sets before each event
    effects a list of values (``effects``), which ``take`` hands over; the caller does them in their order before the next event

    message ──► handler ──► entries added, acks noted              commands ──► entries added, sent
                                  │                                                 │
    tick:  pre-vote or election · commit · apply, answer · heartbeats · commands · snapshot · sync, then acks · wait

pysyncobj elects, commits and falls back without a quorum, between ``wake`` and ``apply``: ``pysyncobj_adapter`` runs its tick over the
fields of a core.

Invariants:
    - ``StoreVote`` of a term stands before any message of that term; ``Sync`` of entries before they are acknowledged or counted.
    - Another voter's start is stored before any message of it is taken; before this voter's own start is known, it drops all messages.
    - Committed entries are never removed: a leader that contradicts one stops this voter.
    - ``applied`` moves before an entry is applied, so none is applied twice by one process.
    - What an event raises ends the voter, after the effects up to there: the caller then calls ``stop``, and nothing else any more.
"""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from logdb.errors import CorruptionError, InvalidMessage
from logdb_replication.lateness import Lateness
from logdb_replication.raft import snapshots
from logdb_replication.raft.asked import Asked, Pending, Reading, VotersChange
from logdb_replication.raft.effects import (
    Append,
    Apply,
    Connect,
    Cut,
    Disconnect,
    Drop,
    Effect,
    Reset,
    Restore,
    Send,
    SendPiece,
    Settle,
    StoreSnapshot,
    StoreStarts,
    StoreVote,
    Sync,
    TakeSnapshot,
    Tell,
)
from logdb_replication.raft.entries import Entries
from logdb_replication.raft.errors import NotQuorumLeader, QuorumStopped, UnknownOutcome, VotersRefused
from logdb_replication.raft.messages import COMMAND, NO_OP, VOTERS, Entry, Message
from logdb_replication.raft.snapshots import Snapshot
from logdb_replication.raft.starts import Others, Start, VoterProgress
from logdb_replication.raft.voters import Peer, Voter, decode_voters, encode_voters

FOLLOWER, CANDIDATE, LEADER = 0, 1, 2  # as in pysyncobj
BATCH_SIZE_BYTES = CHUNK_SIZE_BYTES = 256 << 10  # of a message, for which votes wait
PIECE_TIMEOUTS = 2.0  # election timeouts after which a piece of a snapshot without an answer is sent again; then twice as many, and so on
LATE_HALF_LIFE_S = 10.0
LATE_MAX, LATE_TIMES = 3.0, 2.0  # in election timeouts; how many times a delay lengthens them
BACK_OFF_MAX = 3  # doublings
RIVALS_WITHIN = 1 / 3  # of an election timeout: voters that lose their leader's connection ask for votes within it
START_TIMEOUTS = 2.0  # election timeouts that a voter that has started waits for others that do not answer


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


class Kept(NamedTuple):
    """What the directory of a voter has at a start: term and vote, what was known to be committed, entries, snapshot, other voters."""

    term: int
    voted_for: tuple[int, int] | None
    commit: int
    log: Entries
    snapshot_index: int
    snapshot_voters: tuple[Voter, ...]
    others: Others


class Core:
    """A voter.

    Field            Changed by                     Trusted
    ``term``         ``set_term``                   always; stored before messages of it
    ``log``          handlers, ``_enter``           entries up to ``synced`` are durable
    ``commit``       pysyncobj, ``_on_append``      always: a majority has it on disk
    ``applied``      ``apply``, ``_install``        always; at most ``commit``
    ``next``         replies                        a guess: a follower's reply corrects it
    ``match``        replies of this term           while leader: durable on that follower
    ``told``         ``_replicate_all``             while leader: the commit index that followers were sent last
    ``rounds``       replies of this term           while leader: the last round that a follower has answered
    ``acks``         handlers; sent after a sync    within the term: emptied when it changes
    ``starts_of``    ``_on_start``                  the starts of others whose messages are taken, by their ids
    ``known_by``     ``_on_start_reply``            others that know this voter's start
    ``takes_part``   ``_look_whether_known``        never False again
    ``voters``       ``_adopt_voters``              the last change in the log, committed or not
    ``waiting``      ``_enter``, ``apply``          commands by index, with the term of their entry
    ``late``         ``wake``, messages             a measure: timeouts grow with it
    ``lost``         ``become``, ``_hear``          elections in a row without a leader
    ``deadline``     ``_wait_until``, ``stored``    when a voter that hears no leader asks for pre-votes; 0: at once
    ``due_at``       the caller, before it waits    when the next tick is due
    """

    def __init__(self, voter: Voter, start: Start, kept: Kept, options: QuorumOptions, draw: Callable[[], float], now: float) -> None:
        """A follower, with the state that its directory gives.

        Args:
            start: Its own, which is durable.
            draw: A random number in [0, 1).
        """
        self.now, self._options, self._draw = now, options, draw
        self.peer, self.start = Peer(voter), start
        self.term, self.voted_for, self.log = kept.term, kept.voted_for, kept.log
        self.commit, self.applied, self.synced = kept.commit, kept.snapshot_index, kept.log.last
        self.snapshot_index, self._snapshot_voters = kept.snapshot_index, kept.snapshot_voters
        self.state, self.noop = FOLLOWER, 0
        self.leader: Peer | None = None
        self.others: set[Peer] = set()
        self.connected_with: set[Peer] = set()
        self.next: dict[Peer, int] = {}
        self.match: dict[Peer, int] = {}
        self.answered: dict[Peer, float] = {}
        self.timeout_s = options.election_timeout_ms / 1000
        self.late, self._lost = Lateness(LATE_HALF_LIFE_S, LATE_MAX * self.timeout_s), 0
        self.deadline = self._set_at = now
        self._wait_until(now + self._election_timeout_s())
        self._heartbeat_at, self._told = 0.0, 0
        self.start_deadline = now + START_TIMEOUTS * self.timeout_s
        self.starts, self._starts_kept = kept.others, True
        self.starts_of: dict[Peer, int] = {}
        self._known_by: set[Peer] = set()
        self._refused: set[int] = set()  # starts of others, that each is logged once
        self.takes_part = self._waits_told = False
        self._votes: set[Peer] = set()
        self._pre_votes: set[Peer] = set()
        self._heard_at = self._asked_at = -math.inf
        self.due_at = math.inf
        self._acks: dict[Peer, tuple[int, int]] = {}
        self._round, self._rounds = 0, dict[Peer, int]()
        self._asked_from = 0  # the round before the commands of this tick
        self._sending: dict[Peer, tuple[int, int]] = {}  # index and offset of the snapshot that a follower is sent
        self._pieces: dict[Peer, tuple[tuple[int, int], float, float]] = {}  # the piece that is under way, since when, and for how long
        self._incoming, self._incoming_of = bytearray(), (0, 0)  # and of one that this follower is sent: term and index
        self._waiting: dict[int, tuple[int, Pending | VotersChange]] = {}
        self._readings: list[Reading] = []
        self.voters: tuple[Voter, ...] = ()
        self.voters_index = 0
        self._snapshot_due_bytes = options.snapshot_bytes
        self._again = False
        self._effects: list[Effect] = []

    def take(self) -> list[Effect]:
        """The effects since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def _want(self, effect: Effect) -> None:
        self._effects.append(effect)

    def begin(self) -> None:
        """The first event."""
        self._adopt_voters()
        self._look_whether_known()

    # ------------------------------------------------------------ the steps of a tick

    def due(self) -> float:
        """When the next tick must be if no message comes; 0: at once."""
        if self._again:
            return 0.0
        return self._heartbeat_at if self.state == LEADER else self.deadline

    def wake(self) -> None:
        """A tick begins: late or not."""
        self._again = False
        self.late.note(self.now - self.due_at, self.now)
        if self.state != LEADER and self.now > self.deadline:
            self._ask_for_pre_votes()

    def apply(self) -> None:
        """Apply what is committed; then heartbeats, where they are due."""
        while self.applied < self.commit:
            command, index, term = self.log.entry(self.applied + 1)
            self.applied = index  # first: what raises is not applied again
            self._snapshot_due_bytes -= len(command)
            entered_in, what = self._waiting.pop(index, (0, None))
            if command[:1] == COMMAND:
                self._want(Apply(index, command[1:], what if entered_in == term else None))
            elif what is not None and entered_in == term:
                self._want(Settle(what, b""))
            if what is not None and entered_in != term:
                self._want(Settle(what, NotQuorumLeader(None)))
        self._answer_readings()
        if self.state == LEADER and self.now > self._heartbeat_at:
            self._replicate_all()

    def asking(self) -> None:
        """Before ``ask``: barriers of one tick wait for one round."""
        self._asked_from = self._round

    def ask(self, what: Asked) -> None:
        """Take what was asked: as an entry of this term, or as a barrier."""
        if self.state != LEADER:
            self._want(Settle(what, NotQuorumLeader(self.leader.voter.number if self.leader is not None else None)))
        elif isinstance(what, Reading):
            self._round = self._asked_from + 1
            what.index, what.round = max(self.commit, self.noop), self._round
            self._readings.append(what)
        elif isinstance(what, VotersChange):
            self._change_voters(what)
        else:
            self._enter(COMMAND + what.data, what)

    def asked(self) -> None:
        """After ``ask``: one message for all that was asked in this tick."""
        if self.state == LEADER:
            self._replicate_all()
            self._answer_readings()

    def compact(self) -> None:
        """Take a snapshot, where one is due, and forget the entries before it, but for some."""
        if self._snapshot_due_bytes > 0:
            return
        index = self.applied
        term = self.log.term(index)
        assert term is not None
        self._snapshot_due_bytes = self._options.snapshot_bytes
        voters = self._voters_at(index)[0]
        self._want(TakeSnapshot(index, term, voters))
        self.snapshot_index, self._snapshot_voters = index, voters
        if (first := index - self._options.entries_kept) > self.log.base:
            self.log.drop(first)
            self._want(Drop(first))
            self.synced = self.log.last
        self._store_vote()

    def finish(self) -> None:
        """One sync for all entries of a tick, the acks that it allows, and a commit index that no message has told."""
        self._again = self._sync() and self.state == LEADER
        acks, self._acks = self._acks, {}
        for peer, (following, round_) in acks.items():
            self._answer_append(peer, following, round_, success=True)
        if self.state == LEADER and self._told < self.commit:  # followers apply it now, not at the next heartbeat
            self._replicate_all()

    def _sync(self) -> bool:
        if self.synced == self.log.last:
            return False
        self._want(Sync())
        self.synced = self.log.last
        return True

    def _wait_until(self, deadline: float) -> None:
        """Follow until then."""
        if deadline != self.deadline:
            self.deadline, self._set_at = deadline, self.now

    def stored(self, now: float) -> None:
        """Term, vote or starts are durable.  No message is heard meanwhile: times that this event has set count from now."""
        if self._set_at == self.now:
            self.deadline += now - self.now
            self._set_at = now
        if self._heard_at == self.now:
            self._heard_at = now
        self.now = now

    @property
    def patience_s(self) -> float:
        """The election timeout of a machine that runs as late as this one did, or as the leader's messages came."""
        return self.timeout_s + LATE_TIMES * self.late.at(self.now)

    def _election_timeout_s(self) -> float:
        """Candidates that have lost choose from a longer time, so that one of them is alone at last."""
        spread: int = 1 << min(self._lost, BACK_OFF_MAX)
        return self.patience_s * (1 + self._draw() * spread)

    # ------------------------------------------------------------ elections

    def _majority(self, count: int) -> bool:
        """Whether so many of the others, and this voter, are one."""
        return 2 * (count + 1) > len(self.others) + 1

    def _ask_for_pre_votes(self) -> None:
        """Without a majority that would vote for it, a candidate leaves term and leader of the others alone."""
        self._look_whether_known()
        if not self.takes_part:
            for peer in self.others - self._known_by:
                self._tell_start(peer)
        elif not self.is_voter:
            self._wait_until(math.inf)
        elif not self._majority(len(self._pre_votes)):
            self._wait_until(self.now + self._election_timeout_s())
            self._pre_votes.clear()
            self.leader, self._asked_at = None, self.now
            for peer in self.others:
                self._send(peer, "pre_vote", term=self.term + 1, last_log_index=self.log.last, last_log_term=self.log[-1][2])

    @property
    def election_deadline(self) -> float:
        """When an election begins: never without a majority that would vote for this voter, however late the clock is read."""
        return self.deadline if self.takes_part and self.is_voter and self._majority(len(self._pre_votes)) else math.inf

    def ask_for_vote(self, peer: Peer) -> None:
        """In the election that has begun."""
        self._send(peer, "request_vote", term=self.term, last_log_index=self.log.last, last_log_term=self.log[-1][2])

    def _on_vote_request(self, peer: Peer, message: Message) -> None:
        pre, term = message["type"] == "pre_vote", message["term"]
        if self.state == LEADER or self.now - self._heard_at < self.timeout_s:
            return  # there is a leader: a voter that was removed, or cannot hear it, does not disturb it
        if not pre and term > self.term:
            self._follow(term)
        current = (message["last_log_term"], message["last_log_index"]) >= (self.log[-1][2], self.log.last)
        if pre:
            granted = current and term > self.term and not self._goes_first(peer, message)
            if granted:  # two candidates at once would each vote for themselves
                self._wait_until(max(self.deadline, self.now + self.patience_s * RIVALS_WITHIN))
            self._send(peer, "pre_vote_reply", term=term if granted else self.term, granted=granted)
            return
        granted = current and term == self.term and self.voted_for in {None, peer.id}
        if granted and self.voted_for is None:
            self.set_term(term, peer.id)
            self._wait_until(self.now + self._election_timeout_s())
        self._send(peer, "response_vote", term=self.term, granted=granted)

    def _goes_first(self, peer: Peer, message: Message) -> bool:
        """Whether this voter has just asked for pre-votes, too, and is the one of the two that goes on."""
        own = (self.log[-1][2], self.log.last, self.peer.id)
        is_asking = self.now - self._asked_at < self.patience_s * RIVALS_WITHIN
        return is_asking and own > (message["last_log_term"], message["last_log_index"], peer.id)

    def _on_pre_vote_reply(self, peer: Peer, message: Message) -> None:
        if message["granted"] and message["term"] == self.term + 1 and self.state != LEADER and peer in self.others:
            self._pre_votes.add(peer)
            if self._majority(len(self._pre_votes)):
                self._wait_until(0.0)
                self._again = True

    def _on_vote(self, peer: Peer, message: Message) -> None:
        if self.state == CANDIDATE and message["granted"] and peer in self.others:
            self._votes.add(peer)
            if self._majority(len(self._votes)):
                self.lead()

    def _follow(self, term: int) -> None:
        """A newer term."""
        self.set_term(term, None)
        self.become(FOLLOWER)
        self.leader = None

    def connected(self, peer: Peer) -> None:
        """A connection to another voter is made."""
        self.connected_with.add(peer)
        self._pieces.pop(peer, None)  # what another connection still had to send is gone
        self._tell_start(peer)

    def disconnected(self, peer: Peer) -> None:
        """A leader whose connection ends is not waited for: most often its process has died.  A majority must have lost it.

        The pre-vote of a voter that has gone counts no longer: an election needs a majority that is there.
        """
        self.connected_with.discard(peer)
        self._pieces.pop(peer, None)
        self._keep_starts()
        had_majority = self._majority(len(self._pre_votes))
        self._pre_votes.discard(peer)
        if had_majority and not self._majority(len(self._pre_votes)) and self.is_voter:
            self._wait_until(self.now + self._election_timeout_s())
        if self.state == FOLLOWER and peer == self.leader and self.is_voter:
            self._heard_at = -math.inf
            self._wait_until(min(self.deadline, self.now + self.patience_s * RIVALS_WITHIN * self._draw()))

    def _hear(self, peer: Peer) -> None:
        """A message of this term's leader."""
        if peer == self.leader:
            self.late.note(self.now - self._heard_at - self._options.heartbeat_ms / 1000, self.now)
        self._heard_at, self._lost = self.now, 0
        if self.is_voter:
            self._wait_until(self._heard_at + self._election_timeout_s())
        self._pre_votes.clear()
        self.become(FOLLOWER)
        self.leader = peer

    def set_term(self, term: int, voted_for: tuple[int, int] | None) -> None:
        """A term, and the vote in it: stored before what follows."""
        if term != self.term:
            self._votes.clear()
            self._acks.clear()
        self._pre_votes.clear()
        self.term, self.voted_for = term, voted_for
        self._store_vote()

    def _store_vote(self) -> None:
        """With it goes what is known to be committed: an opening then refuses a journal that ends below it."""
        self._want(StoreVote(self.term, self.voted_for, min(self.commit, self.synced)))

    def become(self, state: int) -> None:
        """A state; ``CANDIDATE``: an election begins."""
        if state == CANDIDATE:
            self._wait_until(self.now + self._election_timeout_s())
            self.leader = None
        if self.state == LEADER != state:
            self._again = True
            self.leader = None
            for reading in self._readings:
                self._want(Settle(reading, NotQuorumLeader(None)))
            self._readings.clear()
        if state != FOLLOWER:
            self._lost = self._lost + 1 if state == CANDIDATE else 0
        self.state = state

    def lead(self) -> None:
        """A majority has voted for this voter: it begins its term with an entry of it."""
        self._rounds.clear()
        self._sending.clear()
        self._pieces.clear()
        self.leader = self.peer
        self.become(LEADER)
        self.answered.clear()
        for peer in self.others:
            self.next[peer], self.match[peer], self.answered[peer] = self.log.last + 1, 0, self.now
        self.noop = self._add(NO_OP)
        self._replicate_all()
        self._sync()  # the commit rule counts this voter for every entry that it has
        self._again = True
        self._want(Tell(logging.INFO, f"voter {self.peer} leads in term {self.term}"))

    # ------------------------------------------------------------ messages

    def _send(self, peer: Peer, kind: str, **fields: Any) -> None:
        self._want(Send(peer, {"type": kind, **fields}))

    def receive(self, peer: Peer, message: Message) -> None:
        """A message of another voter, which has proven that it is one."""
        if (about_start := _ABOUT_STARTS.get(kind := message["type"])) is not None:
            about_start(self, peer, message)
            return
        if self.starts_of.get(peer) != message["start_id"]:
            self._answer_start(peer, message["start_id"])
            return
        if not self.takes_part:
            return
        term = message["term"]
        if kind not in {"pre_vote", "pre_vote_reply"}:  # these have a term that their sender need not be in
            self._note_progress(peer, VoterProgress(term, kind in _SENT_AFTER_VOTING or message.get("granted", False)))
        if kind in {"pre_vote", "request_vote"}:
            self._on_vote_request(peer, message)
            return
        if kind == "pre_vote_reply" and message["granted"]:
            self._on_pre_vote_reply(peer, message)
            return
        if term > self.term:
            self._follow(term)
        if term < self.term:
            if kind in {"append_entries", "snapshot"}:  # a stale leader learns the newer term
                self._answer_append(peer, self.log.last + 1, message["round"])
            return
        if (handler := _HANDLERS.get(kind)) is not None:
            handler(self, peer, message)

    # ------------------------------------------------------------ starts: docs/inside/decisions/0009-older-copies-of-voters.md

    def _look_whether_known(self) -> None:
        """Take part once all others know this start, or a majority does and the others had time to say no."""
        if self.takes_part:
            return
        known = self.others & self._known_by
        all_know = self.is_voter and known == self.others  # one that is no voter yet may not know all of them
        self.takes_part = all_know or (self.now >= self.start_deadline and self._majority(len(known)))
        self._wait_until(self.now + (self._election_timeout_s() if self.takes_part else self.timeout_s / 2))
        if not self.takes_part and self.now >= self.start_deadline and not self._waits_told:
            self._waits_told = True
            silent = ", ".join(str(peer) for peer in sorted(self.others - known, key=lambda peer: peer.id))
            advice = "If they were replaced or removed while it was away, it cannot return: join its node again, with an empty directory"
            self._want(Tell(logging.WARNING, f"voter {self.peer} waits for a majority; no answer from: {silent}. {advice}"))

    def _tell_start(self, peer: Peer) -> None:
        last = self.synced
        progress = VoterProgress(self.term, self.voted_for is not None, last if self.log.term(last) == self.term else 0)
        self._send(peer, "start", number=self.start.number, ids=self.start.ids[1:], **progress._asdict())

    def _on_start(self, peer: Peer, message: Message) -> None:
        """Remember it on the disk, then take its messages; or refuse it, where more is remembered of that voter."""
        if any(voter.number == peer.voter.number and voter.id != peer.id for voter in self.voters):
            return  # another incarnation has the vote
        id_ = message["start_id"]
        start = Start(message["number"], (id_, *message["ids"]))
        progress = VoterProgress(message["term"], message["voted"], message["durable"])
        known = self.starts.known(peer.id)
        if known is not None and (reason := known.refuses(start, progress)):
            if id_ not in self._refused:
                self._refused.add(id_)
                self._want(Tell(logging.ERROR, f"voter {peer} is refused, its directory is an older copy: {reason}"))
            self._answer_start(peer, id_, refused=reason)
            return
        if self.starts.remember(peer.id, start, progress):
            self._store_starts()
        self._note_progress(peer, progress)
        if self.starts_of.get(peer) != id_:
            self.starts_of[peer] = id_
            if self.state == LEADER and peer in self.others:
                self.match[peer] = 0  # what it has acknowledged before this start, it acknowledges again
        self._answer_start(peer, id_, known=True)
        if peer not in self._known_by:
            self._tell_start(peer)

    def _answer_start(self, peer: Peer, of: int, *, known: bool = False, refused: str = "") -> None:
        """Say whether a start is known, or why it is refused; else the other voter is to tell it."""
        self._send(peer, "start_reply", of=of, known=known, data=refused.encode())

    def _on_start_reply(self, peer: Peer, message: Message) -> None:
        if message["of"] != self.start.ids[0]:
            return
        if message["data"]:
            self._store_starts(f"voter {peer} says: {message['data'].decode(errors='replace')}")
        elif message["known"]:
            self._known_by.add(peer)
            self._look_whether_known()
        else:
            self._tell_start(peer)

    def _note_durable(self, peer: Peer, index: int) -> None:
        """Another voter has this journal's entries up to ``index`` on its disk; in the terms before this one some may go again."""
        if self.log.term(index) == self.term:
            self._note_progress(peer, VoterProgress(self.term, False, index))

    def _note_progress(self, peer: Peer, progress: VoterProgress) -> None:
        """In memory until ``_keep_starts``."""
        if self.starts.note(peer.id, progress):
            self._starts_kept = False

    def _keep_starts(self) -> None:
        if not self._starts_kept:
            self._store_starts()

    def _store_starts(self, refused: str = "") -> None:
        self._want(StoreStarts(self.starts.all(), refused))
        self._starts_kept = True

    # ------------------------------------------------------------ entries

    def _add(self, command: bytes) -> int:
        """An entry of this term; returns its index."""
        index = self.log.last + 1
        self.log.add(command, index, self.term)
        self._want(Append(((command, index, self.term),)))
        return index

    def _on_append(self, peer: Peer, message: Message) -> None:
        """Entries of the leader: equal ones are skipped, only a contradiction deletes, and never what is committed."""
        self._hear(peer)
        log, previous, previous_term = self.log, message["prevLogIdx"], message["prevLogTerm"]
        entries: list[Entry] = message["entries"]
        top = previous + len(entries)
        if previous < log.base:  # the snapshot has them, and it is committed
            entries = [entry for entry in entries if entry[1] > log.base]
            previous, previous_term, top = log.base, log.term(log.base), max(top, log.base)
        if log.term(previous) != previous_term:
            following = log.last + 1 if previous > log.last else max(log.base, self.commit) + 1
            self._answer_append(peer, following, message["round"], reset=True)
            return
        new = [entry for entry in entries if log.term(entry[1]) != entry[2]]
        if new:
            self._replace(new[0][1], entries[new[0][1] - previous - 1 :])
        self._note_ack(peer, top + 1, message["round"])
        committed = min(message["commit_index"], top)
        self._note_durable(peer, committed)
        if committed > self.commit:
            self.commit = committed
            self._again = True

    def _replace(self, index: int, entries: list[Entry]) -> None:
        """Take entries from ``index`` on, in place of those that contradict them."""
        log, removed = self.log, False
        if index <= log.last:
            if index <= self.commit:
                raise CorruptionError(log.path, 0, f"the leader contradicts index {index}; {self.commit} is committed")
            log.cut(index)
            self._want(Cut(index))
            self.synced = min(self.synced, log.last)
            removed = True
        for entry in entries:
            log.add(*entry)
        self._want(Append(tuple(entries)))
        if removed or any(command[:1] == VOTERS for command, _, _ in entries):
            self._adopt_voters()

    def _note_ack(self, peer: Peer, following: int, round_: int) -> None:
        """Of entries below ``following``: sent when they are durable."""
        known = self._acks.get(peer, (0, 0))
        self._acks[peer] = max(known[0], following), max(known[1], round_)

    def _answer_append(self, peer: Peer, following: int, round_: int, *, reset: bool = False, success: bool = False) -> None:
        self._send(peer, "next_node_idx", term=self.term, round=round_, next_node_idx=following, reset=reset, success=success)

    def _on_append_reply(self, peer: Peer, message: Message) -> None:
        """A success moves forward only, a reset back only, and never below what the follower has on disk."""
        if self.state != LEADER or peer not in self.others:
            return
        self._note_answer(peer, message)
        following = min(message["next_node_idx"], self.log.last + 1)
        if message["success"]:
            self._note_durable(peer, following - 1)
            self.match[peer] = max(self.match[peer], following - 1)
            self.next[peer] = max(self.next[peer], following)
        elif message["reset"]:
            self.next[peer] = max(min(self.next[peer], following), self.match[peer] + 1)
        if self.next[peer] <= self.log.last:
            self._replicate(peer)

    def _note_answer(self, peer: Peer, message: Message) -> None:
        late_s = self.now - self.answered[peer] - self._options.heartbeat_ms / 1000
        if late_s < self.timeout_s:  # one that was away is not late
            self.late.note(late_s, self.now)
        self.answered[peer] = self.now
        self._rounds[peer] = max(self._rounds.get(peer, 0), message["round"])
        self._answer_readings()

    def _replicate_all(self) -> None:
        self._heartbeat_at = self.now + self._options.heartbeat_ms / 1000
        self._told = self.commit
        for peer in self.others:
            if peer in self.connected_with:
                self._replicate(peer)

    def _replicate(self, peer: Peer) -> None:
        """Send a follower the entries that come next, or the snapshot that has them; nothing new: a heartbeat."""
        log, index = self.log, self.next[peer]
        if index <= log.base:
            self._send_chunk(peer)
            return
        entries = log.entries(index, BATCH_SIZE_BYTES)
        self.next[peer] = index + len(entries)
        self._send(
            peer,
            "append_entries",
            term=self.term,
            round=self._round,
            commit_index=self.commit,
            prevLogIdx=index - 1,
            prevLogTerm=log.term(index - 1),
            entries=entries,
        )

    # ------------------------------------------------------------ snapshots

    def _send_chunk(self, peer: Peer) -> None:
        """The piece that comes next; while it is under way, an empty one as a heartbeat, which the follower answers, too."""
        index, offset = self._sending.get(peer, (0, 0))
        if index != self.snapshot_index:
            index, offset = self._sending[peer] = self.snapshot_index, 0
        message = {"type": "snapshot", "term": self.term, "round": self._round, "index": index, "offset": offset}
        place, at, wait_s = self._pieces.get(peer, ((0, 0), -math.inf, 0.0))
        is_under_way = place == (index, offset) and self.now - at < wait_s
        if not is_under_way:  # once more: the network may need longer for a piece, and has the former ones to carry
            wait_s = 2 * wait_s if place == (index, offset) else max(wait_s, PIECE_TIMEOUTS * self.patience_s)
            self._pieces[peer] = (index, offset), self.now, wait_s
        self._want(SendPiece(peer, message, 0 if is_under_way else CHUNK_SIZE_BYTES))

    def _on_snapshot_reply(self, peer: Peer, message: Message) -> None:
        if self.state != LEADER or peer not in self.others:
            return
        self._note_answer(peer, message)
        index, offset = self._sending.get(peer, (0, 0))
        if message["index"] == index and self.next[peer] <= self.log.base:
            self._sending[peer] = index, message["offset"]
            if message["offset"] > offset:
                self._send_chunk(peer)

    def _on_snapshot(self, peer: Peer, message: Message) -> None:
        """A piece of the leader's snapshot; the last one makes it this voter's."""
        self._hear(peer)
        index, size_bytes = message["index"], message["size_bytes"]
        if index <= self.commit:
            self._note_ack(peer, index + 1, message["round"])
            return
        if self._incoming_of != (self.term, index):
            self._incoming, self._incoming_of = bytearray(), (self.term, index)
        fits = len(self._incoming) + len(message["data"]) <= size_bytes <= snapshots.SIZE_BYTES_MAX
        if message["offset"] == len(self._incoming) and fits:
            self._incoming += message["data"]
        if len(self._incoming) < size_bytes:
            self._send(peer, "snapshot_reply", term=self.term, round=message["round"], index=index, offset=len(self._incoming))
            return
        data, self._incoming, self._incoming_of = bytes(self._incoming), bytearray(), (0, 0)
        try:
            snapshot = snapshots.decode(data, f"the snapshot of voter {peer}")
        except CorruptionError as error:
            self._want(Tell(logging.ERROR, str(error)))
            return
        if snapshot.index != index or snapshot.term > self.term:
            inside = f"index {snapshot.index}, term {snapshot.term}"
            self._want(Tell(logging.ERROR, f"the snapshot of voter {peer} has {inside}: must have index {index}, a term up to {self.term}"))
            return
        self._install(snapshot, data)
        self._note_ack(peer, index + 1, message["round"])

    def _install(self, snapshot: Snapshot, data: bytes) -> None:
        """The snapshot is durable first, then the journal gives up what it replaces; an opening finishes that (``files``)."""
        index, term = snapshot.index, snapshot.term
        assert index > self.commit, "committed entries are never removed"
        self._want(StoreSnapshot(data))
        self.snapshot_index, self._snapshot_voters = index, snapshot.voters
        if self.log.term(index) != term:
            self.log.reset(index, term)
            self._want(Reset(index, term))
            self.synced = index
        self.commit = self.applied = index
        self._want(Restore(index, snapshot.state))
        for place in [place for place in self._waiting if place <= index]:
            self._want(Settle(self._waiting.pop(place)[1], UnknownOutcome("a snapshot has taken the place of its entry")))
        self._adopt_voters()

    # ------------------------------------------------------------ commands and barriers

    def _enter(self, command: bytes, what: Pending | VotersChange) -> None:
        self._waiting[self._add(command)] = self.term, what

    def _answer_readings(self) -> None:
        """A barrier holds once a majority has answered a later round, and the state has all that was committed when it was asked."""
        waiting = []
        for reading in self._readings:
            if reading.index <= self.applied and self._majority(sum(self._rounds.get(peer, 0) >= reading.round for peer in self.others)):
                self._want(Settle(reading, self.applied))
            else:
                waiting.append(reading)
        self._readings = waiting

    # ------------------------------------------------------------ voters

    @property
    def is_voter(self) -> bool:
        return any(voter.id == self.peer.id for voter in self.voters)

    def _voters_at(self, index: int) -> tuple[tuple[Voter, ...], int]:
        """The voters after the entry at ``index``, and the index of the entry that made them so (0: the snapshot's)."""
        for command, at, _ in reversed(self.log[: index - self.log.base + 1]):
            if command[:1] == VOTERS:
                try:
                    return decode_voters(command, 1)[0], at
                except InvalidMessage as error:
                    raise CorruptionError(self.log.path, 0, f"the voters at index {at}: {error}") from None
        return self._snapshot_voters, 0

    def _adopt_voters(self) -> None:
        """Voters count from the entry on that names them, committed or not; where it is removed, those before it do again."""
        self.voters, self.voters_index = self._voters_at(self.log.last)
        others = {Peer(voter) for voter in self.voters if voter.id != self.peer.id}
        left, joined, self.others = self.others - others, others - self.others, others
        for peer in left:
            self.next.pop(peer, None)
            self.match.pop(peer, None)
            self._want(Disconnect(peer))
        for peer in joined:
            self._want(Connect(peer))
            self.next[peer], self.match[peer] = self.log.last + 1, 0
        for peer in others:
            self.answered.setdefault(peer, self.now)
        if self.deadline == math.inf and self.is_voter:
            self._wait_until(self.now + self._election_timeout_s())

    def _change_voters(self, change: VotersChange) -> None:
        """One voter at a time, each after the last is committed, and only where a majority of the new ones answers."""
        voter = change.voter
        same = [known for known in self.voters if known.number == voter.number]
        reason = ""
        if self.commit < max(self.noop, self.voters_index):
            reason = "the change before it, or the begin of the leader's term, is not committed yet"
        elif change.add and same:
            reason = f"voter {same[0]} is one of them"
        elif not change.add and voter.id not in [known.id for known in same]:
            reason = f"voter {voter} is none of them"
        elif voter.id == self.peer.id:
            reason = "the leader cannot be removed: stop it first"
        voters = [known for known in self.voters if known.id != voter.id] + ([voter] if change.add else [])
        alive = sum(self.answered[peer] > self.now - self.timeout_s for peer in self.others if peer.id != voter.id) + 1
        if not reason and 2 * alive <= len(voters):
            reason = f"{alive} of the {len(voters)} that it would have answer"
        if reason:
            self._want(Settle(change, VotersRefused(reason)))
            return
        self._enter(VOTERS + encode_voters(voters), change)
        self._adopt_voters()

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Stop in good order: an opening knows what was committed."""
        self._sync()
        self._store_vote()
        self._keep_starts()

    def stop(self, reason: QuorumStopped) -> None:
        """The last event: the voter follows nobody.  Commands in the journal have an unknown outcome."""
        self.state, self.leader = FOLLOWER, None
        for _, entered in self._waiting.values():
            self._want(Settle(entered, UnknownOutcome(str(reason))))
        for reading in self._readings:
            self._want(Settle(reading, reason))
        self._waiting.clear()
        self._readings.clear()


_SENT_AFTER_VOTING = {"request_vote", "append_entries", "snapshot"}
"""Their senders, candidates and leaders, have voted for themselves."""
_ABOUT_STARTS: dict[str, Callable[[Core, Peer, Message], None]] = {"start": Core._on_start, "start_reply": Core._on_start_reply}
_HANDLERS: dict[str, Callable[[Core, Peer, Message], None]] = {
    "append_entries": Core._on_append,
    "next_node_idx": Core._on_append_reply,
    "pre_vote_reply": Core._on_pre_vote_reply,
    "response_vote": Core._on_vote,
    "snapshot": Core._on_snapshot,
    "snapshot_reply": Core._on_snapshot_reply,
}
