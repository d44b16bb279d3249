"""Workers whose database is away: at their start they wait for it, and later their REST API answers all the same."""

import contextlib
import re
import signal
import threading
import time

import pytest

import logdb
from logdb.errors import LogdbError
from logdb_connect import kafka_client
from logdb_connect.runtime import starting
from support.certificates import Authority
from support.connect_workers import SHARED, WORKER, BrokerProcess, Rest, standalone, written
from support.ports import free_port
from support.waiting import until

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
AT_ONCE_S = 10.0
"""Far less than the 30 s that a client waits for a server, and enough on a machine that is busy."""


@pytest.fixture
def broker(tmp_path):
    made = BrokerProcess(tmp_path / "db")
    yield made
    made.process.send_signal(signal.SIGCONT)
    made.kill()


def source(directory):
    return {"name": "in", "connector.class": "FileStreamSource", "file": f"{directory}/in.txt", "topic": "lines"}


@contextlib.contextmanager
def beginning(kind, directory, place, **more):
    """A worker that begins in a thread of its own: its REST API, and its errors."""
    port, end, errors = free_port(), threading.Event(), []
    properties = {**WORKER, "bootstrap.servers": place, "listeners": f"http://127.0.0.1:{port}"}
    properties |= {name.replace("_", "."): text for name, text in more.items()}
    if kind == "standalone":
        file = written(directory / "worker.properties", {**properties, "offset.storage.file.filename": f"{directory}/offsets"})
        begin = starting.standalone(file, [written(directory / "in.properties", source(directory))])
    else:
        begin = starting.distributed(written(directory / "worker.properties", {**properties, **SHARED}))

    def run():
        try:
            with begin:
                end.wait()
        except Exception as error:  # noqa: BLE001 -- the test looks at it
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)  # one that waits for ever must not hold up the others
    thread.start()
    try:
        yield Rest(port), errors
    finally:
        end.set()
        thread.join(60)


def answers(rest, path):
    with contextlib.suppress(OSError):
        return rest.call("GET", path)
    return None, None


@pytest.mark.parametrize("kind", ["standalone", "distributed"])
def test_a_worker_that_starts_before_its_broker_waits_for_it(broker, tmp_path, kind, caplog):
    (tmp_path / "in.txt").write_text("a\n")
    broker.kill()
    with beginning(kind, tmp_path, broker.place) as (rest, errors):
        until(lambda: errors or "no server answers" in str(answers(rest, "/health")[1]))
        assert errors == []
        assert answers(rest, "/health")[0] == answers(rest, "/connectors")[0] == 503
        assert answers(rest, "/health")[1]["status"] == "starting"
        assert f"bootstrap.servers={broker.place}" in answers(rest, "/")[1]["message"]
        broker.start()
        until(lambda: errors or answers(rest, "/health")[0] == 200, seconds=60)
        if kind == "distributed":
            config = {name: text for name, text in source(tmp_path).items() if name != "name"}
            assert rest.call("POST", "/connectors", {"name": "in", "config": config})[0] == 201
        rest.await_states("in", "RUNNING", "RUNNING")
    assert [record.getMessage().count("the worker waits for an answer") for record in caplog.records].count(1) == 1, "one warning"
    assert errors == []


def test_a_directory_that_cannot_be_opened_ends_the_worker(tmp_path):
    with standalone(str(tmp_path / "db"), tmp_path), beginning("distributed", tmp_path, str(tmp_path / "db")) as (_, errors):
        until(lambda: errors)
        assert isinstance(errors[0], LogdbError)


@pytest.mark.parametrize("client", ["logdb", "kafka"])
@pytest.mark.parametrize("why", ["password", "certificate"])
def test_a_server_that_refuses_the_worker_or_is_not_trusted_ends_it(tmp_path, client, why, monkeypatch):
    monkeypatch.setattr(kafka_client, "_CALL_S", 3.0)
    options = {}
    given = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    given["sasl_jaas_config"] = f'{PLAIN} required username="admin" password="wrong";'
    if why == "certificate":
        files = Authority(tmp_path / "ca").server()
        options, given = {"tls_cert": files.cert, "tls_key": files.key}, {"security_protocol": "SSL"}
    with logdb.open(tmp_path / "db") as db, logdb.serve(db, http="127.0.0.1:0", kafka="127.0.0.1:0", **options) as server:
        if why == "password":
            db.security.add_user("admin", "correct horse", super_user=True)
        with beginning("standalone", tmp_path, server.addresses[1], logdb_client=client, **given) as (_, errors):
            until(lambda: errors)
        assert re.search({"password": "(?i)password|auth", "certificate": "(?i)certificate"}[why], str(errors[0]))


@pytest.mark.parametrize("how", ["killed", "silent"])
def test_the_rest_api_answers_at_once_while_the_broker_is_away(broker, tmp_path, how):
    (tmp_path / "in.txt").write_text("a\n")
    with standalone(broker.place, tmp_path, source(tmp_path)) as rest:
        rest.await_states("in", "RUNNING", "RUNNING")
        known = rest.get("/")["kafka_cluster_id"]
        broker.kill() if how == "killed" else broker.process.send_signal(signal.SIGSTOP)
        for _ in range(10):  # more than there are threads for requests
            for path in ("/", "/health", "/connectors?expand=status"):
                began = time.monotonic()
                document = rest.get(path)
                assert time.monotonic() - began < AT_ONCE_S, path
                assert path != "/" or document["kafka_cluster_id"] == known
        broker.start() if how == "killed" else broker.process.send_signal(signal.SIGCONT)
        rest.await_states("in", "RUNNING", "RUNNING")
