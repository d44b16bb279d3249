"""The table of log/producers.py, line by line, on states alone."""

import pytest

from logdb.codec import Header, control, header
from logdb.codec.control import ControlType
from logdb.codec.convert import Produced
from logdb.errors import CoordinatorFenced, InvalidBatch, InvalidTransactionState, OutOfOrderSequence, ProducerFenced
from logdb.log.producers import BATCH_COUNT_MAX, SEQUENCE_MASK, Batch, Producer, ProducerStates, check_batch, check_marker, repeated
from logdb.model import AbortedTransaction, ProducerIdAndEpoch, TopicPartition
from support.batches import encode_batch

WHERE = TopicPartition("t", 0)
NOW = 1_700_000_000_000
DAY_MS = 86_400_000


def head(sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False, offset: int = 0) -> Header:
    image = encode_batch(
        [b"v"] * count,
        base_offset=offset,
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=16 * transactional,
        base_timestamp=NOW - 5,
    )
    found = header(image)[1]
    assert found is not None
    return found


def after(*heads: Header) -> Producer:
    """The producer after batches that follow each other from offset 0 on."""
    known, offset = Producer(7), 0
    for each in heads:
        check_batch(WHERE, known, each, sequenced=True)
        known = known.after_batch(each, offset, NOW)
        offset += each.last_offset - each.base_offset + 1
    return known


def refused(known: Producer, each: Header) -> OutOfOrderSequence:
    with pytest.raises(OutOfOrderSequence) as caught:
        check_batch(WHERE, known, each, sequenced=True)
    return caught.value


def marker(kind: ControlType, *, epoch: int = 0, coordinator_epoch: int = 3, offset: int = 0) -> tuple[Header, bytes]:
    image = bytearray(control.build(kind, ProducerIdAndEpoch(7, epoch), coordinator_epoch, NOW))
    image[:8] = offset.to_bytes(8, "big")
    found = header(image)[1]
    assert found is not None
    return found, bytes(image)


# ---------------------------------------------------------------- batches


def test_batches_follow_each_other() -> None:
    known = after(head(0, 3), head(3, 2))
    assert known == Producer(7, 0, (Batch(2, 2, 2), Batch(4, 4, 1)), NOW)
    assert (known.next_sequence, known.batches[1].first_sequence, known.batches[1].first_offset) == (5, 3, 3)


def test_an_unknown_producer_may_begin_anywhere() -> None:
    # Its earlier batches may have expired, or been deleted.
    assert after(head(12)).next_sequence == 13


def test_a_gap_is_refused() -> None:
    error = refused(after(head(0, 3)), head(4))
    assert (error.producer_id, error.sequence, error.expected_sequence, error.topic, error.partition) == (7, 4, 3, "t", 0)


def test_a_batch_that_overlaps_the_last_one_is_refused() -> None:
    known = after(head(0, 3))
    assert known.duplicate_of(head(1, 2)) is None
    assert refused(known, head(1, 2)).expected_sequence == 3
    assert known.duplicate_of(head(0, 2)) is None


def test_duplicates_are_known_by_sequence_and_count() -> None:
    known = after(head(0, 3), head(3, 2))
    assert known.duplicate_of(head(0, 3, offset=99)) == Batch(2, 2, 2)
    assert known.duplicate_of(head(3, 2)) == Batch(4, 4, 1)
    assert known.duplicate_of(head(0, 3, epoch=1)) is None
    assert known.duplicate_of(head(-1, 3)) is None
    assert repeated({7: known}, [Produced(0, head(0, 3)), Produced(3, head(5)), Produced(4, head(3, 2))]) == [
        Batch(2, 2, 2),
        Batch(4, 4, 1),
    ]
    assert repeated({8: known}, [Produced(0, head(0, 3))]) == []


def test_the_sixth_batch_drives_out_the_first() -> None:
    known = after(*(head(sequence) for sequence in range(BATCH_COUNT_MAX + 1)))
    assert [batch.last_sequence for batch in known.batches] == [1, 2, 3, 4, 5]
    assert known.duplicate_of(head(0)) is None
    assert refused(known, head(0)).expected_sequence == 6


