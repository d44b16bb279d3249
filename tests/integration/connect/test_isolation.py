"""A connector that blocks, crashes or keeps the interpreter leaves the others running: by threads as far as they go, else by processes."""

import json
import os
import re
import signal
import urllib.request
from pathlib import Path

import pytest

import logdb
from support.connect_plugins import Blocking
from support.connect_workers import WORKER, WorkerProcess, distributed, served, standalone, written
from support.ports import free_port
from support.waiting import until

PLUGINS = "support.connect_plugins:"
IN_PROCESS = {"task.isolation": "process"}


@pytest.fixture
def broker(tmp_path):
    with served(tmp_path / "db") as address:
        yield address


@pytest.fixture(autouse=True)
def _fresh():
    yield
    Blocking.released.set()
    Blocking.released.clear()


def values(broker, topic):
    with logdb.open(broker) as db:
        if topic not in [one.name for one in db.topics()]:
            return []
        return [record.value.decode() for record in db.log(topic, 0).read(0, isolation_level="read_committed")]


def counter(name, limit=100, **more):
    return {"name": name, "connector.class": f"{PLUGINS}CounterConnector", "topic": name, "limit": str(limit), **more}


def crashing(directory, how, **more):
    made = {"connector.class": f"{PLUGINS}CrashingConnector", "how": how, "once": f"{directory}/once"}
    return {**counter("crash"), **made, **more}


def numbers(count):
    return [f"0:{number}" for number in range(count)]


