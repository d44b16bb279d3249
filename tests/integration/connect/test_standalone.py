"""A worker alone: files and topics, states, bad input, and the REST API's answers."""

import contextlib
import http.client
import json
import socket
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

import logdb
from logdb_connect.errors import ConfigError, ConnectError
from logdb_connect.runtime import source
from support.connect_plugins import Blocking, Ending, Scripted, retriable
from support.connect_workers import served, standalone, written
from support.waiting import until

PLUGINS = "support.connect_plugins:"


@pytest.fixture
def broker(tmp_path):
    with served(tmp_path / "db") as address:
        yield address


@pytest.fixture(autouse=True)
def _fresh():
    Scripted.kept.clear(), Scripted.failures.clear(), Scripted.calls.clear()
    yield
    Blocking.released.set()
    Blocking.released.clear()


def file_source(directory, name="in", **more):
    return {"name": name, "connector.class": "FileStreamSource", "file": f"{directory}/{name}.txt", "topic": "lines", **more}


def file_sink(directory, name="out", **more):
    return {"name": name, "connector.class": "FileStreamSink", "file": f"{directory}/{name}.txt", "topics": "lines", **more}


def values(broker, topic, partition=0):
    with logdb.open(broker) as db:
        if topic not in [one.name for one in db.topics()]:
            return []
        return [record.value for record in db.log(topic, partition).read(0, isolation_level="read_committed")]


def test_from_file_to_topic_to_file_also_in_a_directory(tmp_path):
    (tmp_path / "in.txt").write_text("a\nb\n")
    with standalone(str(tmp_path / "db"), tmp_path, file_source(tmp_path), file_sink(tmp_path)) as rest:
        until(lambda: (tmp_path / "out.txt").exists() and (tmp_path / "out.txt").read_text() == "a\nb\n")
        rest.await_states("in", "RUNNING", "RUNNING")
        until(lambda: rest.get("/connectors/out/offsets")["offsets"])
        found = rest.get("/connectors/in/offsets")["offsets"]
    assert [(one["partition"], one["offset"]["position"]) for one in found] == [({"filename": f"{tmp_path}/in.txt"}, 4)]
    copy = json.loads((tmp_path / "offsets").read_text())
    assert copy["offsets"] == [{"connector": "in", **found[0]}]


def test_without_the_offset_file_a_source_begins_again(broker, tmp_path):
    (tmp_path / "in.txt").write_text("a\n")
    for _ in range(2):
        with standalone(broker, tmp_path, file_source(tmp_path)):
            until(lambda: values(broker, "lines"))
    assert values(broker, "lines") == [b"a"]
    (tmp_path / "offsets").unlink()
    with standalone(broker, tmp_path, file_source(tmp_path)):
        until(lambda: values(broker, "lines") == [b"a", b"a"])


def test_a_second_worker_needs_an_offset_file_of_its_own(broker, tmp_path):
    with standalone(broker, tmp_path):
        second = standalone(broker, tmp_path)
        with pytest.raises(ConnectError, match="another worker uses this file; give each worker a file of its own"), second:
            pass


def test_at_least_once_where_exactly_once_is_disabled(broker, tmp_path):
    counter = {"name": "count", "connector.class": f"{PLUGINS}CounterConnector", "topic": "numbers", "limit": "25"}
    with standalone(broker, tmp_path, counter, exactly_once_source_support="disabled") as rest:
        until(lambda: len(values(broker, "numbers")) == 25)
        until(lambda: rest.get("/connectors/count/offsets")["offsets"] == [{"partition": {"counter": "0"}, "offset": {"next": 25}}])
    with logdb.open(broker) as db:
        assert db.transactions() == []


