"""The producer on a real store: what was sent lies in the log, once, in order, and every future tells where."""

import logging
import os
import threading

import pytest

import logdb
from logdb import serde
from logdb.client.producer.producer import Producer
from logdb.codec import header
from logdb.errors import (
    BufferExhausted,
    Closed,
    CloseIncomplete,
    DeliveryTimeout,
    DiskFull,
    Forked,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTransactionState,
    RecordTooLarge,
    SerializationError,
    TransactionAborted,
    UnknownPartition,
    UnknownTopic,
    WriteFailed,
)
from logdb.model import ProducerIdAndEpoch, RecordMetadata
from logdb.requests.topic_changes import AlterTopic, CreateTopic, DeleteTopic
from logdb.store.store import Store
from support.clock import StillIO
from support.faulty_io import FaultyIO
from support.local_session import LocalSession

NOW = 1_700_000_000_000
FOREVER_MS = 60_000  # as a linger time that is never over in a test


class StoppedIO(FaultyIO):
    """Time goes on when the test says so."""

    def __init__(self):
        super().__init__()
        self.monotonic = 1_000

    def monotonic_ms(self):
        return self.monotonic


@pytest.fixture
def io():
    return FaultyIO()


@pytest.fixture
def store(tmp_path, io):
    store = Store.open(tmp_path / "db", io=io, clock=lambda: NOW)
    yield store
    io.heal()
    store.close()


@pytest.fixture
def session(store):
    store.submit(CreateTopic("t"))
    return LocalSession(store)


@pytest.fixture
def make(session, io):
    made = []

    def make(**options):
        options = {"io": io, "clock": lambda: NOW, "retry_backoff_ms": 1} | options
        made.append(Producer(session, **options))
        return made[-1]

    yield make
    io.heal()
    for producer in made:
        if producer._refusing != 2:
            producer._sender._failure = None
            producer.close()


def records(session, topic="t", partition=0):
    log = session.log(topic, partition)
    return list(log.read(log.start_offset))


def values(session, topic="t", partition=0):
    return [record.value for record in records(session, topic, partition)]


def headers_of(batches):
    found = []
    while batches:
        found.append(header(batches)[1])
        batches = batches[found[-1].size_bytes :]
    return found


def stamps(session):
    """(producer id, epoch, base sequence, records) of each batch, in the order in which they were produced."""
    return [
        (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.record_count)
        for _, _, batches in session.called("produce")
        for batch in headers_of(batches)
    ]


# ---------------------------------------------------------------- what was sent lies in the log


def test_futures_tell_where_the_records_lie(make, session):
    session.store.submit(CreateTopic("u", partitions=3))
    with make() as producer:
        futures = [producer.send("u", b"%d" % number, key=b"k%d" % (number % 7), timestamp_ms=NOW + number) for number in range(1000)]
        first = producer.send("t", None, b"k", headers=[("h", b"1")])
        assert first.result() == RecordMetadata("t", 0, 0, NOW)
    placed = [future.result(0) for future in futures]
    assert len({(metadata.partition, metadata.offset) for metadata in placed}) == 1000
    assert [metadata.timestamp_ms for metadata in placed] == list(range(NOW, NOW + 1000))
    for partition in range(3):
        read = {record.offset: (record.value, record.timestamp_ms) for record in records(session, "u", partition)}
        assert read == {
            metadata.offset: (b"%d" % number, metadata.timestamp_ms)
            for number, metadata in enumerate(placed)
            if metadata.partition == partition
        }
    assert [(record.key, record.value, record.headers) for record in records(session)] == [(b"k", None, (("h", b"1"),))]


def test_records_that_linger_are_written_together(make, session):
    producer = make(linger_ms=FOREVER_MS, delivery_timeout_ms=2 * FOREVER_MS)
    futures = [producer.send("t", b"%d" % number) for number in range(100)]
    assert not any(future.done() for future in futures) and not session.called("produce")
    producer.flush()
    assert [future.result(0).offset for future in futures] == list(range(100))
    assert len(session.called("produce")) == 1
    producer.flush()
    assert len(session.called("produce")) == 1


