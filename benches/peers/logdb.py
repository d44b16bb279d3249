"""Our side, through the public API alone, at its default settings unless an operation says otherwise.

Writes are at level `os`, because that is what the peers give: in the page cache when the timing ends.
"""

import contextlib
import itertools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from benches.peers import not_importable
from benches.peers._kill import open_after_kill, write_until_killed
from benches.workload import BATCH_COUNT, LARGE_BATCH_COUNT, Keys, Measure, Values, Work, Wrong, rate

if TYPE_CHECKING:
    from logdb import Log, Producer
    from logdb.model import ConfigValue, Durability

_READY_COUNT = 100
_READ_SIZE_BYTES = 1 << 20
_MEMORY_PARTITIONS = 1_000
_TRICKLE_COUNT = 40  # records a call: 5 KB
_IMPORT_COUNT = 11


def missing() -> str | None:
    return not_importable("logdb") or not_importable("kafka.record")


# ---------------------------------------------------------------- writing


@contextlib.contextmanager
def _log(
    work: Work, durability: "Durability" = "os", batch_size: int = 16_384, config: "Mapping[str, ConfigValue] | None" = None
) -> "Iterator[Log]":
    """The one partition of a new database; on leaving, everything appended is read back and counted."""
    import logdb

    with logdb.open(str(work.directory), durability=durability, batch_size=batch_size) as db:
        db.create_topic("t", config=config)
        log = db.log("t")
        yield log
        work.check(scan_records(log))


def append(work: Work) -> Measure:
    return _append(work, "os")


def append_interval(work: Work) -> Measure:
    """At the default level: a background thread calls fdatasync every second."""
    return _append(work, "interval")


def _append(work: Work, durability: "Durability") -> Measure:
    keys, values = work.records()
    with _log(work, durability) as log:
        began = work.start()
        put = log.append
        for key, value in zip(keys, values, strict=True):
            put(value, key)
        log.flush(sync=False)
        return rate(work.count, time.perf_counter() - began)


def append_4_threads(work: Work) -> Measure:
    with _log(work) as log:
        return _append_threads(work, log, 4)


