"""``logdb connect list, status, …``: what they print, and what they ask before they change something."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from logdb.cli.app import cli
from support.connect_workers import LOGDB, WORKER, BrokerProcess, Rest, WorkerProcess, served, standalone, written
from support.ports import free_port
from support.waiting import has_ended, until


@pytest.fixture
def worker(tmp_path):
    (tmp_path / "in.txt").write_text("a\nb\n")
    with served(tmp_path / "db") as broker, standalone(broker, tmp_path) as rest:
        yield rest


@pytest.fixture
def connector(tmp_path):
    config = {"name": "in", "connector.class": "FileStreamSource", "file": f"{tmp_path}/in.txt", "topic": "lines"}
    return written(tmp_path / "in.properties", config)


@pytest.fixture
def run(worker: Rest):
    def call(*words: str, code: int = 0) -> str:
        made = CliRunner().invoke(cli, ["connect", words[0], "--url", f"http://127.0.0.1:{worker.port}", *words[1:]])
        assert made.exit_code == code, made.output
        return made.output

    return call


def test_the_life_of_a_connector(run, worker, connector):
    assert "is right" in run("validate", connector)
    assert run("create", connector) == "created source connector in\n"
    worker.await_states("in", "RUNNING", "RUNNING")
    assert "Connector in already exists" in run("create", connector, code=1)
    assert "stored source connector in" in run("create", "--update", connector)
    worker.await_states("in", "RUNNING", "RUNNING")
    assert run("list").splitlines()[1].split() == ["in", "source", "RUNNING", "1", "RUNNING", "FileStreamSource"]
    assert [line.split()[:3] for line in run("status", "in").splitlines()[1:]] == [
        ["connector", "RUNNING", f"127.0.0.1:{worker.port}"],
        ["task", "0", "RUNNING"],
    ]
    for words, state in ((("pause",), "PAUSED"), (("resume",), "RUNNING")):
        run(*words, "in")
        worker.await_states("in", state, state)
    assert run("restart", "in") == "restarted connector in\n"
    assert run("restart", "in", "--task", "0") == "restarted task 0 of connector in\n"
    worker.await_states("in", "RUNNING", "RUNNING")
    assert "would delete source connector in with 1 task\nnothing was done" in run("delete", "in")
    assert worker.get("/connectors") == ["in"]
    assert json.loads(run("delete", "in", "--yes", "--json"))["executed"] is True
    assert worker.get("/connectors") == []
    assert "Connector in not found" in run("status", "in", code=1)


def test_offsets_are_shown_first(run, worker, connector, tmp_path):
    run("create", connector)
    until(lambda: worker.get("/connectors/in/offsets")["offsets"])
    found = json.loads(run("offsets", "in", "--json"))
    assert found["offsets"][0]["offset"]["position"] == 4
    found["offsets"][0]["offset"] = {"position": 2}
    file = tmp_path / "new.json"
    file.write_text(json.dumps(found))
    assert "STOPPED state" in run("offsets", "in", "--set", str(file), "--yes", code=1)
    run("stop", "in")
    worker.await_states("in", "STOPPED")
    assert "would set these offsets of connector in\nnothing was done" in run("offsets", "in", "--set", str(file))
    assert worker.get("/connectors/in/offsets")["offsets"][0]["offset"]["position"] == 4
    run("offsets", "in", "--set", str(file), "--yes")
    assert worker.get("/connectors/in/offsets")["offsets"][0]["offset"] == {"position": 2}
    assert "would forget" in run("offsets", "in", "--reset")
    assert json.loads(run("offsets", "in", "--reset", "--yes", "--json"))["to"] == []
    assert worker.get("/connectors/in/offsets") == {"offsets": []}


def test_wrong_calls(run, connector, tmp_path):
    wrong = written(tmp_path / "wrong.properties", {"name": "x", "connector.class": "FileStreamSink", "file": "/tmp/x"})
    assert "Must configure one of topics or topics.regex" in run("validate", wrong, code=1)
    config = {"name": "x", "connector.class": "FileStreamSource", "topic": "x", "fil": "x", "value.converter.schemas.enable": "false"}
    path = written(tmp_path / "typo.properties", config)
    assert run("validate", path) == f"{path} is right\nwarning: fil is unknown and has no effect\n"
    assert "available connectors are" in run("plugins") or "FileStreamSinkConnector" in run("plugins")
    unknown = written(tmp_path / "unknown.properties", {"name": "x", "connector.class": "Nothing"})
    assert "FileStreamSinkConnector" in run("create", unknown, code=1)
    assert "No such file" in run("create", str(tmp_path / "nothing.properties"), code=2)
    made = CliRunner().invoke(cli, ["connect", "list", "--url", "http://127.0.0.1:1"])
    assert (made.exit_code, "no worker answers at http://127.0.0.1:1" in made.output) == (1, True)


def test_a_worker_shows_its_url_and_runs_in_the_background_as_by_kafkas_scripts(tmp_path):
    with served(tmp_path / "db") as broker:
        port = free_port()
        properties = {**WORKER, "bootstrap.servers": broker, "offset.storage.file.filename": f"{tmp_path}/offsets"}
        worker = written(tmp_path / "worker.properties", {**properties, "listeners": f"http://127.0.0.1:{port}"})
        with WorkerProcess("standalone", worker, port=port) as process:
            assert process.stdout == [f"REST API at http://127.0.0.1:{port}\n"]
        command = [os.path.join(os.path.dirname(sys.executable), "logdb"), "connect-standalone.sh", "-daemon"]
        begun = subprocess.run([*command, worker], capture_output=True, text=True, cwd=tmp_path)
        found = re.fullmatch(r"REST API at \S+; pid (\d+), log in \./connectStandalone\.out\n", begun.stderr)
        assert found, begun
        try:
            assert Rest(port).get("/connectors") == []
        finally:
            os.kill(int(found[1]), signal.SIGTERM)
        until(lambda: has_ended(int(found[1])), "the worker ends")
        assert (tmp_path / "connectStandalone.out").exists()
        failed = subprocess.run([*command, "/no/such.properties"], capture_output=True, text=True, cwd=tmp_path)
        assert failed.returncode == 1
        assert "the worker ended with exit code" in failed.stderr


def test_a_worker_in_the_background_outlives_a_start_that_has_not_waited_for_its_database(tmp_path):
    port, broker = free_port(), BrokerProcess(tmp_path / "db")
    broker.kill()
    properties = {**WORKER, "bootstrap.servers": broker.place, "offset.storage.file.filename": f"{tmp_path}/offsets"}
    worker = written(tmp_path / "worker.properties", {**properties, "listeners": f"http://127.0.0.1:{port}"})
    program = (
        "import sys; from logdb.cli.app import cli; from logdb_connect import command; command._READY_S = 0.1; "
        f"words = ['connect', 'standalone', '--daemon', {worker!r}]; sys.orig_argv = [sys.executable, {LOGDB!r}, *words]; cli(words)"
    )
    begun = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, "LOG_DIR": str(tmp_path)})
    found = re.fullmatch(r"the worker is not ready yet; pid (\d+), log in .*\n", begun.stderr)
    assert found, begun
    pid, log = int(found[1]), tmp_path / "connectStandalone.out"
    try:
        broker.start()
        until(lambda: "REST API at" in log.read_text() or has_ended(pid), "it is ready", 60)
        assert Rest(port).get("/connectors") == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        until(lambda: has_ended(pid), "the worker ends")
        broker.kill()
