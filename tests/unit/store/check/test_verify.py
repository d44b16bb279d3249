"""What verify reports, what it takes for granted after a crash or beside a writer, and that it changes nothing."""

import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest

import logdb
from logdb.codec import crc32c
from logdb.errors import NotADatabase
from logdb.io import IO
from logdb.log import recovery_point
from logdb.log.epochs import LeaderEpochs, encode
from logdb.meta import Catalogue, entries
from logdb.model import COMPRESSION_TYPES
from logdb.store import cluster_file
from logdb.store.check import verify as verify_module
from logdb.store.check.segment_walk import SegmentWalk
from logdb.store.cluster_file import ClusterFile
from support.batches import encode_batch, encode_log
from support.damage import BATCH_RECORDS, BATCHES, PARTITIONS, append, batches, build, files, flip, logs, overwrite, snapshot
from support.power_cut import Killed, PowerCutIO, commits_noted, die, quiet
from support.security import secure

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    build(tmp_path / "db")
    return tmp_path / "db"


def kinds(report: logdb.Report) -> set[str]:
    return {problem.kind for problem in report.problems}


def only(report: logdb.Report) -> logdb.Problem:
    (problem,) = report.problems
    return problem


# ---------------------------------------------------------------- what is well


def test_a_closed_database_is_well(path):
    report = logdb.verify(path)
    assert (report.ok, report.notes) == (True, [])
    assert report.checked == (
        len(files(path)),
        sum(file.stat().st_size for file in files(path)),
        PARTITIONS * BATCHES,
        PARTITIONS * BATCHES * BATCH_RECORDS,
    )


def test_nothing_is_changed(path):
    before = snapshot(path)
    logdb.verify(path)
    flip(logs(path, 0)[0], 100)
    (path / "t-1/topic.json").unlink()
    damaged = snapshot(path)
    assert not logdb.verify(str(path)).ok
    assert snapshot(path) == damaged != before


def test_progress_reaches_the_end(path):
    told = []
    logdb.verify(path, progress=lambda *step: told.append(step))
    done, total, what = told[-1]
    assert done == total == sum(file.stat().st_size for file in path.rglob("*.log"))
    assert what.startswith("t-1")
    assert [step[0] for step in told] == sorted(step[0] for step in told)


@pytest.mark.parametrize("codec", COMPRESSION_TYPES)
def test_every_codec_and_batches_larger_than_a_read(tmp_path, codec):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"compression.type": codec, "max.message.bytes": 8 << 20})
        log = db.log("t")
        log.append_many([b"small"] * 100)
        log.append(os.urandom(3 << 20))
        log.append_many([b"small"] * 100)
    report = logdb.verify(tmp_path / "db")
    assert report.ok, report.problems
    assert report.record_count == 201


def test_an_empty_database_and_an_unused_topic(tmp_path):
    with logdb.open(tmp_path / "db"):
        pass
    assert logdb.verify(tmp_path / "db").ok
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", partitions=3)
        db.log("t", 1)
    assert logdb.verify(tmp_path / "db").ok


def test_topics_that_were_altered_grown_and_deleted(path):
    with logdb.open(path) as db:
        db.alter_topic("t", config={"index.interval.bytes": 100}, partitions=4)
        db.append_many("t", [b"x"] * 100, [b"%d" % n for n in range(100)])
        db.create_topic("gone")
        db.delete_topic("gone")
    report = logdb.verify(path)
    assert report.ok, report.problems
    assert all("index.interval.bytes" in note for note in report.notes)


@pytest.mark.parametrize("bad", ["", "nothing here", "a file"])
def test_what_is_no_database(tmp_path, bad):
    if bad == "nothing here":
        (tmp_path / "db").mkdir()
        (tmp_path / "db/other").write_text("x")
    elif bad == "a file":
        (tmp_path / "db").write_text("x")
    with pytest.raises(NotADatabase):
        logdb.verify(tmp_path / "db")


# ---------------------------------------------------------------- after a crash, beside a writer


