"""meta/dump.py and meta/child.py: damaged pages are read by a process that may die of them."""

import os
import sys
from pathlib import Path

import lmdb
import pytest

from logdb.errors import ReadFailed
from logdb.meta import Catalogue, Intent, LogEntry, SegmentEntry, TopicEntry, WriteTransaction, child, entries
from logdb.meta.dump import read_in_child
from support.damage import flip_page_count

PAGE_SIZE_BYTES = os.sysconf("SC_PAGE_SIZE")


def fill(txn: WriteTransaction) -> None:
    txn.put_topic(TopicEntry("events", "id", 20, {"retention.ms": 5}))
    txn.put_logs(LogEntry("events", partition) for partition in range(20))
    for partition in range(20):
        txn.put_segment(SegmentEntry("events", partition, 0, 1, 2, 3, 4, 5))
    txn.add_intent(Intent("delete", "events", {"a": 1}))


@pytest.fixture
def path(tmp_path: Path) -> str:
    made = str(tmp_path / "catalogue")
    with Catalogue.open(made, create=True) as catalogue:
        catalogue.write(fill)
    return made


def put(path: str, key: bytes, value: bytes | None) -> None:
    with lmdb.open(path) as env, env.begin(write=True) as txn:
        assert txn.delete(key) if value is None else txn.put(key, value)


def test_a_sound_catalogue_is_read_whole(path: str) -> None:
    dump = read_in_child(path)
    assert dump.problems == []
    with Catalogue.open(path, create=False, read_only=True) as catalogue:
        assert (dump.format, dump.database_id) == (entries.FORMAT, catalogue.database_id)
        assert dump.topics == catalogue.topics()
        assert dump.logs == catalogue.logs()
        assert dump.segments == catalogue.segments("events")
        assert dump.intents == catalogue.intents()


def test_the_child_reads_beside_a_writer(path: str) -> None:
    with Catalogue.open(path, create=False) as catalogue:
        catalogue.write(lambda txn: txn.delete_segment("events", 0, 0))
        dump = read_in_child(path, lock=True)
    assert dump.problems == []
    assert len(dump.segments) == 19


def test_a_missing_file_is_a_problem(tmp_path: Path) -> None:
    assert read_in_child(str(tmp_path)).problems == ["data.mdb is missing"]


def test_a_damaged_value_is_a_problem_and_the_rest_is_read(path: str) -> None:
    key, value = entries.encode_log(LogEntry("events", 7))
    put(path, key, value[:-1] + bytes([value[-1] ^ 1]))
    dump = read_in_child(path)
    assert any("entry 'l events 0000000007': stored CRC" in problem for problem in dump.problems)
    assert len(dump.logs) == 19
    assert len(dump.segments) == 20


def test_entries_that_do_not_fit_each_other_are_problems(path: str) -> None:
    put(path, *entries.encode_log(LogEntry("lost", 0)))
    put(path, *entries.encode_segment(SegmentEntry("events", 99, 0, 1, 2, 3, 4, 5)))
    put(path, b"x unheard", b"of")
    put(path, entries.log_key("events", 3), None)
    put(path, b"f", None)
    assert sorted(read_in_child(path).problems) == [
        "entry 'l events 0000000003' is missing",
        "entry 'l lost 0000000000' belongs to no topic",
        "entry 's events 0000000003 00000000000000000000' belongs to no log",
        "entry 's events 0000000099 00000000000000000000' belongs to no log",
        "entry 'x unheard': no such kind of entry",
        "there is no format entry",
    ]


def test_a_newer_format_is_a_problem(path: str) -> None:
    put(path, b"f", entries._seal(b"f", {"format": 9}))
    assert read_in_child(path).problems == ["format 9; this logdb knows up to 1"]


@pytest.mark.parametrize("junk", [b"\xff", b"\0"])
def test_no_damaged_page_hides_or_kills_the_caller(path: str, junk: bytes) -> None:
    sound = read_in_child(path)
    data_path = Path(path, "data.mdb")
    whole = data_path.read_bytes()
    page_count = len(whole) // PAGE_SIZE_BYTES
    assert page_count > 4
    reported = 0
    for page in range(page_count):
        start = page * PAGE_SIZE_BYTES
        data_path.write_bytes(whole[:start] + junk * PAGE_SIZE_BYTES + whole[start + PAGE_SIZE_BYTES :])
        dump = read_in_child(path)
        # An unused page (free, or the older meta page) may be junk.
        assert dump.problems or dump == sound, f"page {page}"
        reported += bool(dump.problems)
    assert reported >= page_count // 2


