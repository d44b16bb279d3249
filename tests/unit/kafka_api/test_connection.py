"""A connection of the Kafka door: Produce frames that come in pieces, received to the buffer that the door has for them."""

import asyncio
import os
import struct
from functools import partial

import pytest

import logdb
from logdb.access.access_control import AccessControl
from logdb.serving import resources
from logdb_kafka_api.call import Call
from logdb_kafka_api.door import KafkaDoor
from logdb_kafka_api.handlers.produce import append_again
from logdb_kafka_api.limits import ROOM_BYTES
from support.batches import Rec, encode_batch
from support.kafka_wire import frame
from support.security import secure

PIECE_BYTES = 50_000


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    """On a busy machine an append may take long: threads would append the next ones."""
    monkeypatch.setattr(resources, "_SLOW_S", 60)


class Client(asyncio.Transport):
    """A client's end, which sends by hand and keeps the answers."""

    def __init__(self, door):
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.answers, self._is_closing, self.is_reading = [], False, True
        self.connection = door.accept()
        self.connection.connection_made(self)

    def send(self, data):
        """As the event loop does with what a socket has."""
        while data and not self._is_closing:
            buffer = self.connection.get_buffer(-1)
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self.connection.buffer_updated(count)
            data = data[count:]

    async def answered(self, count):
        while len(self.answers) < count:
            await asyncio.sleep(0.001)

    def write(self, data):
        self.answers.append(bytes(data))

    def lose(self):
        self._is_closing = True
        self.connection.connection_lost(None)

    def close(self):
        self._is_closing = True

    abort = close

    def is_closing(self):
        return self._is_closing

    def pause_reading(self):
        self.is_reading = False

    def resume_reading(self):
        self.is_reading = True


def run(directory, scenario, **config):
    """Give ``scenario`` a door and the log that ``produce`` appends to."""

    async def on_a_loop():
        with logdb.open(directory / "db") as db:
            access = AccessControl(db._session)
            door = KafkaDoor(access, "")
            door.begin_waits()
            db.create_topic("t", config=config)
            await asyncio.wait_for(scenario(door, db.log("t")), 60)
            await door.drain(0)
            access.close()

    asyncio.run(on_a_loop())


def produce(value, correlation_id=1):
    part = {"index": 0, "records": encode_batch([Rec(None, value)])}
    return frame("Produce", 9, correlation_id, acks=-1, timeout_ms=1000, topic_data=[{"name": "t", "partition_data": [part]}])


def values_of(log):
    return [record.value for record in log.read(0)]


async def introduced(door):
    """A client whose task waits for a frame."""
    client = Client(door)
    await asyncio.sleep(0)
    return client


def test_a_frame_in_pieces_is_received_to_the_door_s_buffer_and_returns_it(tmp_path):
    async def scenario(door, log):
        client, room, values = await introduced(door), door.room, [os.urandom(200_000) for _ in range(3)]
        for number, value in enumerate(values):
            data = produce(value, number)
            client.send(data[:PIECE_BYTES])
            assert client.connection.get_buffer(-1).obj is room.obj and door.room is None
            client.send(data[PIECE_BYTES:])
            assert door.room is room
        assert values_of(log) == values
        assert [struct.unpack_from(">i", answer, 4)[0] for answer in client.answers] == [0, 1, 2]
        assert door.memory.taken == 0

    run(tmp_path, scenario)


def test_two_connections_share_no_buffer(tmp_path):
    async def scenario(door, log):
        clients, values = [await introduced(door) for _ in range(2)], [os.urandom(200_000) for _ in range(2)]
        frames = [produce(value) for value in values]
        for at in range(0, max(map(len, frames)), PIECE_BYTES):
            for client, data in zip(clients, frames, strict=True):
                client.send(data[at : at + PIECE_BYTES])
        assert values_of(log) == values

    run(tmp_path, scenario)


@pytest.mark.parametrize("size_bytes", [60_000, ROOM_BYTES - 200, ROOM_BYTES, 600_000])
def test_frames_of_any_size_are_whole(tmp_path, size_bytes):
    async def scenario(door, log):
        client, room, value = await introduced(door), door.room, os.urandom(size_bytes)
        for at in range(0, len(data := produce(value)), PIECE_BYTES):
            client.send(data[at : at + PIECE_BYTES])
        await client.answered(1)
        assert values_of(log) == [value] and door.room is room

    run(tmp_path, scenario)


def test_a_client_that_goes_away_within_a_frame_returns_the_buffer(tmp_path):
    async def scenario(door, log):
        client, room = await introduced(door), door.room
        client.send(produce(os.urandom(200_000))[:-1])
        assert door.room is None
        client.lose()
        assert door.room is room and door.memory.taken == 0 and values_of(log) == []

    run(tmp_path, scenario)


def test_a_frame_that_waits_for_its_turn_keeps_its_bytes(tmp_path):
    """It is received while the request before it waits, so the next frame may come to the same buffer before it is appended."""

    async def scenario(door, log):
        client, values = await introduced(door), [os.urandom(200_000) for _ in range(3)]
        client.send(frame("Metadata", 9, 9, topics=None))  # a task answers it, once this function waits
        for number, value in enumerate(values):
            data = produce(value, number)
            client.send(data[:PIECE_BYTES])
            client.send(data[PIECE_BYTES:])
        await client.answered(4)
        assert values_of(log) == values

    run(tmp_path, scenario)


# ---------------------------------------------------------------- requests that wait for nothing


