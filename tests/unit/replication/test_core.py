"""A core alone: events in, effects out.  What happens between several voters is in test_node.py and the simulation."""

import math

import pytest

from logdb.errors import CorruptionError
from logdb_replication.raft.asked import Pending, Reading
from logdb_replication.raft.core import (
    CANDIDATE,
    CHUNK_SIZE_BYTES,
    FOLLOWER,
    LEADER,
    PIECE_TIMEOUTS,
    Core,
    Kept,
    QuorumOptions,
)
from logdb_replication.raft.effects import Append, Apply, Cut, Send, SendPiece, Settle, StoreSnapshot, StoreStarts, StoreVote, Sync
from logdb_replication.raft.entries import Entries
from logdb_replication.raft.errors import NotQuorumLeader, QuorumStopped, UnknownOutcome
from logdb_replication.raft.messages import COMMAND, NO_OP
from logdb_replication.raft.snapshots import Snapshot, encode
from logdb_replication.raft.starts import Others, Start
from logdb_replication.raft.voters import Peer, Voter

VOTERS = tuple(Voter(number, number * 11, f"node{number}", 9_000) for number in (1, 2, 3))
TWO, THREE = Peer(VOTERS[1]), Peer(VOTERS[2])


def core(*terms: int, now: float = 100.0) -> Core:
    """Voter 1 of three, whose journal has entries of these terms; the others know its start, and it knows theirs."""
    entries = [(NO_OP, 1, 0)] + [(COMMAND + b"%d" % index, index, term) for index, term in enumerate(terms, 2)]
    kept = Kept(terms[-1] if terms else 0, None, 1, Entries(entries, "journal"), 1, VOTERS, Others({}))
    made = Core(VOTERS[0], Start(1, (7,)), kept, QuorumOptions(), lambda: 0.5, now)
    made.begin()
    for peer in (TWO, THREE):
        made.connected(peer)
        receive(made, peer, "start", number=1, ids=(), term=0, voted=False, durable=0)
        receive(made, peer, "start_reply", of=7, known=True, data=b"")
    made.take()
    return made


def receive(made: Core, peer: Peer, kind: str, **fields) -> None:
    made.receive(peer, {"type": kind, "start_id": peer.voter.number, **fields})


def append(made: Core, peer: Peer, term: int, previous: tuple[int, int], *terms: int, commit: int = 1) -> None:
    entries = [(COMMAND + b"%d" % index, index, of) for index, of in enumerate(terms, previous[0] + 1)]
    fields = {"round": 1, "commit_index": commit, "prevLogIdx": previous[0], "prevLogTerm": previous[1], "entries": entries}
    receive(made, peer, "append_entries", term=term, **fields)


def kinds(made: Core) -> list[object]:
    """The effects: messages by their type, the others by their class."""
    return [effect.message["type"] if isinstance(effect, Send) else type(effect) for effect in made.take()]


def leading(*terms: int) -> Core:
    made = core(*terms)
    made.become(CANDIDATE)
    made.set_term(made.term + 1, made.peer.id)
    receive(made, TWO, "response_vote", term=made.term, granted=True)
    assert made.state == LEADER
    return made


def test_a_vote_is_stored_before_it_is_told():
    made = core()
    receive(made, TWO, "request_vote", term=1, last_log_index=1, last_log_term=0)
    assert kinds(made) == [StoreVote, StoreVote, "response_vote"]
    assert (made.term, made.voted_for) == (1, TWO.id)


def test_an_election_stores_its_vote_before_it_asks():
    made = core()
    made.become(CANDIDATE)
    made.set_term(1, made.peer.id)
    made.ask_for_vote(TWO)
    assert made.take() == [
        StoreVote(1, (1, 11), 1),
        Send(TWO, {"type": "request_vote", "term": 1, "last_log_index": 1, "last_log_term": 0}),
    ]
    assert made.deadline == made.now + 1.5 * 0.3


