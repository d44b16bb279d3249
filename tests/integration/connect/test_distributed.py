"""Workers that share connectors and tasks: who runs what, who takes over, and what the topics hold."""

import contextlib
import json
import re
import socket
import threading
import urllib.request

import pytest

import logdb
from logdb_connect.errors import ConnectError
from logdb_connect.runtime import distributed as herders
from logdb_connect.runtime.membership import Membership
from logdb_connect.runtime.topics import STALE
from support.connect_plugins import Blocking, Moving
from support.connect_workers import SHARED, WORKER, Rest, WorkerProcess, distributed, served, written
from support.ports import free_port
from support.waiting import until

PLUGINS = "support.connect_plugins:"


@pytest.fixture
def broker(tmp_path):
    with served(tmp_path / "db") as address:
        yield address


def counter(topic="numbers", limit=100, tasks=1):
    return {
        "connector.class": f"{PLUGINS}CounterConnector",
        "topic": topic,
        "limit": str(limit),
        "counters": str(tasks),
        "tasks.max": str(tasks),
    }


def create(rest: Rest, name: str, config: dict[str, str]) -> None:
    status, answer = rest.call("POST", "/connectors", {"name": name, "config": config})
    assert status == 201, answer


def values(broker, topic):
    with logdb.open(broker) as db:
        if topic not in [one.name for one in db.topics()]:
            return []
        return [record.value.decode() for record in db.log(topic, 0).read(0, isolation_level="read_committed")]


def workers_of(rest: Rest, *names: str) -> dict[str, str]:
    """The worker of each connector and task that runs."""
    found = {}
    for name in names:
        status, document = rest.call("GET", f"/connectors/{name}/status")
        if status == 200:
            parts = [(name, document["connector"]), *((f"{name}-{one['id']}", one) for one in document["tasks"])]
            found |= {part: one["worker_id"] for part, one in parts if one["state"] == "RUNNING"}
    return found


NAMES = ("one", "two", "three", "four")


def shared_evenly(rest: Rest, ports: set[int]) -> bool:
    """Whether each of the workers runs as much as the others, and all runs."""
    found = workers_of(rest, *NAMES)
    loads = [list(found.values()).count(f"127.0.0.1:{port}") for port in ports]
    return len(found) == 8 and sum(loads) == 8 and max(loads) - min(loads) <= 2


def test_two_workers_share_four_connectors_one_leaves_and_returns(broker, tmp_path):
    with distributed(broker, tmp_path, "a") as first:
        for name in NAMES:
            create(first, name, counter(name))
        until(lambda: len(workers_of(first, *NAMES)) == 8)
        with distributed(broker, tmp_path, "b") as second:
            until(lambda: shared_evenly(second, {first.port, second.port}))
            assert sorted(second.get("/connectors")) == sorted(NAMES)
        until(lambda: set(workers_of(first, *NAMES).values()) == {f"127.0.0.1:{first.port}"} and len(workers_of(first, *NAMES)) == 8)
        with distributed(broker, tmp_path, "b") as again:
            until(lambda: shared_evenly(again, {first.port, again.port}))
    for name in NAMES:
        assert values(broker, name) == [f"0:{number}" for number in range(100)], "each once, in order"


def test_workers_begin_a_rebalance_when_they_read_the_change_not_at_their_next_heartbeat(broker, tmp_path, monkeypatch):
    slow = {"session_timeout_ms": "60000"}
    with distributed(broker, tmp_path, "a", **slow) as first, distributed(broker, tmp_path, "b", **slow) as second:
        for name in NAMES[:2]:
            create(first, name, counter(name))
        until(lambda: len(set(workers_of(second, *NAMES[:2]).values())) == 2 and len(workers_of(second, *NAMES[:2])) == 4)
        until(lambda: not any(rebalances(rest) for rest in (first, second)))
        monkeypatch.setattr(Membership, "check", lambda _: False)  # heartbeats tell of no rebalance
        for name in NAMES[2:]:
            create(second, name, counter(name))
            first.await_states(name, "RUNNING", "RUNNING")


def rebalances(rest: Rest) -> bool:
    """Whether a rebalance goes on, as a worker sees it."""
    with urllib.request.urlopen(f"http://127.0.0.1:{rest.port}/metrics") as answer:
        found = re.search(r"^kafka_connect_worker_rebalance_rebalancing(?:{})? (\S+)$", answer.read().decode(), re.MULTILINE)
    assert found
    return float(found[1]) > 0