def test_on_a_node_of_a_cluster_a_repeated_append_is_no_shortcut(tmp_path):
    """Its answer waits for replicas; what repeats a request keeps no list of those."""

    async def scenario(door, log):
        client, data = await introduced(door), produce(b"v")
        for count in (1, 2, 3):
            client.send(data)
            await client.answered(count)
        repeated, session = client.connection.repeated, client.connection.session
        _, records = repeated.read(data[4:])
        assert append_again(door, session, repeated, records)["base_offset"] == 3
        session.replication = object()
        assert append_again(door, session, repeated, records) is None and log.end_offset == 4

    run(tmp_path, scenario)


async def turns_until(condition):
    """How many turns the loop makes for others until then."""
    count = 0
    while not condition():
        await asyncio.sleep(0)
        count += 1
    return count


def correlation_ids(client):
    data, ids, at = b"".join(client.answers), [], 0
    while at < len(data):
        size, correlation_id = struct.unpack_from(">ii", data, at)
        ids.append(correlation_id)
        at += 4 + size
    return ids


def asked_versions(count):
    return b"".join(frame("ApiVersions", 0, number) for number in range(count))


def test_small_appends_that_come_together_leave_the_loop_to_others(tmp_path):
    async def scenario(door, log):
        client, count = await introduced(door), 1_500
        client.send(b"".join(produce(b"v", number) for number in range(count)))
        assert 0 < log.end_offset < count and not client.is_reading
        assert await turns_until(lambda: log.end_offset == count) > 5
        await turns_until(lambda: client.is_reading)
        assert correlation_ids(client) == list(range(count))

    run(tmp_path, scenario)


def test_requests_that_never_wait_leave_the_loop_to_others_and_queue_up_to_a_number(tmp_path):
    async def scenario(door, log):
        client, count = await introduced(door), 5_000
        client.send(asked_versions(count))
        assert len(client.connection._turns.queued) == 64 and not client.is_reading
        assert await turns_until(lambda: client.is_reading) > 20
        await client.answered(count)
        assert correlation_ids(client) == list(range(count))

    run(tmp_path, scenario)


def test_a_client_that_has_not_authenticated_queues_little(tmp_path):
    async def scenario(door, log):
        secure(tmp_path / "db", users={"alice": "secret"})
        client = await introduced(door)
        assert len(client.connection.get_buffer(-1)) == 4 << 10
        client.send(asked_versions(100))
        assert len(client.connection._turns.queued) == 4 and not client.is_reading
        await client.answered(100)
        assert correlation_ids(client) == list(range(100))

    run(tmp_path, scenario)


@pytest.mark.parametrize("cut", [3, 7, 30])
def test_a_frame_that_has_come_in_part_behind_a_full_queue_is_whole(tmp_path, cut):
    async def scenario(door, log):
        client, last, value = await introduced(door), 100, os.urandom(100_000)
        data = produce(value, last)
        client.send(asked_versions(last) + data[:cut])
        await turns_until(lambda: client.is_reading)
        client.send(data[cut:])
        await client.answered(last + 1)
        assert values_of(log) == [value] and correlation_ids(client) == list(range(last + 1))

    run(tmp_path, scenario)


def test_what_is_not_parsed_behind_a_long_poll_is_not_waited_for(tmp_path):
    async def scenario(door, log):
        client = await introduced(door)
        asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1, "current_leader_epoch": -1}
        poll = frame("Fetch", 12, 0, max_wait_ms=60_000, min_bytes=1, topics=[{"topic": "t", "partitions": [asked]}])
        client.send(poll + asked_versions(100))
        await turns_until(lambda: door.waits._bells)
        assert len(client.connection._turns.queued) == 63 and client.connection.deadline_s(door.limits) is None
        log.append(b"v")
        await client.answered(101)

    run(tmp_path, scenario)


def test_time_in_which_the_loop_had_no_turn_is_not_that_of_a_first_request(tmp_path):
    async def scenario(door, log):
        loop, client, closing = asyncio.get_running_loop(), Client(door), []
        real = loop.time
        try:
            for late_s in (0.0, 30.0, 0.0, 0.0):  # a look comes each 2.5 s, if the loop lets it
                now_s = door._sweeping.when() + late_s
                loop.time = partial(float, now_s)
                door._sweeping.cancel()
                door._sweep()
                closing.append(client._is_closing)
        finally:
            loop.time = real
        client.lose()
        assert closing == [False, False, False, True]

    run(tmp_path, scenario)


def test_a_client_that_leaves_before_answers_that_are_there_keeps_no_place(tmp_path):
    async def scenario(door, log):
        client = await introduced(door)
        waits = asyncio.get_running_loop().create_future()
        client.connection._turns.owe(waits)  # as a Produce that replicas have to have
        client.send(produce(b"x", 2))
        client.send(produce(b"x", 3))
        while len(client.connection._turns.owed) < 3:
            await asyncio.sleep(0.001)
        client.lose()
        while not waits.cancelled():
            await asyncio.sleep(0.001)
        assert door.requests.taken == 0

    run(tmp_path, scenario, durability="fsync")  # in a thread


def test_an_append_of_a_client_with_a_quota_takes_no_thread(tmp_path, monkeypatch):
    async def scenario(door, log):
        monkeypatch.setattr(type(door.access.quotas), "limits", lambda self, principal: True)
        monkeypatch.setattr(Call, "append_in_thread", None)
        client = await introduced(door)
        for number in range(3):
            client.send(produce(b"x", number))
            await client.answered(number + 1)
        assert log.end_offset == 3

    run(tmp_path, scenario)
