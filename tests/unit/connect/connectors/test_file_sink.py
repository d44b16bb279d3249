import datetime
import json
import os
import signal
import warnings
from decimal import Decimal

import pytest

from logdb import OffsetAndMetadata, TopicPartition
from logdb_connect.connectors.file import FileStreamSinkConnector, FileStreamSinkTask
from logdb_connect.data import STRING, Schema, struct
from logdb_connect.errors import ConnectError, RetriableError
from support.connect_tasks import Sink, sink_record

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
LOG = {each: [sink_record(n, f"{each.partition}:{n}", partition=each.partition) for n in range(20)] for each in (A, B)}
ALL = sorted(record.value for records in LOG.values() for record in records)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "test.sink.txt"


def sink(path, store=None):
    return Sink(FileStreamSinkConnector, {"file": str(path)}, {} if store is None else store)


def killed(one):
    """As kill -9 leaves a task: what it wrote is there, its lock is not."""
    os.close(one.task._descriptor)


INT = Schema(type="int32")
PERSON = struct("p", name=STRING, age=INT, home=struct("h", optional=True, city=STRING), tags=Schema(type="array", values=STRING))


@pytest.mark.parametrize(
    ("value", "schema", "line"),
    [
        ("text", None, b"text"),
        ("two\nlines", None, b"two\nlines"),
        (None, None, b"null"),
        (True, None, b"true"),
        (7, None, b"7"),
        (1.0, None, b"1.0"),
        (12345678.0, None, b"1.2345678E7"),
        (1e20, None, b"1.0E20"),
        (-0.00012, None, b"-1.2E-4"),
        (float("inf"), None, b"Infinity"),
        (Decimal("1.50"), None, b"1.50"),
        (b"\xff\x00", None, b"\xff\x00"),
        ([1, None, "a"], None, b"[1, null, a]"),
        ({"a": 1, "b": {"c": True}}, None, b"{a=1, b={c=true}}"),
        (
            {"name": "x", "age": 3, "home": {"city": "y"}, "tags": ["q", "r"]},
            PERSON,
            b"Struct{name=x,age=3,home=Struct{city=y},tags=[q, r]}",
        ),
        ({"name": "x", "age": 3, "home": None, "tags": []}, PERSON, b"Struct{name=x,age=3,tags=[]}"),
        (datetime.datetime(1970, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), None, b"Fri Jan 02 03:04:05 UTC 1970"),
        ("lone \ud800", None, b"lone ?"),
    ],
)
def test_a_value_is_printed_as_by_java(path, value, schema, line):
    one = sink(path)
    one.open(A)
    one.put([sink_record(0, value, value_schema=schema), sink_record(1, "next")])
    assert path.read_bytes() == line + b"\nnext\n"
    one.close()


def test_what_was_there_stays(path):
    path.write_text("before\n")
    one = sink(path)
    one.open(A)
    one.put([sink_record(0, "x")])
    one.close()
    assert path.read_text() == "before\nx\n"


def test_a_restart_continues_at_the_committed_length(path):
    store = {}
    one = sink(path, store)
    one.open(A, B)
    one.put(LOG[A][:3])
    one.commit()
    note = json.loads(store[A].metadata)
    assert note["length"] == path.stat().st_size == 12
    one.put(LOG[B][:5])
    killed(one)
    two = sink(path, store)
    two.open(A, B)
    assert path.read_text() == "0:0\n0:1\n0:2\n"
    two.deliver(LOG)
    two.close()
    assert sorted(path.read_text().splitlines()) == ALL


def test_the_largest_length_counts(path):
    store = {}
    one = sink(path, store)
    one.open(A, B)
    one.put(LOG[A][:3])
    one.commit()
    old = store[B]
    one.put(LOG[A][3:6])
    one.commit()
    store[B] = old
    killed(one)
    two = sink(path, store)
    two.open(A, B)
    assert len(path.read_text().splitlines()) == 6


def run_to(step, path, committed):
    """A task's life up to a step, and then kill -9."""
    steps = 0

    def may_die():
        nonlocal steps
        steps += 1
        if steps == step:
            os.kill(os.getpid(), signal.SIGKILL)

    store = {}
    if committed.exists():
        for partition, offset, note in json.loads(committed.read_text()):
            store[TopicPartition(*partition)] = OffsetAndMetadata(offset, -1, note)

    def save():
        other = committed.with_suffix(".tmp")
        other.write_text(json.dumps([(each, offset.offset, offset.metadata) for each, offset in store.items()]))
        other.rename(committed)

    one = sink(path, store)
    may_die()
    one.open(A, B)
    may_die()
    for partition in (A, B, A, B):
        one.commit()
        may_die()
        save()
        may_die()
        if batch := LOG[partition][one.positions[partition] :][:10]:
            one.put(batch)
        may_die()
        if steps + 1 == step and batch:
            one.task._write(batch[0].value[:2].encode())  # in the middle of the next put
        may_die()
    one.commit()
    may_die()
    save()
    may_die()
    one.close()
    return steps


