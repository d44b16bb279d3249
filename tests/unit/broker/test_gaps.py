"""Gaps in the sequences of producers, and when they are temporary."""

from types import SimpleNamespace

import pytest

from logdb.broker import gaps as module
from logdb.broker.gaps import MISSING_MS, Gaps, is_of_leader
from logdb.codec.batch import FirstBatch, first_batch
from logdb.errors import CorruptBatch, DiskFull, InvalidBatch, NotEnoughReplicas, NotLeaderOrFollower, OutOfOrderSequence
from logdb.model import TopicPartition
from support.produced import batch

WHERE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
FULL = DiskFull("p", 1, "full")


def gap(producer_id: int = 7, sequence: int = 5) -> OutOfOrderSequence:
    return OutOfOrderSequence("t", 0, producer_id, sequence, 3, last_offset=9)


def log(*producers: int):
    return SimpleNamespace(topic="t", partition=0, leader_epoch=4, producer=lambda known: object() if known in producers else None)


@pytest.mark.parametrize("error", [NotEnoughReplicas("t", 0, 1, 2), FULL, CorruptBatch(0, "its CRC is wrong")])
def test_a_gap_is_temporary_for_a_while_behind_a_batch_that_was_refused_for_now(error):
    gaps = Gaps()
    assert not gaps.are_possible(WHERE, 0)
    gaps.refused(WHERE, error, FirstBatch(7, 0, 3), 1_000)
    with pytest.raises(NotLeaderOrFollower, match="producer 7 from sequence 3 to 4 are missing in t-0") as raised:
        gaps.refused(WHERE, gap(), FirstBatch(7, 0, 5), 999 + MISSING_MS)
    assert is_of_leader(raised.value)
    assert not is_of_leader(NotLeaderOrFollower("t", 0, None, 1))
    assert gaps.are_possible(WHERE, 999 + MISSING_MS)
    assert not gaps.are_possible(OTHER, 999 + MISSING_MS)
    gaps.refused(WHERE, gap(sequence=1), FirstBatch(7, 0, 1), 2_000)  # it is older, and no gap
    gaps.refused(WHERE, gap(8), FirstBatch(8, 0, 5), 2_000)
    gaps.refused(OTHER, gap(), FirstBatch(7, 0, 5), 2_000)
    gaps.refused(WHERE, gap(), FirstBatch(7, 0, 5), 1_000 + MISSING_MS)
    assert not gaps.are_possible(WHERE, 1_000 + MISSING_MS)


def test_a_gap_behind_a_batch_that_was_refused_for_good_stays_one():
    gaps = Gaps()
    gaps.refused(WHERE, InvalidBatch(0, "it is no batch"), FirstBatch(7, 0, 3), 0)
    gaps.refused(WHERE, gap(), FirstBatch(7, 0, 5), 0)
    gaps.check_begin(log(), batch([b"a"], 7, 0, 5), 0, is_new=False)


class Beginning:
    """Batches of producer 7, which the log does not know."""

    def __init__(self, gaps: Gaps, *, is_new: bool = False) -> None:
        self._gaps, self._is_new = gaps, is_new

    def takes(self, sequence: int, *known: int, now_ms: int = 1) -> bool:
        try:
            self._gaps.check_begin(log(*known), batch([b"a"], 7, 0, sequence), now_ms, is_new=self._is_new)
        except NotLeaderOrFollower as error:
            return not is_of_leader(error)
        return True


def test_under_a_new_leader_an_unknown_producer_sends_its_earliest_batch_twice():
    begin = Beginning(Gaps(), is_new=True)
    assert begin.takes(0)
    assert begin.takes(5, 7), "it is known"
    assert [begin.takes(sequence) for sequence in (6, 5, 6, 5)] == [False, False, False, True]


def test_what_was_refused_comes_before_what_is_behind_it():
    gaps = Gaps()
    begin = Beginning(gaps)
    assert begin.takes(6), "nothing was refused"
    gaps.refused(WHERE, FULL, FirstBatch(7, 0, 5), 0)
    assert [begin.takes(sequence) for sequence in (6, 6, 5)] == [False, False, True]
    gaps.refused(WHERE, FULL, FirstBatch(7, 0, 5), 1)
    assert not begin.takes(6)


def test_a_first_batch_that_was_refused_twice_still_comes_first():
    gaps = Gaps()
    begin = Beginning(gaps)
    for _ in range(2):
        gaps.refused(WHERE, FULL, FirstBatch(7, 0, 0), 0)
        assert not begin.takes(1)
    assert begin.takes(0)


@pytest.mark.parametrize("is_new", [False, True])
def test_a_producer_that_gave_its_batch_up_goes_on_after_a_while(is_new):
    gaps = Gaps()
    begin = Beginning(gaps, is_new=is_new)
    gaps.refused(WHERE, FULL, FirstBatch(7, 0, 5), 0)
    for now_ms in range(1_000, MISSING_MS, 1_000):
        assert not begin.takes(6, now_ms=now_ms), "a refusal of this kind lengthens nothing"
    assert Beginning(gaps).takes(6, now_ms=MISSING_MS)


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "_COUNT_MAX", 10)
    gaps = Gaps()
    for number in range(100):
        gaps.refused(TopicPartition("t", number), FULL, FirstBatch(number, 0, 5), number)
    assert len(gaps._producers) == len(gaps._partitions) == 10
    assert gaps.are_possible(TopicPartition("t", 99), 100)


def test_of_hostile_bytes_nothing_is_remembered():
    gaps = Gaps()
    for image in (b"", b"x", bytes(61), batch([b"a"], 7, 0, 5)[:40]):
        gaps.refused(WHERE, FULL, first_batch(image), 0)
        gaps.check_begin(log(), image, 0, is_new=True)
    assert not gaps._producers or all(producer >= 0 for _, producer, _ in gaps._producers)


def test_another_epoch_of_a_producer_is_another_story():
    gaps = Gaps()
    gaps.refused(WHERE, FULL, FirstBatch(7, 0, 5), 0)
    with pytest.raises(NotLeaderOrFollower):
        gaps.check_begin(log(), batch([b"a"], 7, 1, 5), 1, is_new=True)
    gaps.check_begin(log(), batch([b"a"], 7, 0, 5), 1, is_new=True)


def test_the_sequence_of_a_damaged_batch_replaces_none():
    gaps = Gaps()
    gaps.refused(WHERE, FULL, FirstBatch(7, 0, 500), 0)
    gaps.refused(WHERE, CorruptBatch(0, "its CRC is wrong"), FirstBatch(7, 0, 2), 1)
    assert Beginning(gaps).takes(500)
