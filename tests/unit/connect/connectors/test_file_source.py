import os
import time

import pytest

from logdb_connect.config import ConfigError
from logdb_connect.connectors import follow
from logdb_connect.connectors.file import FileStreamSourceConnector
from logdb_connect.data import STRING
from logdb_connect.errors import ConnectError
from support.connect_tasks import Source


@pytest.fixture
def path(tmp_path):
    return tmp_path / "app.log"


def source(path, offsets=None, **more):
    properties = {"file": str(path), "topic": "lines", "rotated.file.quiet.ms": "0"} | {k.replace("_", "."): v for k, v in more.items()}
    return Source(FileStreamSourceConnector, properties, offsets)


def append(path, data):
    with path.open("ab") as file:
        file.write(data)


def test_lines_become_records_as_with_kafka(path):
    append(path, b"foo\nbar\r\nmac\r\xc3\xa9\x85\xe2\x80\xa8x\x0b\x0cy\n\nbad \xff utf-8\n")
    one = source(path)
    records = one.poll()
    assert [each.value for each in records] == ["foo", "bar", "mac", "\xe9\ufffd\u2028x\x0b\x0cy", "", "bad \ufffd utf-8"]
    assert {(each.topic, each.key, each.value_schema) for each in records} == {("lines", None, STRING)}
    assert records[0].source_partition == {"filename": str(path)}
    assert records[-1].source_offset["position"] == path.stat().st_size


def test_a_half_line_waits(path):
    one = source(path)
    assert one.step() == []  # there is no file yet
    append(path, b"one\ntw")
    assert one.drain() == ["one"]
    append(path, b"o\nthree\r")
    assert one.drain() == ["two"]
    append(path, b"\n")
    assert one.drain() == ["three"]
    append(path, "\xe9"[:1].encode()[:1])
    assert one.drain() == []
    append(path, "\xe9".encode()[1:] + b"\n")
    assert one.drain() == ["\xe9"]


@pytest.mark.parametrize("batch_size", [1, 2, 1000])
def test_each_offset_is_where_the_next_task_continues(path, batch_size):
    lines = ["", "a", "b\xe9" * 20, *(f"line {n}" for n in range(300)), "x" * 3000]
    append(path, "\n".join([*lines, "half"]).encode())
    offsets, values = [], []
    while len(values) < len(lines):
        one = source(path, offsets, batch_size=str(batch_size))
        values += one.step()  # and then the worker dies
        one.poll()
        one.task.stop()
    assert values == lines


def test_batch_size_is_honoured(path):
    append(path, b"x\n" * 5000)
    one = source(path)
    assert [len(one.step()) for _ in range(4)] == [2000, 2000, 1000, 0]


def test_lines_over_block_limits(path):
    lines = ["a" * n for n in (1, (1 << 20) - 2, 1 << 20, 5, 3 << 20, 1)]
    append(path, "\n".join(lines).encode() + b"\n")
    assert source(path).drain() == lines


def test_a_line_that_is_too_long_fails_by_name_and_place(path):
    append(path, b"good\n" + b"x" * 2000 + b"\nnext\n")
    one = source(path, line_max_bytes="1000")
    with pytest.raises(ConnectError, match=r"line at byte 5 .*line\.max\.bytes=1000"):
        one.drain()
    offsets = []
    assert source(path, offsets, line_max_bytes="2001").drain() == ["good", "x" * 2000, "next"]
    append(path, b"x" * (3 << 20))  # has no end yet
    with pytest.raises(ConnectError, match=r"line at byte 2011 .*line\.max\.bytes=5000"):
        source(path, offsets, line_max_bytes="5000").drain()


# Rotation -----------------------------------------------------------------------------------------------------------------------


def test_rotation_by_rename_finishes_the_old_file_first(path):
    append(path, b"1\n2\n")
    one = source(path)
    assert one.step() == ["1", "2"]
    append(path, b"3\n")
    path.rename(path.with_suffix(".1"))
    append(path.with_suffix(".1"), b"4\n")  # the writer has it open still
    assert one.drain() == ["3", "4"]
    path.touch()
    append(path.with_suffix(".1"), b"5\nlast without end")
    assert one.drain() == ["5"]  # the new file is empty: the writer may still be with the old one
    append(path, b"6\n")
    assert one.drain() == ["last without end", "6"]
    append(path, b"7\n")
    assert one.drain() == ["7"]


def test_rotation_waits_until_the_old_file_is_quiet(path):
    append(path, b"1\n")
    one = source(path, rotated_file_quiet_ms="300")
    one.drain()
    old = path.rename(path.with_suffix(".1"))
    append(path, b"3\n")
    begin = time.monotonic()
    assert one.drain() == []
    append(old, b"2\n")  # a second process of the writer
    values = []
    while len(values) < 2:
        values += one.drain()
    assert values == ["2", "3"]
    assert time.monotonic() - begin > 0.3


@pytest.mark.parametrize("committed", [True, False])
def test_one_rotation_while_the_task_is_away(path, committed):
    append(path, b"1\n2\n")
    offsets = []
    if committed:
        one = source(path, offsets)
        one.drain()
        one.stop()
    append(path, b"3\n")
    path.rename(path.with_suffix(".1"))
    append(path, b"4\n")
    wanted = ["3", "4"] if committed else ["4"]
    assert source(path, offsets).drain() == wanted