def test_kill_9_between_all_steps_leaves_each_line_once(path, tmp_path):
    committed = tmp_path / "committed.json"
    total = run_to(None, path, committed)
    assert sorted(path.read_text().splitlines()) == ALL
    for step in range(1, total + 1):
        path.unlink()
        committed.unlink(missing_ok=True)
        for each in (step, 1 + step * 7 % total, None):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # threads of other tests: the child uses none of them
                child = os.fork()
            if child == 0:
                try:
                    run_to(each, path, committed)
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
        assert sorted(path.read_text().splitlines()) == ALL, step


def test_a_file_that_is_not_the_sinks_is_not_truncated(path, tmp_path):
    store = {}
    one = sink(path, store)
    one.open(A)
    one.put(LOG[A][:3])
    one.close()
    note = store[A].metadata

    path.write_text("short\n")  # shorter than at the commit
    one = sink(path, store)
    one.open(A)
    assert path.read_text() == "short\n"
    killed(one)

    target = path.rename(tmp_path / "target")  # a link to the very file
    target.write_text("x" * 100)
    path.symlink_to(target)
    one = sink(path, store)
    one.open(A)
    one.put(LOG[A][3:4])
    assert target.read_text() == "x" * 100 + "0:3\n"
    one.close()
    assert store[A] == OffsetAndMetadata(4)

    path.unlink()  # another file of the name
    path.write_text("y" * 100)
    store[A] = OffsetAndMetadata(3, -1, note)
    one = sink(path, store)
    one.open(A)
    assert path.read_text() == "y" * 100
    killed(one)

    for text in ("{", "{}", "[]", '{"length": "x", "inode": 1, "file": "y"}', "of others"):
        one = sink(path, {A: OffsetAndMetadata(3, -1, text)})
        one.open(A)
        killed(one)
    assert path.read_text() == "y" * 100


def test_files_that_are_not_regular(path):
    one = Sink(FileStreamSinkConnector, {"file": "/dev/null"}, store := {})
    one.open(A)
    one.put(LOG[A])
    one.close()
    assert store == {A: OffsetAndMetadata(20)}
    assert "directory" in FileStreamSinkConnector().validate({"file": str(path.parent)})["file"]
    with pytest.raises(ConnectError, match="Couldn't find or create file"):
        sink(path / "no" / "such")


def test_two_tasks_of_one_file(path):
    one = sink(path)
    task = FileStreamSinkTask()
    with pytest.raises(ConnectError, match="Another task writes to"):
        task.start({"file": str(path)})
    other = os.open("/dev/null", os.O_RDONLY)  # nothing of this process is closed twice
    task.stop()
    os.fstat(other)
    one.stop()
    sink(path).stop()
    os.close(other)


def test_a_full_disk_is_tried_again_without_half_lines(path):
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    one = sink(path)
    one.open(A)
    one.put(LOG[A][:2])
    regular = one.task._descriptor
    write = os.write
    calls = []

    def full(descriptor, data):
        calls.append(descriptor)
        if len(calls) == 1:
            return write(descriptor, bytes(data)[:5])
        return write(os.open("/dev/full", os.O_WRONLY), data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(RetriableError, match="No space left"):
            one.put(LOG[A][2:4])
    assert calls[0] == regular
    one.put(LOG[A][2:4])
    assert path.read_text() == "0:0\n0:1\n0:2\n0:3\n"


def test_a_sync_that_fails_fails_the_task(path, monkeypatch):
    one = sink(path)
    one.open(A)
    one.put(LOG[A][:2])

    def fails(descriptor):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(ConnectError, match="Cannot sync"):
        one.commit()
    assert one.store == {}


def test_a_file_that_is_deleted_takes_no_line_along(path):
    store = {}
    one = sink(path, store)
    one.open(A)
    one.put(LOG[A][:2])
    one.commit()
    path.unlink()
    one.put(LOG[A][2:4])
    with pytest.raises(ConnectError, match="was deleted while the task wrote to it"):
        one.commit()
    one.stop()
    two = sink(path, store)
    two.open(A)
    two.deliver({A: LOG[A]})
    two.close()
    assert path.read_text().splitlines() == [record.value for record in LOG[A][2:]]


def test_standard_output(capfd):
    one = Sink(FileStreamSinkConnector, {}, store := {})
    one.open(A)
    one.put(LOG[A][:2])
    one.close()
    assert capfd.readouterr().out == "0:0\n0:1\n"
    assert store[A] == OffsetAndMetadata(2)