def test_linger_is_as_long_as_it_says(store, session):
    io = StoppedIO()
    with Producer(session, io=io, clock=lambda: NOW, linger_ms=7) as producer:
        future = producer.send("t", b"v")
        for _ in range(7):
            with pytest.raises(TimeoutError, match=r"no result after 0\.01 s"):
                future.result(0.01)
            io.monotonic += 1
        assert future.result(30).offset == 0


def test_a_full_batch_does_not_linger(make, session):
    producer = make(linger_ms=FOREVER_MS, delivery_timeout_ms=2 * FOREVER_MS, batch_size=1000)
    futures = [producer.send("t", bytes(400)) for _ in range(5)]
    assert futures[0].result(30).offset == 0
    assert futures[3].result(30).offset == 3
    assert not futures[4].done()


def test_batches_are_no_larger_than_asked_for(make, session):
    with make(batch_size=500) as producer:
        for _ in range(200):
            producer.send("t", bytes(100))
    batches = [batch for _, _, given in session.called("produce") for batch in headers_of(given)]
    assert sum(batch.record_count for batch in batches) == 200
    assert max(batch.size_bytes for batch in batches) <= 500
    assert all(len(headers_of(given)) <= 5 for _, _, given in session.called("produce"))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression(make, session, codec):
    with make(compression_type=codec) as producer:
        sent = [b"again and again %d" % (number % 10) for number in range(2000)]
        for value in sent:
            producer.send("t", value)
    assert values(session) == sent
    codecs = {batch.attributes & 7 for _, _, given in session.called("produce") for batch in headers_of(given)}
    assert codecs == {["none", "gzip", "snappy", "lz4", "zstd"].index(codec)}


def test_without_acks_futures_are_done_at_once(make, session):
    told = []
    producer = make(acks=0, linger_ms=FOREVER_MS, delivery_timeout_ms=2 * FOREVER_MS)
    future = producer.send("t", b"v", timestamp_ms=5, on_delivery=lambda *arguments: told.append(arguments))
    assert future.done() and future.result() == RecordMetadata("t", 0, -1, 5)
    producer.close()
    assert values(session) == [b"v"] and told == [(None, RecordMetadata("t", 0, -1, 5))]


def test_the_log_may_stamp_the_time(make, session):
    session.store.submit(CreateTopic("stamped", config={"message.timestamp.type": "LogAppendTime"}))
    with make() as producer:
        future = producer.send("stamped", b"v", timestamp_ms=5)
    assert future.result() == RecordMetadata("stamped", 0, 0, NOW)
    assert records(session, "stamped")[0].timestamp_ms == NOW


@pytest.mark.parametrize("level", ["os", "interval", "fsync"])
def test_a_future_is_done_when_the_level_is_reached(make, session, io, level):
    session.store.submit(CreateTopic(level, config={"durability": level, "flush.ms": 10**9}))
    with make() as producer:
        producer.send(level, b"the first, for which files are made").result(30)
        syncs = io.count("fdatasync", f"{level}-0/0")
        assert producer.send(level, b"v").result(30).offset == 1
        assert (io.count("fdatasync", f"{level}-0/0") > syncs) == (level == "fsync")
        assert len(values(session, level)) == 2


# ---------------------------------------------------------------- partitions and topics


def test_records_without_a_key_are_spread(make, session):
    session.store.submit(CreateTopic("u", partitions=4))
    with make(batch_size=1000) as producer:
        for _ in range(2000):
            producer.send("u", bytes(93))
    counts = [session.log("u", partition).end_offset for partition in range(4)]
    assert sum(counts) == 2000 and min(counts) > 300


def test_partitioners(make, session):
    session.store.submit(CreateTopic("u", partitions=3))
    with make(partitioner="round_robin") as producer:
        assert [producer.send("u", b"v", b"k").result(30).partition for _ in range(4)] == [0, 1, 2, 0]
    with make(partitioner=lambda key, count: count - 1 if key else 0) as producer:
        assert [producer.send("u", b"v", key).result(30).partition for key in (b"k", None)] == [2, 0]
        assert producer.send("u", b"v", b"k", partition=1).result(30).partition == 1
    with pytest.raises(ValueError, match="partitioner='nosuch'"):
        make(partitioner="nosuch")
    with make(partitioner=lambda key, count: count) as producer, pytest.raises(UnknownPartition):
        producer.send("u", b"v")