@pytest.mark.parametrize("bit", [20, 34, 35, 51, 52, 63])
def test_a_meta_page_that_claims_too_many_pages_is_a_problem(path: str, bit: int) -> None:
    """Its map may need more memory than a process can have."""
    flip_page_count(Path(path, "data.mdb"), bit)
    assert read_in_child(path).problems


def test_memory_is_wanting_beside_other_damage(path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Then nothing is known: a repair would replace the catalogue without its entries."""
    flip_page_count(Path(path, "data.mdb"), 20)
    program = Path(child.__file__).read_text()
    opened = "environment = lmdb.open("
    assert opened in program
    refused = 'raise lmdb.MemoryError("Cannot allocate memory")'
    (tmp_path / "no_memory.py").write_text(program.replace(opened, f"{refused}; {opened}"))
    monkeypatch.setattr(child, "__file__", str(tmp_path / "no_memory.py"))
    with pytest.raises(ReadFailed, match="Cannot allocate memory"):
        read_in_child(path)


@pytest.mark.parametrize("page_count", [0, 1, 2, 3])
def test_a_file_cut_short_is_a_problem(path: str, page_count: int) -> None:
    os.truncate(os.path.join(path, "data.mdb"), page_count * PAGE_SIZE_BYTES + 100)
    dump = read_in_child(path)
    assert dump.problems
    assert len(dump.segments) < 20


# ---------------------------------------------------------------- a child that misbehaves


def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str) -> None:
    (tmp_path / "stand_in.py").write_text("print('[\"ready\"]', flush=True)\n" + program)
    monkeypatch.setattr(child, "__file__", str(tmp_path / "stand_in.py"))


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "died of SIGSEGV after 0 lines"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGXCPU)", "did not end within 60 s of a processor"),
        ("pass", "ended early"),
        ('print(\'["entry", "\')', "output of the reader of data.mdb: b'"),
        ("print('[1, 2]')", "output of the reader of data.mdb: [1, 2]"),
        ('print(\'["entry", "?", ""]\')', "output of the reader of data.mdb: b'"),
        ("print('[\"end\", 3, 4]')", "counts 4 entries, 3 were found"),
    ],
)
def test_whatever_the_child_does_is_a_problem(
    path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, problem: str
) -> None:
    stand_in(monkeypatch, tmp_path, program)
    problems = read_in_child(path).problems
    assert any(problem in found for found in problems), problems


def test_what_a_child_said_before_it_died_is_kept(path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = """print('["error", "first"]', flush=True)"""
    stand_in(monkeypatch, tmp_path, f"import os, signal; {said}; os.kill(os.getpid(), signal.SIGBUS)")
    assert read_in_child(path).problems[:2] == ["reading data.mdb died of SIGBUS after 1 lines", "first"]


@pytest.mark.parametrize("executable", ["", "/nonexistent/python", "/bin/false"])
def test_a_child_that_cannot_start_is_no_damage(path: str, monkeypatch: pytest.MonkeyPatch, executable: str) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    with pytest.raises(ReadFailed, match="catalogue at byte 0 failed: nothing is known about it"):
        read_in_child(path)


@pytest.mark.parametrize(
    "program",
    [
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "raise MemoryError",
        "import time; time.sleep(60)",
    ],
)
def test_a_child_that_the_system_ends_is_no_damage(path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str) -> None:
    stand_in(monkeypatch, tmp_path, program)
    with pytest.raises(ReadFailed, match="the process that reads it failed"):
        read_in_child(path, timeout_s=1)


@pytest.mark.parametrize("step", ["check_pages", "walk"])
def test_a_child_that_may_open_no_file_is_no_damage(path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: str) -> None:
    """In one step; the other step may."""
    program = Path(child.__file__).read_text()
    for name in ("check_pages", "walk"):
        limit = 3 if name == step else 64
        assert f" {name}(request" in program
        limited = f"import_module('lmdb.verify') and not resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, 64)) and {name}(request"
        program = program.replace(f" {name}(request", f" {limited}")
    program = program.replace("import json\n", "import json\nfrom importlib import import_module\n", 1)
    (tmp_path / "few_files.py").write_text(program)
    monkeypatch.setattr(child, "__file__", str(tmp_path / "few_files.py"))
    with pytest.raises(ReadFailed, match="Too many open files"):
        read_in_child(path)
