import os
import time

import pyarrow
import pytest
from pyarrow import parquet

from logdb_connect.connectors.directory import DirectorySourceConnector
from logdb_connect.data import OPTIONAL_STRING, STRING, struct
from logdb_connect.errors import ConfigError, ConnectError
from support.connect_tasks import Source


@pytest.fixture
def path(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "done").mkdir()
    (tmp_path / "bad").mkdir()
    return tmp_path / "in"


_opened = []


@pytest.fixture(autouse=True)
def _stop():
    yield
    while _opened:
        _opened.pop().stop()


def source(path, offsets=None, **more):
    given = {"input.path": str(path), "topic": "rows", "file.minimum.age.ms": "0"}
    _opened.append(Source(DirectorySourceConnector, given | {key.replace("_", "."): value for key, value in more.items()}, offsets))
    return _opened[-1]


def test_each_format_by_the_end_of_the_name(path):
    (path / "a.csv").write_text('\ufeffid,name\r\n1,"x, y"\r\n\r\n2,"two\nlines"\n')
    (path / "b.jsonl").write_text('{"id": 1}\n\n[2]\n')
    (path / "c.log").write_bytes(b"one\r\n\xff\nlast")
    parquet.write_table(pyarrow.table({"id": [1, 2]}), path / "d.parquet")
    (path / ".hidden.csv").write_text("x\n1\n")
    (path / "e.csv").symlink_to(path / "a.csv")
    (path / "empty.csv").touch()
    (path / "sub.csv").mkdir()
    one = source(path)
    records = one.poll()
    assert records[0].value_schema == struct(id=OPTIONAL_STRING, name=OPTIONAL_STRING)
    assert [each.value for each in records] == [{"id": "1", "name": "x, y"}, {"id": "2", "name": "two\nlines"}]
    assert records[0].source_partition == {"directory": str(path), "file": "a.csv"}
    assert one.drain() == [{"id": 1}, [2], "one", "\ufffd", "last", {"id": 1}, {"id": 2}]


def test_formats_by_property(path):
    (path / "x.txt").write_text("1\t2\n3\t4\n")
    one = source(path, input_format="csv", csv_first_row_as_header="false", csv_separator_char="\\t")
    assert one.drain() == [{"column01": "1", "column02": "2"}, {"column01": "3", "column02": "4"}]
    assert [each.value_schema for each in source(path).poll()] == [STRING] * 2
    assert source(path, input_file_pattern="*.csv").drain() == []


@pytest.mark.parametrize("batch_size", [1, 3, 1000])
def test_each_file_is_taken_once_whenever_the_worker_dies(path, batch_size, monkeypatch):
    (path / "1.csv").write_text("n\n" + "".join(f"{n}\n" for n in range(10)))
    (path / "2.json").write_text("".join(f"{n}\n" for n in range(10)))
    parquet.write_table(pyarrow.table({"n": list(range(10))}), path / "3.parquet")
    wanted = [{"n": str(n)} for n in range(10)] + list(range(10)) + [{"n": n} for n in range(10)]
    offsets, values = [], []
    for _ in range(32):
        one = source(path, offsets, batch_size=str(batch_size))
        values += next(filter(None, (one.step() for _ in range(5))), [])
        one.poll()  # and then the worker dies
    assert values == wanted
    one = source(path, offsets)
    monkeypatch.setattr(one.task, "_skipping", None)  # nothing is read again
    assert one.drain() == []


def test_a_file_that_is_still_written_waits(path):
    one = source(path, file_minimum_age_ms="200")
    (path / "a.json").write_text("1\n")
    assert one.drain() == []
    time.sleep(0.25)
    assert one.drain() == [1]


def test_a_file_that_grew_is_continued_and_another_one_is_read_whole(path):
    file, offsets = path / "a.json", []
    file.write_text("1\n2\n")
    one = source(path, offsets)
    assert one.drain() == [1, 2]
    with file.open("a") as end:
        end.write("3\n")
    assert one.drain() == [3]
    file.write_text("7\n8\n9\n10\n")
    assert one.drain() == [7, 8, 9, 10]
    one.stop()
    assert source(path, offsets).drain() == []
    os.utime(file, (1, 1))
    assert source(path, offsets).drain() == [7, 8, 9, 10]  # who knows what touched it