KILLED = """
import os, signal, sys, logdb
db = logdb.open(sys.argv[1], durability=sys.argv[2])
db.create_topic("t", config={"segment.bytes": 4000})
log = db.log("t")
for n in range(200):
    log.append_many([b"value %d" % n] * 5)
    if n % 50 == 49:
        log.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("level", ["os", "fsync"])
def test_a_killed_writer_leaves_nothing_to_report(tmp_path, level):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "db"), level])
    assert done.returncode == -9
    report = logdb.verify(tmp_path / "db")
    assert report.ok, report.problems
    assert report.record_count == 1000


def crash(path: Path, *, sync: bool) -> None:
    """Three more batches in each partition, then the process dies."""
    db = logdb.open(path)
    append(db, BATCHES, BATCHES + 3)
    db.flush(sync)
    die(db)


@pytest.mark.parametrize("torn", [b"\0" * 5000, b"garbage", b"cut"])
def test_a_torn_tail_past_the_recovery_point_is_a_note(path, torn):
    crash(path, sync=False)
    active = logs(path, 0)[-1]
    if torn == b"cut":
        os.truncate(active, active.stat().st_size - 1)
    else:
        active.write_bytes(active.read_bytes() + torn)
    report = logdb.verify(path)
    assert report.ok, report.problems
    assert any("were not finished" in note for note in report.notes)
    assert report.record_count == (2 * (BATCHES + 3) - (torn == b"cut")) * BATCH_RECORDS


def test_before_the_recovery_point_a_crash_excuses_nothing(path):
    crash(path, sync=True)
    active = logs(path, 0)[-1]
    os.truncate(active, active.stat().st_size - 1)
    assert only(logdb.verify(path)).path == str(active)


def test_at_level_fsync_more_than_a_group_behind_damage_is_corruption(tmp_path):
    db = logdb.open(tmp_path / "db", durability="fsync")
    db.create_topic("t")
    log = db.log("t")
    log.append(b"first")
    db._store.checkpoint([log])
    point = (tmp_path / "db/t-0" / recovery_point.FILE_NAME).read_bytes()
    for _ in range(3):
        log.append(bytes(600_000))
    die(db)
    assert logdb.verify(tmp_path / "db").ok
    (tmp_path / "db/t-0" / recovery_point.FILE_NAME).write_bytes(point)
    flip(logs(tmp_path / "db", 0)[0], 200)
    assert "more than one group" in only(logdb.verify(tmp_path / "db")).reason


def test_beside_a_writer(tmp_path):
    with logdb.open(tmp_path / "db", linger_ms=0) as db:
        db.create_topic("t", partitions=2, config={"segment.bytes": 20_000})
        stop, reports = threading.Event(), []

        def write() -> None:
            number = 0
            while not stop.is_set():
                if number > 1000 * (len(reports) + 1):  # in memory a writer is faster than one who verifies
                    stop.wait(0.01)
                    continue
                db.log("t", number % 2).append_many([b"value %d" % number] * 20)
                number += 1
                if number % 200 == 0:
                    db.create_topic(f"other-{number}")
                    db.delete_topic(f"other-{number}")
                    db.flush()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            while len(reports) < 5:
                reports.append(db.verify())
        finally:
            stop.set()
            writer.join()
        assert all(report.ok for report in reports), [report.problems for report in reports]
        sealed = logs(tmp_path / "db", 0)[0]
        flip(sealed, 1000)
        assert only(db.verify()).path == str(sealed)
        flip(sealed, 1000)
    report = logdb.verify(tmp_path / "db")
    assert report.ok, report.problems


def tell_story(path: Path, io: PowerCutIO, level: str) -> None:
    """Create, append, roll, sync, delete, close and open again, until the process dies."""
    for _ in range(2):
        db = quiet(logdb.open(path, durability=level, io=io))
        try:
            db.create_topic("kept", partitions=2, config={"segment.bytes": 1024}, if_not_exists=True)
            db.create_topic("gone")
            for number in range(4):
                db.log("kept", number % 2).append_many([b"value %d" % number] * 20)
                db.log("gone").append(b"x")
                db.flush(sync=number == 2)
            db._store.checkpoint([db.log("kept", 0)])
            db.delete_topic("gone")
            db.log("kept").append_many([b"last"] * 50)
        finally:
            die(db)
        io.boot = io.boot if level == "fsync" else "boot-2"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the threads die too
@pytest.mark.parametrize("level", ["os", "fsync"])
def test_no_crash_at_any_call_is_taken_for_damage(tmp_path, level, capsys):
    step = 1 if SCALE > 1 else 5
    at = calls = 0
    while at <= calls:
        at += step
        path = tmp_path / "db"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        io = PowerCutIO(str(path))
        io.kill_at = at
        with commits_noted(io):
            try:
                tell_story(path, io, level)
            except Killed:
                calls = at
        for seed in range(2):
            io.cut(str(tmp_path / "cut"), random.Random(at * 10 + seed))
            check_crashed(tmp_path / "cut", f"call {at}: {io.calls[-1]}, power cut {seed}")
        check_crashed(path, f"call {at}: {io.calls[-1]}, process killed")
    with capsys.disabled():
        print(f"\n  killed at every {step}. of {calls} I/O calls at level {level}")


def check_crashed(path: Path, where: str) -> None:
    if not (path / "catalogue").exists():
        return  # nothing was there yet
    problems = logdb.verify(path).problems
    if [Path(problem.path).name for problem in problems] == ["LOCK"]:
        return  # a torn slot of it cannot be told from a damaged one
    assert not problems, f"{where}: {problems}"


# ---------------------------------------------------------------- files that are missing, cut, zeroed


def test_each_deleted_file_is_reported(path):
    for file in files(path):
        data = file.read_bytes()
        file.unlink()
        report = logdb.verify(path)
        assert any(problem.path.startswith(str(file)[:-4]) and problem.kind == "missing" for problem in report.problems), file
        file.write_bytes(data)
    assert logdb.verify(path).ok


@pytest.mark.parametrize("share", [0, 0.3, 0.999])
def test_cut_files_are_reported(path, share):
    for file in files(path):
        data = file.read_bytes()
        cut = int(len(data) * share)
        if file.name == recovery_point.FILE_NAME and cut % recovery_point.SLOT_SIZE == 0:
            continue  # a slot that was never written is no damage: the catalogue has the point
        if not data or (share == 0 and file.suffix == ".index"):
            continue  # nor is an index that a larger interval explains
        os.truncate(file, cut)
        assert not logdb.verify(path).ok, (file, cut)
        file.write_bytes(data)


def test_zeroed_ranges_are_reported(path):
    for file in path.rglob("*.log"):
        data = file.read_bytes()
        for begin in range(0, len(data), 3 * 97):
            if data[begin : begin + 97].strip(b"\0"):
                overwrite(file, begin, bytes(len(data[begin : begin + 97])))
                report = logdb.verify(path)
                assert {problem.path for problem in report.problems} == {str(file)}
                file.write_bytes(data)


def test_bytes_behind_the_end(path):
    for file in files(path):
        data = file.read_bytes()
        for more in (b"\0", data[-200:]):
            file.write_bytes(data + more)
            assert not logdb.verify(path).ok, (file, more)
        file.write_bytes(data)


def test_all_damage_is_in_one_report_and_the_rest_was_read(path):
    sealed, active = logs(path, 0)
    positions = [at for at, _ in batches(sealed.read_bytes())]
    flip(sealed, positions[1] + 70)
    flip(sealed, positions[3] + 16)
    flip(active, 3)
    (path / "t-1/topic.json").unlink()
    report = logdb.verify(path)
    found = {(problem.path, problem.position) for problem in report.problems}
    assert found == {(str(sealed), positions[1]), (str(sealed), positions[3]), (str(active), 0), (str(path / "t-1/topic.json"), -1)}
    assert report.batch_count >= PARTITIONS * BATCHES - 3
    assert "stored 0x" in next(problem.reason for problem in report.problems if problem.position == positions[1])


def test_a_damaged_batch_does_not_lend_its_content_to_the_log(tmp_path):
    """Values may hold record batches, whose offsets might fit."""
    inner = encode_log([[b"inner"], [b"inner", b"too"]], base_offset=1)
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        for value in (b"first", inner, b"third", b"fourth"):
            db.log("t").append_many([value])
    file = logs(tmp_path / "db", 0)[0]
    _, (second, size), (third, _), _ = batches(file.read_bytes())
    for byte in range(second, second + 61):
        flip(file, byte)
        walk = SegmentWalk(logdb.IO(), str(file), 0, epochs=LeaderEpochs(((0, 0),))).run()
        assert (walk.flaws[0].position, walk.flaws[0].size_bytes, walk.flaws[0].resume_offset) == (second, size, 2), byte - second
        assert walk.batch_count == 3 + (walk.flaws[0].status.name in ("OFFSET", "EPOCH")), byte - second
        assert walk.position == file.stat().st_size
        flip(file, byte)
    assert third == second + size


# ---------------------------------------------------------------- files that contradict one another


def test_a_log_that_was_swapped_with_another_ones(path):
    one, other = logs(path, 0)[0], logs(path, 1)[0]
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
    problems = logdb.verify(path).problems
    assert {problem.path for problem in problems} >= {str(one), str(other)}
    assert all("CRC" in problem.reason for problem in problems if problem.path.endswith(".log"))


def test_records_that_contradict_a_good_crc(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        db.log("t").append_many([b"a"] * 3, timestamps_ms=[5, 6, 7])
    file = logs(tmp_path / "db", 0)[0]
    size = file.stat().st_size
    bad = encode_batch([b"a"] * 3, max_timestamp=1)
    bad = encode_batch([b"a"] * 3, max_timestamp=1, body=bad[61:] + bytes(size - len(bad))) if size > len(bad) else bad
    file.write_bytes(bad)
    assert any("count" in problem.reason or "timestamp" in problem.reason for problem in logdb.verify(tmp_path / "db").problems)


WRONG_EPOCHS = [((0, 0),), ((0, 0), (1, 20), (2, 30)), ((0, 0), (1, 19)), ((0, 1), (1, 20)), ((0, 0), (1, 20), (2, 41))]


@pytest.mark.parametrize("wrong", WRONG_EPOCHS)
def test_epochs_that_are_not_the_batches(path, wrong):
    (path / "t-0/leader-epoch-checkpoint").write_bytes(encode(LeaderEpochs(wrong)))
    assert not logdb.verify(path).ok


def test_an_epoch_that_no_record_has_yet(path):
    die(logdb.open(path))
    with logdb.open(path):
        pass
    file = path / "t-0/leader-epoch-checkpoint"
    data = file.read_bytes()
    assert data.endswith(b" 40\n")
    assert logdb.verify(path).ok
    for position in range(0, len(data), 3):
        flip(file, position, 2)
        assert not logdb.verify(path).ok, position
        logdb.repair(path, execute=True)
        assert file.read_bytes() == data
        assert logdb.verify(path).ok


def test_index_entries_that_are_false_or_missing(path):
    index = logs(path, 0)[0].with_suffix(".index")
    data = index.read_bytes()
    assert len(data) >= 16
    index.write_bytes(data[:8])
    assert "entries are missing" in only(logdb.verify(path)).reason
    index.write_bytes(data[8:16] + data[:8] + data[16:])
    assert only(logdb.verify(path)).position == 8


def test_the_catalogue_against_the_files(path):
    with Catalogue.open(str(path / "catalogue"), create=False) as catalogue:
        log, sealed = catalogue.view("t", 0)
        catalogue.write(lambda txn: txn.put_segment(sealed[0]._replace(crc=1)))
    report = logdb.verify(path)  # the data file, and what it says
    assert {problem.path for problem in report.problems} == {str(path / "catalogue/data.mdb"), str(logs(path, 0)[0])}
    with Catalogue.open(str(path / "catalogue"), create=False) as catalogue:
        catalogue.write(lambda txn: (txn.put_segment(sealed[0]), txn.put_log(log._replace(recovery_position=log.recovery_position - 1))))
    assert str(logs(path, 0)[1]) in {problem.path for problem in logdb.verify(path).problems}


def test_a_log_that_is_read_only(path):
    flip(logs(path, 0)[1], 70)
    with logdb.open(path) as db:
        list(db.log("t", 1).read(0))
    flip(logs(path, 0)[1], 70)
    with Catalogue.open(str(path / "catalogue"), create=False) as catalogue:
        log = catalogue.log("t", 0)
        catalogue.write(lambda txn: txn.put_log(log._replace(read_only_reason="it was damaged")))
    assert "read-only" in kinds(logdb.verify(path))


# ---------------------------------------------------------------- strays, and what is lost as a whole


def test_what_was_set_aside_is_a_note(path):
    (path / "t-0/00000000000000000077.log.orphan").write_bytes(b"x")
    (path / "t-0/00000000000000000000-5.torn").write_bytes(b"x")
    (path / "t-0/topic.json.tmp").write_bytes(b"x")
    (path / "t-9.tmp").mkdir()
    (path / "notes.txt").write_text("x")
    report = logdb.verify(path)
    assert report.ok
    assert len(report.notes) == 5


def test_partitions_that_the_catalogue_does_not_name_are_checked_too(path):
    (path / "catalogue/data.mdb").unlink()
    report = logdb.verify(path)
    assert kinds(report) == {"missing", "unknown"}
    assert report.record_count == PARTITIONS * BATCHES * BATCH_RECORDS
    flip(logs(path, 1)[0], 200)
    assert "damaged" in kinds(logdb.verify(path))


def test_a_missing_directory_and_a_stray_segment(path):
    (path / "t-0").rename(path.parent / "elsewhere")
    assert only(logdb.verify(path)).path == str(path / "t-0")
    (path.parent / "elsewhere").rename(path / "t-0")
    (path / "t-0/00000000000000000007.log").write_bytes(logs(path, 0)[0].read_bytes())
    assert only(logdb.verify(path)).kind == "unknown"


# ---------------------------------------------------------------- newer formats


def newer_topic_file(path: Path) -> None:
    file = path / "t-0/topic.json"
    fields = json.loads(file.read_bytes()) | {"format": 2}
    del fields["crc"]
    line = json.dumps(fields, separators=(",", ":"))
    file.write_text(json.dumps({**fields, "crc": f"{crc32c(line.encode()):08x}"}, separators=(",", ":")) + "\n")


def newer_catalogue(path: Path) -> None:
    with Catalogue.open(str(path / "catalogue"), create=False) as catalogue:
        value = entries._seal(entries.FORMAT_KEY, {"format": 2, "id": "x"})
        catalogue.write(lambda txn: txn._put(entries.FORMAT_KEY, value))


@pytest.mark.parametrize("newer", [newer_topic_file, newer_catalogue])
def test_a_newer_format_is_named_not_called_damage(path, newer):
    newer(path)
    report = logdb.verify(path)
    assert any(problem.kind == "newer format" and "format 2" in problem.reason for problem in report.problems)
    with pytest.raises(logdb.errors.UnsupportedFormat):
        logdb.repair(path, execute=True)


# ---------------------------------------------------------------- cluster.json


def test_the_mark_of_a_cluster_is_checked_and_no_stray(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
    cluster_file.create(IO(), str(tmp_path / "db"), ClusterFile("6c1f9d0e-8a57-4a26-9c0c-6b8f4f0f3a11", 1))
    os.mkdir(tmp_path / "db" / "quorum")
    report = logdb.verify(tmp_path / "db")
    assert report.ok
    assert not report.notes
    flip(tmp_path / "db" / "cluster.json", 20)
    (problem,) = logdb.verify(tmp_path / "db").problems
    assert (problem.path, problem.kind) == (str(tmp_path / "db" / "cluster.json"), "damaged")


# ---------------------------------------------------------------- security.json


def test_users_and_acls_are_part_of_the_database(path):
    before = logdb.verify(path).checked
    secure(path, "Allow alice@* Read Topic t", users={"alice": "secret"})
    report = logdb.verify(path)
    assert (report.ok, report.notes) == (True, [])
    assert report.checked.files == before.files + 1
    flip(path / "security.json", 200)
    problem = only(logdb.verify(path))
    assert (problem.path, problem.kind) == (str(path / "security.json"), "damaged")


def test_copies_are_made_without_users_and_acls(path, tmp_path):
    secure(path, users={"alice": "secret"})
    with logdb.open(path) as db:
        db.snapshot(tmp_path / "snapshot")
        db.backup(tmp_path / "backup")
    logdb.restore(tmp_path / "backup", tmp_path / "restored")
    for copy in ("snapshot", "restored"):
        assert not [name for name in os.listdir(tmp_path / copy) if name.startswith("security")]


# ---------------------------------------------------------------- odd files


@pytest.fixture(scope="module")
def with_every_file(tmp_path_factory) -> Path:
    """A closed database with a file of each kind: indexes, an index of aborted transactions, a snapshot of producers."""
    path = tmp_path_factory.mktemp("odd") / "db"
    with logdb.open(path) as db:
        db.create_topic("t", config={"segment.bytes": 1_000_000})
        with db.producer(transactional_id="x") as producer:
            for _ in range(2):
                producer.begin_transaction()
                producer.send("t", bytes(100_000)).result()
                producer.abort_transaction()
        for _ in range(12):
            db.log("t").append(bytes(100_000))
            db.log("t").flush()
    secure(path)
    return path


ODD = [".log", ".index", ".timeindex", ".txnindex", ".snapshot", "topic.json", "recovery-point", "leader-epoch-checkpoint", "LOCK"]
ODD += ["data.mdb", "security.json"]


def outcome(path: Path, file: Path) -> str:
    """What verify says of the file: as a problem, or as its error."""
    try:
        return " ".join(f"{problem.path} {problem.reason}" for problem in logdb.verify(path).problems)
    except logdb.LogdbError as error:
        return str(error)


@pytest.mark.parametrize("kind", ODD)
def test_a_pipe_is_reported_and_hangs_nothing(with_every_file, tmp_path, kind):
    path = tmp_path / "db"
    shutil.copytree(with_every_file, path)
    odd = next(file for file in files(path) if file.name.endswith(kind))
    odd.unlink()
    os.mkfifo(odd)
    assert "a pipe, not a regular file" in outcome(path, odd)


@pytest.mark.parametrize("kind", [kind for kind in ODD if kind not in (".log", "data.mdb")])
def test_a_sparse_file_takes_no_memory(with_every_file, tmp_path, kind):
    path = tmp_path / "db"
    shutil.copytree(with_every_file, path)
    odd = next(file for file in files(path) if file.name.endswith(kind))
    os.truncate(odd, 8 << 30)
    tracemalloc.start()
    try:
        said = outcome(path, odd)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(odd) in said
    assert peak < 256 << 20


@pytest.mark.parametrize("kind", [".index", ".timeindex", "topic.json", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("is_pipe", [True, False])
def test_an_odd_file_is_read_past_and_repaired(with_every_file, tmp_path, kind, is_pipe):
    path = tmp_path / "db"
    shutil.copytree(with_every_file, path)
    odd = next(file for file in sorted(files(path)) if file.parent.name == "t-0" and file.name.endswith(kind))
    if is_pipe:
        odd.unlink()
        os.mkfifo(odd)
    else:
        os.truncate(odd, 8 << 30)
    tracemalloc.start()
    try:
        with logdb.open(path, mode="r") as db:
            assert sum(1 for _ in db.log("t").read(0)) == 14
        assert any(str(odd) in action for action in logdb.repair(path, execute=True).actions)
        assert tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()
    assert logdb.verify(path).ok


def test_a_log_that_is_replaced_during_each_check_is_no_damage(tmp_path, monkeypatch):
    """Only where nothing moved is a missing segment one: beside a writer that compacts without a pause a note says what was not checked."""
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        db.log("t").append(b"x", durability="fsync")
        (tmp_path / "db" / "t-0" / "00000000000000000000.log").rename(tmp_path / "away")
        assert [problem.kind for problem in db.verify().problems] == ["missing"]
        real, generations = verify_module.read_in_child, itertools.count(10)

        def read(*args, **kwargs):
            dump = real(*args, **kwargs)
            dump.logs = [log._replace(generation=next(generations)) for log in dump.logs]
            return dump

        monkeypatch.setattr(verify_module, "read_in_child", read)
        monkeypatch.setattr(verify_module, "_MOVING_LOOK_COUNT_MAX", 3)
        report = db.verify()
        assert (report.ok, ["replaced segments during each of 3 checks" in note for note in report.notes]) == (True, [True])
        monkeypatch.undo()
        (tmp_path / "away").rename(tmp_path / "db" / "t-0" / "00000000000000000000.log")
