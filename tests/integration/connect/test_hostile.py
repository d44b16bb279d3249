"""What people with other intents send to a worker, and write into its topics."""

import json

import pytest

import logdb
from support.connect_workers import distributed, served, standalone, written
from support.waiting import until

PLUGINS = "support.connect_plugins:"
PATH = "/connector-plugins/CounterConnector/config/validate"
COUNTER = {"connector.class": f"{PLUGINS}CounterConnector", "topic": "numbers", "limit": "10"}


@pytest.fixture
def broker(tmp_path):
    with served(tmp_path / "db") as address:
        yield address


def test_a_request_that_goes_on_to_another_worker_keeps_the_name(broker, tmp_path):
    with distributed(broker, tmp_path, "a") as first, distributed(broker, tmp_path, "b") as second:
        for name in ("a", "a?b", "a/b", "ä %"):
            assert first.call("POST", "/connectors", {"name": name, "config": COUNTER})[0] == 201
        for rest in (first, second):
            assert rest.call("DELETE", "/connectors/a%3Fb" if rest is first else "/connectors/a%2Fb")[0] == 204
        for rest in (second, first):
            assert rest.call("PUT", "/connectors/%C3%A4%20%25/pause")[0] == 202
        until(lambda: sorted(second.get("/connectors")) == ["a", "ä %"], "no other connector was deleted")


def test_records_that_no_worker_wrote_are_left_out(broker, tmp_path, caplog):
    with distributed(broker, tmp_path, "a") as rest:
        assert rest.call("POST", "/connectors", {"name": "one", "config": COUNTER})[0] == 201
        rest.await_states("one", "RUNNING", "RUNNING")
        bad = {
            "connect-configs": [
                (b"commit-one", b'{"tasks":"x"}'),
                (b"commit-one", b'{"tasks":1e400}'),
                (b"commit-one", b'{"tasks":null}'),
                (b"session-key", b'{"key":"a"}'),
                (b"connector-nested", b"[" * 100_000),
                (b"task-one-" + b"9" * 5000, b"{}"),
                (b"connector-two", b'{"properties":7}'),
            ],
            "connect-status": [(b"status-task-one-0", b'{"generation":"x"}'), (b"status-task-one-" + b"9" * 5000, b"{}")],
            "connect-offsets": [(b'["one",{"counter":"\\ud800"}]', b"{}"), (b'["one",{"counter":NaN}]', b'{"next":NaN}')],
        }
        with logdb.open(broker) as db, db.producer() as producer:
            for topic, records in bad.items():
                for key, value in records:
                    producer.send(topic, value, key, partition=0)
        assert rest.call("POST", "/connectors", {"name": "later", "config": {**COUNTER, "topic": "later"}})[0] == 201
        rest.await_states("later", "RUNNING", "RUNNING")
    with distributed(broker, tmp_path, "b") as rest:
        rest.await_states("later", "RUNNING", "RUNNING")
        rest.await_states("one", "RUNNING", "RUNNING")
    assert "topic connect-configs: the record at offset" in caplog.text


def test_names_and_texts_that_no_topic_or_header_can_hold(broker, tmp_path):
    with distributed(broker, tmp_path, "a") as rest:
        for name in ("a\r\nX-Injected: 1", "a\x00b", "..", "\ud800"):
            status, answer = rest.call("POST", "/connectors", {"name": name, "config": COUNTER})
            assert status == 400, (name, answer)
        assert rest.call("PUT", "/connectors/a%0A/config", COUNTER)[0] == 400
        state = {"name": "a", "config": {**COUNTER, "x": "\ud800"}, "initial_state": "PAUSED"}
        assert rest.call("POST", "/connectors", state)[0] == 400
        assert rest.call("POST", "/connectors", {"name": "fine", "config": COUNTER})[0] == 201
        assert rest.get("/connectors") == ["fine"]


def test_validation_never_shows_what_a_provider_gave(broker, tmp_path):
    secrets = written(tmp_path / "secrets.properties", {"word": "hush-hush"})
    providers = {
        "config_providers": "file",
        "config_providers_file_class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    }
    with standalone(broker, tmp_path, **providers) as rest:
        given = {**COUNTER, "name": "c", "limit": f"${{file:{secrets}:word}}"}
        status, answer = rest.call("PUT", PATH.replace("CounterConnector", f"{PLUGINS}CounterConnector"), given)
        assert status == 200 and answer["error_count"] == 1
        assert "hush-hush" not in json.dumps(answer)


def test_a_member_that_is_no_worker_gets_no_work(broker, tmp_path):
    with distributed(broker, tmp_path, "a") as rest, logdb.open(broker) as db:
        assert rest.call("POST", "/connectors", {"name": "one", "config": COUNTER})[0] == 201
        rest.await_states("one", "RUNNING", "RUNNING")
        joined = db.session.join_group(
            "workers",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            protocol_type="connect",
            protocols=[("logdb", b'{"url":1')],
            client_id="other",
        ).result(20)
        synced = db.session.sync_group("workers", generation=joined.generation, member_id=joined.member_id, assignments={})
        assert rest.call("POST", "/connectors", {"name": "two", "config": {**COUNTER, "topic": "two"}})[0] == 201
        synced.result(20)
        db.session.leave_group("workers", joined.member_id)
        rest.await_states("two", "RUNNING", "RUNNING")


def test_large_bodies(broker, tmp_path):
    with standalone(broker, tmp_path) as rest:
        for size, status in ((2 << 20, 201), (17 << 20, 413)):
            assert rest.call("PUT", "/connectors/large/config", {**COUNTER, "x": "x" * size})[0] == status
