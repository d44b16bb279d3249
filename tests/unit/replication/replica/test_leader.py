"""The leader's rules: high watermark, in-sync set, proposals."""

import pytest

from logdb.broker.gaps import MISSING_MS
from logdb.errors import NotLeaderOrFollower, StaleBrokerEpoch
from logdb.model import TopicPartition
from logdb.requests.nodes import PartitionState
from logdb.store.protocols import LastFetch
from logdb_replication.replica.leader import RETRY_MS, Effects, InSyncChange, Leader, RegisteredNode

LAG_MS = 3_000
BROKERS = {1: RegisteredNode(11), 2: RegisteredNode(12), 3: RegisteredNode(13)}
WHERE = TopicPartition("t", 0)


def state(in_sync=(1, 2, 3), partition_epoch=5, leader_epoch=4, replicas=(1, 2, 3)):
    return PartitionState(1, leader_epoch, replicas, in_sync, partition_epoch)


def led(in_sync=(1, 2, 3), *, minimum=2, start=100, high_watermark=90, flushed=100, brokers=BROKERS, **options):
    return Leader(
        WHERE,
        1,
        state(in_sync, **options),
        brokers,
        epoch_start_offset=start,
        high_watermark=high_watermark,
        flushed_offset=flushed,
        in_sync_count_min=minimum,
        lag_ms=LAG_MS,
        now_ms=0,
    )


def fetched(leader, node, flushed, *, end=100, now_ms=0, epoch=None):
    return leader.fetched(node, BROKERS[node].broker_epoch if epoch is None else epoch, flushed, end, now_ms, start_offset=0)


# ---------------------------------------------------------------- sessions


def in_session(leader, node, last_fetch, flushed=100, *, end=100):
    return leader.fetched(node, BROKERS[node].broker_epoch, flushed, end, last_fetch.at_ms, 0, last_fetch)


HOUR_MS = 3_600_000


@pytest.fixture
def sessions():
    """A leader whose followers have flushed all, and have only repeated that for an hour."""
    leader, sessions = led(minimum=1), {node: LastFetch(0) for node in (2, 3)}
    for node, last_fetch in sessions.items():
        in_session(leader, node, last_fetch)
        last_fetch.at_ms = HOUR_MS
    return leader, sessions


def in_sync(effects):
    return [node for node, _ in effects.proposal.in_sync]


def test_a_follower_that_repeats_its_report_lags_from_the_next_record_on(sessions):
    leader, _ = sessions
    assert leader.flushed(110, 110, HOUR_MS + 100).proposal is None
    assert leader.tick(110, HOUR_MS + LAG_MS).proposal is None
    assert in_sync(leader.tick(110, HOUR_MS + LAG_MS + 1)) == [1]


def test_a_follower_that_lags_gains_nothing_by_repeating(sessions):
    leader, known = sessions
    for now_ms in range(HOUR_MS + 100, HOUR_MS + LAG_MS, 100):
        assert leader.tick(110, now_ms).proposal is None
        known[2].at_ms = now_ms
    in_session(leader, 3, known[3], 110, end=110)
    assert in_sync(leader.tick(110, HOUR_MS + LAG_MS + 1)) == [1, 3]


def test_a_session_that_has_ended_repeats_nothing(sessions):
    leader, known = sessions
    leader.left_session(2, LastFetch(0))  # another one
    leader.left_session(3, known[3])
    for last_fetch in known.values():
        last_fetch.at_ms = 2 * HOUR_MS
    assert leader.tick(100, 2 * HOUR_MS).proposal is None
    assert in_sync(leader.tick(110, 2 * HOUR_MS + 1)) == [1, 2]


# ---------------------------------------------------------------- high watermark


def test_the_high_watermark_is_the_smallest_flushed_end_of_all_in_sync():
    leader = led()
    assert fetched(leader, 2, 100) == Effects()  # 3 has said nothing
    assert fetched(leader, 3, 95) == Effects(high_watermark=95)
    assert leader.flushed(120, 130, 0) == Effects()
    assert fetched(leader, 3, 110, end=130) == Effects(high_watermark=100)
    assert fetched(leader, 2, 125, end=130) == Effects(high_watermark=110)
    assert fetched(leader, 3, 130, end=130) == Effects(high_watermark=120)  # this node has flushed no more


