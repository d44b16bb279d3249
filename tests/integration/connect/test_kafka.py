"""Our worker on a Kafka 4.3.1, and on logdb's Kafka listener with the same client, confluent-kafka.

Skipped on Kafka, with the reason, where Java or Maven are missing.
"""

import contextlib
import os
import random
import re
import time
import uuid

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

import logdb
from logdb_connect.client import connected
from logdb_connect.detection import kind_at
from support.connect_workers import SHARED, WORKER, WorkerProcess, distributed, standalone, written
from support.kafka_broker import kafka_broker
from support.moto_server import CREDENTIALS, s3
from support.ports import free_port
from support.waiting import until

__all__ = ["s3"]
ROUNDS = 3 * int(os.environ.get("LOGDB_TEST_SCALE", "1"))
pytestmark = [pytest.mark.foreign, pytest.mark.timeout(400 + 20 * ROUNDS)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with kafka_broker(tmp_path_factory.mktemp("kafka") / "broker") as broker:
        yield broker


@pytest.fixture(scope="module")
def listener(tmp_path_factory):
    with (
        logdb.open(tmp_path_factory.mktemp("logdb") / "db") as db,
        logdb.serve(db, http="127.0.0.1:0", kafka="127.0.0.1:0") as server,
    ):
        yield server.addresses[-1]


@pytest.fixture(params=["kafka", "logdb"])
def address(request):
    return request.getfixturevalue("broker").address if request.param == "kafka" else request.getfixturevalue("listener")


@pytest.fixture
def name():
    return f"n{uuid.uuid4().hex[:8]}"


def file_source(directory, topic):
    return {"name": f"in-{topic}", "connector.class": "FileStreamSource", "file": f"{directory}/in.txt", "topic": topic}


def file_sink(directory, topic):
    return {"name": f"out-{topic}", "connector.class": "FileStreamSink", "file": f"{directory}/out.txt", "topics": topic}


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


def values(address, topic):
    """The committed records of a topic of one partition, as a consumer of others reads them."""
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": address,
        "group.id": "-",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    })  # fmt: skip
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append(message.value().decode())
    consumer.close()
    return found


def test_the_client_is_the_one_that_fits_what_answers(broker, listener):
    assert kind_at(broker.address, {}) == "kafka"
    assert kind_at(f"127.0.0.1:{free_port()},{broker.address}", {}) == "kafka"
    assert kind_at(listener, {}) == "logdb"


def test_from_file_to_topic_to_file(address, tmp_path, name):
    """Then the offsets are shown, set, and reset: the sink reads everything again."""
    wanted = [f"line {number}" for number in range(5_000)]
    (tmp_path / "in.txt").write_text("\n".join(wanted) + "\n")
    source, sink = file_source(tmp_path, name), file_sink(tmp_path, name)
    with standalone(address, tmp_path, source, sink, logdb_client="kafka") as rest:
        until(lambda: lines(tmp_path / "out.txt") == wanted, name, 60)
        admin = AdminClient({"bootstrap.servers": address})
        assert rest.get("/")["kafka_cluster_id"] == admin.describe_cluster(request_timeout=30).result().cluster_id
        offsets = f"/connectors/{sink['name']}/offsets"
        until(lambda: rest.get(offsets)["offsets"])
        assert rest.get(f"/connectors/{source['name']}/offsets")["offsets"][0]["offset"]["position"] == (tmp_path / "in.txt").stat().st_size
        rest.call("PUT", f"/connectors/{sink['name']}/stop")
        rest.await_states(sink["name"], "STOPPED")
        part = {"kafka_topic": name, "kafka_partition": 0}
        until(lambda: rest.call("PATCH", offsets, {"offsets": [{"partition": part, "offset": {"kafka_offset": 7}}]})[0] == 200)
        assert rest.get(offsets) == {"offsets": [{"partition": part, "offset": {"kafka_offset": 7}}]}
        assert rest.call("DELETE", offsets)[0] == 200
        assert rest.get(offsets) == {"offsets": []}
        rest.call("PUT", f"/connectors/{sink['name']}/resume")
        until(lambda: len(lines(tmp_path / "out.txt")) == 2 * len(wanted), name, 60)
    assert values(address, name) == wanted