def test_cleaning_up(path):
    for name in ("a.json", "b.json"):
        (path / name).write_text("1\n")
    one = source(path)
    one.drain()
    assert len(list(path.iterdir())) == 2
    done = path.parent / "done"
    (done / "a.json").write_text("of others")
    one = source(path, cleanup_policy="MOVE", finished_path=str(done))
    one.step()
    assert len(list(path.iterdir())) == 2  # what is not stored stays
    one.drain()
    assert list(path.iterdir()) == []
    assert {each.name: each.read_text() for each in done.iterdir()} == {"a.json": "of others", "a.json.1": "1\n", "b.json": "1\n"}
    for name in ("a.json", "b.json"):
        (path / name).write_text("1\n")
    one = source(path, cleanup_policy="DELETE")
    while one.task._name != "b.json":
        one.task.poll()
    (path / "a.json").write_text("1\n2\n")
    one.drain()
    assert [each.name for each in path.iterdir()] == []


def test_a_file_that_changed_meanwhile_is_not_deleted(path):
    (path / "a.json").write_text("1\n")
    one = source(path, cleanup_policy="DELETE")
    assert one.step() == [1]
    (path / "a.json").write_text("1\n2\n")
    one.task.poll()
    one.task.poll()
    one.task.commit()
    assert (path / "a.json").read_text() == "1\n2\n"


@pytest.mark.parametrize(
    ("name", "text", "good", "words"),
    [
        ("a.csv", b"a,b\n1,2\n3\n4,5\n", [{"a": "1", "b": "2"}], "behind its record 1: line 3 has 1 fields"),
        ("a.csv", b'a,b\n1,2\n"3\n', [{"a": "1", "b": "2"}], "line"),
        ("a.csv", b"a,a\n1,2\n", [], "two columns have one name"),
        ("a.csv", b"a\n\xff\n", [], "utf-8"),
        ("a.json", b"1\n2\n{\n4\n", [1, 2], "behind its record 2"),
        ("a.parquet", b"PAR1", [], "no Parquet"),
    ],
)
def test_a_file_that_cannot_be_read(path, name, text, good, words):
    (path / name).write_bytes(text)
    (path / "z.json").write_text("5\n")
    one = source(path)
    with pytest.raises(ConnectError, match=words):
        one.drain()
    assert (path / name).exists()
    two = source(path, halt_on_error="false")
    assert two.drain() == [*good, 5]
    assert (path / name).exists()
    three = source(path, halt_on_error="false", error_path=str(path.parent / "bad"))
    assert three.drain() == [*good, 5]
    assert (path.parent / "bad" / name).read_bytes() == text


def test_tasks_share_the_files(path):
    for n in range(20):
        (path / f"{n}.json").write_text(f"{n}\n")
    connector = DirectorySourceConnector()
    connector.start({"input.path": str(path), "topic": "t", "file.minimum.age.ms": "0"})
    found = []
    for config in connector.task_configs(3):
        one = source(path)
        one.task.start(config)
        found.append(one.drain())
    assert sorted(each for part in found for each in part) == list(range(20))
    assert all(found)


def test_bad_properties(path, tmp_path):
    good = {"input.path": str(path), "topic": "t"}
    validate = DirectorySourceConnector().validate
    assert validate(good) == {}
    assert list(validate(good | {"input.path": "/no/such"})) == ["input.path"]
    assert list(validate(good | {"cleanup.policy": "MOVE"})) == ["finished.path"]
    assert list(validate(good | {"error.path": "/no/such"})) == ["error.path"]
    with pytest.raises(ConfigError, match=r"csv\.separator\.char"):
        source(path, csv_separator_char="ab")
    with pytest.raises(ConnectError, match=r"input\.path=.* is no directory"):
        source(tmp_path / "none")