def test_a_late_report_takes_nothing_back():
    leader = led(in_sync=(1, 2))
    fetched(leader, 2, 100)
    assert fetched(leader, 2, 95) == Effects()
    assert leader.high_watermark == 100


def test_an_end_past_the_log_is_none():
    leader = led(in_sync=(1, 2), flushed=200)
    assert fetched(leader, 2, 10**9, end=150) == Effects()
    assert fetched(leader, 2, 150, end=150).high_watermark == 150


def test_a_follower_with_an_end_past_the_log_is_not_added():
    leader = led(in_sync=(1, 2))
    assert fetched(leader, 3, 101).proposal is None


def test_the_high_watermark_does_not_move_while_too_few_are_in_sync():
    leader = led(in_sync=(1,))
    assert leader.flushed(120, 120, 0) == Effects() and not leader.has_enough_in_sync
    assert leader.changed(state((1,), 5), BROKERS, 1, 0).high_watermark == 120


def test_fewer_replicas_than_the_least_number_move_it_all_the_same():
    leader = led(in_sync=(1,), replicas=(1,))
    assert leader.flushed(120, 120, 0).high_watermark == 120
    assert not leader.has_enough_in_sync


# ---------------------------------------------------------------- expanding


def test_a_follower_is_added_at_the_high_watermark_and_the_epochs_start():
    leader = led(in_sync=(1, 2))
    fetched(leader, 2, 100)
    assert fetched(leader, 3, 99) == Effects()  # at the high watermark is not enough
    assert fetched(leader, 3, 100) == Effects(None, InSyncChange(4, 5, ((1, 11), (2, 12), (3, 13))))


def test_a_proposed_follower_counts_before_the_controller_has_said_so():
    leader = led(in_sync=(1, 2))
    fetched(leader, 2, 100)
    assert fetched(leader, 3, 100).proposal is not None
    leader.flushed(120, 120, 0)
    assert fetched(leader, 2, 120, end=120) == Effects()
    assert fetched(leader, 3, 110, end=120) == Effects(high_watermark=110)


def test_a_proposal_without_an_answer_is_made_again_and_counts():
    leader = led(in_sync=(1, 2))
    fetched(leader, 2, 100)
    first = fetched(leader, 3, 100).proposal
    assert leader.tick(100, 10 * RETRY_MS).proposal is None  # it is under way
    assert leader.answered(None, 10_000) == Effects()
    assert leader.maximal_in_sync == {1, 2, 3}
    leader.flushed(120, 120, 10_001)
    assert fetched(leader, 2, 120, end=120, now_ms=10_001) == Effects()
    assert leader.tick(120, 10_000 + RETRY_MS).proposal == first


def test_what_was_proposed_counts_until_the_partition_epoch_moves():
    leader = led(in_sync=(1, 2))
    fetched(leader, 2, 100)
    fetched(leader, 3, 100)
    leader.changed(state((1, 2)), BROKERS | {3: RegisteredNode(13, fenced=True)}, 2, 0)
    again = leader.answered(None, 0)
    assert again == Effects()
    neutral = leader.tick(100, RETRY_MS).proposal
    assert neutral == InSyncChange(4, 5, ((1, 11), (2, 12)))  # nothing new; the partition epoch moves
    assert leader.maximal_in_sync == {1, 2, 3}
    leader.answered(state((1, 2), 6), RETRY_MS)
    assert leader.maximal_in_sync == {1, 2}


def test_a_leader_that_a_reassignment_takes_away_proposes_its_end_and_again_after_a_time():
    leader, moved = led(), state((1, 2, 3), 6)._replace(target=(3, 2))
    fenced = leader.changed(moved, BROKERS | {3: RegisteredNode(13, fenced=True)}, 2, 0)
    assert fenced.proposal is None
    same = InSyncChange(4, 6, ((1, 11), (2, 12), (3, 13)))
    assert leader.changed(moved, BROKERS, 2, 0).proposal == same
    assert leader.answered(moved._replace(partition_epoch=7), 0).proposal is None  # the controller knew that one was fenced
    assert leader.tick(100, RETRY_MS).proposal == same._replace(partition_epoch=7)


def test_a_leader_that_follows_one_that_went_finishes_its_reassignment():
    leader = led()
    proposed = leader.changed(state((1, 2, 3), 6)._replace(target=(1, 2)), BROKERS, 2, 0).proposal
    assert proposed == InSyncChange(4, 6, ((1, 11), (2, 12), (3, 13)))


