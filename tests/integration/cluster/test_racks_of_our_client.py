"""A client with ``rack=`` reads at the follower in its rack, at three nodes in processes of their own."""

import signal

import pytest

import logdb
from support.cluster_process import bytes_out, cluster_process, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]  # three processes start, and are killed
PARTITIONS, RACKS, NEAR = range(3), ("a", "b", "c"), 2
COUNT, SIZE = 8_000, 1_000
LARGE_BYTES = 0.9 * COUNT * SIZE * len(PARTITIONS)
FIRST_CHUNK_BYTES = 300_000
"""More than what the leader sends of a range: its first chunk, which is a batch of 256 KiB."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with cluster_process(tmp_path_factory.mktemp("racks"), racks=RACKS) as cluster:
        yield cluster


@pytest.fixture
def db(cluster):
    with logdb.open(cluster.urls) as db:
        yield db


@pytest.fixture
def near(cluster):
    with logdb.open(cluster.urls, rack=RACKS[NEAR - 1]) as db:
        yield db


def value(partition, number):
    return b"%d-%06d " % (partition, number) + b"x" * SIZE


def filled(db, topic):
    """The values of each partition; all replicas have them."""
    db.create_topic(topic, partitions=len(PARTITIONS))
    values = {partition: [value(partition, number) for number in range(COUNT)] for partition in PARTITIONS}
    for partition, given in values.items():
        db.log(topic, partition).append_many(given)
    eventually(lambda: all(len(one.in_sync) == len(RACKS) for one in db.describe_topic(topic).partitions))
    return values


def read(db, topic, partition, begin=0, **options):
    return [record.value for record in db.log(topic, partition).read(begin, **options)]


def read_arrow(db, topic, partition):
    return db.log(topic, partition).read_arrow(columns=["value"]).read_all()["value"].to_pylist()


@pytest.mark.parametrize("how", [read, read_arrow])
def test_a_large_read_spares_the_leaders(cluster, db, near, how):
    topic = f"large-{how.__name__}"
    values = filled(db, topic)
    leaders = [one.leader for one in db.describe_topic(topic).partitions]

    def spared():
        """Whether the leaders send no more than first chunks; a follower learns of a commit later than the client."""
        before = bytes_out(cluster, topic)
        for partition in PARTITIONS:
            assert how(near, topic, partition) == values[partition]
        sent = {number: count - before[number] for number, count in bytes_out(cluster, topic).items()}
        return all(0 < sent[one] < FIRST_CHUNK_BYTES * leaders.count(one) for one in {*leaders} - {NEAR}) and sent[NEAR] > LARGE_BYTES

    eventually(spared)


def elsewhere(db, topic):
    """A partition that the node in the rack follows."""
    return next(one.partition for one in db.describe_topic(topic).partitions if one.leader != NEAR)


def test_the_follower_is_killed_in_the_middle_of_a_read(cluster, db, near):
    values = filled(db, "killed")
    partition = elsewhere(db, "killed")
    found = []
    for record in near.log("killed", partition).read(0):
        found.append(record.value)
        if len(found) == COUNT // 4:
            assert bytes_out(cluster, "killed")[NEAR] > 0
            cluster.kill(NEAR)
    assert found == values[partition]
    cluster.start(NEAR)
    eventually(lambda: all(len(one.in_sync) == len(RACKS) for one in db.describe_topic("killed").partitions))
    assert read(near, "killed", partition) == values[partition], "of a follower that was avoided nothing is missing"


def test_the_follower_is_cut_off_in_the_middle_of_a_read(cluster, db, near):
    values = filled(db, "stopped")
    partition = elsewhere(db, "stopped")
    found = []
    try:
        for record in near.log("stopped", partition).read(0):
            found.append(record.value)
            if len(found) == COUNT // 4:
                cluster.processes[NEAR].send_signal(signal.SIGSTOP)
    finally:
        cluster.processes[NEAR].send_signal(signal.SIGCONT)
    assert found == values[partition]
    eventually(lambda: all(len(one.in_sync) == len(RACKS) for one in db.describe_topic("stopped").partitions))


def test_read_committed_at_a_follower(cluster, db, near):
    db.create_topic("transactions", partitions=len(PARTITIONS))
    partition, kept = elsewhere(db, "transactions"), []
    with db.producer(transactional_id="of racks") as producer:
        for number in range(40):
            producer.begin_transaction()
            values = [value(partition, 100 * number + place) for place in range(100)]
            for one in values:
                producer.send("transactions", one, partition=partition)
            producer.flush()
            if number % 3:
                producer.commit_transaction()
                kept += values
            else:
                producer.abort_transaction()
    before = bytes_out(cluster, "transactions")[NEAR]
    eventually(lambda: read(near, "transactions", partition, isolation_level="read_committed") == kept)
    assert bytes_out(cluster, "transactions")[NEAR] - before > len(kept) * SIZE // 2
    assert len(read(near, "transactions", partition)) == 4_000


def test_a_read_of_what_is_gone_fails_as_at_the_leader(db, near):
    filled(db, "deleted")
    partition = elsewhere(db, "deleted")
    db.delete_records("deleted", partition, COUNT // 2)
    with pytest.raises(logdb.errors.OffsetOutOfRange):
        read(near, "deleted", partition)
    assert len(read(near, "deleted", partition, COUNT // 2)) == COUNT // 2


def test_clients_without_a_rack_read_at_leaders(cluster, db):
    values = filled(db, "plain")
    partition = elsewhere(db, "plain")
    before = bytes_out(cluster, "plain")[NEAR]
    assert read(db, "plain", partition) == values[partition]
    assert bytes_out(cluster, "plain")[NEAR] == before
