"""The Kafka door, asked frame by frame: what each API answers, and what bad input gets."""

import asyncio
import itertools
import socket
import struct
import threading
import time

import pytest

import logdb
import logdb.testing
from logdb.access.access_control import AccessControl
from logdb.codec import compression
from logdb.codec.batch import HEADER_SIZE_BYTES as HEADER_BYTES
from logdb.codec.batch import seal
from logdb_kafka_api import frames
from logdb_kafka_api.apis import APIS
from logdb_kafka_api.door import KafkaDoor
from logdb_kafka_api.errors import Code
from logdb_kafka_api.handlers import group_offsets
from support.batches import Rec, encode_batch
from support.kafka_wire import BY_ID, Wire, fetch, frame, produce

METRICS_OF_CLIENTS = {71, 72}
BATCH = encode_batch([Rec(b"k", b"v"), Rec(None, b"w")])
LARGE = encode_batch([Rec(None, bytes(250_000))])


numbers = itertools.count()


@pytest.fixture(scope="module")
def broker():
    with logdb.testing.broker(header_timeout_ms=1500, body_timeout_ms=1500, connections_per_address_max=60, connections_max=80) as running:
        yield running


@pytest.fixture
def topic(broker, request):
    name = f"{request.node.originalname}-{next(numbers)}"
    broker.database.create_topic(name)
    yield name
    broker.database.delete_topic(name)


@pytest.fixture
def wire(broker):
    with Wire(broker.bootstrap_servers) as one:
        yield one


# ---------------------------------------------------------------- versions


@pytest.mark.parametrize("version", APIS[18].request.versions)
def test_what_is_advertised_is_what_is_handled(wire, version):
    answer = wire.ask("ApiVersions", version, client_software_name="test", client_software_version="1")
    assert answer["error_code"] == Code.NONE
    assert {one["api_key"]: (one["min_version"], one["max_version"]) for one in answer["api_keys"]} == {
        key: (APIS[key].request.versions[0], APIS[key].request.versions[-1]) for key in APIS.keys() - METRICS_OF_CLIENTS
    }


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(wire):
    wire.socket.sendall(struct.pack(">ihhihbb", 12, 18, 99, 7, 0, 0, 0))
    assert wire.receive() == struct.pack(">ihihhh", 7, Code.UNSUPPORTED_VERSION, 1, 18, 0, 4)
    assert wire.ask("ApiVersions", 0)["error_code"] == Code.NONE


@pytest.mark.parametrize(("key", "version"), [(3, 99), (1, 3), (69, 1), (9999, 0), (-1, 0), (0, 99)])
def test_an_unknown_api_or_version_closes_the_connection(wire, key, version, caplog):
    caplog.set_level("INFO", "logdb_kafka_api")
    wire.socket.sendall(struct.pack(">ihhih", 10, key, version, 7, -1))
    assert wire.is_closed()
    assert f"API {key} in version {version}" in caplog.text


def test_the_first_client_that_is_too_old_is_told_of(caplog):
    with logdb.testing.broker() as running:
        for key in (1, 1, 9999):
            with Wire(running.bootstrap_servers) as old:
                old.socket.sendall(struct.pack(">ihhih", 10, key, 3, 7, -1))
                assert old.is_closed()
    warned = [record.getMessage() for record in caplog.records]
    assert warned == ["127.0.0.1: unsupported: API 1 in version 3; Fetch has 4 to 17; the connection is closed"]


def asked_for(wire, *names, allow=True):
    """The topics' codes in an answer to Metadata."""
    wanted = [{"topic_id": bytes(16), "name": name} for name in names]
    answer = wire.ask("Metadata", 12, topics=wanted, allow_auto_topic_creation=allow)
    return [topic["error_code"] for topic in answer["topics"]]


def test_a_topic_that_clients_wait_for_is_logged_once_with_the_option_that_creates_it(caplog):
    with logdb.testing.broker(auto_create_topics=False) as running, Wire(running.bootstrap_servers) as wire:
        for _ in range(3):
            assert asked_for(wire, "orders", "__consumer_offsets") == [3, 3]
        asked_for(wire, "other", allow=False)
        asked_for(wire, "bad\x1b[2J\n")
        asked_for(wire, *(f"t{number}" for number in range(150)))
        asked_for(wire, "later")
    lines = [record.getMessage() for record in caplog.records]
    waits = "a client waits for the topic {0}, which does not exist: create it ('logdb topics create {0}')"
    assert lines[:2] == [waits.format("orders") + ", or serve with --auto-create-topics", waits.format("other")]
    assert len(lines) == 101
    assert lines[-1] == "clients ask for more than 100 topics that do not exist; further names are not logged"


# ---------------------------------------------------------------- frames


@pytest.mark.parametrize("size", [2**31 - 1, -1, 0, 1, -(2**31), (100 << 20) + 1])
def test_a_frame_of_a_hostile_size_closes_the_connection(wire, size):
    wire.socket.sendall(struct.pack(">ih", size, 0))
    assert wire.is_closed()


def test_a_large_frame_is_for_records_alone(wire):
    wire.socket.sendall(struct.pack(">ih", (1 << 20) + 1, 3))
    assert wire.is_closed()


