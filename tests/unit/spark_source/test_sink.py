"""What Spark calls, in its order, without Spark."""

import dataclasses
import os
import pickle
import shutil
import socket
import tempfile
import threading
import uuid

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import logdb
from logdb.errors import (
    AuthenticationFailed,
    DirectoryLocked,
    InvalidConfig,
    LogdbError,
    NotADatabase,
    NotAuthorized,
    ReadOnly,
    UnknownTopic,
)
from logdb_spark_source import location, noted, sink
from logdb_spark_source.commit import CommitForgotten
from logdb_spark_source.sink import BatchWriter, StreamWriter
from logdb_spark_source.staging import StagingNotShared
from logdb_spark_source.uploading import UploadMissing
from logdb_spark_source.write_options import WriteOptions
from support.security import secure
from support.serving import served
from support.staged import rows, values

SCHEMA = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])


@pytest.fixture
def given(place, tmp_path, monkeypatch):
    """The options of a sink, on a directory that no process holds, or on a server that keeps uploads."""
    with logdb.open(tmp_path / "db") as database:
        database.create_topic("t")
    if place == "path":
        yield {"path": str(tmp_path / "db"), "topic": "t", "stagingPath": str(tmp_path / "staging")}
        return
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with served(tmp_path / "db") as server:
        yield {"url": server.url, "topic": "t"}


@pytest.fixture
def looked(given):
    """What readers of committed records find now."""

    def look():
        with logdb.open(given["url"]) if "url" in given else logdb.open(given["path"], mode="r") as database:
            return [int(value) for value in values(database)]

    return look


def batch_writer(given, **more):
    return pickle.loads(pickle.dumps(BatchWriter({**given, **more}, SCHEMA, overwrite=False)))


def task(writer, *numbers, query_id=None):
    message = writer.write(iter([rows(*((b"k", b"%d" % number) for number in numbers))] if numbers else []))
    return dataclasses.replace(pickle.loads(pickle.dumps(message)), query_id=query_id)


def stream(given, batch_id, *tasks, query_id="q", end="commit", **more):
    """One batch of a stream: a writer for its tasks, another one for the driver's commit."""
    writer = StreamWriter({**given, **more}, SCHEMA, overwrite=False)
    messages = [task(writer, *numbers, query_id=query_id) for numbers in tasks]
    getattr(StreamWriter({**given, **more}, SCHEMA, overwrite=False), end)(messages, batch_id)
    return messages


def notes_of(given):
    return WriteOptions.of(given).staging


def left(given):
    """What is still staged: files, or uploads of the server in the directory beside."""
    directory = given.get("stagingPath") or os.path.join(tempfile.gettempdir(), "db", "uploads")
    if not os.path.isdir(directory):
        return []
    return [name for name in os.listdir(directory) if "url" in given or name.endswith(".staged")]


def groups(given):
    with logdb.open(given["url"]) if "url" in given else logdb.open(given["path"], mode="r") as database:
        return [group.group_id for group in database.groups()]


# ---------------------------------------------------------------- batches


def test_a_batch_is_there_as_a_whole(given, looked):
    writer = batch_writer(given)
    messages = [task(writer, 0, 1), task(writer), None, task(writer, 2)]
    assert (looked(), len(left(given))) == ([], 2)
    writer.commit(messages)
    assert (looked(), left(given)) == ([0, 1, 2], [])
    assert groups(given) == [], "nothing of it is kept"


def test_a_batch_that_is_aborted(given, looked):
    writer = batch_writer(given)
    writer.abort([task(writer, 0, 1), None])
    assert (looked(), left(given)) == ([], [])


def test_an_abort_after_a_commit_that_landed_changes_nothing(given, looked):
    writer = batch_writer(given)
    messages = [task(writer, 0, 1)]
    writer.commit(messages)
    writer.abort(messages)
    assert looked() == [0, 1]


def test_no_rows_at_all(given, looked):
    writer = batch_writer(given)
    writer.commit([task(writer), None])
    writer.commit([])
    assert (looked(), groups(given)) == ([], [])


def test_a_task_that_fails_leaves_no_file(given):
    writer = batch_writer(given, topic="t")
    broken = rows((b"k", b"1"))

    def batches():
        yield broken
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        writer.write(batches())
    assert left(given) == []


def test_tries_that_did_not_count_are_not_committed(given, looked):
    writer = batch_writer(given)
    _, won = task(writer, 0, 1), task(writer, 0, 1)
    writer.commit([won])
    assert looked() == [0, 1]
    assert len(left(given)) == 1, "it is reaped when it is old: its task may still be at it"


def test_a_batch_write_that_is_named_is_done_once(given, looked):
    for batch_id, number in [(0, 0), (0, 1), (1, 2), (0, 3)]:
        writer = batch_writer(given, writeId="w", batchId=str(batch_id))
        writer.commit([task(writer, number)])
    assert (looked(), groups(given)) == ([0, 2], ["spark-w"])