@pytest.mark.parametrize("last", [SEQUENCE_MASK - 1, SEQUENCE_MASK, 0, 1])
def test_sequences_wrap_around(last: int) -> None:
    begin = last - 2 & SEQUENCE_MASK
    first = head(begin, 3)
    known = after(first)
    assert known.batches == (Batch(last, 2, 2),)
    assert known.batches[0].first_sequence == begin
    assert known.duplicate_of(first) == known.batches[0]
    assert known.next_sequence == (0 if last == SEQUENCE_MASK else last + 1)
    assert after(first, head(known.next_sequence, 2)).next_sequence == (known.next_sequence + 2) % 2**31
    assert refused(known, head((known.next_sequence + 1) % 2**31)).expected_sequence == known.next_sequence


def test_a_new_epoch_begins_at_sequence_0_and_forgets_the_old_one() -> None:
    known = after(head(0, 3))
    assert refused(known, head(3, epoch=1)).expected_sequence == 0
    check_batch(WHERE, known, head(0, epoch=1), sequenced=True)
    newer = known.after_batch(head(0, epoch=1), 3, NOW)
    assert (newer.epoch, newer.batches) == (1, (Batch(0, 3, 0),))


def test_an_old_epoch_is_fenced() -> None:
    known = after(head(0, epoch=2))
    for sequenced in (True, False):
        with pytest.raises(ProducerFenced) as caught:
            check_batch(WHERE, known, head(1, epoch=1), sequenced=sequenced)
        assert (caught.value.producer_id, caught.value.producer_epoch, caught.value.current_epoch) == (7, 1, 2)


def test_a_coordinators_own_batches_have_no_sequence() -> None:
    with pytest.raises(InvalidBatch, match="producer 7 with the sequence -1"):
        check_batch(WHERE, Producer(7), head(-1), sequenced=True)
    check_batch(WHERE, Producer(7), head(-1, 2), sequenced=False)
    known = Producer(7).after_batch(head(-1, 2), 4, NOW)
    assert known.batches == (Batch(-1, 5, 1),)
    assert (known.batches[0].first_sequence, known.next_sequence) == (-1, 0)


# ---------------------------------------------------------------- transactions


def test_a_transaction_begins_with_its_first_batch() -> None:
    known = after(head(0, 2), head(2, transactional=True), head(3, transactional=True))
    assert (known.first_offset, known.started_ms) == (2, NOW)


def test_a_plain_batch_in_a_transaction_is_refused() -> None:
    known = after(head(0, transactional=True))
    with pytest.raises(InvalidTransactionState, match="open on t-0 since offset 0"):
        check_batch(WHERE, known, head(1), sequenced=True)


def test_a_marker_ends_it_and_keeps_the_batches() -> None:
    ended = after(head(0, transactional=True)).after_marker(0, 3, NOW)
    assert ended == Producer(7, 0, (Batch(0, 0, 0),), NOW, 3)
    assert ended.next_sequence == 1


def test_a_marker_of_a_newer_epoch_fences() -> None:
    ended = after(head(0, transactional=True)).after_marker(1, 3, NOW)
    assert (ended.epoch, ended.batches, ended.next_sequence) == (1, (), 0)
    with pytest.raises(ProducerFenced):
        check_batch(WHERE, ended, head(1), sequenced=True)


def test_markers_with_old_epochs_are_refused() -> None:
    known = after(head(0, epoch=2)).after_marker(2, 5, NOW)
    check_marker(WHERE, known, 2, 5)
    with pytest.raises(ProducerFenced):
        check_marker(WHERE, known, 1, 5)
    with pytest.raises(CoordinatorFenced) as caught:
        check_marker(WHERE, known, 2, 4)
    assert (caught.value.coordinator_epoch, caught.value.current_epoch, caught.value.producer_id) == (4, 5, 7)


# ---------------------------------------------------------------- all producers of a log