def test_frames_come_in_any_pieces(wire, topic):
    data = frame("Produce", 9, 1, acks=-1, timeout_ms=1, topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": BATCH}]}])
    for byte in data + frame("ApiVersions", 0, 2):
        wire.socket.sendall(bytes((byte,)))
    assert wire.answer("Produce", 9, 1)["responses"][0]["partition_responses"][0]["base_offset"] == 0
    assert wire.answer("ApiVersions", 0, 2)["error_code"] == Code.NONE


def test_answers_come_in_the_order_of_the_requests(wire, topic):
    ids = []
    for _ in range(200):
        ids.append(("Metadata", wire.send("Metadata", 9, topics=[{"name": topic}])))
        ids.append(("ApiVersions", wire.send("ApiVersions", 3)))
    for name, correlation_id in ids:
        wire.answer(name, {"Metadata": 9, "ApiVersions": 3}[name], correlation_id)


@pytest.mark.parametrize("cut", [1, 5, 9, 40])
def test_a_frame_that_breaks_off_ends_its_connection_alone(broker, wire, topic, cut):
    data = frame("Produce", 9, 1, acks=-1, timeout_ms=1, topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": BATCH}]}])
    wire.socket.sendall(data[:cut])
    wire.socket.shutdown(socket.SHUT_WR)
    assert wire.is_closed()
    with Wire(broker.bootstrap_servers) as other:
        assert fetch(other, topic=topic)["high_watermark"] == 0


@pytest.mark.parametrize("begun", [b"", b"\0", b"\0\0\x10\0", b"\0\0\x10\0\0\0\0\x09"])
def test_a_silent_connection_is_closed(wire, begun):
    wire.socket.sendall(begun)
    began_s = time.monotonic()
    assert wire.is_closed()
    assert time.monotonic() - began_s < 5


def test_a_frame_that_stops_coming_behind_a_long_poll_closes_the_connection(wire, topic):
    poll = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    wire.send("Fetch", 12, max_wait_ms=60_000, min_bytes=1, topics=[{"topic": topic, "partitions": [poll]}])
    wire.socket.sendall(b"\0\0\x10\0\0\0\0\x09")
    began_s = time.monotonic()
    assert wire.is_closed()
    assert time.monotonic() - began_s < 5


def test_an_idle_door_wakes_for_nothing_but_the_end_of_its_connections(tmp_path):
    """In a long while there is one timer: the one that would close the idle connection."""

    async def run():
        with logdb.open(tmp_path / "db") as db:
            access = AccessControl(db._session)
            door = KafkaDoor(access, "127.0.0.1:0")
            (address,) = await door.open()
            timers = lambda: [one for one in asyncio.get_running_loop()._scheduled if not one.cancelled()]
            assert timers() == []
            wire = await asyncio.to_thread(Wire, address)
            await asyncio.to_thread(wire.ask, "ApiVersions", 0)
            assert timers() == [door._sweeping]
            door._sweeping.cancel()
            door._sweep()  # as the timer would
            assert [one.when() - time.monotonic() > 500 for one in timers()] == [True]
            wire.socket.close()
            while door.connections:
                await asyncio.sleep(0.01)
            door._sweeping.cancel()
            door._sweep()
            assert timers() == []
            await door.drain(1_000)
            access.close()

    asyncio.run(run())


def test_an_address_has_only_so_many_connections(broker):
    wires = [Wire(broker.bootstrap_servers) for _ in range(70)]
    assert sum(one.is_closed() for one in wires[60:]) == 10
    for one in wires:
        one.socket.close()


def test_a_large_request_of_little_memory_does_not_wait_for_more(broker, topic):
    """Each connection takes what it was promised only once that has come."""
    with logdb.testing.broker(memory_bytes_max=1 << 20) as small:
        small.database.create_topic("t")
        wires = [Wire(small.bootstrap_servers) for _ in range(8)]
        threads = [threading.Thread(target=lambda one=one: [produce(one, LARGE) for _ in range(5)]) for one in wires]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert small.database.log("t").end_offset == 40
        for one in wires:
            one.socket.close()


# ---------------------------------------------------------------- produce


def test_the_bytes_on_the_disk_are_those_that_were_sent(broker, wire, topic):
    sent = encode_batch([Rec(b"k", b"v", (("h", b"1"), ("h", None))), Rec(b"k", None)])
    assert produce(wire, sent, topic=topic) | {"error_code": 0, "base_offset": 0} == produce(wire, sent, topic=topic) | {"base_offset": 0}
    stored, _ = broker.database.log(topic).read_batches(0)
    assert bytes(stored)[16:] == sent[16:] + bytes(stored)[len(sent) :][:16] + sent[16:]
    got = fetch(wire, topic=topic)["records"]
    assert bytes(got) == bytes(stored)


@pytest.mark.parametrize("version", range(3, 14))
def test_each_version_of_produce_appends(wire, topic, version):
    answer = produce(wire, BATCH, topic=topic, version=version)
    assert (answer["error_code"], answer["base_offset"]) == (Code.NONE, 0)


@pytest.mark.parametrize("version", range(3))
def test_old_versions_of_produce_are_refused_and_the_connection_stays(wire, topic, version):
    assert produce(wire, BATCH, topic=topic, version=version)["error_code"] == Code.UNSUPPORTED_VERSION
    assert produce(wire, BATCH, topic=topic)["error_code"] == Code.NONE


def changed(data, at, byte):
    return data[:at] + bytes((byte,)) + data[at + 1 :]


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (changed(BATCH, len(BATCH) - 1, 1), Code.CORRUPT_MESSAGE),  # its CRC
        (BATCH[:-1], Code.CORRUPT_MESSAGE),
        (BATCH[:30], Code.CORRUPT_MESSAGE),
        (b"", Code.INVALID_RECORD),
        (changed(BATCH, 16, 0), Code.INVALID_RECORD),  # magic
        (changed(BATCH, 16, 1), Code.INVALID_RECORD),
        (encode_batch([Rec(b"k", b"v")], record_count=2), Code.INVALID_RECORD),
        (encode_batch([Rec(b"k", b"v")], record_count=-1), Code.INVALID_RECORD),
        (encode_batch([Rec(b"k", b"v")], attributes=1), Code.INVALID_RECORD),  # no gzip behind that
        (encode_batch([Rec(b"k", b"v")], attributes=32), Code.INVALID_RECORD),  # control
        (encode_batch([Rec(b"k", b"v")], attributes=16), Code.INVALID_TXN_STATE),  # transactional
        (encode_batch([Rec(b"k", b"v")], attributes=8), Code.INVALID_TIMESTAMP),  # LogAppendTime
        (changed(BATCH, 22, 8), Code.CORRUPT_MESSAGE),  # the same, by a flipped bit
        (BATCH + BATCH, Code.INVALID_RECORD),  # one is allowed
        (BATCH + encode_batch([Rec(b"k", b"v")], attributes=8), Code.INVALID_RECORD),
        (BATCH + b"\0", Code.INVALID_RECORD),
        (changed(BATCH, 11, BATCH[11] - 1), Code.CORRUPT_MESSAGE),  # its length
        (changed(BATCH, 11, 1), Code.CORRUPT_MESSAGE),
    ],
)
def test_what_is_no_batch_is_refused_and_the_connection_stays(broker, wire, topic, records, code):
    assert produce(wire, records, topic=topic)["error_code"] == code
    assert [produce(wire, BATCH, topic=topic)["base_offset"] for _ in range(3)] == [0, 2, 4]
    assert produce(wire, records, topic=topic)["error_code"] == code  # as well where it repeats requests that were good
    assert produce(wire, BATCH, topic=topic)["base_offset"] == 6
    assert broker.database.log(topic).end_offset == 8