def test_offsets_of_some_partitions_are_reset(address, name):
    with contextlib.closing(connected({"bootstrap.servers": address, "logdb.client": "kafka"})) as client:
        client.create_topic(name, partitions=2)
        parts = [logdb.TopicPartition(name, number) for number in range(2)]
        client.alter_committed(name, dict.fromkeys(parts, 0))
        producer = client.producer({})
        for part in parts:
            producer.send(name, b"v", partition=part.partition)
        producer.close()
        client.alter_committed(name, dict.fromkeys(parts, 1))
        client.alter_committed(name, {parts[0]: None})
        assert {part: at.offset for part, at in client.committed(name).items()} == {parts[0]: 0, parts[1]: 1}
        assert client.topic_state(name).partitions == [(0, 0, 1), (1, 0, 1)]


def test_a_member_whose_process_has_ended_is_removed(address, name):
    """Without it, the group has members until the session of this one ends, after 45 s."""
    with contextlib.closing(connected({"bootstrap.servers": address, "logdb.client": "kafka"})) as client:
        client.create_topic(name, partitions=2)
        consumer = client.consumer({}, group_id=name, group_instance_id=f"{name}-0", client_id="c")
        consumer.subscribe(pattern=re.compile(name))
        until(lambda: consumer.poll(100) is not None and consumer.has_joined(), "it joins", 60)
        consumer.close()
        assert client.has_members(name), "a static member"
        client.remove_member(name, f"{name}-1")
        assert client.has_members(name), "another one"
        client.remove_member(name, f"{name}-0")
        assert not client.has_members(name)


def test_a_fenced_producer_and_a_replaced_consumer_say_so(address, name):
    with contextlib.closing(connected({"bootstrap.servers": address, "logdb.client": "kafka"})) as client:
        client.create_topic(name, partitions=1)
        former, now = (client.transactional_producer({}, name) for _ in range(2))
        former.init_transactions()
        former.begin_transaction()
        former.send(name, b"former")
        now.init_transactions()
        with pytest.raises(logdb.errors.ProducerFenced):
            former.commit_transaction()
        now.begin_transaction()
        now.send(name, b"now")
        now.commit_transaction()
        assert [one.value for one in client.read(name, 0, 0, client.topic_state(name).partitions[0].end_offset)] == [b"now"]


def test_the_s3_sink_writes_each_record_once(broker, s3, tmp_path, name):
    bucket = s3.bucket(name)
    (tmp_path / "in.txt").write_text("".join(f'{{"n":{number}}}\n' for number in range(100)))
    sink = {
        "name": f"s3-{name}",
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "topics": name,
        "s3.bucket.name": bucket,
        "store.url": s3.url,
        "flush.size": "10",
        "format.class": "io.confluent.connect.s3.format.bytearray.ByteArrayFormat",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        **CREDENTIALS,
    }
    for _ in range(2):  # the second worker finds that all is done
        with standalone(broker.address, tmp_path, file_source(tmp_path, name), sink) as rest:
            until(lambda: len(s3.objects(bucket)) == 10, name, 60)
            rest.await_states(sink["name"], "RUNNING", "RUNNING")
    found = b"".join(text for _, text in sorted(s3.objects(bucket).items()))
    assert found.splitlines() == [b'{"n":%d}' % number for number in range(100)]


