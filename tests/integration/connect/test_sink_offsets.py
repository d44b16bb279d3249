"""What a sink's offsets must survive: a group that has moved on, letters that are refused, and a topic that begins anew."""

import json
import sqlite3
from contextlib import closing

import pytest

import logdb
from support.connect_plugins import Watched
from support.connect_workers import served, standalone
from support.waiting import until

PLUGINS = "support.connect_plugins:"
JSON = {"value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false"}


@pytest.fixture
def broker(tmp_path):
    with served(tmp_path / "db") as address:
        yield address


@pytest.fixture
def db(broker):
    with logdb.open(broker) as opened:
        yield opened


def new_topic(db, values):
    if "t" in [one.name for one in db.topics()]:
        db.delete_topic("t")
    db.create_topic("t")
    db.append_many("t", values)


def committed(rest):
    return [one["offset"]["kafka_offset"] for one in rest.get("/connectors/s/offsets")["offsets"]]


def trace(rest):
    return rest.get("/connectors/s/status")["tasks"][0].get("trace", "")


def test_nothing_is_put_before_the_first_commit(broker, db, tmp_path):
    new_topic(db, [b"a", b"b"])

    def leave():
        (member,) = db.describe_group("connect-s").members
        db.session.leave_group("connect-s", member.member_id, group_instance_id="connect-s-0")

    Watched.kept.clear()
    Watched.leave[:] = [leave]
    with standalone(broker, tmp_path, {"name": "s", "connector.class": f"{PLUGINS}WatchedConnector", "topics": "t"}):
        until(lambda: len(Watched.kept) >= 2)
    assert Watched.kept == [("a", True), ("b", True)]


def test_a_letter_that_the_queue_did_not_take_is_not_lost(broker, db, tmp_path):
    new_topic(db, [b"1", b"{x"])
    tolerant = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "letters"}
    sink = {"name": "s", "connector.class": f"{PLUGINS}ScriptedConnector", "topics": "t", **JSON, **tolerant}
    with standalone(broker, tmp_path, sink) as rest:
        until(lambda: committed(rest) == [2])
        db.delete_topic("letters")
        db.append_many("t", [b"{y", b"3"])
        until(lambda: committed(rest) == [4])
        assert rest.states("s") == ["RUNNING", "RUNNING"]
        assert [record.value for record in db.log("letters").read(0)] == [b"{y"]


def test_a_topic_that_was_created_again_reaches_the_objects(broker, db, tmp_path):
    new_topic(db, [b"1", b"2", b"3", b"4"])
    sink = {
        "name": "s",
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "topics": "t",
        "store.url": f"file://{tmp_path}/objects",
        "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
        "flush.size": "2",
        **JSON,
    }
    first = tmp_path / "objects/topics/t/partition=0/t+0+0000000000.json"
    with standalone(broker, tmp_path, sink) as rest:
        until((first.parent / "t+0+0000000002.json").exists)
        until(lambda: committed(rest) == [4])
        new_topic(db, [b"5", b"6"])
        until(lambda: first.read_text() == "5\n6\n")
        assert rest.states("s") == ["RUNNING", "RUNNING"]


def test_a_table_does_not_leave_out_the_records_of_a_topic_that_was_created_again(broker, db, tmp_path):
    schema = {"type": "struct", "fields": [{"field": "id", "type": "int32"}]}

    def rows(*numbers):
        return [json.dumps({"schema": schema, "payload": {"id": number}}).encode() for number in numbers]

    def stored():
        with closing(sqlite3.connect(tmp_path / "shop.sqlite")) as connection:
            return [number for (number,) in connection.execute("SELECT id FROM t ORDER BY id")]

    def is_stored(*numbers):
        try:
            return stored() == list(numbers)
        except sqlite3.OperationalError:
            return False

    new_topic(db, rows(1, 2, 3))
    sink = {
        "name": "s",
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
        "topics": "t",
        "connection.url": f"jdbc:sqlite:{tmp_path}/shop.sqlite",
        "auto.create": "true",
        "value.converter": JSON["value.converter"],
    }
    with standalone(broker, tmp_path, sink) as rest:
        until(lambda: is_stored(1, 2, 3))
        until(lambda: committed(rest) == [3])
        new_topic(db, rows(4, 5))
        rest.await_states("s", "RUNNING", "FAILED")
        first = trace(rest)
        assert "t-0 begins anew at offset 0" in first
        assert rest.call("POST", "/connectors/s/tasks/0/restart")[0] == 204
        until(lambda: trace(rest) not in ("", first), "it fails again: the log does not have what the table has")
        assert rest.call("PUT", "/connectors/s/stop")[0] == 204
        rest.await_states("s", "STOPPED")
        reset = {"offsets": [{"partition": {"kafka_topic": "t", "kafka_partition": 0}, "offset": None}]}
        assert rest.call("PATCH", "/connectors/s/offsets", reset)[0] == 200
        assert rest.call("PUT", "/connectors/s/resume")[0] == 202
        until(lambda: is_stored(1, 2, 3, 4, 5))
