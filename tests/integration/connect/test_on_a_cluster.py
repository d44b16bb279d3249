"""Distributed workers on three brokers, each of which is killed in its turn: no line is lost, and none comes twice."""

import logdb
from support.cluster_process import cluster_process, eventually
from support.connect_workers import distributed
from support.feeding import fed
from support.waiting import until

SOURCE = {"name": "in", "connector.class": "FileStreamSource", "topic": "lines"}
SINK = {"name": "out", "connector.class": "FileStreamSink", "topics": "lines"}
PROGRESS_S = 120


def in_sync(cluster):
    """Whether each partition has all its replicas."""
    with logdb.open(cluster.urls) as db:
        topics = [db.describe_topic(topic.name) for topic in db.topics(internal=True)]
        return all(set(one.in_sync) == set(one.replicas) for topic in topics for one in topic.partitions)


def leader(cluster):
    with logdb.open(cluster.urls) as db:
        return db.describe_topic("lines").partitions[0].leader


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


def test_each_line_arrives_once_whichever_broker_is_killed(tmp_path):
    """The leader of the records first."""
    out, written = tmp_path / "out.txt", []
    with cluster_process(tmp_path / "nodes", kafka=True) as cluster, (tmp_path / "in.txt").open("a", buffering=1) as file:
        with logdb.open(cluster.urls) as db:
            db.create_topic("lines", partitions=1, replication_factor=3, config={"min.insync.replicas": 2})
        first, servers = leader(cluster), ",".join(cluster.kafka)
        with distributed(servers, tmp_path, "a") as a, distributed(servers, tmp_path, "b") as b:
            for rest, one in ((a, SOURCE), (b, SINK)):
                config = {**one, "file": str(tmp_path / f"{one['name']}.txt")}
                until(lambda rest=rest, config=config: rest.call("PUT", f"/connectors/{config['name']}/config", config)[0] in (200, 201))

            def write(number):
                file.write(f"line {number}\n")
                written.append(f"line {number}")

            def more():
                wanted = len(written) + 100
                until(lambda: len(lines(out)) > wanted, f"{a.get('/connectors?expand=status')}", PROGRESS_S)

            with fed(write):
                for node in sorted(cluster.numbers, key=lambda number: number != first):
                    more()
                    cluster.kill(node)
                    more()
                    cluster.start(node)
                    eventually(lambda: in_sync(cluster))
            until(lambda: len(lines(out)) >= len(written), "the last line", PROGRESS_S)
            with logdb.open(cluster.urls) as db:
                stored = [record.value.decode() for record in db.log("lines").read(0, isolation_level="read_committed")]
            assert [one.states("in") + one.states("out") for one in (a, b)] == [["RUNNING"] * 4] * 2
    assert stored == written
    assert lines(out) == written