def test_each_state_of_a_connector_and_its_tasks(broker, tmp_path):
    counter = {"name": "count", "connector.class": f"{PLUGINS}CounterConnector", "topic": "numbers", "counters": "2", "tasks.max": "2"}
    with standalone(broker, tmp_path, counter) as rest:
        rest.await_states("count", "RUNNING", "RUNNING", "RUNNING")
        assert rest.call("PUT", "/connectors/count/pause") == (202, None)
        rest.await_states("count", "PAUSED", "PAUSED", "PAUSED")
        assert rest.call("PUT", "/connectors/count/resume") == (202, None)
        rest.await_states("count", "RUNNING", "RUNNING", "RUNNING")
        assert rest.call("PUT", "/connectors/count/stop") == (204, None)
        rest.await_states("count", "STOPPED")
        assert rest.get("/connectors/count/tasks") == []
        assert rest.call("PUT", "/connectors/count/resume") == (202, None)
        rest.await_states("count", "RUNNING", "RUNNING", "RUNNING")
        assert rest.call("POST", "/connectors/count/tasks/1/restart") == (204, None)
        assert rest.call("POST", "/connectors/count/restart") == (204, None)
        assert rest.call("POST", "/connectors/count/restart?includeTasks=true")[0] == 202
        rest.await_states("count", "RUNNING", "RUNNING", "RUNNING")
        until(lambda: len(values(broker, "numbers")) == 200)
        assert rest.get("/connectors/count/topics") == {"count": {"topics": ["numbers"]}}
        status, made = rest.call("PATCH", "/connectors/count/config", {"tasks.max": "1", "limit": "150"})
        assert (status, made["config"]["limit"]) == (200, "150")
        rest.await_states("count", "RUNNING", "RUNNING")
        until(lambda: len(values(broker, "numbers")) == 250)
        assert rest.call("DELETE", "/connectors/count") == (204, None)
        assert rest.get("/connectors") == []
    found = values(broker, "numbers")
    assert len(found) == len(set(found))


def test_a_failed_sink_task_says_why_and_only_it_is_restarted(broker, tmp_path):
    with logdb.open(broker) as db:
        db.create_topic("lines")
        db.append("lines", b"poison")
    Scripted.failures.append(ValueError("this record"))
    (tmp_path / "in.txt").write_text("a\n")
    sink = {"name": "sink", "connector.class": f"{PLUGINS}ScriptedConnector", "topics": "lines"}
    with standalone(broker, tmp_path, sink, file_source(tmp_path)) as rest:
        rest.await_states("sink", "RUNNING", "FAILED")
        trace = rest.get("/connectors/sink/status")["tasks"][0]["trace"]
        assert "ValueError: this record" in trace
        assert "connect_plugins.py" in trace
        rest.await_states("in", "RUNNING", "RUNNING")
        assert rest.call("POST", "/connectors/sink/restart?includeTasks=true&onlyFailed=true")[0] == 202
        rest.await_states("sink", "RUNNING", "RUNNING")
        until(lambda: Scripted.kept == ["poison", "a"])


def test_a_retriable_error_of_a_sink_calls_put_again(broker, tmp_path):
    Scripted.failures += retriable(2)
    (tmp_path / "in.txt").write_text("a\nb\n")
    sink = {"name": "sink", "connector.class": f"{PLUGINS}ScriptedConnector", "topics": "lines"}
    with standalone(broker, tmp_path, file_source(tmp_path), sink) as rest:
        until(lambda: Scripted.kept == ["a", "b"])
        rest.await_states("sink", "RUNNING", "RUNNING")
        until(lambda: rest.get("/connectors/sink/offsets")["offsets"])
        assert rest.get("/connectors/sink/offsets")["offsets"][0]["offset"]["kafka_offset"] >= 2
        assert "flush after 2" in Scripted.calls  # as Java's SinkTask: before offsets are committed


@pytest.mark.parametrize("blocking", ["BlockingConnector", "BlockingStart"])
def test_one_that_blocks_leaves_the_others_running(broker, tmp_path, blocking):
    (tmp_path / "in.txt").write_text("a\n")
    with standalone(
        broker, tmp_path, {"name": "stuck", "connector.class": f"{PLUGINS}{blocking}"}, task_shutdown_graceful_timeout_ms="200"
    ) as rest:
        assert rest.call("POST", "/connectors", {"name": "in", "config": file_source(tmp_path)})[0] == 201
        until(lambda: values(broker, "lines") == [b"a"])
        assert rest.call("DELETE", "/connectors/stuck") == (204, None)
        assert rest.get("/connectors") == ["in"]
        rest.await_states("in", "RUNNING", "RUNNING")