@pytest.mark.parametrize("pattern", ["app.log.?", None])
def test_rotations_while_the_task_is_away(path, pattern, caplog):
    append(path, b"1\n")
    offsets = []
    one = source(path, offsets)
    one.drain()
    one.stop()
    append(path, b"2\n")
    for n in (3, 2, 1):  # the last one is .1
        path.rename(path.with_suffix(f".log.{n}"))
        os.utime(path.with_suffix(f".log.{n}"), (1_700_000_000 - n, 1_700_000_000 - n))
        append(path, b"after %d\n" % n)
    append(path.with_suffix(".log.old.of.others"), b"no\n")
    os.utime(path.with_suffix(".log.old.of.others"), (1, 1))
    more = {} if pattern is None else {"rotated_file_pattern": pattern}
    assert source(path, offsets, **more).drain() == (["2", "after 1"] if pattern is None else ["2", "after 3", "after 2", "after 1"])
    assert ("app.log.2, " in caplog.text and "set rotated.file.pattern" in caplog.text) == (pattern is None)


def test_truncation_in_place(path):
    append(path, b"1\n2\n3\n")
    offsets = []
    one = source(path, offsets)
    one.drain()
    path.write_bytes(b"4\n")  # the same inode
    assert one.drain() == ["4"]
    path.write_bytes(b"5\n6\n7 is longer than before\n")
    assert one.drain() == ["5", "6", "7 is longer than before"]
    one.stop()
    path.write_bytes(b"8\n" * 50)
    assert source(path, offsets).drain() == ["8"] * 50


def test_a_file_that_vanishes_is_waited_for(path, caplog, monkeypatch):
    append(path, b"1\n")
    one = source(path)
    one.drain()
    path.unlink()
    assert one.drain() == []
    assert not caplog.records, "a rotation may give the name to another file"
    monkeypatch.setattr(follow, "_ROTATION_S", 0.0)
    assert one.drain() == one.drain() == []
    assert [one.getMessage() for one in caplog.records] == [f"The file {path} is gone: waiting for another one of this name"]
    append(path, b"2\n")
    assert one.drain() == ["2"]
    offsets = one.offsets
    one.stop()
    path.unlink()
    two = source(path, offsets)
    assert two.drain() == []
    assert caplog.text.count("Couldn't find file") == 1
    append(path, b"3\n")
    assert two.drain() == ["3"]


def test_a_file_that_an_editor_saved_is_continued(path):
    append(path, b"1\n2\n")
    offsets = []
    one = source(path, offsets)
    one.drain()
    for n in (3, 4):
        other = path.with_suffix(".tmp")
        other.write_bytes(path.read_bytes() + b"%d\n" % n)
        other.rename(path)
        assert one.drain() == [str(n)]
    one.stop()
    other.write_bytes(path.read_bytes() + b"5\n")
    other.rename(path)
    assert source(path, offsets).drain() == ["5"]


def test_offsets_as_kafkas_worker_wrote_them(path):
    append(path, b"1\n2\n3\n")
    assert source(path, [({"filename": str(path)}, {"position": 2})]).drain() == ["2", "3"]
    assert source(path, [({"filename": str(path)}, {"position": 99})]).drain() == ["1", "2", "3"]


# Bad properties -----------------------------------------------------------------------------------------------------------------


def test_bad_properties_and_files(path, tmp_path):
    with pytest.raises(ConfigError, match='Missing required configuration "topic"'):
        Source(FileStreamSourceConnector, {"file": str(path)})
    with pytest.raises(ConfigError, match=r"batch\.size: Value must be at least 1"):
        source(path, batch_size="0")
    assert "directory" in FileStreamSourceConnector().validate({"file": str(tmp_path)})["file"]
    os.mkfifo(path)
    with pytest.raises(ConnectError, match="must be a regular file"):
        source(path).step()


def test_offsets_that_an_administrator_sets():
    connector = FileStreamSourceConnector()
    good = '{"filename": "a"}'
    connector.alter_offsets({"file": "a"}, {good: {"position": 3}})
    connector.alter_offsets({"file": "a"}, {good: None})
    for partition, offset, words in [
        ('{"file": "a"}', {"position": 3}, "should contain the key 'filename'"),
        (good, {"pos": 3}, "contain the key 'position'"),
        (good, {"position": "3"}, "non-negative number"),
        (good, {"position": -3}, "non-negative number"),
    ]:
        with pytest.raises(ConnectError, match=words):
            connector.alter_offsets({"file": "a"}, {partition: offset})
    with pytest.raises(ConnectError, match="stdin is used for input"):
        connector.alter_offsets({}, {good: None})


def test_standard_input(monkeypatch):
    out, into = os.pipe()
    monkeypatch.setattr("logdb_connect.connectors.file._STDIN", out)
    one = Source(FileStreamSourceConnector, {"topic": "lines"})
    assert one.step() == []
    os.write(into, b"1\r\n2\r")
    assert one.step() == ["1"]
    os.write(into, b"\n3")
    assert one.step() == ["2"]
    os.close(into)
    assert one.step() == ["3"]
    assert one.step() == []
    assert one.offsets[-1] == ({"filename": None}, {"position": 7})
    assert not one.connector.exactly_once({})
    os.close(out)