def test_the_first_record_of_a_partition_does_not_ask_for_the_topic_again(make, session, monkeypatch):
    session.store.submit(CreateTopic("u", partitions=20))
    with make() as producer:
        producer.send("u", b"v", partition=0)
        monkeypatch.setattr(session, "partition_count", None)
        assert [producer.send("u", b"v", partition=partition).result(30).offset for partition in range(1, 20)] == [0] * 19


def test_what_is_not_there_is_refused_at_once(make):
    with make() as producer:
        with pytest.raises(UnknownTopic, match="'nosuch'"):
            producer.send("nosuch", b"v")
        for partition in (-1, 1):
            with pytest.raises(UnknownPartition, match=f"no partition {partition}: it has 1"):
                producer.send("t", b"v", partition=partition)
        with pytest.raises(TypeError):
            producer.send("t", "text")


def test_a_topic_that_changes(make, session):
    with make() as producer:
        producer.send("t", b"v").result(30)
        session.store.submit(AlterTopic("t", partitions=2))
        assert producer.send("t", b"v", partition=1).result(30) == RecordMetadata("t", 1, 0, NOW), "it is asked for"
        session.store.submit(AlterTopic("t", partitions=3, config={"max.message.bytes": 200}))
        producer.refresh("t")
        assert {producer.send("t", b"v", b"%d" % number).result(30).partition for number in range(30)} == {0, 1, 2}
        with pytest.raises(RecordTooLarge):
            producer.send("t", bytes(200))
        producer.refresh("not sent to")


def test_a_topic_that_goes_and_comes_again(make, session):
    producer = make(linger_ms=FOREVER_MS, delivery_timeout_ms=2 * FOREVER_MS)
    lost = producer.send("t", b"lost")
    session.store.submit(DeleteTopic("t"))
    producer.refresh("t")
    with pytest.raises(UnknownTopic):
        producer.send("t", b"nowhere")
    with pytest.raises(UnknownTopic):
        producer.flush()
    assert isinstance(lost.exception(), UnknownTopic)
    session.store.submit(CreateTopic("t", partitions=2))
    future = producer.send("t", b"v", partition=1)
    producer.flush()
    assert future.result() == RecordMetadata("t", 1, 0, NOW)


def test_what_the_topic_does_not_take_is_refused_at_once(make, session):
    config = {"cleanup.policy": "compact", "max.message.bytes": 300, "message.timestamp.before.max.ms": 1000}
    session.store.submit(CreateTopic("kv", config=config))
    with make() as producer:
        with pytest.raises(InvalidRecord, match="kv is compacted: every record needs a key"):
            producer.send("kv", b"v")
        with pytest.raises(RecordTooLarge, match=r"are over max\.message\.bytes=300"):
            producer.send("kv", bytes(300), b"k")
        with pytest.raises(InvalidTimestamp, match=f"kv accepts \\[{NOW - 1000}, {NOW + 3_600_000}\\]"):
            producer.send("kv", b"v", b"k", timestamp_ms=NOW - 1001)
        producer.send("kv", b"v", b"k")
    assert values(session, "kv") == [b"v"]


# ---------------------------------------------------------------- serializers and interceptors


def test_serializers(make, session):
    with make(key_serializer=serde.string, value_serializer=serde.json) as producer:
        producer.send("t", {"n": 1}, "ann")
        producer.send("t", None, "ann")
        with pytest.raises(SerializationError, match="value of type set"):
            producer.send("t", {1, 2}, "ann")
        with pytest.raises(SerializationError, match="key of type int"):
            producer.send("t", [], 3)
    assert [(record.key, record.value) for record in records(session)] == [(b"ann", b'{"n":1}'), (b"ann", None)]


# ---------------------------------------------------------------- idempotence and retries