def test_entries_are_synced_before_they_are_acknowledged():
    made = core()
    append(made, TWO, 1, (1, 0), 1, 1)
    assert kinds(made) == [StoreVote, Append]
    made.finish()
    assert kinds(made) == [Sync, "next_node_idx"]
    made.finish()
    assert kinds(made) == []


def test_a_new_leader_syncs_its_first_entry_before_it_can_be_counted():
    made = leading()
    assert kinds(made)[-5:-1] == [Append, "append_entries", "append_entries", Sync]
    assert (made.synced, made.log[-1]) == (2, (NO_OP, 2, 1))


def test_a_commit_that_is_not_durable_here_is_not_stored():
    made = core()
    append(made, TWO, 1, (1, 0), 1, 1, commit=3)
    made.take()
    made.set_term(2, None)
    made.finish()
    made.set_term(3, None)
    assert [effect for effect in made.take() if isinstance(effect, StoreVote)] == [StoreVote(2, None, 1), StoreVote(3, None, 3)]


def test_entries_that_are_cut_off_are_durable_no_more():
    made = core(1, 1, 1)
    append(made, TWO, 2, (2, 1), 2)
    assert [Cut(3), Append(((COMMAND + b"3", 3, 2),))] == made.take()[-2:]
    assert (made.synced, made.log.last) == (2, 3)


def test_what_contradicts_a_commit_is_raised_and_changes_nothing():
    made = core(1, 1)
    append(made, TWO, 1, (3, 1), commit=3)
    made.take()
    with pytest.raises(CorruptionError, match="contradicts index 2; 3 is committed"):
        append(made, THREE, 2, (1, 0), 2)
    assert kinds(made) == [StoreVote]
    assert made.log.last == 3


def test_a_command_is_an_entry_and_its_answer_follows_its_commit():
    made, what = leading(), Pending(b"x")
    made.take()
    made.asking()
    made.ask(what)
    made.asked()
    assert kinds(made) == [Append, "append_entries", "append_entries"]
    made.commit = 3
    made.apply()
    assert made.take() == [Apply(3, b"x", what)]
    made.apply()
    assert made.take() == []


def test_barriers_of_one_tick_wait_for_one_round():
    made, readings = leading(), [Reading(), Reading()]
    made.asking()
    for reading in readings:
        made.ask(reading)
    made.asked()
    made.commit = 2
    made.apply()
    made.take()
    receive(made, TWO, "next_node_idx", term=1, round=1, next_node_idx=3, reset=False, success=True)
    assert made.take() == [Settle(reading, 2) for reading in readings]


def test_who_steps_down_answers_its_barriers():
    made, reading = leading(), Reading()
    made.asking()
    made.ask(reading)
    made.take()
    made.become(FOLLOWER)
    (settled,) = made.take()
    assert settled.what is reading
    assert isinstance(settled.outcome, NotQuorumLeader)
    assert made.leader is None


def test_a_stop_answers_all_that_waits():
    made, command, reading = leading(), Pending(b"x"), Reading()
    made.asking()
    made.ask(command)
    made.ask(reading)
    made.take()
    made.stop(QuorumStopped("no disk"))
    outcomes = {effect.what: type(effect.outcome) for effect in made.take()}
    assert outcomes == {command: UnknownOutcome, reading: QuorumStopped}