def test_a_task_that_was_abandoned_can_write_nothing_more(broker, tmp_path, monkeypatch):
    poll = Blocking.poll

    def late(self):
        poll(self)
        from logdb_connect import SourceRecord

        return [SourceRecord(topic="late", value="x", source_partition={"a": 1}, source_offset={"b": 1})]

    monkeypatch.setattr(Blocking, "poll", late)
    stuck = {"name": "stuck", "connector.class": f"{PLUGINS}BlockingConnector"}
    with standalone(broker, tmp_path, stuck, task_shutdown_graceful_timeout_ms="100") as rest:
        rest.await_states("stuck", "RUNNING", "RUNNING")
        rest.call("DELETE", "/connectors/stuck")
        Blocking.released.set()
        (tmp_path / "in.txt").write_text("a\n")
        rest.call("POST", "/connectors", {"name": "in", "config": file_source(tmp_path)})
        until(lambda: values(broker, "lines") == [b"a"])
    assert values(broker, "late") == []


# ------------------------------------------------------------ what bad input gets


def test_wrong_connectors_are_refused_and_name_what_is_wrong(broker, tmp_path):
    with standalone(broker, tmp_path, file_source(tmp_path)) as rest:

        def made(called, **config):
            return rest.call("POST", "/connectors", {"name": called, "config": config})

        status, answer = made("x", **{"connector.class": "NoSuchConnector"})
        assert (status, answer["error_code"]) == (400, 400)
        assert "FileStreamSourceConnector" in answer["message"]
        assert made("in", **file_source(tmp_path))[0] == 409
        assert made("in", **file_source(tmp_path))[1]["message"] == "Connector in already exists"
        status, answer = made("x", **{"connector.class": "FileStreamSink", "file": "/tmp/x", "tasks.max": "none"})
        assert status == 400
        assert "contains the following 3 error(s):" in answer["message"]
        assert "Invalid value none for configuration tasks.max" in answer["message"]
        assert "Must configure one of topics or topics.regex" in answer["message"]
        assert made("x", **{"connector.class": f"{PLUGINS}CounterConnector"})[0] == 400
        message = "Connector config ['name'] contains no connector type: connector.class is missing"
        assert made("x") == (400, {"error_code": 400, "message": message})
        status, answer = rest.call("POST", "/connectors", {"name": "x", "connector.class": "FileStreamSink"})
        assert (status, "config is missing" in answer["message"]) == (400, True)
        for wrong, message in (
            ({"value.converter": "JsonConvertr"}, "JsonConvertr for configuration value.converter: Failed to find"),
            ({**JSON, "value.converter.schemas.enable": "perhaps"}, "perhaps for configuration schemas.enable"),
            ({"transforms": "a", "transforms.a.type": "Filter", "transforms.a.predicate": "b"}, "must be one of predicates="),
        ):
            status, answer = made("x", **file_source(tmp_path, "x"), **wrong)
            assert (status, "following 1 error(s)" in answer["message"], message in answer["message"]) == (400, True, True), answer
        assert rest.call("POST", "/connectors", {"config": {}})[0] == 400
        assert rest.call("PUT", "/connectors/x/config", {"name": "y", "connector.class": "FileStreamSource"})[0] == 400
        assert rest.get("/connectors") == ["in"]


def test_an_error_names_the_connectors_file(broker, tmp_path):
    begin = standalone(broker, tmp_path, {"name": "typo", "connector.class": "FileStreamSorce"})
    with pytest.raises(ConnectError, match=rf"{tmp_path}/typo\.properties: Failed to find any class"), begin:
        pass