@pytest.mark.parametrize(("codec", "bytes_max"), [(1, 200_000), (3, 500_000), (4, 200_000)])
def test_a_compressed_bomb_is_refused_within_its_bounds(broker, topic, codec, bytes_max):
    """A hundred MiB of zeroes in a batch of some kilobytes, which is whole but for that."""
    stream = compression.compress(codec, bytes(100 << 20))
    head = encode_batch([Rec(b"k", b"v")])[:HEADER_BYTES]
    bomb = bytearray(head + stream)
    bomb[8:12] = struct.pack(">i", len(bomb) - 12)
    seal(bomb, codec, 1_700_000_000_000)
    assert len(bomb) < bytes_max
    with Wire(broker.bootstrap_servers) as wire:
        assert produce(wire, bytes(bomb), topic=topic)["error_code"] == Code.INVALID_RECORD
        assert produce(wire, BATCH, topic=topic)["error_code"] == Code.NONE


def test_a_client_that_reads_no_answers_is_read_no_further(broker, wire, topic):
    """Its requests wait in its own buffers; others are served."""
    request = frame("Metadata", 9, 1, topics=[{"name": f"{topic}-{n}"} for n in range(300)])
    wire.socket.settimeout(0.5)
    with pytest.raises(TimeoutError):
        for _ in range(5_000):
            wire.socket.sendall(request)
    with Wire(broker.bootstrap_servers) as other:
        assert other.ask("ApiVersions", 0)["error_code"] == Code.NONE


@pytest.mark.parametrize(("count", "where"), [(900, "loop"), (20_000, "logdb-kafka")])
def test_a_large_request_is_decoded_and_its_answer_encoded_off_the_loop(wire, topic, monkeypatch, count, where):
    threads = []

    def seen(function):
        def call(header, *args):
            result = function(header, *args)
            if header.api.name in ("ListOffsets", "ApiVersions"):  # another test's client may still be served
                threads.append(threading.current_thread().name)
            return result

        return call

    for name in ("read_request", "encode_response"):
        monkeypatch.setattr(frames, name, seen(getattr(frames, name)))
    asked = [{"partition_index": n, "timestamp": -1, "current_leader_epoch": -1} for n in range(count)]
    large = wire.send("ListOffsets", 6, replica_id=-1, topics=[{"name": topic, "partitions": asked}])
    small = wire.send("ApiVersions", 0)
    answer = wire.answer("ListOffsets", 6, large)
    wire.answer("ApiVersions", 0, small)
    assert len(answer["topics"][0]["partitions"]) == count
    loop = threads[-1]
    assert [name.replace(loop, "loop").rstrip("-_0123456789") for name in threads] == [where, where, "loop", "loop"]


