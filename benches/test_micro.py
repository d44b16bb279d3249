"""The parts alone, in memory: ``pytest benches/test_micro.py`` (pytest-benchmark).

Each round works on COUNT records, so that a mean of 1 ms is 100 ns a record.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benches.workload import Keys, Values, Work
from logdb.codec import (
    INTERVAL,
    Accumulator,
    BatchBuilder,
    Delivery,
    Dispatcher,
    RecordIterator,
    Route,
    Scanner,
    Status,
    arrow,
    compression,
    crc32c,
)
from logdb.model import COMPRESSION_TYPES, OFFSET_MAX, Buffer

pytest.importorskip("pytest_benchmark")

COUNT = 10_000
VALUE_SIZE = 100
Benchmark = Callable[..., Any]


class Sink(BatchBuilder):
    """A log without files: what would be written is kept, or forgotten."""

    def __init__(self, *, keep: bool = False) -> None:
        super().__init__(next_offset=0, leader_epoch=0, batch_size=16 << 10, write_size=128 << 10, group_size=1 << 20, clock=None)
        self._configure(
            level=INTERVAL,
            refusing=0,
            fsync_only=False,
            keys_required=False,
            log_append_time=False,
            timestamp_before_max_ms=OFFSET_MAX,
            timestamp_after_max_ms=OFFSET_MAX,
            message_size_max=1 << 20,
            batch_size=16 << 10,
        )
        self.kept: list[bytes] | None = [] if keep else None

    def _write(self, batches: memoryview, base_offset: int, next_offset: int, max_timestamp: int) -> None:
        if self.kept is not None:
            self.kept.append(bytes(batches))

    def _woken(self) -> None:
        pass


@pytest.fixture(scope="module")
def records() -> tuple[Keys, Values]:
    return Work(Path(), COUNT, VALUE_SIZE).records()


@pytest.fixture(scope="module")
def batches(records: tuple[Keys, Values]) -> bytes:
    """COUNT records in uncompressed batches of 16 KiB, back to back."""
    sink = Sink(keep=True)
    keys, values = records
    sink.append_many(values, keys)
    assert sink.kept
    return b"".join(sink.kept)


def test_append(benchmark: Benchmark, records: tuple[Keys, Values]) -> None:
    sink = Sink()

    def run() -> int:
        put, offset = sink.append, -1
        for key, value in zip(*records, strict=True):
            offset = put(value, key)
        return offset

    assert benchmark(run) % COUNT == COUNT - 1


def test_append_many(benchmark: Benchmark, records: tuple[Keys, Values]) -> None:
    sink, (keys, values) = Sink(), records
    assert len(benchmark(lambda: sink.append_many(values, keys))) == COUNT


class Nowhere(Dispatcher):
    """A producer whose full buffers count as written at once."""

    def __init__(self) -> None:
        super().__init__(partitioner=None, serialize_key=None, serialize_value=None, intercepted=False, sticky_size=16 << 10)
        self.told = 0

    def _route(self, topic: str) -> Route:
        return Route(topic, 4, 1)

    def _accumulator(self, route: Route, partition: int) -> Accumulator:
        accumulator = route.accumulators[partition] = Forgetful()
        return accumulator

    def on_delivery(self, error: Exception | None, metadata: Any) -> None:
        self.told += error is None

    def settle(self) -> None:
        for accumulator in self._routes["t"].accumulators:
            if isinstance(accumulator, Forgetful):
                accumulator.settle()


class Forgetful(Accumulator):
    def __init__(self) -> None:
        super().__init__(next_offset=0, leader_epoch=-1, batch_size=16 << 10, write_size=16 << 10, group_size=16 << 10, clock=None)

    def settle(self) -> None:
        if (delivery := self._seal()) is not None:
            delivery._settle(delivery.first, -1, None)
            delivery._call_back(None, print)

    def _refill(self, size_bytes: int) -> None:
        self.settle()
        self._begin(Delivery("t", 0, 0, True), 80 << 10)


@pytest.mark.parametrize("called_back", [False, True])
def test_send(benchmark: Benchmark, records: tuple[Keys, Values], called_back: bool) -> None:
    """What a producer's caller waits for; with callbacks, theirs too."""
    producer = Nowhere()
    options = {"on_delivery": producer.on_delivery} if called_back else {}

    def run() -> int:
        producer.told = 0
        put = producer.send
        for key, value in zip(*records, strict=True):
            put("t", value, key, **options)
        producer.settle()
        return producer.told

    assert benchmark(run) == (COUNT if called_back else 0)


def test_crc(benchmark: Benchmark, batches: bytes) -> None:
    assert benchmark(crc32c, batches) == crc32c(batches[1000:], crc32c(batches[:1000]))


def test_check_batches(benchmark: Benchmark, batches: bytes) -> None:
    """What every read does once a batch: headers, neighbours, CRC."""

    def run() -> int:
        scanner = Scanner(segment_base_offset=0)
        assert scanner.scan(batches) is Status.OK
        return scanner.next_offset

    assert benchmark(run) == COUNT


def test_scan_to_records(benchmark: Benchmark, batches: bytes) -> None:
    def source(offset: int, end_offset: int) -> Iterator[Buffer]:
        return iter([memoryview(batches)])

    def run() -> int:
        return sum(len(record.value or b"") for record in RecordIterator(source, 0, COUNT, "t", 0))

    assert benchmark(run) == COUNT * VALUE_SIZE


@pytest.mark.parametrize("columns", [["value"], None], ids=["value", "all"])
def test_scan_to_arrow(benchmark: Benchmark, batches: bytes, columns: list[str] | None) -> None:
    pytest.importorskip("pyarrow")
    assert sum(batch.num_rows for batch in benchmark(lambda: list(arrow.record_batches([batches], 0, COUNT, columns)))) == COUNT


@pytest.fixture(scope="module")
def plain(records: tuple[Keys, Values]) -> bytes:
    """As much as one batch of 16 KiB holds."""
    return b"".join(itertools.chain(*zip(*records, strict=True)))[: 16 << 10]


@pytest.mark.parametrize("codec", COMPRESSION_TYPES[1:])
def test_compress(benchmark: Benchmark, plain: bytes, codec: str) -> None:
    number = COMPRESSION_TYPES.index(codec)
    packed = benchmark(compression.compress, number, plain)
    assert bytes(compression.decompress(number, packed, len(plain))) == plain


@pytest.mark.parametrize("codec", COMPRESSION_TYPES[1:])
def test_decompress(benchmark: Benchmark, plain: bytes, codec: str) -> None:
    number = COMPRESSION_TYPES.index(codec)
    packed = compression.compress(number, plain)
    assert bytes(benchmark(compression.decompress, number, packed, len(plain))) == plain
