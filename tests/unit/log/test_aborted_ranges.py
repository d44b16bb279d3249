from typing import Any

import pytest

from logdb.codec.batch import CONTROL, DELETE_HORIZON, TRANSACTIONAL
from logdb.codec.compaction import BatchRetention
from logdb.log.aborted_ranges import AbortedRanges, LastBatch
from logdb.model import AbortedTransaction
from support.batches import encode_batch

NOW = 1_700_000_000_000
DISCARD, RETAIN, EXPIRES, PLAIN = (
    int(BatchRetention.DISCARD),
    int(BatchRetention.RETAIN),
    int(BatchRetention.EXPIRES),
    int(BatchRetention.PLAIN),
)


def plain(base_offset: int) -> bytes:
    return encode_batch([(b"k", b"v")], base_offset=base_offset)


def data(base_offset: int, producer_id: int, *, attributes: int = TRANSACTIONAL, count: int = 1, **options: Any) -> bytes:
    return encode_batch([(b"k", b"v")] * count, base_offset=base_offset, attributes=attributes, producer_id=producer_id, **options)


def marker(base_offset: int, producer_id: int, *, horizon_ms: int | None = None, count: int = 1, producer_epoch: int = 0) -> bytes:
    return encode_batch(
        [(b"\0\0\0\1", b"\0" * 6)] * count,
        base_offset=base_offset,
        attributes=CONTROL | TRANSACTIONAL | (0 if horizon_ms is None else DELETE_HORIZON),
        base_timestamp=NOW if horizon_ms is None else horizon_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def retentions(*batches: bytes, aborted: tuple[AbortedTransaction, ...] = (), last: dict[int, LastBatch] | None = None) -> list[int]:
    return list(AbortedRanges(aborted, last or {}, NOW).of(memoryview(b"".join(batches))))


def test_batches_without_a_producer_are_plain() -> None:
    assert retentions(plain(0), plain(1), last={-1: LastBatch(1, 0)}) == [PLAIN, PLAIN]


def test_batches_of_an_aborted_transaction_go() -> None:
    aborted = (AbortedTransaction(7, 0, 4), AbortedTransaction(7, 10, 12), AbortedTransaction(8, 3, 30))
    found = retentions(data(0, 7), data(1, 8), data(3, 8), data(5, 7), data(9, 7), data(11, 7), data(12, 9), aborted=aborted)
    assert found == [DISCARD, PLAIN, DISCARD, PLAIN, PLAIN, DISCARD, PLAIN]


def test_a_plain_batch_of_the_producer_stays() -> None:
    assert retentions(data(1, 7, attributes=0), aborted=(AbortedTransaction(7, 0, 4),)) == [PLAIN]


def test_a_marker_stays_with_its_data_and_then_gets_a_horizon() -> None:
    assert retentions(data(0, 7), data(1, 8), marker(2, 7), marker(3, 7), marker(4, 8)) == [PLAIN, PLAIN, PLAIN, EXPIRES, PLAIN]


def test_an_empty_batch_counts_as_data() -> None:
    assert retentions(data(0, 7, count=0), marker(1, 7, horizon_ms=NOW)) == [PLAIN, PLAIN]


def test_a_marker_goes_at_its_horizon() -> None:
    judge = AbortedRanges((), {}, NOW)
    batches = marker(0, 7, horizon_ms=NOW + 1) + marker(1, 7, horizon_ms=NOW) + marker(2, 7, count=0)
    assert list(judge.of(memoryview(batches))) == [PLAIN, DISCARD, DISCARD]
    assert judge.discarded == {1, 2}


def test_data_is_remembered_from_one_buffer_to_the_next() -> None:
    judge = AbortedRanges((), {}, NOW)
    assert list(judge.of(memoryview(data(0, 7)))) == [PLAIN]
    assert list(judge.of(memoryview(marker(1, 7)))) == [PLAIN]
    assert list(judge.of(memoryview(marker(2, 7)))) == [EXPIRES]


@pytest.mark.parametrize(
    ("last", "retained"),
    [(LastBatch(3, 0), [False, True, False]), (LastBatch(9, 0), [False, False, False]), (LastBatch(-1, 2), [False, False, True])],
)
def test_what_keeps_a_producer_known_is_retained(last: LastBatch, retained: list[bool]) -> None:
    found = retentions(data(0, 7), data(2, 7, count=2), marker(4, 7, producer_epoch=2), last={7: last})
    assert [bool(retention & RETAIN) for retention in found] == retained


def test_the_last_batch_of_an_aborted_transaction_stays_empty() -> None:
    assert retentions(data(0, 7), aborted=(AbortedTransaction(7, 0, 4),), last={7: LastBatch(0, 0)}) == [DISCARD | RETAIN]


def test_a_look_alone_says_only_what_counts_for_nothing() -> None:
    judge = AbortedRanges((AbortedTransaction(7, 0, 4),), {7: LastBatch(0, 0)}, NOW)
    assert list(judge.discards(memoryview(data(0, 7) + marker(4, 7) + plain(5)))) == [DISCARD, PLAIN, PLAIN]
    assert list(judge.of(memoryview(marker(4, 7)))) == [EXPIRES]  # the look was none of the copy's