@pytest.mark.parametrize(("inside", "term", "is_taken"), [(3, 1, False), (12, 1, False), (9, 2, False), (9, 1, True)])
def test_a_snapshot_that_is_not_the_one_of_its_message_changes_nothing(inside, term, is_taken):
    made = core(1, 1, 1, 1)
    append(made, TWO, 1, (5, 1), commit=5)
    made.apply()
    made.take()
    before = (made.commit, made.applied, made.log.base, made.log.last, made.snapshot_index)
    data = encode(Snapshot(inside, term, VOTERS, b"state"))
    receive(made, TWO, "snapshot", term=1, round=1, index=9, offset=0, size_bytes=len(data), data=data)
    assert (kinds(made)[0] is StoreSnapshot) == is_taken
    assert ((made.commit, made.applied, made.log.base, made.log.last, made.snapshot_index) == (9, 9, 9, 9, 9)) == is_taken
    assert ((made.commit, made.applied, made.log.base, made.log.last, made.snapshot_index) == before) != is_taken
    made.finish()
    acks = [effect.message["next_node_idx"] for effect in made.take() if isinstance(effect, Send)]
    assert acks == [10 if is_taken else 6]


def pieces(made: Core) -> list[tuple[int, int]]:
    """The pieces of a snapshot that are to be sent: from where, and how much."""
    return [(effect.message["offset"], effect.size_bytes) for effect in made.take() if isinstance(effect, SendPiece)]


def test_while_a_piece_of_a_snapshot_is_under_way_heartbeats_are_empty_ones():
    """A slow network would otherwise carry each piece many times, and every other message behind them."""
    made = leading(1, 1, 1, 1)
    made.log.drop(4)
    made.snapshot_index, made.next[THREE] = 4, 1
    made.take()

    def heartbeat() -> list[tuple[int, int]]:
        made.now += 0.061
        made.apply()
        return pieces(made)

    def answered(offset: int) -> list[tuple[int, int]]:
        receive(made, THREE, "snapshot_reply", term=made.term, round=0, index=4, offset=offset)
        return pieces(made)

    whole = CHUNK_SIZE_BYTES
    assert [heartbeat() for _ in range(3)] == [[(0, whole)], [(0, 0)], [(0, 0)]]
    assert answered(0) == []  # to a heartbeat
    assert answered(whole) == [(whole, whole)]
    assert heartbeat() == [(whole, 0)]
    made.now += PIECE_TIMEOUTS * made.patience_s
    assert heartbeat() == [(whole, whole)]  # it may be lost
    made.disconnected(THREE)
    made.connected(THREE)
    made.take()
    assert heartbeat() == [(whole, whole)]


def test_a_vote_that_is_refused_leaves_the_deadline_where_it_is():
    made = core(1, 1)
    deadline = made.deadline
    made.now += 0.1
    receive(made, TWO, "request_vote", term=5, last_log_index=1, last_log_term=0)
    assert StoreVote in kinds(made)
    made.stored(made.now + 0.8)
    assert made.deadline == deadline


def test_progress_of_others_is_stored_when_a_connection_ends():
    made = core()
    append(made, TWO, 1, (1, 0), 1)
    made.take()
    made.disconnected(THREE)
    (stored,) = made.take()
    assert isinstance(stored, StoreStarts)
    assert stored.others[2].progress == (1, True, 0)
    made.disconnected(THREE)
    assert made.take() == []


def test_a_pre_vote_counts_no_longer_once_its_voter_has_gone():
    made = core()
    made.now = made.deadline + 1
    made.wake()
    receive(made, TWO, "pre_vote_reply", term=1, granted=True)
    assert made.election_deadline == 0
    for peer in (TWO, THREE):
        made.disconnected(peer)
    for _ in range(2):
        made.wake()
        made.finish()
        assert (made.due(), made.election_deadline) == (made.now + 1.5 * 0.3, math.inf), "it waits, and no election begins"
    made.connected(THREE)
    assert made.election_deadline == math.inf, "one voter of three is no majority"


def test_the_same_events_want_the_same_effects():
    stories = []
    for _ in range(2):
        made = core(1)
        append(made, TWO, 1, (2, 1), 1, 1)
        made.now += 10
        for step in (made.wake, made.apply, made.compact, made.finish):
            step()
        receive(made, THREE, "pre_vote", term=2, last_log_index=4, last_log_term=1)
        stories.append((made.take(), made.deadline))
    assert stories[0] == stories[1]