def test_overwriting_is_refused(given):
    with pytest.raises(InvalidConfig, match="mode='overwrite': must be append"):
        BatchWriter(given, SCHEMA, overwrite=True)
    with pytest.raises(InvalidConfig, match=r"outputMode='complete': must be append.*upsert"):
        StreamWriter(given, SCHEMA, overwrite=True)
    with pytest.raises(InvalidConfig, match="writeId='w': only batch writes take it"):
        StreamWriter({**given, "writeId": "w", "batchId": "0"}, SCHEMA, overwrite=False)


# ---------------------------------------------------------------- streams


def test_a_stream(given, looked):
    for batch_id in range(3):
        stream(given, batch_id, [batch_id], [], [10 + batch_id])
    assert (looked(), left(given), groups(given)) == ([0, 10, 1, 11, 2, 12], [], ["spark-q"])
    assert noted.last(notes_of(given), "spark-q") == 2


def test_a_batch_that_comes_again_counts_once(given, looked):
    stream(given, 0, [0])
    stream(given, 1, [1])
    stream(given, 1, [1])
    stream(given, 1, [1], query_id="another")
    assert (looked(), left(given)) == ([0, 1, 1], [])


def test_a_batch_that_was_aborted_comes_again(given, looked):
    stream(given, 0, [0], end="abort")
    assert looked() == []
    stream(given, 0, [0])
    assert looked() == [0]


def test_a_database_that_forgot(given, looked):
    stream(given, 3, [0])
    with logdb.open(given.get("url") or given["path"]) as database:
        database.delete_group("spark-q")
    for batch_id in (3, 4):
        with pytest.raises(CommitForgotten, match=r"batch 3 was committed.*'spark-q'"):
            stream(given, batch_id, [1])
    stream(given, 4, [1], failOnDataLoss="false")
    stream(given, 5, [2])
    assert looked() == [0, 1, 2]


def test_a_note_that_cannot_be_written_does_no_harm(given, looked):
    os.makedirs(noted.path(notes_of(given), "spark-q"))
    os.chmod(notes_of(given), 0o700)
    stream(given, 1, [1])
    assert (looked(), noted.last(notes_of(given), "spark-q"), left(given)) == ([1], -1, [])


def test_tasks_that_were_not_told_their_query(given, looked):
    with pytest.raises(RuntimeError, match="did not tell"):
        stream(given, 0, [0], query_id=None)
    assert looked() == []


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"batch": null}', b"\xff", b"[1]"])
def test_a_damaged_note_is_none(given, looked, damage):
    stream(given, 0, [0])
    with open(noted.path(notes_of(given), "spark-q"), "wb") as file:
        file.write(damage)
    stream(given, 1, [1])
    assert (looked(), noted.last(notes_of(given), "spark-q")) == ([0, 1], 1)


@pytest.mark.parametrize("name", ["../up", "a/b", "%", "ü"])
def test_a_note_stays_in_its_directory(tmp_path, name):
    noted.note(str(tmp_path / "staging"), name, 4)
    assert noted.last(str(tmp_path / "staging"), name) == 4
    assert (os.listdir(tmp_path), len(os.listdir(tmp_path / "staging"))) == (["staging"], 1)


def test_a_topic_that_is_deleted_meanwhile(given, looked):
    writer = batch_writer(given)
    messages = [task(writer, 0)]
    with logdb.open(given.get("url") or given["path"]) as database:
        database.delete_topic("t")
    with pytest.raises(UnknownTopic):
        writer.commit(messages)
    writer.abort(messages)
    assert left(given) == []


# ---------------------------------------------------------------- other machines


@pytest.mark.local
@pytest.mark.parametrize("how", ["missing", "another one"])
def test_a_directory_that_is_not_the_drivers_is_told_before_a_row_is_encoded(given, how):
    """Whatever the hosts are called: here both are one."""
    writer = batch_writer(given)
    shutil.rmtree(given["stagingPath"])
    if how == "another one":
        batch_writer(given)

    def encoded():
        raise AssertionError("a row was asked for")
        yield

    with pytest.raises(StagingNotShared, match=r"on host .* is not the directory of that name on the driver's host .* stagingPath must"):
        writer.write(encoded())
    assert left(given) == []


def test_a_batch_whose_upload_has_expired_writes_nothing_and_comes_again(tmp_path):
    with served(tmp_path / "db") as server:
        server.database.create_topic("t")
        given = {"url": server.url, "topic": "t"}
        writer = batch_writer(given, writeId=str(uuid.uuid4()), batchId="0")  # one of its own, as Spark's: it is noted on this machine
        messages = [task(writer, 0), task(writer, 1)]
        gone = messages[1].staged.pieces[0]
        with logdb.open(server.url) as database:
            database.session.uploads.discard(gone.partition, gone.holder, [gone.id])
        with pytest.raises(UploadMissing, match=r"has expired \(upload_idle_ms\).*start the query again"):
            writer.commit(messages)
        assert values(server.database) == []
        writer.commit([task(writer, 0), task(writer, 1)])
        assert values(server.database) == [b"0", b"1"]