@pytest.mark.parametrize("kind", ["standalone", "distributed"])
def test_each_line_arrives_once(broker, tmp_path, name, kind):
    """kill -9 of the worker at random, and of the broker: from file over topic to file, in order."""
    seed = random.randrange(1 << 32)
    print(f"{seed=}")
    chance, port = random.Random(seed), free_port()
    properties = {**WORKER, "bootstrap.servers": broker.address, "listeners": f"http://127.0.0.1:{port}"}
    if kind == "standalone":
        properties["offset.storage.file.filename"] = f"{tmp_path}/offsets"
    else:
        properties |= {**SHARED, **{key: f"{name}-{key}" for key in SHARED if key.endswith(("topic", "group.id"))}}
    source, sink = file_source(tmp_path, name), file_sink(tmp_path, name)
    files = [written(tmp_path / "worker.properties", properties)]
    if kind == "standalone":
        files += [written(tmp_path / f"{one['name']}.properties", one) for one in (source, sink)]
    count = 0
    with contextlib.ExitStack() as stack:
        worker = WorkerProcess(kind, *files, port=port)
        stack.callback(lambda: worker.__exit__())  # noqa: PLW0108 -- of the last worker
        if kind == "distributed":
            for one in (source, sink):
                until(lambda one=one: worker.rest.call("PUT", f"/connectors/{one['name']}/config", one)[0] in (200, 201), name, 60)
        for number in range(ROUNDS):
            with (tmp_path / "in.txt").open("a") as file:
                for _ in range(chance.randrange(1, 20)):
                    size = chance.randrange(1, 200)
                    file.write("".join(f"line {line}\n" for line in range(count, count + size)))
                    file.flush()
                    count += size
                    time.sleep(chance.random() / 50)  # kills fall anywhere
            if number % 2 == 0:  # at other times it is killed before it has begun
                until(lambda: lines(tmp_path / "out.txt"), f"{seed=}", 90)
            if number == ROUNDS - 1:
                broker.kill()
                broker.start()
            else:
                worker.kill()
                worker.__exit__()
                worker = WorkerProcess(kind, *files, port=port)
        try:
            until(lambda: len(lines(tmp_path / "out.txt")) >= count, f"{seed=}", 90)
        except AssertionError:
            print(worker.process.poll(), *worker.stderr)
            for one in (source, sink):
                with contextlib.suppress(OSError):
                    print(worker.rest.call("GET", f"/connectors/{one['name']}/status"))
            raise
    assert lines(tmp_path / "out.txt") == [f"line {line}" for line in range(count)], f"{seed=}"


def test_distributed_workers_share_the_work_and_take_over(address, tmp_path, name):
    """Four connectors on two workers; one of them leaves: the other one runs all."""
    topics = {f"{key.replace('.', '_')}": f"{name}-{key}" for key in SHARED if key.endswith(("topic", "group.id"))}
    (tmp_path / "in.txt").write_text("a\n")

    def workers(rest):
        found = [rest.call("GET", f"/connectors/{name}-{number}/status")[1] or {} for number in range(4)]
        return [one["worker_id"] for document in found for one in document.get("tasks", ()) if one["state"] == "RUNNING"]

    with distributed(address, tmp_path, "one", logdb_client="kafka", **topics) as one:
        for number in range(4):
            config = {**file_source(tmp_path, f"{name}-{number}"), "name": f"{name}-{number}"}
            until(lambda config=config: one.call("PUT", f"/connectors/{config['name']}/config", config)[0] in (200, 201), name, 60)
        until(lambda: len(workers(one)) == 4, name, 60)
        with distributed(address, tmp_path, "two", logdb_client="kafka", **topics) as two:
            until(lambda: len(workers(two)) == 4 and len(set(workers(two))) == 2, name, 90)
            assert two.call("PUT", f"/connectors/{name}-0/pause")[0] == 202  # sent on to the leader, whoever that is
            assert two.call("PUT", f"/connectors/{name}-0/resume")[0] == 202
        until(lambda: len(workers(one)) == 4 and len(set(workers(one))) == 1, name, 90)
    assert [values(address, f"{name}-{number}") for number in range(4)] == [["a"]] * 4