@pytest.mark.parametrize(("count", "is_large"), [(300, False), (20_000, True)])
@pytest.mark.parametrize("api", ["OffsetCommit", "TxnOffsetCommit"])
def test_the_offsets_of_a_large_request_are_gone_through_off_the_loop(wire, topic, monkeypatch, api, count, is_large):
    threads = []

    def seen(function):
        def call(*args):
            threads.append(threading.current_thread().name)
            return function(*args)

        return call

    for name in ("given", "told"):
        monkeypatch.setattr(group_offsets, name, seen(getattr(group_offsets, name)))
    committed = {"committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
    topics = [{"name": topic, "partitions": [{"partition_index": n, **committed} for n in range(count)]}]
    named = {"group_id": "g", "member_id": ""} | ({"transactional_id": "x"} if api == "TxnOffsetCommit" else {})
    answer = wire.ask(api, 2, topics=topics, **named)
    assert len(answer["topics"][0]["partitions"]) == count
    assert [name.startswith("logdb-kafka") for name in threads] == [is_large, is_large]


def test_a_request_for_very_many_partitions_is_answered_or_refused(broker, wire, topic):
    asked = [{"partition": n, "fetch_offset": 0, "partition_max_bytes": 2**31 - 1, "current_leader_epoch": -1} for n in range(3_000)]
    answer = wire.ask("Fetch", 11, max_wait_ms=0, min_bytes=2**31 - 1, max_bytes=2**31 - 1, topics=[{"topic": topic, "partitions": asked}])
    codes = [one["error_code"] for one in answer["responses"][0]["partitions"]]
    assert codes == [0] + [Code.UNKNOWN_TOPIC_OR_PARTITION] * 2_999
    wire.send("Metadata", 1, topics=[{"name": "x"}] * 120_000)
    assert wire.is_closed()


def test_a_batch_that_is_too_large_is_refused(broker, wire, topic):
    broker.database.alter_topic(topic, config={"max.message.bytes": 1000})
    assert produce(wire, LARGE, topic=topic)["error_code"] == Code.MESSAGE_TOO_LARGE


def test_each_partition_has_its_own_error(broker, wire, topic):
    broker.database.alter_topic(topic, partitions=3)
    parts = [
        {"index": 0, "records": BATCH},
        {"index": 1, "records": BATCH[:-1]},
        {"index": 7, "records": BATCH},
        {"index": 2, "records": BATCH},
    ]
    data = [{"name": topic, "partition_data": parts}, {"name": "no-such", "partition_data": [{"index": 0, "records": BATCH}]}]
    answer = wire.ask("Produce", 9, acks=1, timeout_ms=1, topic_data=data)
    codes = [[one["error_code"] for one in part["partition_responses"]] for part in answer["responses"]]
    assert codes == [[0, Code.CORRUPT_MESSAGE, Code.UNKNOWN_TOPIC_OR_PARTITION, 0], [Code.UNKNOWN_TOPIC_OR_PARTITION]]


def test_keys_are_needed_where_a_topic_is_compacted(broker, wire, topic):
    broker.database.alter_topic(topic, config={"cleanup.policy": "compact"})
    assert produce(wire, BATCH, topic=topic)["error_code"] == Code.INVALID_RECORD


def test_other_acks_are_refused(wire, topic):
    assert produce(wire, BATCH, topic=topic, acks=2)["error_code"] == Code.INVALID_REQUIRED_ACKS


@pytest.mark.parametrize(
    ("expected_offset", "code"), [(-2, Code.INVALID_REQUEST), (-1, Code.NONE), (0, Code.NONE), (1, Code.INVALID_REQUEST)]
)
def test_an_expected_offset_is_the_log_end_or_none(wire, topic, expected_offset, code):
    data = [{"name": topic, "partition_data": [{"index": 0, "records": BATCH, "expected_offset": expected_offset}]}]
    answer = wire.ask("Produce", 9, acks=-1, timeout_ms=1000, topic_data=data, detailed=True)
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == code


def test_without_acknowledgement_nothing_is_answered(broker, wire, topic):
    data = [{"name": topic, "partition_data": [{"index": 0, "records": BATCH}]}]
    wire.send("Produce", 9, acks=0, timeout_ms=1, topic_data=data)
    assert wire.ask("ApiVersions", 0)["error_code"] == Code.NONE
    assert broker.database.log(topic).end_offset == 2
    data[0]["name"] = "no-such"
    wire.send("Produce", 9, acks=0, timeout_ms=1, topic_data=data)
    assert wire.is_closed()


def test_without_acknowledgement_a_repeated_request_that_fails_closes_the_connection(broker, wire, topic):
    data = [{"name": topic, "partition_data": [{"index": 0, "records": BATCH}]}]
    for _ in range(4):
        wire.send("Produce", 9, acks=0, timeout_ms=1, topic_data=data)
    assert wire.ask("ApiVersions", 0)["error_code"] == Code.NONE
    assert broker.database.log(topic).end_offset == 8
    data[0]["partition_data"][0]["records"] = changed(BATCH, len(BATCH) - 1, 1)
    wire.send("Produce", 9, acks=0, timeout_ms=1, topic_data=data)
    assert wire.is_closed()
    assert broker.database.log(topic).end_offset == 8


@pytest.mark.parametrize("before", range(3))
def test_a_topic_with_the_logs_time_answers_it(broker, wire, topic, before):
    for _ in range(before):  # requests that the next one repeats
        assert produce(wire, BATCH, topic=topic)["log_append_time_ms"] == -1
    broker.database.alter_topic(topic, config={"message.timestamp.type": "LogAppendTime"})
    answer = produce(wire, BATCH, topic=topic)
    assert [record.timestamp_ms for record in broker.database.log(topic).read(2 * before)] == [answer["log_append_time_ms"]] * 2


def test_a_repeated_batch_whose_records_are_deleted_is_acknowledged(broker, wire, topic):
    """The producer is told where it was appended; the time that the log gave it is not known any more."""
    broker.database.alter_topic(topic, config={"message.timestamp.type": "LogAppendTime"})
    batch = encode_batch([Rec(b"k", b"v")], producer_id=8000, producer_epoch=0, base_sequence=0)
    first = produce(wire, batch, topic=topic)
    assert produce(wire, batch, topic=topic) == first
    broker.database.delete_records(topic, 0, 1)
    again = produce(wire, batch, topic=topic)
    assert (again["error_code"], again["base_offset"], again["log_append_time_ms"]) == (0, 0, -1)


def test_a_topic_that_is_deleted_meanwhile_is_unknown(broker, wire):
    for _ in range(2):
        broker.database.create_topic("short-lived")
        assert [produce(wire, BATCH, topic="short-lived")["base_offset"] for _ in range(4)] == [0, 2, 4, 6]
        broker.database.delete_topic("short-lived")
        assert produce(wire, BATCH, topic="short-lived")["error_code"] == Code.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("records", "transactional_id"), [(BATCH, None), (LARGE, None), (BATCH, "tx")], ids=["small", "large", "tx"])