def test_the_oldest_open_transaction_is_unstable() -> None:
    states = ProducerStates()
    assert (states.first_unstable, states.open_transactions()) == (None, [])
    for producer_id, first in ((3, 10), (1, 20), (2, 30)):
        states.put(Producer(producer_id, first_offset=first, started_ms=first))
    assert states.first_unstable == 10
    states.put(states.producers[3]._replace(timestamp_ms=5))  # goes on
    assert states.first_unstable == 10
    states.put(Producer(3))
    assert states.first_unstable == 20
    assert [each[:1] + each[2:] for each in states.open_transactions()] == [(1, 20, 20), (2, 30, 30)]
    again = ProducerStates(reversed(states.producers.values()))
    assert (again.first_unstable, again.open_transactions()) == (20, states.open_transactions())
    copied = states.copy()
    states.put(Producer(1))
    assert (states.first_unstable, copied.first_unstable) == (30, 20)


def test_what_a_marker_aborts() -> None:
    states = ProducerStates([Producer(7, first_offset=10), Producer(8, first_offset=20)])
    assert states.ended(states.producers[7], 30, ControlType.COMMIT) is None
    assert states.ended(states.producers[7], 30, ControlType.ABORT) == AbortedTransaction(7, 10, 30, 20)
    states.put(Producer(8))
    assert states.ended(states.producers[7], 30, ControlType.ABORT) == AbortedTransaction(7, 10, 30, 31)
    assert states.ended(states.producers[8], 30, ControlType.ABORT) is None


def test_a_replay_comes_to_the_same_states() -> None:
    states = ProducerStates()
    first = head(0, 2, transactional=True, offset=4)
    assert states.replay(first, b"", NOW) is None
    assert states.producers[7] == Producer(7).after_batch(first, 4, NOW)
    assert states.first_unstable == 4
    found, image = marker(ControlType.ABORT, offset=6)
    assert states.replay(found, image, NOW) == AbortedTransaction(7, 4, 6, 7)
    assert states.producers[7] == Producer(7, 0, (Batch(1, 5, 1),), NOW, 3)
    assert states.first_unstable is None


def test_markers_that_compaction_emptied_and_those_of_others_change_nothing() -> None:
    states = ProducerStates()
    states.replay(head(0, transactional=True), b"", NOW)
    before = dict(states.producers)
    for image in (
        encode_batch([], attributes=48, producer_id=7, producer_epoch=0, last_offset_delta=0, base_offset=1),
        encode_batch([(b"\0\0\0\2", b"\0\0\0\0\0\0")], attributes=48, producer_id=7, producer_epoch=0, base_offset=1),
    ):
        found = header(image)[1]
        assert found is not None
        assert states.replay(found, image, NOW) is None
        assert states.producers == before


def test_who_sent_nothing_for_a_day_is_forgotten_but_for_open_transactions() -> None:
    day_ago = NOW - DAY_MS
    states = ProducerStates([Producer(1, timestamp_ms=day_ago), Producer(2, timestamp_ms=day_ago + 1), Producer(3, first_offset=5)])
    states.expire(NOW)
    assert sorted(states.producers) == [2, 3]
    states.expire(NOW + 9, 10)
    assert sorted(states.producers) == [3]
    assert states.first_unstable == 5


def test_history_that_is_loaded_today_does_not_expire_today() -> None:
    known = Producer(7).after_batch(head(0)._replace(max_timestamp=5), 0, NOW)
    assert known.timestamp_ms == NOW


@pytest.mark.parametrize("sequence", [0, 7, SEQUENCE_MASK - 1, SEQUENCE_MASK])
@pytest.mark.parametrize("count", [1, 3])
def test_the_state_after_the_next_batch_is_the_state_after_that_batch(sequence, count):
    known = Producer(7, 2, tuple(Batch(sequence - n - 1 & SEQUENCE_MASK, 90 - n, 0) for n in reversed(range(5))), 1_000, 4)
    assert known.next_sequence == sequence
    following = head(sequence, count, epoch=2)
    for now_ms in (0, 10**15):
        assert known.after_next(count, following.max_timestamp, 100, now_ms) == known.after_batch(following, 100, now_ms)
