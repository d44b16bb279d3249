"""The config topic: it is compacted while workers run, gets what is too large, and loses its leader while a request waits."""

import contextlib
import threading
import urllib.error

import pytest

import logdb
from support.connect_workers import distributed
from support.waiting import until

PLUGINS = "support.connect_plugins:"


@pytest.fixture
def opened(tmp_path):
    with logdb.open(tmp_path / "db") as db, logdb.serve(db, http="127.0.0.1:0") as server:
        yield db, server.addresses[0]


def counter(topic, tasks=1, **more):
    config = {"connector.class": f"{PLUGINS}CounterConnector", "topic": topic, "counters": str(tasks), "tasks.max": str(tasks)}
    return {**config, **more}


def test_a_worker_reads_a_topic_that_was_compacted_while_others_ran(opened, tmp_path):
    db, broker = opened
    with distributed(broker, tmp_path, "a") as first:
        for tasks in (4, 1, 3, 2):
            for name in ("one", "two"):
                assert first.call("PUT", f"/connectors/{name}/config", counter(name, tasks))[0] in (200, 201)
                first.await_states(name, "RUNNING", *["RUNNING"] * tasks)
        assert first.call("DELETE", "/connectors/two")[0] == 204
        assert first.call("PUT", "/connectors/three/config", counter("three"))[0] == 201
        count = len(list(db.log("connect-configs").read(0)))
        db.compact("connect-configs")
        assert len(list(db.log("connect-configs").read(0))) < count
        first.await_states("one", "RUNNING", "RUNNING", "RUNNING")
        with distributed(broker, tmp_path, "b") as second:
            until(lambda: second.get("/connectors") == ["one", "three"])
            second.await_states("one", "RUNNING", "RUNNING", "RUNNING")
            assert second.call("PUT", "/connectors/one/config", counter("one", 3))[0] == 200
            second.await_states("one", "RUNNING", "RUNNING", "RUNNING", "RUNNING")
    with distributed(broker, tmp_path, "c") as alone:
        alone.await_states("one", "RUNNING", "RUNNING", "RUNNING", "RUNNING")
        alone.await_states("three", "RUNNING", "RUNNING")


@pytest.mark.parametrize("megabytes", [2, 64])
def test_a_config_that_is_too_large_is_refused_and_the_worker_goes_on(opened, tmp_path, megabytes):
    with distributed(opened[1], tmp_path, "a") as rest:
        with contextlib.suppress(urllib.error.URLError):  # the connection may be closed before all is sent
            status, answer = rest.call("POST", "/connectors", {"name": "big", "config": counter("big", more="x" * (megabytes << 20))})
            assert status in (400, 413, 500), answer
            assert "large" in answer["message"].lower() or "max" in answer["message"].lower()
        assert rest.get("/connectors") == []
        until(lambda: rest.call("POST", "/connectors", {"name": "one", "config": counter("one")})[0] == 201)
        rest.await_states("one", "RUNNING", "RUNNING")


def test_a_connector_whose_creation_was_answered_survives_a_change_of_the_leader(opened, tmp_path):
    created, stop = [], threading.Event()
    with contextlib.ExitStack() as leads, distributed(opened[1], tmp_path, "b") as rest:
        first = leads.enter_context(distributed(opened[1], tmp_path, "a"))
        until(lambda: all(each.call("PUT", "/connectors/begin/config", counter("begin"))[0] in (200, 201) for each in (rest, first)))

        def create():
            number = 0
            while not stop.is_set():
                number += 1
                name = f"c{number}"
                if rest.call("POST", "/connectors", {"name": name, "config": counter("numbers")})[0] == 201:
                    created.append(name)

        thread = threading.Thread(target=create)
        thread.start()
        try:
            until(lambda: len(created) > 2)
            leads.close()
            count = len(created)
            until(lambda: len(created) > count + 2, "the other worker creates connectors", 60)
        finally:
            stop.set()
            thread.join()
        assert set(created) <= set(rest.get("/connectors"))
        for name in created:
            rest.await_states(name, "RUNNING", "RUNNING")