def _append_threads(work: Work, log: "Log", thread_count: int) -> Measure:
    """Each thread appends its share of the records, one a call."""
    keys, values = work.records()
    share = -(-work.count // thread_count)
    go = threading.Barrier(thread_count + 1)

    def part(own_keys: Keys, own_values: Values) -> None:
        go.wait()
        put = log.append
        for key, value in zip(own_keys, own_values, strict=True):
            put(value, key)

    parts = [(keys[first : first + share], values[first : first + share]) for first in range(0, work.count, share)]
    threads = [threading.Thread(target=part, args=own) for own in parts]
    for thread in threads:
        thread.start()
    began = work.start()
    go.wait()
    for thread in threads:
        thread.join()
    log.flush(sync=False)
    return rate(work.count, time.perf_counter() - began)


def append_many(work: Work) -> Measure:
    with _log(work) as log:
        return _append_many(work, log)


def append_many_128k(work: Work) -> Measure:
    """With batches of 128 KiB instead of 16."""
    with _log(work, batch_size=128 << 10) as log:
        return _append_many(work, log)


def append_many_64k(work: Work) -> Measure:
    """In calls of 64,000 records."""
    with _log(work) as log:
        return _append_many(work, log, LARGE_BATCH_COUNT)


def append_many_durable(work: Work) -> Measure:
    """Each call returns after fdatasync."""
    with _log(work, "fsync") as log:
        return _append_many(work, log)


def _append_many(work: Work, log: "Log", batch_count: int = BATCH_COUNT) -> Measure:
    batches = list(work.batches(batch_count))
    began = work.start()
    for keys, values in batches:
        log.append_many(values, keys=keys)
    log.flush(sync=False)
    return rate(work.count, time.perf_counter() - began)


def append_durable(work: Work) -> Measure:
    """One thread, one record and one fdatasync a call."""
    with _log(work, "fsync") as log:
        return _append_threads(work, log, 1)


def append_durable_8_threads(work: Work) -> Measure:
    """Eight threads whose calls share fdatasyncs."""
    with _log(work, "fsync") as log:
        return _append_threads(work, log, 8)


# ---------------------------------------------------------------- the producer


def send(work: Work) -> Measure:
    """``producer.send`` with a callback a record, until all have been called."""
    return _send(work, called_back=True)


def send_alone(work: Work) -> Measure:
    """Without callbacks, and the futures dropped."""
    return _send(work, called_back=False)


def _send(work: Work, *, called_back: bool) -> Measure:
    import logdb

    keys, values = work.records()
    delivered = 0

    def delivery(error: Any, metadata: Any) -> None:
        nonlocal delivered
        delivered += error is None

    options = {"on_delivery": delivery} if called_back else {}
    with logdb.open(str(work.directory), durability="os") as db:
        db.create_topic("t", partitions=4)
        producer = db.producer()
        began = work.start()
        put = producer.send
        for key, value in zip(keys, values, strict=True):
            put("t", value, key, **options)
        producer.flush()
        seconds = time.perf_counter() - began
        if called_back and delivered != work.count:
            raise Wrong(f"{delivered} of {work.count} records were delivered")
        met = [scan_records(db.log("t", partition)) for partition in range(4)]
        work.check((sum(count for count, _ in met), sum(size_bytes for _, size_bytes in met)))
    return rate(work.count, seconds)


# ---------------------------------------------------------------- transactions, committed offsets

_TRANSACTION_COUNT = 10_000  # records each
_SMALL_TRANSACTION_COUNT = 10


def send_interval(work: Work) -> Measure:
    """At the default level, flushed each 10,000 records."""
    import logdb

    keys, values = work.records()
    with logdb.open(str(work.directory)) as db:
        db.create_topic("t")
        producer = db.producer()
        began = work.start()
        for first in range(0, work.count, _TRANSACTION_COUNT):
            for key, value in zip(keys[first : first + _TRANSACTION_COUNT], values[first : first + _TRANSACTION_COUNT], strict=True):
                producer.send("t", value, key)
            producer.flush()
        seconds = time.perf_counter() - began
        work.check(scan_records(db.log("t")))
    return rate(work.count, seconds)


def send_transactional(work: Work) -> Measure:
    """The same, each 10,000 records one transaction."""
    import logdb

    keys, values = work.records()
    with logdb.open(str(work.directory)) as db:
        db.create_topic("t")
        began = work.start()
        for first in range(0, work.count, _TRANSACTION_COUNT):
            with db.transaction("bench") as tx:
                for key, value in zip(keys[first : first + _TRANSACTION_COUNT], values[first : first + _TRANSACTION_COUNT], strict=True):
                    tx.send("t", value, key)
        seconds = time.perf_counter() - began
        work.check(scan_records(db.log("t")))
    return rate(work.count, seconds)


def transactions(work: Work) -> Measure:
    """Consume, transform, produce: ms for each transaction, of ten records and the offsets of what was read."""
    import logdb

    _, values = work.records()
    with logdb.open(str(work.directory)) as db:
        db.create_topic("in")
        db.create_topic("out")
        db.log("in").append_many(values)
        count = work.count // _SMALL_TRANSACTION_COUNT
        with db.consumer("in", group_id="g", auto_offset_reset="earliest") as consumer:
            began = work.start()
            for _ in range(count):
                with db.transaction("bench") as tx:
                    for records in consumer.poll(1_000, _SMALL_TRANSACTION_COUNT).values():
                        for record in records:
                            tx.send("out", record.value)
                    tx.send_offsets(consumer)
            seconds = time.perf_counter() - began
        size_bytes = sum(len(record.value or b"") for record in db.log("out").read(0, isolation_level="read_committed"))
        work.check((count * _SMALL_TRANSACTION_COUNT, size_bytes), count * _SMALL_TRANSACTION_COUNT)
    return Measure(seconds / count * 1e3, "ms", f"{count / seconds:.0f} a second")


def transactions_4_threads(work: Work) -> Measure:
    """The same by four workers, each with an id, a group and a partition of its own: ms for each transaction of all of them."""
    import logdb

    _, values = work.records()
    count = work.count // _SMALL_TRANSACTION_COUNT // 4
    with logdb.open(str(work.directory)) as db:
        for topic in ("in", "out"):
            db.create_topic(topic, partitions=4)
        for partition in range(4):
            db.log("in", partition).append_many(values[: count * _SMALL_TRANSACTION_COUNT])
        go = threading.Barrier(5)

        def worker(partition: int) -> None:
            with db.consumer(group_id=f"g{partition}", auto_offset_reset="earliest") as consumer:
                consumer.assign([("in", partition)])
                go.wait()
                for _ in range(count):
                    with db.transaction(f"bench-{partition}") as tx:
                        for records in consumer.poll(1_000, _SMALL_TRANSACTION_COUNT).values():
                            for record in records:
                                tx.send("out", record.value, partition=partition)
                        tx.send_offsets(consumer)

        threads = [threading.Thread(target=worker, args=(partition,)) for partition in range(4)]
        for thread in threads:
            thread.start()
        began = work.start()
        go.wait()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - began
        met = sum(len(list(db.log("out", partition).read(0, isolation_level="read_committed"))) for partition in range(4))
        if met != 4 * count * _SMALL_TRANSACTION_COUNT:
            raise Wrong(f"{met} records came out of {4 * count} transactions of {_SMALL_TRANSACTION_COUNT}")
    return Measure(seconds / (4 * count) * 1e3, "ms", f"{4 * count / seconds:.0f} a second")


def offset_commits(work: Work) -> Measure:
    """What one member of a group takes for a commit, ms."""
    import logdb

    with logdb.open(str(work.directory)) as db:
        db.create_topic("t")
        db.log("t").append_many([b""] * work.count)
        with db.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.poll(1_000, 1)
            began = work.start()
            for offset in range(work.count):
                consumer.seek(("t", 0), offset)
                consumer.commit()
            seconds = time.perf_counter() - began
            found = consumer.committed(("t", 0))
            if found is None or found.offset != work.count - 1:
                raise Wrong(f"committed is {found}, not {work.count - 1}")
    return Measure(seconds / work.count * 1e3, "ms", f"{work.count / seconds:.0f} a second")


# ---------------------------------------------------------------- ready-made batches


def ready_batches(work: Work) -> list[bytes]:
    """Batches of BATCH_COUNT records, as a door would get them: built by another maker."""
    from kafka.record.default_records import DefaultRecordBatchBuilder as Builder  # type: ignore[import-untyped]  # no stubs

    ready = []
    for keys, values in itertools.islice(work.batches(), _READY_COUNT):
        builder = Builder(2, 0, False, -1, -1, -1, 1 << 30)
        for number, (key, value) in enumerate(zip(keys, values, strict=True)):
            builder.append(number, 1_700_000_000_000 + number, key, value, [])
        ready.append(bytes(builder.build()))
    return ready


def append_ready(work: Work) -> Measure:
    """What a door does: batches of other makers are checked, placed and written."""
    ready = ready_batches(work)
    with _log(work, config={"max.message.bytes": 4 << 20}) as log:  # a batch of 1,000 records of 1 KiB is over the default
        began = work.start()
        for number in range(work.count // BATCH_COUNT):
            log.append_batches(ready[number % len(ready)])
        log.flush(sync=False)
        return rate(work.count, time.perf_counter() - began)


def read_batches(work: Work) -> Measure:
    """What a door does: batches are checked and handed out as they lie."""
    import logdb

    append_ready(work)
    with logdb.open(str(work.directory), mode="r") as db:
        log = db.log("t")

        def one() -> tuple[int, int]:
            offset = size_bytes = 0
            while offset < work.count:
                view, offset = log.read_batches(offset, size_bytes_max=_READ_SIZE_BYTES)
                size_bytes += len(view)
            if size_bytes != log.size_bytes:
                raise Wrong(f"{size_bytes} bytes of batches were read, the log has {log.size_bytes}")
            return offset, offset * work.value_size

        return work.passes(one)


# ---------------------------------------------------------------- reading


@contextlib.contextmanager
def _filled(work: Work, compression: str = "producer") -> "Iterator[Log]":
    """A log with all records, opened anew by a reader."""
    import logdb

    fill(work, str(work.directory), compression)
    with logdb.open(str(work.directory), mode="r") as db:
        yield db.log("t")


def fill(work: Work, path: str, compression: str = "producer") -> None:
    """Make a database with all records in its one partition."""
    import logdb

    with logdb.open(path, durability="os") as db:
        db.create_topic("t", config={"compression.type": compression})
        for keys, values in work.batches():
            db.log("t").append_many(values, keys=keys)


def scan_records(log: "Log") -> tuple[int, int]:
    count = size_bytes = 0
    records: Iterator[Any] = log.read(0)  # no value is None here
    for record in records:
        size_bytes += len(record.value)
        count += 1
    return count, size_bytes


def _scan_all(log: "Log") -> tuple[int, int]:
    count = size_bytes = 0
    records: Iterator[Any] = log.read(0)
    for record in records:
        record.offset, record.timestamp_ms, record.key  # noqa: B018  # looking at them is the work
        size_bytes += len(record.value)
        count += 1
    return count, size_bytes


def scan_values(work: Work) -> Measure:
    with _filled(work) as log:
        return work.passes(lambda: scan_records(log))


def scan_values_zstd(work: Work) -> Measure:
    with _filled(work, "zstd") as log:
        return work.passes(lambda: scan_records(log))


def scan_all(work: Work) -> Measure:
    """Offset, timestamp, key and value of each record."""
    with _filled(work) as log:
        return work.passes(lambda: _scan_all(log))


@contextlib.contextmanager
def _group(work: Work) -> "Iterator[Callable[[], Any]]":
    """Makes consumers of a log with all records, each the only member of a group of its own."""
    import logdb

    with _filled(work):
        pass
    numbers = itertools.count()
    with logdb.open(str(work.directory), durability="os") as db:
        yield lambda: db.consumer("t", group_id=f"g{next(numbers)}", auto_offset_reset="earliest", iteration_timeout_ms=0)


def group_consume(work: Work) -> Measure:
    """Joins, polls until nothing is left, commits and leaves."""
    with _group(work) as join:

        def one() -> tuple[int, int]:
            count = size_bytes = 0
            with join() as consumer:
                while taken := consumer.poll():
                    for records in taken.values():
                        for record in records:
                            size_bytes += len(record.value)
                        count += len(records)
                consumer.commit()
            return count, size_bytes

        return work.passes(one)


def group_iterate(work: Work) -> Measure:
    """The same by iterating over the consumer."""
    with _group(work) as join:

        def one() -> tuple[int, int]:
            count = size_bytes = 0
            with join() as consumer:
                for record in consumer:
                    size_bytes += len(record.value)
                    count += 1
                consumer.commit()
            return count, size_bytes

        return work.passes(one)


def _arrow(work: Work, columns: list[str] | None, compression: str = "producer") -> Measure:
    with _filled(work, compression) as log:
        return work.passes(lambda: scan_arrow(log, columns))


def scan_arrow(log: "Log", columns: list[str] | None) -> tuple[int, int]:
    import pyarrow.compute as pc

    count = size_bytes = 0
    for batch in log.read_arrow(0, columns=columns):
        count += batch.num_rows
        size_bytes += pc.sum(pc.binary_length(batch.column("value"))).as_py()
    return count, size_bytes


def arrow_value(work: Work) -> Measure:
    return _arrow(work, ["value"])


def arrow_value_zstd(work: Work) -> Measure:
    return _arrow(work, ["value"], "zstd")


def arrow_all(work: Work) -> Measure:
    """All five columns."""
    return _arrow(work, None)


def _get(work: Work, log: "Log", offsets: list[int]) -> Measure:
    size_bytes = 0
    began = work.start()
    read: Callable[[int], Iterator[Any]] = log.read
    for offset in offsets:
        size_bytes += len(next(read(offset)).value)
    seconds = time.perf_counter() - began
    work.check((len(offsets), size_bytes), len(offsets))
    return rate(len(offsets), seconds)


def get(work: Work) -> Measure:
    """Single records at random, from batches that were read before."""
    with _filled(work) as log:
        for offset in range(0, work.count, 10):
            next(log.read(offset))
        return _get(work, log, work.random_offsets())


def get_sparse(work: Work) -> Measure:
    """Single records, each from a batch that was not read before."""
    with _filled(work) as log:
        return _get(work, log, work.sparse_offsets())


_TABLE_KEY_COUNT, _TABLE_PART_COUNT = 10_000, 1_000_000


def table(work: Work) -> Measure:
    """The first access of a table of 10,000 keys: it reads the whole topic."""
    import logdb

    part = Work(work.directory, min(work.count, _TABLE_PART_COUNT), work.value_size)
    _, values = part.records()
    keys = [b"key-%012d" % (number * 7_919 % _TABLE_KEY_COUNT) for number in range(len(values))]
    with _log(work) as log:
        for written in range(0, work.count, len(values)):
            for first in range(0, min(len(values), work.count - written), BATCH_COUNT):
                log.append_many(values[first : first + BATCH_COUNT], keys[first : first + BATCH_COUNT])
    with logdb.open(str(work.directory)) as db:
        began = work.start()
        found = len(db.table("t"))
        seconds = time.perf_counter() - began
    if found != _TABLE_KEY_COUNT:
        raise Wrong(f"{found} keys instead of {_TABLE_KEY_COUNT}")
    return rate(work.count, seconds)


# ---------------------------------------------------------------- opening, memory, import


def write(work: Work) -> NoReturn:
    """Append batches at the default level until killed."""
    import logdb

    db = logdb.open(str(work.directory))
    db.create_topic("t")

    def batch(keys: Keys, values: Values) -> None:
        db.log("t").append_many(values, keys=keys)

    write_until_killed(work, batch)


def recover(work: Work) -> Measure:
    """Open after the writer's kill -9 and find where the log ends, which recovers the partition."""
    import logdb

    return open_after_kill(work, "logdb", lambda: logdb.open(str(work.directory)).log("t").end_offset)


def compact(work: Work) -> Measure:
    """A third of the records, the latest of each key, stay; the last segment is sealed on the way."""
    import logdb

    keys, values = work.records()
    with logdb.open(str(work.directory), durability="os") as db:
        db.create_topic("t", config={"cleanup.policy": "compact", "segment.bytes": 64 << 20})
        log = db.log("t")
        for at in range(0, work.count, BATCH_COUNT):
            log.append_many(values[at : at + BATCH_COUNT], keys[at : at + BATCH_COUNT])
        log.flush()
        began = work.start()
        db.compact("t")
        seconds = time.perf_counter() - began
        met = scan_records(log)
        work.check(met, len(set(keys)))
        return rate(work.count, seconds)


def snapshot(work: Work) -> Measure:
    """A closed segment for each 1,000 records; a thread appends up to 100,000 records a second to another topic meanwhile."""
    import logdb

    keys, values = work.records()
    target, stop = work.directory / "snapshot", threading.Event()
    with logdb.open(str(work.directory / "db"), durability="os") as db:
        db.create_topic("t", config={"segment.bytes": 1000 * (work.value_size + 16)})
        for at in range(0, work.count, BATCH_COUNT):
            db.log("t").append_many(values[at : at + BATCH_COUNT], keys[at : at + BATCH_COUNT])
        db.create_topic("load")
    with logdb.open(str(work.directory / "db"), durability="os") as db:
        load = db.log("load")

        def append() -> None:
            while not stop.wait(0.001):
                load.append_many(values[:100], keys[:100])

        writer = threading.Thread(target=append)
        writer.start()
        began = work.start()
        db.snapshot(target)
        seconds = time.perf_counter() - began
        stop.set()
        writer.join()
    with logdb.open(str(target), mode="r") as frozen:
        segment_count = frozen.describe_topic("t").partitions[0].segment_count
        work.check(scan_records(frozen.log("t")))
        return Measure(seconds * 1e3, "ms", f"{segment_count} segments")


def memory(work: Work) -> Measure:
    """Resident memory of the process with 1,000 partitions open, each written and read."""
    import logdb

    with logdb.open(str(work.directory)) as db:
        before = _resident_bytes()
        db.create_topic("t", partitions=_MEMORY_PARTITIONS)
        logs = [db.log("t", partition) for partition in range(_MEMORY_PARTITIONS)]
        for log in logs:
            log.append(bytes(work.value_size))
        for log in logs:
            work.check((log.end_offset, len(next(log.read(0)).value or b"")), 1)
        return Measure(_resident_bytes() / 1e6, "MB", f"{before / 1e6:.0f} MB before they were created")


# ---------------------------------------------------------------- many partitions

_LEVELS: tuple["Durability", ...] = ("os", "interval", "fsync")
_PARTITION_COUNTS = (100, 1_000, 10_000)
_FLUSHED_COUNT = 100  # sends, each to another partition, between two flushes of a producer


@contextlib.contextmanager
def _partitions(work: Work, level: "Durability", count: int) -> "Iterator[tuple[Producer, list[Log]]]":
    """A producer and all logs, to each of which it has sent a record; on leaving, all records are counted."""
    import logdb

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # as `logdb serve` does
    with logdb.open(str(work.directory), durability=level) as db, db.producer() as producer:
        db.create_topic("t", partitions=count)
        logs = [db.log("t", partition) for partition in range(count)]
        for partition in range(count):  # the first record of a log, and of a producer, writes more
            producer.send("t", b"first", partition=partition)
        producer.flush()
        yield producer, logs
        if (met := sum(log.end_offset for log in logs) - count) != work.count:
            raise Wrong(f"{met} records are there, {work.count} were appended")


def _append_over(level: "Durability", partition_count: int, work: Work) -> Measure:
    """A call of one record, written, and durable at level fsync, to each partition in turn."""
    keys, values = work.records()
    with _partitions(work, level, partition_count) as (_, logs):
        turn = itertools.cycle([log.append_many for log in logs])
        began = work.start()
        for key, value in zip(keys, values, strict=True):
            next(turn)([value], [key])
        return rate(work.count, time.perf_counter() - began)


def _produce_over(level: "Durability", partition_count: int, work: Work) -> Measure:
    """``producer.send`` to each partition in turn; every 100 are flushed, so a batch has one record however many there are."""
    keys, values = work.records()
    with _partitions(work, level, partition_count) as (producer, _):
        turn = itertools.cycle(range(partition_count))
        began = work.start()
        for number, (key, value) in enumerate(zip(keys, values, strict=True), 1):
            producer.send("t", value, key, partition=next(turn))
            if not number % _FLUSHED_COUNT:
                producer.flush()
        producer.flush()
        return rate(work.count, time.perf_counter() - began)


_UNSYNCED_S = 6.0


def _oldest_unsynced(partition_count: int, work: Work) -> Measure:
    """How old the oldest record is that no sync has covered, at worst, while all partitions at level interval get records in turn."""
    import logdb

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with logdb.open(str(work.directory), durability="interval") as db:
        db.create_topic("t", partitions=partition_count)
        logs, worst_ms, until = [db.log("t", partition) for partition in range(partition_count)], 0, 0.0
        while not until or time.monotonic() < until:
            for log in logs:
                log.append_many([bytes(100)])
            now_ms = time.monotonic_ns() // 1_000_000
            if until:  # the first record of a log writes more
                worst_ms = max([worst_ms, *(now_ms - since for log in logs if (since := log.syncs.unsynced_since_ms))])
            until = until or time.monotonic() + _UNSYNCED_S
        return Measure(worst_ms, "ms", f"flush.ms is {logs[0].config.flush_ms}")


def _disk(level: "Durability", work: Work) -> Measure:
    """What the disk holds of an open database with 1,000 partitions, each with ten small calls, as ``du`` counts it."""
    import logdb

    with logdb.open(str(work.directory), durability=level) as db:
        db.create_topic("t", partitions=_MEMORY_PARTITIONS)
        for _ in range(10):
            for partition in range(_MEMORY_PARTITIONS):
                db.log("t", partition).append_many([bytes(work.value_size)])
        db.flush()
        names = [name for place, _, files in os.walk(work.directory) for name in (place, *(os.path.join(place, file) for file in files))]
        return Measure(sum(os.stat(name).st_blocks * 512 for name in names) / 1e6, "MB", f"{len(names)} files and directories")


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


# ---------------------------------------------------------------- what reaches the disk


def _wear(level: "Durability", calls_per_second: int, segment_size_bytes: int, work: Work) -> Measure:
    """Bytes written to the disk for each byte that the log grows, by ``/proc/self/io``.

    Args:
        calls_per_second: Of 40 records; 0: 1,000 records a call, as fast as it goes.
        segment_size_bytes: How large the active segment is when it begins.
    """
    import logdb

    path = str(work.directory / "db")
    with logdb.open(path, durability="os") as db:
        db.create_topic("t", config={"segment.bytes": 2**31 - 1})
        log, piece = db.log("t"), [bytes(1_000)] * 10_000
        while log.size_bytes < segment_size_bytes:
            log.append_many(piece)
    batches = list(work.batches(_TRICKLE_COUNT if calls_per_second else BATCH_COUNT))
    with logdb.open(path, durability=level) as db:
        log = db.log("t")
        log.append_many([b"first"])
        log.flush()
        began_s, log_bytes, end_offset = work.start(), log.size_bytes, log.end_offset
        began_bytes = _written_bytes()
        for number, (keys, values) in enumerate(batches):
            log.append_many(values, keys=keys)
            if calls_per_second:
                time.sleep(max(0.0, began_s + (number + 1) / calls_per_second - time.perf_counter()))
        log.flush()
        written, grown = _written_bytes() - began_bytes, log.size_bytes - log_bytes
        if log.end_offset - end_offset != work.count:
            raise Wrong(f"the log grew by {log.end_offset - end_offset} records instead of {work.count}")
        return Measure(written / grown, "B/B", f"{written / work.count:.0f} B for a record of {grown / work.count:.0f} B in the log")


def _written_bytes() -> int:
    """What this process has had written to disks: each page that became dirty, once until it was written."""
    with open("/proc/self/io") as file:
        return int(file.read().partition("write_bytes: ")[2].split()[0])


def import_(work: Work) -> Measure:
    """What `import logdb` adds to a process: the median of 11 pairs, with it and without.  Compiled files may be kept."""
    return _added({name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"})


def import_uncompiled(work: Work) -> Measure:
    """The same where no compiled files are found, nor kept."""
    with tempfile.TemporaryDirectory() as empty:
        return _added({**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": empty})


def _added(env: dict[str, str]) -> Measure:
    def seconds(program: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], env=env, check=True)
        return time.perf_counter() - began

    seconds("import logdb")  # what may be kept is
    pairs = [(seconds("pass"), seconds("import logdb")) for _ in range(_IMPORT_COUNT)]
    return Measure(statistics.median(ours - bare for bare, ours in pairs) * 1e3, "ms")


_ALL: tuple[Callable[[Work], Measure], ...] = (
    append,
    append_interval,
    append_4_threads,
    append_many,
    append_many_128k,
    append_many_64k,
    append_many_durable,
    append_durable,
    append_durable_8_threads,
    send,
    send_alone,
    send_interval,
    send_transactional,
    transactions,
    transactions_4_threads,
    offset_commits,
    append_ready,
    read_batches,
    scan_values,
    scan_values_zstd,
    scan_all,
    group_consume,
    group_iterate,
    arrow_value,
    arrow_value_zstd,
    arrow_all,
    get,
    get_sparse,
    table,
    write,
    recover,
    compact,
    snapshot,
    memory,
    import_,
    import_uncompiled,
)
OPERATIONS: dict[str, Callable[[Work], Measure]] = {operation.__name__: operation for operation in _ALL}
OPERATIONS |= {
    f"wear_{level}_{calls_per_second}_{size}": partial(_wear, level, calls_per_second, size_bytes)
    for level in ("interval", "fsync")
    for calls_per_second in (0, 10, 1)
    for size, size_bytes in (("small", 0), ("large", 900 << 20))
}
OPERATIONS |= {
    f"{name}_{level}_{count}": partial(operation, level, count)
    for name, operation in (("append", _append_over), ("produce", _produce_over))
    for level in _LEVELS
    for count in _PARTITION_COUNTS
}
OPERATIONS |= {f"disk_{level}": partial(_disk, level) for level in _LEVELS}
OPERATIONS |= {f"unsynced_{count}": partial(_oldest_unsynced, count) for count in _PARTITION_COUNTS}