def test_a_client_that_sends_ids_learns_at_once_that_a_topic_was_created_again(broker, wire, records, transactional_id):
    broker.database.create_topic("again")
    former = wire.topic_id("again")

    def append():
        parts = [{"index": 0, "records": records}]
        data = [{"topic_id": former, "partition_data": parts}]
        asked = {"acks": -1, "timeout_ms": 1000, "transactional_id": transactional_id, "topic_data": data}
        (answer,) = wire.ask("Produce", BY_ID, **asked)["responses"]
        assert answer["topic_id"] == former
        return Code(answer["partition_responses"][0]["error_code"])

    at = {"partition": 0, "fetch_offset": 3, "partition_max_bytes": 1 << 20}
    asked = {"max_wait_ms": 60_000, "min_bytes": 1, "topics": [{"topic_id": former, "partitions": [at]}]}
    try:
        assert [append() for _ in range(4)] == [Code.NONE] * 4  # the last ones repeat the one before
        at["fetch_offset"] = broker.database.log("again").end_offset
        with Wire(broker.bootstrap_servers) as reader:
            poll = reader.send("Fetch", BY_ID, **asked)
            broker.database.delete_topic("again")
            (answer,) = reader.answer("Fetch", BY_ID, poll)["responses"]
            assert (answer["topic_id"], answer["partitions"][0]["error_code"]) == (former, Code.UNKNOWN_TOPIC_ID)
            assert append() == Code.UNKNOWN_TOPIC_ID
            broker.database.create_topic("again")
            assert append() == Code.UNKNOWN_TOPIC_ID
            assert reader.ask("Fetch", BY_ID, **asked)["responses"][0]["partitions"][0]["error_code"] == Code.UNKNOWN_TOPIC_ID
        assert broker.database.log("again").end_offset == 0
        assert produce(wire, BATCH, topic="again", version=BY_ID)["error_code"] == Code.NONE
        assert fetch(wire, topic="again", version=BY_ID)["records"] == broker.database.log("again").read_batches(0)[0]
    finally:
        broker.database.delete_topic("again")


@pytest.mark.parametrize("codec", range(5))
def test_repeated_requests_with_compressed_batches_append_too(broker, wire, topic, codec):
    head = BATCH[:HEADER_BYTES]
    batch = bytearray(head + compression.compress(codec, BATCH[HEADER_BYTES:]))
    seal(batch, codec, int.from_bytes(head[35:43], "big"))
    assert [produce(wire, bytes(batch), topic=topic)["base_offset"] for _ in range(4)] == [0, 2, 4, 6]
    assert [record.value for record in broker.database.log(topic).read(6)] == [b"v", b"w"]


