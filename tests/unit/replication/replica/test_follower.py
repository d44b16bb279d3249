"""What a follower does in a new leader epoch: the table of KIP-101 and KIP-279, by answers."""

import pytest

from logdb.log.epochs import EpochEnd, LeaderEpochs
from logdb_replication.replica.follower import AskEpoch, BeginAnew, Fetch, Follower, LogState, TruncateTo


def state(*entries, start=0, end):
    return LogState(LeaderEpochs(entries), start, end)


def test_a_log_without_epochs_fetches_at_once():
    follower = Follower()
    assert follower.next(state(end=0)) == Fetch(0)


def test_the_epoch_is_checked_before_anything_is_fetched():
    follower, own = Follower(), state((0, 0), (3, 10), end=20)
    assert follower.next(own) == AskEpoch(3)
    assert follower.next(own) == AskEpoch(3)  # until there is an answer
    assert follower.epoch_answered(EpochEnd(3, 25), own) is None
    assert follower.next(own) == Fetch(20)


def test_a_longer_log_is_cut_off_at_the_leaders_end_of_the_epoch():
    follower, own = Follower(), state((0, 0), (3, 10), end=20)
    assert follower.epoch_answered(EpochEnd(3, 15), own) == TruncateTo(15)
    assert not follower.is_checked  # what it has flushed is not the leader's
    assert follower.next(own) == AskEpoch(3)  # where that has failed
    assert follower.epoch_answered(EpochEnd(3, 15), own) == TruncateTo(15)
    follower.stepped()
    assert follower.next(state((0, 0), (3, 10), end=15)) == Fetch(15)


def test_an_epoch_that_the_leader_does_not_know_is_cut_off_and_the_former_one_asked_for():
    follower, own = Follower(), state((0, 0), (3, 10), end=20)
    assert follower.epoch_answered(EpochEnd(2, 12), own) == TruncateTo(10)
    follower.stepped()
    left = state((0, 0), end=10)
    assert follower.next(left) == AskEpoch(0)
    assert follower.epoch_answered(EpochEnd(0, 7), left) == TruncateTo(7)
    follower.stepped()
    assert follower.next(state((0, 0), end=7)) == Fetch(7)


def test_an_epoch_without_a_record_is_forgotten():
    follower, own = Follower(), state((0, 0), (3, 10), end=10)
    assert follower.epoch_answered(EpochEnd(0, 12), own) == TruncateTo(10)
    follower.stepped()
    assert follower.next(state((0, 0), end=10)) == Fetch(10)


@pytest.mark.parametrize("answer", [None, EpochEnd(0, 4)])
def test_a_log_that_shares_nothing_begins_anew(answer):
    follower, own = Follower(), state((0, 5), (3, 10), start=5, end=20)
    assert follower.epoch_answered(answer, own) == BeginAnew()
    follower.stepped()
    assert follower.next(state(start=30, end=30)) == Fetch(30)


def test_what_the_leader_has_let_go_is_begun_anew():
    follower, own = Follower(), state((0, 0), end=20)
    follower.epoch_answered(EpochEnd(0, 100), own)
    assert follower.out_of_range(50, own) == BeginAnew()


def test_a_log_past_the_leaders_end_is_checked_again_not_cut():
    follower, own = Follower(), state((0, 0), end=20)
    follower.epoch_answered(EpochEnd(0, 100), own)
    assert follower.out_of_range(0, own) is None
    assert follower.next(own) == AskEpoch(0)


def test_an_empty_log_past_the_leaders_end_begins_anew():
    follower, own = Follower(), state(start=100, end=100)
    assert follower.next(own) == Fetch(100)
    assert follower.out_of_range(0, own) == BeginAnew()
    follower.stepped()
    assert follower.next(state(start=0, end=0)) == Fetch(0)


def test_batches_that_do_not_follow_lead_to_a_check():
    follower, own = Follower(), state((0, 0), end=20)
    follower.epoch_answered(EpochEnd(0, 100), own)
    assert follower.next(own) == Fetch(20)
    follower.parted()
    assert follower.next(own) == AskEpoch(0)