def test_validation_answers_field_by_field(broker, tmp_path):
    with standalone(broker, tmp_path) as rest:
        path = "/connector-plugins/FileStreamSink/config/validate"
        status, answer = rest.call("PUT", path, {"connector.class": "FileStreamSink", "name": "a", "tasks.max": "0"})
        assert (status, answer["name"]) == (200, "org.apache.kafka.connect.file.FileStreamSinkConnector")
        by_name = {one["value"]["name"]: one for one in answer["configs"]}
        assert by_name["tasks.max"]["value"]["errors"] == ["Invalid value 0 for configuration tasks.max: Value must be at least 1"]
        assert by_name["tasks.max"]["definition"]["type"] == "INT"
        assert by_name["topics"]["value"]["errors"]
        assert answer["error_count"] == 3
        status, answer = rest.call("PUT", path, {"connector.class": "FileStreamSource"})
        assert status == 400
        assert "does not match" in answer["message"]


def test_offsets_change_only_while_a_connector_is_stopped(broker, tmp_path):
    (tmp_path / "in.txt").write_text("a\nb\nc\n")
    with standalone(broker, tmp_path, file_source(tmp_path), file_sink(tmp_path)) as rest:
        until(lambda: (tmp_path / "out.txt").exists() and (tmp_path / "out.txt").read_text() == "a\nb\nc\n")
        new = {"offsets": [{"partition": {"filename": f"{tmp_path}/in.txt"}, "offset": {"position": 2}}]}
        status, answer = rest.call("PATCH", "/connectors/in/offsets", new)
        assert (status, "STOPPED state" in answer["message"]) == (400, True)
        assert rest.call("DELETE", "/connectors/out/offsets")[0] == 400
        for name in ("in", "out"):
            assert rest.call("PUT", f"/connectors/{name}/stop") == (204, None)
            rest.await_states(name, "STOPPED")
        assert rest.call("PATCH", "/connectors/in/offsets", new) == (
            200,
            {"message": "The offsets for this connector have been altered successfully"},
        )
        assert rest.get("/connectors/in/offsets") == new
        assert rest.call("PATCH", "/connectors/in/offsets", {"offsets": [{"partition": 1}]})[0] == 400
        assert rest.call("DELETE", "/connectors/out/offsets")[0] == 200
        assert rest.get("/connectors/out/offsets") == {"offsets": []}
        rest.call("PUT", "/connectors/in/resume")
        until(lambda: values(broker, "lines") == [b"a", b"b", b"c", b"b", b"c"])