def test_an_idempotent_producer_s_repetition_gap_and_epoch_are_seen_in_repeated_requests(broker, wire, topic):
    producer_id = wire.ask("InitProducerId", 1, transactional_id=None, transaction_timeout_ms=60_000)["producer_id"]

    def sent(sequence, epoch=0):
        batch = encode_batch([Rec(None, b"v")], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        answer = produce(wire, batch, topic=topic)
        return answer["error_code"] or answer["base_offset"]

    assert [sent(number) for number in range(8)] == list(range(8))
    assert [sent(7), sent(4), sent(3)] == [7, 4, 3]
    assert [sent(9), sent(1)] == [Code.OUT_OF_ORDER_SEQUENCE_NUMBER] * 2
    assert [sent(8), sent(8), sent(9)] == [8, 8, 9]
    assert [sent(0, epoch=1), sent(1, epoch=1)] == [10, 11]
    assert sent(10) == Code.INVALID_PRODUCER_EPOCH
    assert broker.database.log(topic).end_offset == 12


def test_the_time_of_appending_is_the_logs_to_give(wire, topic):
    """A reader would take the largest timestamp for that of each record."""
    answer = produce(wire, encode_batch([Rec(None, b"v")], attributes=8), topic=topic)
    assert (answer["error_code"], answer["base_offset"]) == (Code.INVALID_TIMESTAMP, -1)


@pytest.mark.parametrize("before", range(3))
def test_zstd_needs_version_7(wire, topic, before):
    for _ in range(before):
        assert produce(wire, BATCH, topic=topic, version=6)["error_code"] == Code.NONE
    assert produce(wire, changed(BATCH, 22, 4), topic=topic, version=6)["error_code"] == Code.UNSUPPORTED_COMPRESSION_TYPE


def test_the_internal_topics_take_no_batches(broker, wire):
    assert produce(wire, BATCH, topic="__consumer_offsets")["error_code"] in (Code.INVALID_TOPIC_EXCEPTION, Code.UNKNOWN_TOPIC_OR_PARTITION)


# ---------------------------------------------------------------- fetch


@pytest.mark.parametrize("version", APIS[1].request.versions)
def test_fetch_gives_the_whole_batch_that_holds_the_offset(wire, topic, version):
    produce(wire, BATCH, topic=topic)
    produce(wire, BATCH, topic=topic)
    answer = fetch(wire, 3, topic=topic, version=version)
    assert (answer["error_code"], answer["high_watermark"], answer["last_stable_offset"]) == (Code.NONE, 4, 4)
    assert bytes(answer["records"]) == struct.pack(">q", 2) + bytes(fetch(wire, 2, topic=topic)["records"])[8:]


def test_at_least_one_batch_is_fetched_and_no_more_than_there_is_room_for(broker, wire, topic):
    broker.database.alter_topic(topic, partitions=2)
    for partition in (0, 1):
        for _ in range(3):
            produce(wire, BATCH, topic=topic, partition=partition)
    sizes = lambda **values: [
        len(one["records"] or b"")
        for one in wire.ask(
            "Fetch",
            12,
            max_wait_ms=0,
            min_bytes=1,
            topics=[
                {"topic": topic, "partitions": [{"partition": n, "fetch_offset": 0, "partition_max_bytes": values["each"]} for n in (0, 1)]}
            ],
            max_bytes=values["all"],
        )["responses"][0]["partitions"]
    ]
    one = len(BATCH)
    assert sizes(all=1, each=1) == [one, 0]
    assert sizes(all=1 << 20, each=one) == [one, one]
    assert sizes(all=1 << 20, each=1 << 20) == [3 * one, 3 * one]
    assert sizes(all=4 * one, each=1 << 20) == [3 * one, one]


def test_errors_of_fetch(wire, topic):
    produce(wire, BATCH, topic=topic)
    assert fetch(wire, 3, topic=topic)["error_code"] == Code.OFFSET_OUT_OF_RANGE
    assert fetch(wire, -1, topic=topic)["error_code"] == Code.OFFSET_OUT_OF_RANGE
    assert fetch(wire, 0, topic=topic, current_leader_epoch=5)["error_code"] == Code.UNKNOWN_LEADER_EPOCH
    assert fetch(wire, 0, topic=topic, partition=1)["error_code"] == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch(wire, 0, topic="no-such")["error_code"] == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_that_a_fetch_names_twice_is_answered_once_as_it_was_named_last(wire, topic):
    produce(wire, BATCH, topic=topic)
    asked = [{"partition": n, "fetch_offset": offset, "partition_max_bytes": 1 << 20} for n, offset in [(0, 0), (1, 0), (0, 999)]]
    (found,) = wire.ask("Fetch", 4, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[{"topic": topic, "partitions": asked}])[
        "responses"
    ]
    codes = [(one["partition_index"], one["error_code"]) for one in found["partitions"]]
    assert codes == [(0, Code.OFFSET_OUT_OF_RANGE), (1, Code.UNKNOWN_TOPIC_OR_PARTITION)]


def test_there_are_no_fetch_sessions(wire, topic):
    asked = {"max_wait_ms": 0, "min_bytes": 1, "topics": []}
    assert wire.ask("Fetch", 12, session_epoch=0, **asked)["session_id"] == 0
    assert wire.ask("Fetch", 12, session_id=5, session_epoch=1, **asked)["error_code"] == Code.FETCH_SESSION_ID_NOT_FOUND
    assert wire.ask("Fetch", 12, session_epoch=1, **asked)["error_code"] == Code.FETCH_SESSION_ID_NOT_FOUND


def test_a_long_poll_ends_with_the_first_record_and_holds_up_nobody(broker, wire, topic):
    asked = wire.send(
        "Fetch",
        12,
        max_wait_ms=15_000,
        min_bytes=1,
        topics=[{"topic": topic, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]}],
    )
    with Wire(broker.bootstrap_servers) as other:
        assert other.ask("ApiVersions", 0)["error_code"] == Code.NONE
        produce(other, BATCH, topic=topic)
    answer = wire.answer("Fetch", 12, asked)
    assert len(answer["responses"][0]["partitions"][0]["records"]) == len(BATCH)


def test_a_long_poll_ends_after_its_time(wire, topic):
    began_s = time.monotonic()
    assert not fetch(wire, 0, topic=topic, max_wait_ms=200)["records"]
    assert 0.15 < time.monotonic() - began_s < 5


def test_a_large_answer_reaches_a_slow_reader(wire, topic):
    for _ in range(30):
        assert produce(wire, LARGE, topic=topic)["error_code"] == Code.NONE
    asked = [{"topic": topic, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 20 << 20}]}]
    ids = [wire.send("Fetch", 12, max_wait_ms=0, min_bytes=1, topics=asked) for _ in range(4)]
    for one in ids:
        assert len(wire.answer("Fetch", 12, one)["responses"][0]["partitions"][0]["records"]) > 7_000_000