def processes(of=None):
    """The processes of tasks that run, of the worker in this process or another one."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if "isolated.main" in (entry / "cmdline").read_text() and int(parent) == (of or os.getpid()) and state != "Z":
                found.append(int(entry.name))
        except OSError:
            continue  # it has ended
    return found


@pytest.mark.parametrize("how", ["error", "block"])
def test_in_threads_an_error_and_a_call_that_blocks_concern_one_task(broker, tmp_path, how):
    with standalone(broker, tmp_path, crashing(tmp_path, how), counter("other", 1_000_000)) as rest:
        until((tmp_path / "once").exists)
        if how == "error":
            rest.await_states("crash", "RUNNING", "FAILED")
            assert "ZeroDivisionError" in rest.get("/connectors/crash/status")["tasks"][0]["trace"]
        count = len(values(broker, "other"))
        until(lambda: len(values(broker, "other")) > count + 100)
        assert rest.call("POST", "/connectors/crash/tasks/0/restart")[0] == 204
        until(lambda: values(broker, "crash") == numbers(100))


@pytest.mark.parametrize(
    ("how", "trace"),
    [
        ("error", "ZeroDivisionError"),
        ("segfault", r"was ended by SIGSEGV(.|\n)*Segmentation fault(.|\n)*connect_plugins\.py"),
        ("exit", "ended with exit code 7"),
        ("fork", "ended with exit code 7"),
    ],
)
def test_a_task_whose_process_ends_has_failed_with_a_trace_and_is_restarted(broker, tmp_path, how, trace):
    with standalone(broker, tmp_path, crashing(tmp_path, how, **IN_PROCESS), counter("other", 1_000_000)) as rest:
        rest.await_states("crash", "RUNNING", "FAILED")
        assert re.search(trace, rest.get("/connectors/crash/status")["tasks"][0]["trace"])
        count = len(values(broker, "other"))
        until(lambda: len(values(broker, "other")) > count + 100)
        assert rest.call("POST", "/connectors/crash/restart?includeTasks=true&onlyFailed=true")[0] == 202
        until(lambda: values(broker, "crash") == numbers(100), "each once, in order")
        rest.await_states("crash", "RUNNING", "RUNNING")


def test_a_process_that_is_killed_leaves_no_transaction_open(broker, tmp_path):
    """Others would wait for its timeout; which here is 15 minutes."""
    config = counter("count", 1_000_000, **IN_PROCESS, **{"producer.override.transaction.timeout.ms": "900000"})
    with logdb.open(broker) as db, standalone(broker, tmp_path, config) as rest:
        for _ in range(3):
            rest.await_states("count", "RUNNING", "RUNNING")
            count = len(values(broker, "count"))
            until(lambda count=count: len(values(broker, "count")) > count)
            (process,) = processes()
            os.kill(process, signal.SIGKILL)
            rest.await_states("count", "RUNNING", "FAILED")
            until(lambda: all(one.state in ("CompleteCommit", "CompleteAbort", "Empty") for one in db.transactions()))
            assert rest.call("POST", "/connectors/count/tasks/0/restart")[0] == 204
        rest.await_states("count", "RUNNING", "RUNNING")
    found = values(broker, "count")
    assert found == numbers(len(found)), "each once, in order"


def test_c_code_that_never_returns_keeps_its_own_process_alone(broker, tmp_path):
    config = crashing(tmp_path, "endless", **IN_PROCESS)
    with standalone(broker, tmp_path, config, counter("other", 1_000_000), task_shutdown_graceful_timeout_ms="500") as rest:
        until((tmp_path / "once").exists)
        count = len(values(broker, "other"))
        until(lambda: len(values(broker, "other")) > count + 100)
        (stuck,) = processes()
        assert rest.call("POST", "/connectors/crash/tasks/0/restart")[0] == 204
        until(lambda: values(broker, "crash") == numbers(100), "each once, in order")
        until(lambda: stuck not in processes(), "it was killed")


def test_pause_resume_topics_metrics_and_stop_of_a_task_in_a_process(broker, tmp_path):
    config = counter("count", 1_000_000, **{"tasks.max": "2", "counters": "2"})
    with distributed(broker, tmp_path, task_isolation="process") as rest:
        assert rest.call("POST", "/connectors", {"name": "count", "config": config})[0] == 201
        rest.await_states("count", "RUNNING", "RUNNING", "RUNNING")
        assert len(processes()) == 2
        until(lambda: rest.get("/connectors/count/topics") == {"count": {"topics": ["count"]}})
        assert rest.call("PUT", "/connectors/count/pause")[0] == 202
        rest.await_states("count", "PAUSED", "PAUSED", "PAUSED")
        count = len(values(broker, "count"))
        assert len(values(broker, "count")) == count

        def written_of_metrics():
            with urllib.request.urlopen(f"http://127.0.0.1:{rest.port}/metrics") as answer:
                found = re.findall(r"source_record_write_total\S* (\d+)", answer.read().decode())
            return sum(map(int, found))

        until(lambda: written_of_metrics() == count)
        assert rest.call("PUT", "/connectors/count/resume")[0] == 202
        rest.await_states("count", "RUNNING", "RUNNING", "RUNNING")
        until(lambda: len(values(broker, "count")) > count)
        assert rest.call("PUT", "/connectors/count/stop")[0] == 204
        rest.await_states("count", "STOPPED")
        until(lambda: processes() == [])
        found = values(broker, "count")
    assert len(found) == len(set(found)), "each once"


def test_a_process_of_a_distributed_worker_stores_offsets_where_the_worker_finds_them(broker, tmp_path):
    """Also with the property file of a standalone worker, which names a file of offsets."""
    more = {"task_isolation": "process", "offset_storage_file_filename": f"{tmp_path}/offsets"}
    with distributed(broker, tmp_path, **more) as rest:
        assert rest.call("POST", "/connectors", {"name": "count", "config": counter("count", 10)})[0] == 201
        until(lambda: values(broker, "count") == numbers(10))
        until(lambda: rest.get("/connectors/count/offsets")["offsets"])


def test_a_standalone_worker_copies_the_offsets_of_a_task_in_a_process(broker, tmp_path):
    def copied():
        return [one["offset"] for one in json.loads((tmp_path / "offsets").read_text())["offsets"]]

    with standalone(broker, tmp_path, counter("count", 10, **IN_PROCESS)):
        until(lambda: copied() == [{"next": 10}])
    assert copied() == [{"next": 10}]
    with standalone(broker, tmp_path):
        pass
    assert copied() == [{"next": 10}], "also without a source"


def test_a_sink_in_a_process_continues_where_its_commits_are(broker, tmp_path):
    (tmp_path / "armed").touch()
    sink = {"name": "sink", "connector.class": f"{PLUGINS}CrashingSinkConnector", "topics": "lines", **IN_PROCESS}
    sink |= {"armed": f"{tmp_path}/armed", "file": f"{tmp_path}/out.txt"}
    with logdb.open(broker) as db, standalone(broker, tmp_path, sink) as rest:
        db.create_topic("lines")
        db.append("lines", b"first")
        until(
            lambda: (
                rest.get("/connectors/sink/offsets")["offsets"][:1]
                and rest.get("/connectors/sink/offsets")["offsets"][0]["offset"] == {"kafka_offset": 1}
            )
        )
        db.append("lines", b"poison")
        rest.await_states("sink", "RUNNING", "FAILED")
        assert "was ended by SIGKILL" in rest.get("/connectors/sink/status")["tasks"][0]["trace"]
        assert db.describe_group("connect-sink").members == (), "its partitions are free"
        (tmp_path / "armed").unlink()
        db.append("lines", b"last")
        assert rest.call("POST", "/connectors/sink/tasks/0/restart")[0] == 204
        until(lambda: (tmp_path / "out.txt").read_text() == "first\npoison\nlast\n")


def test_the_offsets_of_a_sink_whose_process_was_killed_can_be_reset_at_once(broker, tmp_path):
    (tmp_path / "armed").touch()
    sink = {"name": "sink", "connector.class": f"{PLUGINS}CrashingSinkConnector", "topics": "lines", **IN_PROCESS}
    sink |= {"armed": f"{tmp_path}/armed", "file": f"{tmp_path}/out.txt"}
    with logdb.open(broker) as db, standalone(broker, tmp_path, sink, task_shutdown_graceful_timeout_ms="500") as rest:
        db.create_topic("lines")
        db.append("lines", b"stuck")
        until(lambda: not (tmp_path / "armed").exists())
        assert rest.call("PUT", "/connectors/sink/stop")[0] == 204
        rest.await_states("sink", "STOPPED")
        until(lambda: processes() == [], "it was killed")
        until(lambda: rest.call("DELETE", "/connectors/sink/offsets")[0] == 200)


def test_a_secret_reaches_the_process_and_no_trace_or_argument(broker, tmp_path, caplog):
    (tmp_path / "secrets").write_text("word=hush-hush\n")
    providers = {"config_providers": "file", "config_providers_file_class": "org.apache.kafka.common.config.provider.FileConfigProvider"}
    config = crashing(tmp_path, f"${{file:{tmp_path}/secrets:word}}", **IN_PROCESS)
    with standalone(broker, tmp_path, config, **providers) as rest:
        until(processes)
        (process,) = processes()
        assert not any("hush-hush" in Path(f"/proc/{process}/{name}").read_text() for name in ("cmdline", "environ"))
        rest.await_states("crash", "RUNNING", "FAILED")
        trace = rest.get("/connectors/crash/status")["tasks"][0]["trace"]
        assert "KeyError" in trace and "[hidden]" in trace and "hush-hush" not in trace


def test_in_a_directory_a_process_is_refused(tmp_path):
    with standalone(str(tmp_path / "db"), tmp_path) as rest:
        status, answer = rest.call("POST", "/connectors", {"name": "count", "config": counter("count", **IN_PROCESS)})
        assert status == 400 and "serve the directory" in answer["message"]
        assert rest.call("POST", "/connectors", {"name": "count", "config": counter("count")})[0] == 201
        assert rest.call("POST", "/connectors", {"name": "count", "config": counter("count", **{"task.isolation": "x"})})[0] == 400
    with standalone(str(tmp_path / "db"), tmp_path, task_isolation="process") as rest:
        assert rest.call("POST", "/connectors", {"name": "count", "config": counter("count")})[0] == 400


def test_a_process_ends_with_its_worker(broker, tmp_path):
    """Also while C code keeps its interpreter."""
    port = free_port()
    properties = {**WORKER, "bootstrap.servers": broker, "listeners": f"http://127.0.0.1:{port}"}
    files = [
        written(tmp_path / "worker.properties", {**properties, "offset.storage.file.filename": f"{tmp_path}/offsets"}),
        written(tmp_path / "crash.properties", crashing(tmp_path, "endless", **IN_PROCESS)),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        with WorkerProcess("standalone", *files, port=port) as worker:
            until((tmp_path / "once").exists)
            (task,) = processes(worker.process.pid)
            worker.kill()
            until(lambda: not Path(f"/proc/{task}").exists() or " Z " in Path(f"/proc/{task}/stat").read_text())