def drop_answers(session, *tries):
    """Let the numbered calls of produce reach the log, but their answers get lost."""
    real, numbers = session.submit_batches, iter(range(10**6))

    def submit_batches(request, batches):
        offsets = real(request, batches)
        if next(numbers) in tries:
            raise WriteFailed("the answer", "got lost")
        return offsets

    session.submit_batches = submit_batches


def test_sequences_count_the_records_of_a_partition(make, session):
    session.store.submit(CreateTopic("u", partitions=2))
    with make(batch_size=500, linger_ms=0) as producer:
        for number in range(300):
            producer.send("u", bytes(100), partition=number % 2)
            producer.send("t", bytes(50))
    assert len({stamp[:2] for stamp in stamps(session)}) == 1, "one producer id for all"
    for partition in (("t", 0), ("u", 0), ("u", 1)):
        expected = 0
        for topic, number, batches in session.called("produce"):
            for batch in headers_of(batches) if (topic, number) == partition else ():
                assert batch.base_sequence == expected
                expected += batch.record_count
        assert expected == {"t": 300, "u": 150}[partition[0]]
    assert len(session.called("init_producer_id")) == 1


def test_a_batch_whose_answer_got_lost_is_not_there_twice(make, session):
    drop_answers(session, 0, 1, 3)
    with make(batch_size=300) as producer:
        futures = [producer.send("t", b"%03d" % number * 30) for number in range(40)]
    assert values(session) == [b"%03d" % number * 30 for number in range(40)]
    assert [future.result().offset for future in futures] == list(range(40))
    sent = [batches for _, _, batches in session.called("produce")]
    assert sent[0] == sent[1] == sent[2] != sent[3] == sent[4]


def test_without_idempotence_it_is(make, session):
    drop_answers(session, 0)
    with make(enable_idempotence=False) as producer:
        future = producer.send("t", b"v")
    assert values(session) == [b"v", b"v"] and future.result().offset == 1
    assert {stamp[:3] for stamp in stamps(session)} == {(-1, -1, -1)} and not session.called("init_producer_id")


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("idempotent", [True, False])
def test_a_full_disk_delays_and_neither_loses_nor_doubles(make, session, io, idempotent, codec):
    with make(enable_idempotence=idempotent, compression_type=codec, batch_size=400) as producer:
        producer.send("t", b"before").result(30)
        io.fill_up()
        tries = io.count("pwrite", "t-0")
        futures = [producer.send("t", b"%03d" % number * 30) for number in range(50)]
        io.wait_for("pwrite", "t-0", more_than=tries + 3)
        assert not any(future.done() for future in futures)
        io.heal()
        producer.flush()
        assert [future.result(0).offset for future in futures] == list(range(1, 51))
    assert values(session) == [b"before"] + [b"%03d" % number * 30 for number in range(50)]


def test_a_full_disk_when_the_producer_id_is_wanted(make, session):
    failures = iter([DiskFull("ids", 1, "full")] * 3)

    def before(name):
        if name == "init_producer_id" and (error := next(failures, None)):
            raise error

    session.before = before
    with make() as producer:
        producer.send("t", b"v")
    assert values(session) == [b"v"] and len(session.called("init_producer_id")) == 4