# ---------------------------------------------------------------- offsets


@pytest.mark.parametrize("version", APIS[2].request.versions)
def test_offsets_by_time(wire, topic, version):
    produce(
        wire, encode_batch([Rec(None, b"a", timestamp_ms=1_700_000_000_000), Rec(None, b"b", timestamp_ms=1_700_000_000_009)]), topic=topic
    )
    produce(wire, encode_batch([Rec(None, b"c", timestamp_ms=1_700_000_000_005)]), topic=topic)

    def asked(timestamp):
        parts = [{"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}]
        answer = wire.ask("ListOffsets", version, replica_id=-1, topics=[{"name": topic, "partitions": parts}])
        one = answer["topics"][0]["partitions"][0]
        return one["error_code"], one["offset"], one["timestamp"]

    assert asked(-1) == (0, 3, -1)
    assert asked(-2) == (0, 0, -1)
    assert asked(-3) == (0, 1, 1_700_000_000_009)
    assert asked(0) == (0, 0, 1_700_000_000_000)
    assert asked(1_700_000_000_001) == (0, 1, 1_700_000_000_009)
    assert asked(1_700_000_000_010) == (0, -1, -1)
    assert asked(-9)[0] == Code.UNSUPPORTED_VERSION


# ---------------------------------------------------------------- topics


def test_a_name_that_no_topic_can_have_is_not_waited_for(wire):
    names = ["absent", "my topic", "", "n" * 250]
    answer = wire.ask("Metadata", 12, topics=[{"name": name} for name in names], allow_auto_topic_creation=False)
    assert [one["error_code"] for one in answer["topics"]] == [Code.UNKNOWN_TOPIC_OR_PARTITION, *[Code.INVALID_TOPIC_EXCEPTION] * 3]


def test_metadata_creates_what_it_names(broker, wire):
    answer = wire.ask("Metadata", 12, topics=[{"name": "made"}, {"name": "bad/name"}], allow_auto_topic_creation=True)
    assert [(one["name"], one["error_code"]) for one in answer["topics"]] == [("made", 0), ("bad/name", Code.INVALID_TOPIC_EXCEPTION)]
    assert answer["topics"][0]["partitions"][0] | {"leader_epoch": 0} == {
        "error_code": 0,
        "partition_index": 0,
        "leader_id": 0,
        "leader_epoch": 0,
        "replica_nodes": [0],
        "isr_nodes": [0],
        "offline_replicas": [],
    }
    host, _, port = broker.bootstrap_servers.rpartition(":")
    assert [(one["host"], one["port"]) for one in answer["brokers"]] == [(host, int(port))]
    by_id = wire.ask("Metadata", 12, topics=[{"name": None, "topic_id": answer["topics"][0]["topic_id"]}])
    assert by_id["topics"][0]["name"] == "made"
    with_empty_name = wire.ask("Metadata", 12, topics=[{"name": "", "topic_id": answer["topics"][0]["topic_id"]}])  # of Java's clients
    assert with_empty_name["topics"] == by_id["topics"]
    for version, name in ((10, ""), (11, ""), (12, None)):
        (unknown,) = wire.ask("Metadata", version, topics=[{"name": None, "topic_id": b"x" * 16}])["topics"]
        assert (unknown["name"], unknown["error_code"]) == (name, Code.UNKNOWN_TOPIC_ID)
    denied = wire.ask("Metadata", 12, topics=[{"name": "unmade"}], allow_auto_topic_creation=False)
    assert denied["topics"][0]["error_code"] == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert "made" in [one["name"] for one in wire.ask("Metadata", 1, topics=None)["topics"]]
    assert wire.ask("Metadata", 1, topics=[])["topics"] == []
    assert "made" in [one["name"] for one in wire.ask("Metadata", 0, topics=[])["topics"]]


def test_topics_are_created_and_deleted(broker, wire):
    def create(**values):
        topic = {"name": "c", "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []} | values
        return wire.ask("CreateTopics", 7, topics=[topic], validate_only=values.get("validate_only", False))["topics"][0]

    assert create(validate_only=True)["error_code"] == 0
    assert "c" not in [info.name for info in broker.database.topics()]
    made = create(configs=[{"name": "retention.ms", "value": "1000"}])
    assert (made["error_code"], made["num_partitions"], made["replication_factor"]) == (0, 2, 1)
    configs = {one["name"]: (one["value"], one["config_source"]) for one in made["configs"]}
    assert (configs["retention.ms"], configs["cleanup.policy"]) == (("1000", 1), ("delete", 5))
    assert create()["error_code"] == Code.TOPIC_ALREADY_EXISTS
    assert create(name="d", replication_factor=3)["error_code"] == Code.INVALID_REPLICATION_FACTOR
    assert create(name="d", num_partitions=0)["error_code"] == Code.INVALID_PARTITIONS
    assert create(name="d", num_partitions=1_000_000)["error_code"] == Code.INVALID_PARTITIONS
    assert create(name="d/")["error_code"] == Code.INVALID_TOPIC_EXCEPTION
    assert create(name="d.x")["error_code"] == 0
    assert create(name="d.x")["error_code"] == Code.TOPIC_ALREADY_EXISTS
    refused = create(name="d_x")
    assert (refused["error_code"], refused["error_message"]) == (
        Code.INVALID_TOPIC_EXCEPTION,
        "Topic 'd_x' collides with existing topic: d.x",
    )
    assert create(name="d", configs=[{"name": "no.such", "value": "1"}])["error_code"] == Code.INVALID_CONFIG
    placed = [{"partition_index": 0, "broker_ids": [0]}, {"partition_index": 1, "broker_ids": [0]}]
    assert create(name="e", assignments=placed)["error_code"] == Code.INVALID_REQUEST
    for wrong in (placed[1:], placed + placed[:1], [placed[0] | {"broker_ids": [0, 1]}], [placed[0] | {"broker_ids": []}]):
        refused = create(name="e", num_partitions=-1, replication_factor=-1, assignments=wrong)
        assert refused["error_code"] == Code.INVALID_REPLICA_ASSIGNMENT
    assert create(name="e", num_partitions=-1, replication_factor=-1, assignments=placed)["num_partitions"] == 2
    assert wire.ask("DeleteTopics", 4, topic_names=["c", "no-such"])["responses"] == [
        {"name": "c", "topic_id": bytes(16), "error_code": 0, "error_message": None},
        {"name": "no-such", "topic_id": bytes(16), "error_code": Code.UNKNOWN_TOPIC_OR_PARTITION, "error_message": None},
    ]
    topic_id = wire.ask("Metadata", 12, topics=[{"name": "e"}])["topics"][0]["topic_id"]
    assert wire.ask("DeleteTopics", 4, topic_names=[""])["responses"][0]["error_code"] == Code.UNKNOWN_TOPIC_OR_PARTITION
    nameless = wire.ask("DeleteTopics", 6, topics=[{"name": "", "topic_id": topic_id}])["responses"][0]
    assert (nameless["name"], nameless["error_code"]) == ("", Code.INVALID_REQUEST)
    other = {"name": "d.x", "topic_id": topic_id}  # two topics: neither is deleted
    assert wire.ask("DeleteTopics", 6, topics=[other])["responses"] == [
        other | {"error_code": Code.INVALID_REQUEST, "error_message": "a topic is named by its name or by its id"}
    ]
    assert {"d.x", "e"} <= {info.name for info in broker.database.topics()}
    assert wire.ask("DeleteTopics", 6, topics=[{"name": None, "topic_id": topic_id}])["responses"][0]["error_code"] == 0
    assert "e" not in [info.name for info in broker.database.topics()]


def test_what_is_wrong_with_a_very_long_name_is_answered_in_part(wire):
    name = "t" * 32_767
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    resource = {"resource_type": 2, "resource_name": name, "configuration_keys": None, "configs": [{"name": name, "value": "1"}]}
    (made,) = wire.ask("CreateTopics", 4, topics=[topic], validate_only=False)["topics"]
    assert (made["error_code"], len(made["error_message"])) == (Code.INVALID_TOPIC_EXCEPTION, 32_767)
    (altered,) = wire.ask("AlterConfigs", 1, resources=[resource], validate_only=False)["responses"]
    (described,) = wire.ask("DescribeConfigs", 3, resources=[resource])["results"]
    assert [one["error_code"] for one in (altered, described)] == [Code.INVALID_TOPIC_EXCEPTION] * 2
    assert [len(one["error_message"]) for one in (altered, described)] == [32_767] * 2
    more = {"name": name, "count": 2, "assignments": None}
    (added,) = wire.ask("CreatePartitions", 1, topics=[more], timeout_ms=1000, validate_only=False)["results"]
    assert added["error_code"] == Code.UNKNOWN_TOPIC_OR_PARTITION


# ---------------------------------------------------------------- producers and coordinators


@pytest.mark.parametrize("version", APIS[22].request.versions)
def test_producer_ids(wire, version):
    asked = {"transactional_id": None, "transaction_timeout_ms": 1000}
    first, second = (wire.ask("InitProducerId", version, **asked) for _ in range(2))
    assert first["error_code"] == second["error_code"] == 0
    assert first["producer_id"] != second["producer_id"] and first["producer_epoch"] == 0


@pytest.mark.parametrize("version", APIS[10].request.versions)
def test_this_node_coordinates(broker, wire, version):
    answer = wire.ask("FindCoordinator", version, key="g", key_type=0, coordinator_keys=["g"])
    found = answer["coordinators"][0] if version >= 4 else answer
    assert f"{found['host']}:{found['port']}" == broker.bootstrap_servers and found["error_code"] == 0


def test_the_door_drains(topic):
    with logdb.testing.broker(drain_ms=10_000) as draining, Wire(draining.bootstrap_servers) as wire:
        draining.database.create_topic("t")
        asked = wire.send(
            "Fetch",
            12,
            max_wait_ms=60_000,
            min_bytes=1,
            topics=[{"topic": "t", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]}],
        )
        threading.Timer(0.2, draining.database.close).start()
        assert not wire.answer("Fetch", 12, asked)["responses"][0]["partitions"][0]["records"]
        assert wire.is_closed()


def test_an_end_without_a_wait_warns_of_no_idle_connection(caplog):
    with logdb.testing.broker() as ending, Wire(ending.bootstrap_servers) as wire:
        wire.ask("ApiVersions", 0)
        ending.database.close()
        assert wire.is_closed()
    assert caplog.text == ""