def test_409_while_a_rebalance_goes_on(broker, tmp_path, monkeypatch):
    """A member that does not join again holds it up.  Once that one has left, a retry succeeds."""
    with distributed(broker, tmp_path) as rest, logdb.open(broker) as db:
        create(rest, "one", counter("one"))
        rest.await_states("one", "RUNNING", "RUNNING")
        monkeypatch.setattr(herders, "_REBALANCE_WAIT_S", 0.1)
        joined = db.session.join_group(
            "workers",
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="connect",
            protocols=[("logdb", b"{}")],
            client_id="other",
        ).result(60)
        db.session.sync_group("workers", generation=joined.generation, member_id=joined.member_id, assignments={}).result(60)
        until(lambda: rest.call("POST", "/connectors", {"name": "two", "config": counter("two")})[0] == 201)
        until(lambda: rebalances(rest))
        status, answer = rest.call("POST", "/connectors", {"name": "three", "config": counter("three")})
        assert (status, answer) == (409, {"error_code": 409, "message": STALE})
        db.session.leave_group("workers", joined.member_id)
        until(lambda: rest.call("POST", "/connectors", {"name": "three", "config": counter("three")})[0] == 201)
        for name in NAMES[:3]:
            rest.await_states(name, "RUNNING", "RUNNING")


def test_any_worker_answers_any_request(broker, tmp_path):
    with distributed(broker, tmp_path, "a") as first, distributed(broker, tmp_path, "b") as second:
        for rest, other, name in ((first, second, "one"), (second, first, "two")):
            create(rest, name, counter(name))
            until(lambda name=name: len(workers_of(first, name)) == 2)
            assert other.call("POST", "/connectors", {"name": name, "config": counter()})[0] == 409
            assert rest.call("PUT", f"/connectors/{name}/pause")[0] == 202
            other.await_states(name, "PAUSED", "PAUSED")
            assert other.call("PUT", f"/connectors/{name}/resume")[0] == 202
            rest.await_states(name, "RUNNING", "RUNNING")
            for each in (rest, other):
                assert each.call("POST", f"/connectors/{name}/tasks/0/restart")[0] == 204
                assert each.call("POST", f"/connectors/{name}/restart")[0] == 204
                assert each.call("POST", f"/connectors/{name}/restart?includeTasks=true")[0] == 202
                rest.await_states(name, "RUNNING", "RUNNING")
            assert other.call("PATCH", f"/connectors/{name}/config", {"limit": "120"})[0] == 200
            until(lambda name=name: len(values(broker, name)) == 120)
            assert rest.call("PUT", f"/connectors/{name}/stop")[0] == 204
            other.await_states(name, "STOPPED")
            # the worker that runs the tasks may still end them
            until(lambda other=other, name=name: other.call("DELETE", f"/connectors/{name}/offsets")[0] == 200)
            assert rest.get(f"/connectors/{name}/offsets") == {"offsets": []}
            assert other.call("DELETE", f"/connectors/{name}")[0] == 204
            until(lambda rest=rest, name=name: name not in rest.get("/connectors"))


def test_more_tasks_and_fewer(broker, tmp_path):
    with distributed(broker, tmp_path, "a") as first, distributed(broker, tmp_path, "b"):
        create(first, "one", counter("one", tasks=1))
        for tasks in (4, 2):
            assert first.call("PATCH", "/connectors/one/config", {"tasks.max": str(tasks), "counters": str(tasks)})[0] == 200
            first.await_states("one", "RUNNING", *["RUNNING"] * tasks)
            until(lambda: len(values(broker, "one")) == 400)
        assert len(set(values(broker, "one"))) == 400