def test_order_holds_with_many_threads_and_failures(make, session):
    session.store.submit(CreateTopic("u", partitions=3))
    tries = iter(range(10**6))

    def before(name):
        if name == "produce" and next(tries) % 3 == 1:
            raise WriteFailed("u", "now and then")

    session.before = before
    drop_answers(session, *range(0, 10**5, 4))
    with make(batch_size=300, linger_ms=0, retry_backoff_ms=0) as producer:

        def send(name):
            for number in range(500):
                producer.send("u", b"%d %d" % (name, number), key=b"%d" % name)

        threads = [threading.Thread(target=send, args=(name,)) for name in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    read = [value.split() for partition in range(3) for value in values(session, "u", partition)]
    for name in range(5):
        assert [int(number) for mine, number in read if int(mine) == name] == list(range(500))


def test_retries_may_be_few(make, session):
    session.before = lambda name: (_ for _ in ()).throw(WriteFailed("t", "always")) if name == "produce" else None
    producer = make(retries=2)
    future = producer.send("t", b"v")
    assert isinstance(future.exception(30), WriteFailed)
    with pytest.raises(WriteFailed, match="always"):
        producer.flush()
    assert len(session.called("produce")) == 3


def test_a_final_error_is_not_retried_and_what_follows_goes_on_under_a_new_id(make, session):
    failures = iter([InvalidRecord("no")])

    def before(name):
        if name == "produce" and (error := next(failures, None)):
            raise error

    session.before = before
    producer = make(linger_ms=0)
    bad = producer.send("t", b"bad")
    assert isinstance(bad.exception(30), InvalidRecord)
    good = producer.send("t", b"good")
    assert good.result(30).offset == 0
    with pytest.raises(InvalidRecord, match="no"):
        producer.close()
    assert [stamp[:3] for stamp in stamps(session)] == [(1000, 0, 0), (1001, 0, 0)]
    assert values(session) == [b"good"]


def test_an_unexpected_error_fails_the_record_and_not_the_producer(make, session):
    failures = iter([MemoryError("none left")])

    def before(name):
        if name == "produce" and (error := next(failures, None)):
            raise error

    session.before = before
    producer = make()
    assert isinstance(producer.send("t", b"v").exception(30), MemoryError)
    assert producer.send("t", b"w").result(30).offset == 0


# ---------------------------------------------------------------- deadlines


def test_delivery_timeout(session):
    io = StoppedIO()
    session.before = lambda name: (_ for _ in ()).throw(DiskFull("t-0", 10, "full")) if name == "produce" else None
    producer = Producer(session, io=io, clock=lambda: NOW, linger_ms=0, delivery_timeout_ms=500, retry_backoff_ms=1, batch_size=200)
    futures = [producer.send("t", bytes(100)) for _ in range(5)]
    io.monotonic += 499
    with pytest.raises(TimeoutError):
        futures[0].result(0.05)
    io.monotonic += 1
    for future in futures:
        with pytest.raises(DeliveryTimeout, match=r"[123] records for t-0 could not be written within delivery_timeout_ms=500"):
            future.result(30)
    assert isinstance(futures[0].exception().__cause__, DiskFull)
    with pytest.raises(DeliveryTimeout):
        producer.flush()
    session.before = lambda name: None
    assert producer.send("t", b"later").result(30).offset == 0
    producer.close()


def test_flush_gives_up_when_its_time_is_over(make, session):
    go = threading.Event()
    session.before = lambda name: name == "produce" and go.wait(30)
    producer = make()
    future = producer.send("t", b"v")
    with pytest.raises(TimeoutError, match="1 records wait to be written after timeout_ms=20"):
        producer.flush(timeout_ms=20)
    go.set()
    producer.flush()
    assert future.result(0).offset == 0


def test_close_gives_up_when_its_time_is_over_and_says_what_is_lost(make, session):
    tries = []
    session.before = lambda name: (tries.append(name), (_ for _ in ()).throw(DiskFull("t-0", 1, "full"))) if name == "produce" else None
    producer = make()
    futures = [producer.send("t", b"v") for _ in range(7)]
    with pytest.raises(CloseIncomplete, match="lost 7 records"):
        producer.close(timeout_ms=30)
    for future in futures:
        with pytest.raises(Closed, match="not written within timeout_ms=30"):
            future.result(30)
    assert tries
    producer._sender._thread.join(30)
    assert not producer._sender._thread.is_alive()


# ---------------------------------------------------------------- memory


def test_a_sender_that_is_too_fast_waits_and_then_is_told(make, session):
    go = threading.Event()
    session.before = lambda name: name == "produce" and go.wait(30)
    producer = make(buffer_memory=4000, batch_size=1000, max_block_ms=30)
    futures = []

    def send_on():
        while True:
            futures.append(producer.send("t", bytes(400)))

    with pytest.raises(BufferExhausted, match=r"buffer_memory=4000 within max_block_ms=30"):
        send_on()
    assert 4 <= len(futures) <= 8
    assert producer._sender._memory_used <= 4000
    go.set()
    producer.flush()
    assert [future.result(0).offset for future in futures] == list(range(len(futures)))
    assert producer.send("t", b"again").result(30).offset == len(futures)
    producer.flush()
    assert producer._sender._memory_used == 0


def test_a_sender_that_waits_goes_on_when_there_is_room(make, session):
    producer = make(buffer_memory=2000, batch_size=1000, linger_ms=0)
    sent = [b"%05d" % number * 100 for number in range(500)]
    for value in sent:
        producer.send("t", value)
        assert producer._sender._memory_used <= 2000
    producer.flush()
    assert values(session) == sent


def test_a_record_larger_than_all_memory_is_refused_at_once(make):
    producer = make(buffer_memory=2000, batch_size=1000, max_block_ms=FOREVER_MS)
    with pytest.raises(BufferExhausted, match=r"a record of .* bytes never fits into buffer_memory=2000") as caught:
        producer.send("t", bytes(3000))
    assert not caught.value.retriable


def test_a_callback_that_finds_no_room_does_not_wait_for_itself(make, session):
    told = []
    producer = make(buffer_memory=1000, batch_size=1000, max_block_ms=FOREVER_MS)

    def again(error, metadata):
        try:
            producer.send("t", b"again")
        except BufferExhausted as refused:
            told.append(refused)

    producer.send("t", b"v", on_delivery=again)
    producer.flush()
    assert len(told) == 1 and values(session) == [b"v"]


# ---------------------------------------------------------------- callbacks


def test_callbacks_run_on_the_senders_thread_before_flush_returns(make, session, caplog):
    producer, told = make(), []

    def bad(error, metadata):
        raise ZeroDivisionError("mine")

    with caplog.at_level(logging.ERROR, "logdb"):
        producer.send("t", b"v", on_delivery=bad)
        future = producer.send("t", b"w", on_delivery=lambda error, metadata: told.append((error, metadata, threading.current_thread())))
        future.add_done_callback(told.append)
        producer.flush()
    assert told == [(None, RecordMetadata("t", 0, 1, NOW), producer._sender._thread), future]
    assert producer._sender._thread is not threading.current_thread()
    assert [record.exc_info[0] for record in caplog.records] == [ZeroDivisionError]
    future.add_done_callback(told.append)
    assert told[-1] is future and len(told) == 3
    with caplog.at_level(logging.ERROR, "logdb"):
        future.add_done_callback(lambda done: bad(None, None))
    assert len(caplog.records) == 2


def test_callbacks_may_send_but_not_flush(make, session):
    producer, told = make(), []

    def chain(error, metadata):
        if metadata.offset < 5:
            producer.send("t", b"%d" % (metadata.offset + 1), on_delivery=chain)
        else:
            try:
                producer.flush()
            except RuntimeError as refused:
                told.append(str(refused))

    producer.send("t", b"0", on_delivery=chain)
    while not told:
        producer.flush()
    assert told == ["flush() was called by a callback of the producer, and would wait for itself"]
    assert values(session) == [b"%d" % number for number in range(6)]


def test_a_callback_may_close_its_producer(make, session):
    producer = make(linger_ms=0)
    future = producer.send("t", b"v", on_delivery=lambda *_: producer.close())
    future.result(30)
    producer._sender._thread.join(30)
    with pytest.raises(Closed):
        producer.send("t", b"w")
    assert values(session) == [b"v"]


# ---------------------------------------------------------------- the end


def test_close_writes_what_waits_and_refuses_the_rest(make, session):
    producer = make(linger_ms=FOREVER_MS, delivery_timeout_ms=2 * FOREVER_MS)
    future = producer.send("t", b"v")
    assert repr(producer) == "<Producer>"
    producer.close()
    producer.close()
    assert future.result(0).offset == 0 and repr(producer) == "<Producer closed>"
    assert not producer._sender._thread.is_alive()
    for call in (lambda: producer.send("t", b"w"), lambda: producer.send("nosuch", b"w"), producer.flush):
        with pytest.raises(Closed, match="the producer is closed"):
            call()
    make().close()


def test_who_waits_for_room_is_told_of_the_close(make, session):
    begun, go, told = threading.Event(), threading.Event(), []
    session.before = lambda name: name == "produce" and (begun.set(), go.wait(30))
    producer = make(buffer_memory=1000, batch_size=1000, max_block_ms=FOREVER_MS)

    def send():
        try:
            for _ in range(10):
                producer.send("t", bytes(800))
        except Closed as closed:
            told.append(closed)

    thread = threading.Thread(target=send)
    thread.start()
    assert begun.wait(30)
    closing = threading.Thread(target=producer.close)
    closing.start()
    thread.join(30)
    assert len(told) == 1
    go.set()
    closing.join(30)
    assert not closing.is_alive()


def test_an_error_in_the_block_is_not_hidden_by_one_of_the_close(make, session):
    session.before = lambda name: (_ for _ in ()).throw(InvalidRecord("no")) if name == "produce" else None

    def work(failing):
        with make() as producer:
            producer.send("t", b"v")
            if failing:
                raise KeyError

    with pytest.raises(KeyError):
        work(failing=True)
    with pytest.raises(InvalidRecord):
        work(failing=False)


def test_a_database_that_was_closed(make, session):
    producer = make()
    producer.send("t", b"v").result(30)
    session.store.close()
    future = producer.send("t", b"w")
    with pytest.raises(Closed, match="database"):
        future.result(30)
    with pytest.raises(Closed, match="database"):
        producer.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_is_refused_and_the_parent_goes_on(make, session):
    producer = make(linger_ms=FOREVER_MS, delivery_timeout_ms=2 * FOREVER_MS)
    future = producer.send("t", b"v")
    pid = os.fork()
    if pid == 0:
        try:
            for call in (lambda: producer.send("t", b"w"), lambda: producer.send("u", b"w"), producer.flush, future.result):
                with pytest.raises(Forked, match=str(os.getppid())):
                    call()
            producer.close()
        except BaseException:  # noqa: BLE001 -- a child must not go on with the tests
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    producer.flush()
    assert future.result(0).offset == 0 and values(session) == [b"v"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"acks": 2}, "acks=2: must be 0, 1 or 'all'"),
        ({"linger_ms": -1}, "linger_ms=-1: must be 0 to 60000"),
        ({"batch_size": 100}, "batch_size=100: must be 101 to 1048576"),
        ({"buffer_memory": 1000}, "buffer_memory=1000: must be 16384 to"),
        ({"delivery_timeout_ms": 4}, "delivery_timeout_ms=4: must be 5 to"),
        ({"max_block_ms": -1}, "max_block_ms=-1"),
        ({"retries": -1}, "retries=-1"),
        ({"compression_type": "brotli"}, "compression_type='brotli': must be none, gzip, snappy, lz4 or zstd"),
    ],
)
def test_options_are_checked(make, options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


# ---------------------------------------------------------------- what transactions need


def test_records_belong_to_a_transaction(make, session):
    producer = make(transactional_id="etl", enable_idempotence=False)
    with pytest.raises(InvalidTransactionState, match="'etl': no transaction has begun"):
        producer.send("t", b"v")
    for epoch in (0, 1):
        producer._begin_transaction(ProducerIdAndEpoch(7, epoch))
        for _ in range(3):
            producer.send("t", b"v")
        producer._finish_transaction()
        with pytest.raises(InvalidTransactionState):
            producer.send("t", b"v")
    assert [stamp[:3] for stamp in stamps(session)] == [(7, 0, 0), (7, 1, 0)]
    assert all(batch.attributes & 16 for _, _, batches in session.called("produce") for batch in headers_of(batches))
    assert not session.called("init_producer_id")


def test_a_commit_writes_what_waits_in_its_own_thread(make, session):
    producer, told = make(transactional_id="etl", linger_ms=FOREVER_MS, delivery_timeout_ms=2 * FOREVER_MS), []

    def delivered(error, metadata):
        told.append(threading.get_ident())
        with pytest.raises(RuntimeError, match="a commit was called by a callback"):
            producer._finish_transaction()

    producer._begin_transaction(ProducerIdAndEpoch(7, 0))
    producer.send("t", b"v", on_delivery=delivered)
    producer._finish_transaction()
    assert told == [threading.get_ident()]


def test_what_a_commit_could_not_write_at_once_is_tried_again_by_the_thread(make, session):
    writers = []

    def before(name):
        if name == "produce":
            writers.append(threading.get_ident())
            if len(writers) == 1:
                raise DiskFull("/data", 1, "no space")

    session.before = before
    producer = make(transactional_id="etl", linger_ms=FOREVER_MS, delivery_timeout_ms=2 * FOREVER_MS, retry_backoff_ms=0)
    producer._begin_transaction(ProducerIdAndEpoch(7, 0))
    producer.send("t", b"v")
    producer._finish_transaction()
    assert writers[0] == threading.get_ident() != writers[1]
    assert values(session) == [b"v"]


def test_a_commit_that_was_interrupted_leaves_the_rest_to_the_thread(make, session):
    interrupts = iter([KeyboardInterrupt()])

    def before(name):
        if name == "produce" and (interrupt := next(interrupts, None)):
            raise interrupt

    session.before = before
    producer = make(transactional_id="etl", linger_ms=FOREVER_MS, delivery_timeout_ms=2 * FOREVER_MS)
    producer._begin_transaction(ProducerIdAndEpoch(7, 0))
    producer.send("t", b"v")
    with pytest.raises(KeyboardInterrupt):
        producer._finish_transaction()
    producer._finish_transaction()
    assert values(session) == [b"v"]


def test_a_transaction_that_lost_a_record_cannot_be_finished(make, session):
    failures = iter([InvalidRecord("no")])

    def before(name):
        if name == "produce" and (error := next(failures, None)):
            raise error

    session.before = before
    producer = make(transactional_id="etl", linger_ms=0)
    producer._begin_transaction(ProducerIdAndEpoch(7, 0))
    assert isinstance(producer.send("t", b"bad").exception(30), InvalidRecord)
    later = producer.send("t", b"later")
    with pytest.raises(InvalidRecord):
        producer.flush()
    with pytest.raises(TransactionAborted, match="could not be written: no"):
        producer._finish_transaction()
    assert isinstance(later.exception(), TransactionAborted)
    producer._drop_transaction(TransactionAborted("the transaction was aborted"))
    producer._begin_transaction(ProducerIdAndEpoch(7, 1))
    assert producer.send("t", b"good").result(30).offset == 0
    producer._finish_transaction()
    assert [stamp[:3] for stamp in stamps(session)] == [(7, 0, 0), (7, 1, 0)]


def test_what_an_abort_finds_unwritten_is_dropped(make, session):
    producer = make(transactional_id="etl", linger_ms=FOREVER_MS, delivery_timeout_ms=2 * FOREVER_MS)
    producer._begin_transaction(ProducerIdAndEpoch(7, 0))
    future = producer.send("t", b"never")
    producer._drop_transaction(TransactionAborted("the transaction was aborted"))
    with pytest.raises(TransactionAborted, match="the transaction was aborted"):
        future.result(0)
    producer._begin_transaction(ProducerIdAndEpoch(7, 1))
    producer._finish_transaction()
    assert values(session) == []


# ---------------------------------------------------------------- the clock


def test_a_clock_that_goes_back_before_the_write_refuses_nothing(tmp_path):
    """A board that starts with a wrong clock, and gets the time from the network a moment later."""
    io, hour_ms = StillIO(), 3_600_000
    with logdb.open(tmp_path / "db", io=io, clock=io.clock_ms) as db:
        db.create_topic("t")
        with db.producer(linger_ms=60_000) as producer:
            sent_ms, future = io.now_ms, producer.send("t", b"v")
            io.now_ms -= hour_ms + 1
        assert future.result().offset == 0
        assert [record.timestamp_ms for record in db.log("t").read(0)] == [sent_ms]
        with pytest.raises(InvalidTimestamp):
            db.log("t").append(b"v", timestamp_ms=sent_ms + 1)