def test_an_executor_without_the_token_says_host_cause_and_remedy(tmp_path, monkeypatch):
    with logdb.open(tmp_path / "db") as database:
        database.create_topic("t")
    secure(tmp_path / "db", *NEEDED, users={"spark": "secret"})
    monkeypatch.setenv("LOGDB_USER", "spark")
    monkeypatch.setenv("LOGDB_PASSWORD", "secret")
    with served(tmp_path / "db") as server:
        plan = pickle.dumps(BatchWriter({"url": server.url, "topic": "t"}, SCHEMA, overwrite=False))
        forget_handles(monkeypatch)
        monkeypatch.delenv("LOGDB_USER")
        with pytest.raises(AuthenticationFailed, match=rf"on host {socket.gethostname()}: .* Set LOGDB_TOKEN.* of the executors"):
            task(pickle.loads(plan), 0)
        forget_handles(monkeypatch)


def forget_handles(monkeypatch):
    """As a worker in a process of its own."""
    monkeypatch.setattr(location, "_opened", {})


# ---------------------------------------------------------------- the writer's lock


@pytest.mark.local
def test_an_application_holds_the_directory(given, looked):
    writer = batch_writer(given, lockTimeout="100ms")
    messages = [task(writer, 0)]
    with logdb.open(given["path"]), pytest.raises(DirectoryLocked, match=f"process {os.getpid()}") as caught:
        writer.commit(messages)
    assert caught.value.__notes__ == ["lockTimeout=100ms is over; if an application has it open, serve it, and write to the url"]
    writer.commit(messages)
    assert looked() == [0]


@pytest.mark.local
def test_another_query_holds_the_directory_for_a_moment(given, looked, monkeypatch):
    """The commit waits until it lets go."""
    writer = batch_writer(given)
    messages = [task(writer, 0)]
    database = logdb.open(given["path"])
    monkeypatch.setattr(sink.time, "sleep", lambda _: database.close())
    writer.commit(messages)
    assert looked() == [0]


@pytest.mark.local
def test_queries_that_share_a_directory_take_turns(given, looked):
    failures = []

    def query(name):
        try:
            for batch_id in range(5):
                stream(given, batch_id, [batch_id], query_id=name, lockTimeout="5m")
        except LogdbError as error:
            failures.append(error)

    threads = [threading.Thread(target=query, args=(f"q{number}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (failures, sorted(looked())) == ([], sorted(3 * list(range(5))))


@pytest.mark.local
def test_a_directory_that_is_gone_is_not_made_anew(given, tmp_path):
    writer = batch_writer(given)
    messages = [task(writer, 0)]
    os.rename(given["path"], tmp_path / "away")
    with pytest.raises(NotADatabase, match="is gone"):
        writer.commit(messages)
    assert not os.path.exists(given["path"])


# ---------------------------------------------------------------- a server with access control

NEEDED = (
    "Allow spark@* Write Topic t",
    "Allow spark@* Read Topic t",
    "Allow spark@* Read Group spark-…",
    "Allow spark@* Write TransactionalId spark-…",
    "Allow spark@* Delete Group spark-…",
)


@pytest.mark.parametrize("staged_in", ["files", "uploads"])
@pytest.mark.parametrize("left_out", [None, 0, 1, 2, 3, 4])
def test_what_a_sink_has_to_be_allowed(tmp_path, monkeypatch, left_out, staged_in):
    """As docs/reference/spark.md says; reading includes describing."""
    with logdb.open(tmp_path / "db") as database:
        database.create_topic("t")
    secure(tmp_path / "db", *(acl for number, acl in enumerate(NEEDED) if number != left_out), users={"spark": "secret"})
    monkeypatch.setenv("LOGDB_USER", "spark")
    monkeypatch.setenv("LOGDB_PASSWORD", "secret")
    with served(tmp_path / "db") as server:
        given = {"url": server.url, "topic": "t", **({"stagingPath": str(tmp_path / "staging")} if staged_in == "files" else {})}
        writer = BatchWriter(given, SCHEMA, overwrite=False)
        if left_out in (None, 4):
            writer.commit([task(writer, 0)])
            assert values(server.database) == [b"0"]
            assert [group.group_id for group in server.database.groups()] == ([] if left_out is None else [f"spark-{_job(server)}"])
        else:
            with pytest.raises(NotAuthorized, match="User:spark is not allowed to"):
                writer.commit([task(writer, 0)])
            assert values(server.database) == []


def _job(server):
    (transaction,) = server.database.transactions()
    return transaction.transactional_id.removeprefix("spark-")


@pytest.mark.local
def test_a_snapshot_is_not_written_to(given, tmp_path):
    with logdb.open(given["path"]) as database:
        database.snapshot(tmp_path / "snapshot")
    writer = batch_writer(given, path=str(tmp_path / "snapshot"))
    with pytest.raises(ReadOnly, match="is a snapshot"):
        writer.commit([task(writer, 0)])