def test_a_taken_port_and_an_open_address_name_the_setting(broker, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        begin = standalone(broker, tmp_path, listeners=address)
        with pytest.raises(ConnectError, match=rf"listeners={address}: cannot listen: .*; name another port"), begin:
            pass
    begin = standalone(broker, tmp_path, listeners="http://0.0.0.0:0")
    with pytest.raises(ConfigError, match=r"others can reach it.*rest\.insecure=true"), begin:
        pass
    with pytest.raises(ConfigError, match="must be http://host:port"), standalone(broker, tmp_path, listeners="8083"):
        pass


def test_users_of_the_rest_api(broker, tmp_path):
    users = written(tmp_path / "users.properties", {"ada": "secret"})
    with standalone(broker, tmp_path, rest_users_file=users) as rest:
        status, answer = rest.call("GET", "/connectors")
        assert (status, answer["error_code"]) == (401, 401)
        assert rest.call("GET", "/connectors", headers={"Authorization": "Basic YWRhOndyb25n"})[0] == 401
        assert rest.call("GET", "/connectors", headers={"Authorization": "Basic YWRhOnNlY3JldA=="}) == (200, [])
        connection = http.client.HTTPConnection("127.0.0.1", rest.port, timeout=60)
        with contextlib.closing(connection):
            connection.putrequest("GET", "/connectors")
            for credentials in ("YWRhOnNlY3JldA==", "YWRhOndyb25n"):  # a proxy may have checked the second
                connection.putheader("Authorization", f"Basic {credentials}")
            connection.endheaders()
            answer = connection.getresponse()
            assert (answer.status, json.load(answer)["error_code"]) == (400, 400)


JSON = {"value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false"}


def test_a_record_that_the_converter_cannot_read(broker, tmp_path):
    with logdb.open(broker) as db:
        db.create_topic("lines")
        db.append_many("lines", [b"1", b"{broken", b"2"])
    sink = {"name": "sink", "connector.class": f"{PLUGINS}ScriptedConnector", "topics": "lines", **JSON}
    with standalone(broker, tmp_path, sink) as rest:
        rest.await_states("sink", "RUNNING", "FAILED")
        assert "Tolerance exceeded in error handler" in rest.get("/connectors/sink/status")["tasks"][0]["trace"]
        offsets = rest.get("/connectors/sink/offsets")["offsets"]
        assert [one["offset"] for one in offsets] == [{"kafka_offset": 0}]  # where it began
        tolerant = {
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": "letters",
            "errors.deadletterqueue.context.headers.enable": "true",
        }
        assert rest.call("PATCH", "/connectors/sink/config", tolerant)[0] == 200
        until(lambda: Scripted.kept == [1, 2])
        rest.await_states("sink", "RUNNING", "RUNNING")
        until(lambda: rest.get("/connectors/sink/offsets")["offsets"])
    with logdb.open(broker) as db:
        (letter,) = db.log("letters").read(0)
    headers = dict(letter.headers)
    assert letter.value == b"{broken"
    assert headers["__connect.errors.topic"] == b"lines"
    assert headers["__connect.errors.offset"] == b"1"
    assert headers["__connect.errors.stage"] == b"VALUE_CONVERTER"


def test_transforms_and_a_topic_of_its_own_rules(broker, tmp_path):
    (tmp_path / "in.txt").write_text("a\nb\n")
    source = file_source(
        tmp_path,
        **JSON,
        **{
            "transforms": "hoist,route",
            "transforms.hoist.type": "org.apache.kafka.connect.transforms.HoistField$Value",
            "transforms.hoist.field": "line",
            "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
            "transforms.route.regex": "(.*)",
            "transforms.route.replacement": "routed-$1",
            "topic.creation.default.partitions": "1",
            "topic.creation.groups": "routed",
            "topic.creation.routed.include": "routed-.*",
            "topic.creation.routed.partitions": "1",
            "topic.creation.routed.retention.ms": "3600000",
        },
    )
    with standalone(broker, tmp_path, source):
        until(lambda: values(broker, "routed-lines") == [b'{"line":"a"}', b'{"line":"b"}'])
    with logdb.open(broker) as db:
        assert db.describe_topic("routed-lines").config["retention.ms"] == 3_600_000


def test_secrets_stay_where_they_are(broker, tmp_path, caplog):
    secrets = written(tmp_path / "secrets.properties", {"topic": "lines", "word": "hush-hush"})
    variables = {"topic": f"${{file:{secrets}:topic}}", "number": f"${{file:{secrets}:word}}", "limit": "x"}
    config = {"connector.class": f"{PLUGINS}CounterConnector", **variables}
    providers = {
        "config_providers": "file",
        "config_providers_file_class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    }
    with standalone(broker, tmp_path, **providers) as rest:
        status, answer = rest.call("POST", "/connectors", {"name": "c", "config": {**config, "limit": variables["number"]}})
        assert (status, "hush-hush" in answer["message"]) == (400, False)
        assert rest.call("POST", "/connectors", {"name": "c", "config": {**config, "limit": "20"}})[0] == 201
        rest.await_states("c", "RUNNING", "RUNNING")
        until(lambda: len(values(broker, "lines")) == 20)
        assert rest.get("/connectors/c/config")["number"] == variables["number"]
        assert rest.get("/connectors/c/tasks")[0]["config"]["topic"] == variables["topic"]
        sink = {"connector.class": f"{PLUGINS}ScriptedConnector", "topics": "lines", "word": variables["number"]}
        Scripted.failures.append(ValueError("it is hush-hush"))
        rest.call("POST", "/connectors", {"name": "s", "config": sink})
        rest.await_states("s", "RUNNING", "FAILED")
        assert "it is [hidden]" in rest.get("/connectors/s/status")["tasks"][0]["trace"]


def test_metrics_have_connects_names(broker, tmp_path):
    (tmp_path / "in.txt").write_text("a\nb\n")
    with standalone(broker, tmp_path, file_source(tmp_path), file_sink(tmp_path)) as rest:
        until(lambda: (tmp_path / "out.txt").exists() and (tmp_path / "out.txt").read_text() == "a\nb\n")
        until(lambda: rest.get("/connectors/out/offsets")["offsets"])
        with urllib.request.urlopen(f"http://127.0.0.1:{rest.port}/metrics") as answer:
            families = {one.name: one for one in text_string_to_metric_families(answer.read().decode())}
    task = {"connector": "in", "task": "0"}
    found = {(one.name, *sorted(one.labels.items())): one.value for family in families.values() for one in family.samples}
    assert found["kafka_connect_worker_connector_count",] == 2
    assert found["kafka_connect_source_task_source_record_write_total", *sorted(task.items())] == 2
    assert found["kafka_connect_sink_task_sink_record_read_total", ("connector", "out"), ("task", "0")] == 2
    assert found["kafka_connect_connector_task_status", *sorted({**task, "status": "running"}.items())] == 1


def test_only_allowed_connectors_directories_and_hosts(broker, tmp_path):
    limits = {"connector_directories_allowed": str(tmp_path / "data"), "connector_classes_allowed": "FileStreamSource"}
    (tmp_path / "data").mkdir()
    with standalone(broker, tmp_path, **limits) as rest:
        status, answer = rest.call("POST", "/connectors", {"name": "out", "config": file_sink(tmp_path)})
        assert (status, "connector.classes.allowed" in answer["message"]) == (400, True)
        rest.call("POST", "/connectors", {"name": "in", "config": file_source(tmp_path)})
        until(lambda: "FAILED" in rest.states("in") or rest.call("GET", "/connectors/in")[0] == 404)
        rest.call("POST", "/connectors", {"name": "fine", "config": file_source(tmp_path / "data", "fine")})
        rest.await_states("fine", "RUNNING", "RUNNING")


def test_requests_that_a_page_of_others_lets_a_browser_send(broker, tmp_path):
    with standalone(broker, tmp_path) as rest:
        own = {"Origin": f"http://127.0.0.1:{rest.port}"}
        assert rest.call("GET", "/connectors", headers=own) == (200, [])
        config = {"name": "x", "config": file_source(tmp_path, "x")}
        for headers, status in (
            ({"Origin": "http://evil.example"}, 403),
            ({"Host": "evil.example"}, 403),
            ({"Content-Type": "text/plain"}, 415),
        ):
            answered, answer = rest.call("POST", "/connectors", config, headers)
            assert answered == status
        assert "Content-Type: application/json" in answer["message"]
        assert rest.get("/connectors") == []


def test_unknown_properties_get_one_warning_each(broker, tmp_path, caplog):
    with standalone(broker, tmp_path, file_source(tmp_path, filee="x"), no_such_setting="1") as rest:
        created = file_source(tmp_path, filee="x") | {"name": "later"}
        assert rest.call("POST", "/connectors", {"name": "later", "config": created})[0] == 201
    warnings = [record.getMessage() for record in caplog.records if "is unknown" in record.getMessage()]
    assert warnings == [
        f"{what} is unknown and has no effect" for what in ("worker: no.such.setting", "connector in: filee", "connector later: filee")
    ]


def test_other_answers_have_kafkas_shape(broker, tmp_path):
    with standalone(broker, tmp_path, file_source(tmp_path)) as rest:
        assert {"version", "commit", "kafka_cluster_id"} == set(rest.get("/"))
        assert rest.get("/health") == {
            "status": "healthy",
            "message": "Worker has completed startup and is ready to handle requests.",
        }
        assert rest.call("GET", "/connectors/nobody") == (404, {"error_code": 404, "message": "Connector nobody not found"})
        assert rest.call("GET", "/nothing") == (404, {"error_code": 404, "message": "HTTP 404 Not Found"})
        assert rest.call("POST", "/connectors", "text")[0] == 400
        rest.await_states("in", "RUNNING", "RUNNING")
        expanded = rest.get("/connectors?expand=status&expand=info")
        assert set(expanded["in"]) == {"status", "info"}
        assert expanded["in"]["info"]["config"]["topic"] == "lines"
        kinds = {one["type"] for one in rest.get("/connector-plugins?connectorsOnly=false")}
        assert kinds >= {"source", "sink", "converter", "header_converter"}
        assert any(one["name"] == "file" for one in rest.get("/connector-plugins/FileStreamSource/config"))
        assert rest.call("GET", "/connector-plugins/Nothing/config")[0] == 404
        assert rest.call("PUT", "/admin/loggers/logdb_connect.test", {"level": "debug"}) == (200, ["logdb_connect.test"])
        assert rest.get("/admin/loggers/logdb_connect.test")["level"] == "DEBUG"
        assert rest.call("GET", "/admin/loggers/no.such")[0] == 404


@pytest.mark.parametrize(("more", "transactions"), [({}, 10), ({"transaction.boundary": "interval"}, 2)])
def test_the_records_of_an_interval_are_in_one_transaction(broker, tmp_path, more, transactions):
    given = {"transaction.boundary.interval.ms": "4000", **more}
    config = {"name": "count", "connector.class": f"{PLUGINS}CounterConnector", "topic": "numbers", "limit": "100", **given}
    with standalone(broker, tmp_path, config):
        until(lambda: len(values(broker, "numbers")) == 100)
    with logdb.open(broker) as db:
        headers = [record.headers for record in db.log("connect-offsets-standalone").read(0, isolation_level="read_committed")]
    commits = len({header[0][1] for header in headers})
    assert (commits >= transactions) if not more else (commits <= transactions)


def ending(**more):
    return {"name": "end", "connector.class": f"{PLUGINS}EndingConnector", "topic": "numbers", "transaction.boundary": "connector", **more}


def commits(broker):
    """What each transaction has set the counter's offset to."""
    with logdb.open(broker) as db:
        found = db.log("connect-offsets-standalone").read(0, isolation_level="read_committed")
        return [json.loads(record.value)["next"] for record in found]


def test_a_connector_ends_its_own_transactions(broker, tmp_path):
    with standalone(broker, tmp_path, ending(limit="48")) as rest:
        until(lambda: rest.get("/connectors/end/offsets")["offsets"][0:] and commits(broker)[-1] == 45)
    assert commits(broker) == [5, 15, 20, 25, 35, 40, 45]
    kept = [number for number in range(45) if not 15 <= number < 20]
    assert values(broker, "numbers") == [b"0:%d" % number for number in kept], "15 to 19 were aborted, 45 and later are not committed"
    with standalone(broker, tmp_path, ending(limit="55")):
        until(lambda: commits(broker)[-1] == 55)
    assert values(broker, "numbers")[-10:] == [b"0:%d" % number for number in range(45, 55)], "what was not committed came again"


def test_transactions_of_a_connector_need_one_that_ends_them_and_a_worker_that_has_them(broker, tmp_path, monkeypatch):
    Ending.contexts.clear()
    with standalone(broker, tmp_path) as rest:
        for config in (ending(able="no"), ending() | {"connector.class": f"{PLUGINS}CounterConnector"}):
            status, answer = rest.call("PUT", "/connectors/end/config", config)
            assert status == 400 and "connector-defined transaction boundaries" in answer["message"]
    with standalone(broker, tmp_path, ending(limit="20"), exactly_once_source_support="disabled"):
        until(lambda: len(values(broker, "numbers")) == 20)
    assert Ending.contexts == [None]
    monkeypatch.setattr(source, "_TRANSACTION_COUNT_MAX", 3)
    with standalone(broker, tmp_path, ending(limit="9") | {"topic": "more", "name": "many"}) as rest:
        rest.await_states("many", "RUNNING", "FAILED")
        assert "has not ended a transaction within 3 records" in rest.get("/connectors/many/status")["tasks"][0]["trace"]