@pytest.mark.parametrize(
    "brokers",
    [{**BROKERS, 3: RegisteredNode(13, fenced=True)}, {**BROKERS, 3: RegisteredNode(12)}, {1: RegisteredNode(11), 2: RegisteredNode(12)}],
    ids=["fenced", "older", "none"],
)
def test_a_broker_that_is_not_registered_so_is_not_added(brokers):
    leader = led(in_sync=(1, 2))
    leader.changed(state((1, 2)), brokers, 2, 0)
    fetched(leader, 2, 100)
    assert fetched(leader, 3, 100) == Effects()
    assert leader.changed(state((1, 2)), BROKERS, 2, 0).proposal is not None


def test_a_bounced_brokers_old_request_does_not_bring_it_back():
    leader = led(in_sync=(1, 2))
    leader.changed(state((1, 2)), BROKERS | {3: RegisteredNode(23)}, 2, 0)
    with pytest.raises(StaleBrokerEpoch):
        fetched(leader, 3, 100)
    assert fetched(leader, 3, 50, epoch=23) == Effects()
    assert fetched(leader, 3, 100, epoch=23).proposal == InSyncChange(4, 5, ((1, 11), (2, 12), (3, 23)))


def test_what_a_broker_had_before_it_was_bounced_is_forgotten():
    leader = led()
    fetched(leader, 2, 100)
    leader.changed(state(), BROKERS | {3: RegisteredNode(23)}, 2, 0)
    fetched(leader, 3, 40, epoch=23)
    leader.flushed(200, 200, 0)
    assert fetched(leader, 2, 200, end=200).high_watermark is None
    assert fetched(leader, 3, 150, end=200, epoch=23).high_watermark == 150


@pytest.mark.parametrize("node", [1, 4])
def test_a_stranger_is_refused(node):
    with pytest.raises(NotLeaderOrFollower):
        led().fetched(node, 11, 100, 100, 0)


# ---------------------------------------------------------------- shrinking


def test_a_follower_that_lags_is_removed():
    leader = led(flushed=200)
    fetched(leader, 2, 200, end=200)
    fetched(leader, 3, 150, end=200)
    assert leader.tick(200, LAG_MS) == Effects()
    assert leader.tick(200, LAG_MS + 1).proposal == InSyncChange(4, 5, ((1, 11), (2, 12)))
    assert leader.flushed(220, 220, LAG_MS + 1).high_watermark is None  # it counts until the controller has said so
    assert leader.answered(state((1, 2), 6), LAG_MS + 2).high_watermark == 200


def test_one_that_has_said_nothing_has_the_whole_lag_time_of_the_epoch():
    leader = led(minimum=1)
    assert leader.tick(200, LAG_MS).proposal is None
    assert leader.tick(200, LAG_MS + 1).proposal == InSyncChange(4, 5, ((1, 11),))


def test_those_that_a_commit_needs_stay_although_they_lag():
    """With fewer nothing is committed, so each of them has all that ever was, and may lead later."""
    leader = led(flushed=200)
    fetched(leader, 3, 150, end=200)
    assert leader.tick(200, LAG_MS + 1).proposal is None
    assert fetched(leader, 2, 200, end=200, now_ms=LAG_MS + 2).proposal == InSyncChange(4, 5, ((1, 11), (2, 12)))


def test_a_member_that_is_fenced_does_not_count_for_an_append():
    leader = led((1, 2))
    assert leader.has_enough_in_sync
    leader.changed(state((1, 2)), {**BROKERS, 2: RegisteredNode(BROKERS[2].broker_epoch, fenced=True)}, 2, 0)
    assert not leader.has_enough_in_sync
    assert leader.in_sync_count == 1


def test_one_that_is_always_a_little_behind_is_in_sync():
    leader, end = led(), 100
    for now_ms in range(0, 10 * LAG_MS, 100):
        end += 10
        effects = [fetched(leader, node, end - 15, end=end, now_ms=now_ms) for node in (2, 3)]
        assert all(effect.proposal is None for effect in effects)