def test_a_taken_port_is_named(broker, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        begin = distributed(broker, tmp_path, listeners=f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(ConnectError, match=r"cannot listen: .*; name another port"), begin:
            pass


def test_the_topics_hold_what_kafka_connect_writes(broker, tmp_path):
    with distributed(broker, tmp_path, "a") as rest:
        create(rest, "one", counter("one"))
        rest.await_states("one", "RUNNING", "RUNNING")
        until(lambda: len(values(broker, "one")) == 100)
        rest.call("PUT", "/connectors/one/pause")
        rest.await_states("one", "PAUSED", "PAUSED")

    def latest(topic):
        with logdb.open(broker) as db:
            assert db.describe_topic(topic).config["cleanup.policy"] == "compact"
            found = {}
            for partition in range(db.describe_topic(topic).partition_count):
                for record in db.log(topic, partition).read(0, isolation_level="read_committed"):
                    found[record.key.decode()] = json.loads(record.value)
            return found

    configs = latest("connect-configs")
    assert configs["connector-one"]["properties"]["topic"] == "one"
    assert configs["task-one-0"]["properties"] == {"topic": "one", "limit": "100", "number": "0"}
    assert configs["commit-one"] == {"tasks": 1}
    assert configs["target-state-one"] == {"state": "PAUSED", "state.v2": "PAUSED"}
    assert set(configs["session-key"]) == {"key", "algorithm", "creation-timestamp"}
    statuses = latest("connect-status")
    assert {"status-connector-one", "status-task-one-0", "status-topic-one:connector-one"} == set(statuses)
    assert set(statuses["status-task-one-0"]) == {"state", "trace", "worker_id", "generation"}
    assert latest("connect-offsets") == {'["one",{"counter":"0"}]': {"next": 100}}


def test_a_task_that_a_worker_cannot_stop_is_fenced_by_its_successor(broker, tmp_path):
    with distributed(broker, tmp_path, "a", task_shutdown_graceful_timeout_ms="100") as rest:
        create(rest, "stuck", {"connector.class": f"{PLUGINS}BlockingConnector"})
        rest.await_states("stuck", "RUNNING", "RUNNING")
        before = {thread for thread in threading.enumerate() if thread.name == "connect-stuck-0"}
        assert rest.call("POST", "/connectors/stuck/tasks/0/restart")[0] == 204
        rest.await_states("stuck", "RUNNING", "RUNNING")
        assert len([thread for thread in threading.enumerate() if thread.name == "connect-stuck-0"]) == len(before) + 1
        Blocking.released.set()
        until(lambda: not any(thread.is_alive() for thread in before))
        Blocking.released.clear()
        rest.await_states("stuck", "RUNNING", "RUNNING")
    Blocking.released.set()


def test_the_work_of_a_killed_worker_goes_to_the_other_one(broker, tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"{number}\n" for number in range(500)))
    place = broker.removeprefix("http://")

    @contextlib.contextmanager
    def process(name):
        port = free_port()
        properties = {**WORKER, **SHARED, "bootstrap.servers": place, "listeners": f"http://127.0.0.1:{port}"}
        with WorkerProcess("distributed", written(tmp_path / f"{name}.properties", properties), port=port) as worker:
            yield worker

    source = {"connector.class": "FileStreamSource", "file": f"{tmp_path}/in.txt", "topic": "lines"}
    sink = {"connector.class": "FileStreamSink", "file": f"{tmp_path}/out.txt", "topics": "lines"}
    with process("a") as first, process("b") as second:
        create(first.rest, "source", source)
        create(second.rest, "sink", sink)
        until(lambda: len(workers_of(first.rest, "source", "sink")) == 4)
        for victim, other in ((first, second),):
            victim.kill()
            with (tmp_path / "in.txt").open("a") as file:
                file.write("".join(f"{number}\n" for number in range(500, 1_000)))
            until(lambda: (tmp_path / "out.txt").exists() and len((tmp_path / "out.txt").read_text().splitlines()) >= 1_000)
            other.rest.await_states("source", "RUNNING", "RUNNING")
        assert second.stop() == 0
    assert (tmp_path / "out.txt").read_text().splitlines() == [str(number) for number in range(1_000)]


def test_a_part_that_moves_to_another_task_is_left_by_the_former_one_first(broker, tmp_path):
    Moving.hangs.clear()
    Moving.released.clear()
    with distributed(broker, tmp_path, "a") as first, distributed(broker, tmp_path, "b") as second:
        create(first, "moving", {"connector.class": f"{PLUGINS}MovingConnector", "tasks.max": "2"})
        until(Moving.hangs.is_set)
        until(lambda: len({workers_of(second, "moving").get(f"moving-{task}") for task in (0, 1)} - {None}) == 2)
        assert first.call("PATCH", "/connectors/moving/config", {"tasks.max": "1"})[0] == 200
        until(lambda: {"0:19", "1:19"} <= set(values(broker, "moving")))
        first.await_states("moving", "RUNNING", "RUNNING")
    found = values(broker, "moving")
    assert sorted(found) == sorted(set(found)), "each once"


def test_offsets_stay_while_any_task_of_a_stopped_connector_runs(broker, tmp_path):
    new = {"offsets": [{"partition": {"counter": "0"}, "offset": {"next": 7}}]}
    with distributed(broker, tmp_path, "a") as rest, logdb.open(broker) as db, db.producer() as producer:
        create(rest, "one", counter("one", tasks=2))
        until(lambda: len(workers_of(rest, "one")) == 3)
        assert rest.call("PUT", "/connectors/one/stop")[0] == 204
        rest.await_states("one", "STOPPED")
        for worker, state, status in ((rest.port, "RUNNING", 400), (rest.port, "UNASSIGNED", 200), (1, "RUNNING", 200)):
            document = {"state": state, "trace": None, "worker_id": f"127.0.0.1:{worker}", "generation": 9}
            producer.send("connect-status", json.dumps(document).encode(), b"status-task-one-1")
            producer.flush()
            assert rest.call("PATCH", "/connectors/one/offsets", new)[0] == status, (worker, state)


def test_topics_of_workers_that_were_created_again(broker, tmp_path):
    with distributed(broker, tmp_path, "a") as rest:
        create(rest, "one", counter("one"))
        until(lambda: len(values(broker, "one")) == 100)
        with logdb.open(broker) as db:
            for topic, partitions in (("connect-configs", 1), ("connect-offsets", 2), ("connect-status", 5)):
                db.delete_topic(topic)
                db.create_topic(topic, partitions=partitions, config={"cleanup.policy": "compact"})
        create(rest, "two", counter("two"))
        until(lambda: len(values(broker, "two")) == 100)
        rest.await_states("two", "RUNNING", "RUNNING")
        until(lambda: rest.get("/connectors/two/offsets")["offsets"] == [{"partition": {"counter": "0"}, "offset": {"next": 100}}])