def test_one_that_flushes_nothing_is_removed_although_it_fetches():
    leader, end, proposals = led(in_sync=(1, 2), minimum=1, flushed=10**6), 100, []
    for now_ms in range(0, 2 * LAG_MS, 100):
        end += 10
        proposals.append(fetched(leader, 2, 90, end=end, now_ms=now_ms).proposal)
    assert [one for one in proposals if one] == [InSyncChange(4, 5, ((1, 11),))]


def test_an_idle_log_keeps_all():
    leader = led()
    for node in (2, 3):
        fetched(leader, node, 100)
    assert leader.tick(100, 100 * LAG_MS) == Effects()


# ---------------------------------------------------------------- the controller's answers


def test_a_newer_state_takes_the_place_of_the_proposal():
    leader = led(in_sync=(1, 2))
    fetched(leader, 2, 100)
    fetched(leader, 3, 100)
    effects = leader.answered(state((1,), 6), 0)  # 2 was fenced meanwhile
    assert effects.proposal == InSyncChange(4, 6, ((1, 11), (2, 12), (3, 13)))


def test_an_older_state_or_one_of_another_epoch_changes_nothing():
    leader = led(partition_epoch=5)
    leader.changed(state((1,), 4), BROKERS, 2, 0)
    leader.answered(state((1,), 9, leader_epoch=7), 0)
    assert leader.state == state()


# ---------------------------------------------------------------- producers


def test_batches_from_before_the_epoch_may_still_come_for_a_while():
    leader = led(in_sync=(1, 2))  # its epoch begins at offset 100
    assert leader.may_send_missing(7, 99, MISSING_MS - 1)
    assert leader.may_send_missing(7, -1, 0)  # the producer has a new epoch and no batch
    assert not leader.may_send_missing(7, 99, MISSING_MS)
    assert not leader.may_send_missing(7, 100, 0)  # it has appended here: what is missing now was never sent elsewhere


def test_no_batches_come_of_a_producer_whose_batch_was_refused_for_good():
    leader = led(in_sync=(1, 2))
    leader.failed({7})
    assert not leader.may_send_missing(7, 99, 0)
    assert leader.may_send_missing(8, 99, 0)
    leader.failed(range(100, 1100))  # bounded: the oldest are forgotten
    assert leader.may_send_missing(7, 99, 0)


# ---------------------------------------------------------------- consumers in a rack


LISTENERS = frozenset({"http", "kafka"})


def test_a_consumer_reads_at_the_follower_of_its_rack_that_has_flushed_most():
    racks = {1: "a", 2: "b", 3: "b"}
    leader = led(brokers={node: BROKERS[node]._replace(rack=rack, listeners=LISTENERS) for node, rack in racks.items()})
    assert leader.nearest("b", 100, "http") is None, "no follower has said what it has"
    fetched(leader, 2, 100)
    fetched(leader, 3, 95)
    assert leader.nearest("b", 100, "http") == 2
    assert leader.nearest("b", 95, "http") == 2
    fetched(leader, 3, 110, end=110)
    assert leader.nearest("b", 95, "http") == 3
    assert leader.nearest("b", 111, "http") is None, "no follower has the offset"
    assert [leader.nearest(rack, 95, "http") for rack in ("a", "", "c")] == [None] * 3, "this node serves its own rack"


@pytest.mark.parametrize(
    "changed",
    [
        {"broker": RegisteredNode(12, fenced=True, rack="b", listeners=LISTENERS)},
        {"broker": RegisteredNode(12, rack="b", listeners=frozenset({"kafka"}))},
        {"broker": RegisteredNode(14, rack="b", listeners=LISTENERS)},
        {"in_sync": (1, 3)},
        {"start_offset": 96},
        {"start_offset": -1},
        {"flushed": -2},
    ],
    ids=["fenced", "without the listener", "registered again", "not in sync", "begins behind", "of an earlier version", "damaged"],
)
def test_a_follower_that_may_not_serve_is_not_named(changed):
    brokers = {**BROKERS, 2: changed.get("broker", RegisteredNode(12, rack="b", listeners=LISTENERS))}
    leader = led(changed.get("in_sync", (1, 2, 3)), brokers={**BROKERS, 2: RegisteredNode(12, rack="b", listeners=LISTENERS)})
    leader.fetched(2, 12, changed.get("flushed", 100), 100, 0, 0, start_offset=changed.get("start_offset", 0))
    leader.changed(leader.state, brokers, 2, 0)
    assert leader.nearest("b", 95, "http") is None
    assert len(changed) == 1
