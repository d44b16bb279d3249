"""What repair does about damage: nothing unless told to, nothing good lost, no offset given twice, and a kill in the middle is no harm."""

import os
import random
import shutil
import warnings
from pathlib import Path

import pytest

import logdb
from logdb.codec import Status, header
from logdb.errors import CorruptionError, DirectoryLocked, NotADatabase
from logdb.log import epochs as epochs_file
from logdb.log.epochs import LeaderEpochs
from logdb.meta import Catalogue, entries
from logdb.store.check.inventory import KEEP_EVERYTHING
from logdb.store.check.segment_rewrite import empty_batch
from logdb.store.check.segment_walk import SegmentWalk
from support.damage import (
    BATCH_RECORDS,
    BATCHES,
    Content,
    append,
    batches,
    build,
    content,
    copy,
    files,
    flip,
    flip_page_count,
    logs,
    overwrite,
    snapshot,
)
from support.power_cut import Killed, PowerCutIO, commits_noted, die

ROWS = BATCHES * BATCH_RECORDS
SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db"


@pytest.fixture
def records(path: Path) -> Content:
    return build(path)


def positions(log: Path) -> list[int]:
    return [at for at, _ in batches(log.read_bytes())]


def mended(path: Path) -> tuple[logdb.Report, Content]:
    """Repair, and what is there then; verify and a writer agree."""
    planned, before = logdb.repair(path), snapshot(path)
    assert not planned.executed
    assert snapshot(path) == before
    report = logdb.repair(path, execute=True)
    assert (report.executed, report.actions) == (True, planned.actions)
    after = logdb.verify(path)
    assert after.ok, after.problems
    assert logdb.repair(path).actions == []
    found = content(path)
    assert content(path, "a") == found
    return report, found


def lost(records: Content, found: Content) -> list[int]:
    """Offsets of the records that are gone; nothing else may differ."""
    assert set(found) == set(records)
    assert all(set(found[key]) <= set(records[key]) for key in records)
    assert all(found[key] == sorted(found[key]) for key in records)
    return sorted(row[0] for key in records for row in set(records[key]) - set(found[key]))


def next_offsets(path: Path) -> list[int]:
    with logdb.open(path) as db:
        return [db.log("t", partition).append(b"next", b"key") for partition in range(2)]


# ---------------------------------------------------------------- without damage


def test_nothing_to_do(path, records):
    before = snapshot(path)
    for execute in (False, True):
        report = logdb.repair(path, execute=execute)
        assert (report.ok, report.actions) == (True, [])
    assert snapshot(path) == before


def test_it_needs_the_directory_for_itself(path, records):
    with logdb.open(path), pytest.raises(DirectoryLocked):
        logdb.repair(path)
    with pytest.raises(NotADatabase):
        logdb.repair(path / "t-0" / "nothing")


def test_a_crash_is_left_to_the_next_opening(path, records):
    db = logdb.open(path)
    append(db, BATCHES, BATCHES + 2)
    db.flush(sync=False)
    die(db)
    active = logs(path, 0)[-1]
    os.truncate(active, active.stat().st_size - 3)
    before = snapshot(path)
    assert logdb.repair(path, execute=True).actions == []
    assert snapshot(path) == before


# ---------------------------------------------------------------- damage in a log


@pytest.mark.parametrize("byte", range(17))
@pytest.mark.parametrize(("segment", "batch"), [(0, 0), (0, 2), (0, -1), (1, -1)])
def test_what_no_crc_covers_is_put_right(path, records, segment, batch, byte):
    log = logs(path, 0)[segment]
    flip(log, positions(log)[batch] + byte)
    report, found = mended(path)
    assert lost(records, found) == []
    assert any("header corrected" in action for action in report.actions)
    assert not list(path.rglob("*.damaged"))


@pytest.mark.parametrize(("segment", "batch"), [(0, 0), (0, 2), (0, -1), (1, 0), (1, -1)])
@pytest.mark.parametrize("byte", [18, 22, 30, 58, 61, 80])
def test_of_a_damaged_batch_only_its_own_records_are_lost(path, records, segment, batch, byte):
    log = logs(path, 1)[segment]
    at, size = list(batches(log.read_bytes()))[batch]
    first = int.from_bytes(log.read_bytes()[at : at + 8], "big")
    flip(log, at + byte)
    damaged = log.read_bytes()[at : at + size]
    _, found = mended(path)
    assert lost(records, found) == list(range(first, first + BATCH_RECORDS))
    (aside,) = path.rglob("*.damaged")
    assert aside.name == f"{log.stem}-{at}.damaged"
    assert aside.read_bytes() == damaged
    assert next_offsets(path) == [ROWS, ROWS]


def test_several_stretches_at_once(path, records):
    sealed = logs(path, 0)[0]
    begins = positions(sealed)
    flip(sealed, begins[0] + 70)
    overwrite(sealed, begins[1] + 5, bytes(100))
    flip(sealed, begins[3])
    _, found = mended(path)
    assert lost(records, found) == list(range(2 * BATCH_RECORDS))
    assert len(list(path.rglob("*.damaged"))) in (1, 2)


@pytest.mark.parametrize("share", [0.0, 0.4, 0.9])
@pytest.mark.parametrize("segment", [0, 1])
@pytest.mark.parametrize("how", ["cut", "zeroed", "noise"])
def test_the_end_of_a_segment_is_lost(path, records, segment, share, how):
    log = logs(path, 0)[segment]
    data = log.read_bytes()
    keep = int(len(data) * share)
    if how == "cut":
        os.truncate(log, keep)
    else:
        noise = random.Random(share).randbytes(len(data) - keep)
        overwrite(log, keep, bytes(len(noise)) if how == "zeroed" else noise)
    whole = [header(data[at:])[1].last_offset for at, size in batches(data) if at + size <= keep]
    begin = (whole[-1] + 1) if whole else int(log.stem)
    end = int(logs(path, 0)[1].stem) if segment == 0 else ROWS
    _, found = mended(path)
    assert lost(records, found) == list(range(begin, end))
    assert next_offsets(path) == [ROWS, ROWS]


def test_bytes_behind_a_closed_log_are_set_aside(path, records):
    active = logs(path, 0)[-1]
    active.write_bytes(active.read_bytes() + b"not a batch")
    _, found = mended(path)
    assert lost(records, found) == []
    assert [aside.read_bytes() for aside in path.rglob("*.damaged")] == [b"not a batch"]


def test_batches_behind_the_point_of_a_closed_log_are_kept(path, records):
    """As where the catalogue is one commit too old."""
    with Catalogue.open(str(path / "catalogue"), create=False) as catalogue:
        log = catalogue.log("t", 0)
    active = logs(path, 0)[-1]
    _, head = header(active.read_bytes()[positions(active)[-1] :])
    back = log._replace(recovery_offset=head.base_offset, recovery_position=positions(active)[-1])
    with Catalogue.open(str(path / "catalogue"), create=False) as catalogue:
        catalogue.write(lambda txn: txn.put_log(back))
    _, found = mended(path)
    assert lost(records, found) == []


def test_damage_after_a_crash(path, records):
    """What is behind the recovery point stays as it is; what is before is mended, and the point found again."""
    db = logdb.open(path)
    append(db, BATCHES, BATCHES + 2)
    db.flush()
    append(db, BATCHES + 2, BATCHES + 4)
    db.flush(sync=False)
    die(db)
    active = logs(path, 0)[-1]
    flip(active, positions(active)[1] + 70)
    size = active.stat().st_size
    with open(active, "ab") as file:
        file.write(b"torn")
    logdb.repair(path, execute=True)
    assert logdb.verify(path).ok
    assert active.read_bytes().endswith(b"torn")
    assert active.stat().st_size < size
    found = content(path, "a")
    assert len(found["t", 0]) == ROWS + 3 * BATCH_RECORDS
    assert len(found["t", 1]) == ROWS + 4 * BATCH_RECORDS
    with logdb.open(path) as db:
        assert db.log("t").end_offset == ROWS + 4 * BATCH_RECORDS
        assert db.log("t").read_only_reason is None


def test_a_log_that_had_become_read_only_takes_records_again(path, records):
    log = logs(path, 0)[-1]
    os.truncate(log, log.stat().st_size - 1)
    with logdb.open(path) as db:
        assert db.log("t").read_only_reason is not None
        with pytest.raises(logdb.errors.ReadOnly):
            db.log("t").append(b"x", b"k")
        with pytest.raises(CorruptionError):
            list(db.log("t").read(0))
    report, found = mended(path)
    assert any("takes records again" in action for action in report.actions)
    assert lost(records, found) == list(range(ROWS - BATCH_RECORDS, ROWS))
    assert next_offsets(path) == [ROWS, ROWS]


# ---------------------------------------------------------------- segments that are gone


def test_a_missing_sealed_segment(path, records):
    first, second = logs(path, 0)
    first.unlink()
    _, found = mended(path)
    assert lost(records, found) == list(range(int(second.stem)))
    with logdb.open(path) as db:
        assert db.log("t").start_offset == 0
        assert next(db.log("t").read(0)).offset == int(second.stem)
        assert db.log("t").offset_for_timestamp(0) == int(second.stem)


def test_missing_segments_of_two_epochs(path, records):
    crash_log = logdb.open(path)
    append(crash_log, BATCHES, BATCHES + 4)
    die(crash_log)
    first, second, _third = logs(path, 0)
    first.unlink()
    second.unlink()
    _, found = mended(path)
    assert {row[0] for row in found["t", 0]} == set(range(ROWS, ROWS + 4 * BATCH_RECORDS))


def test_zeroes_behind_a_sealed_segment(path, records):
    sealed = logs(path, 0)[0]
    size = sealed.stat().st_size
    die(logdb.open(path))
    sealed.write_bytes(sealed.read_bytes() + bytes(100))
    assert not logdb.verify(path).ok
    _, found = mended(path)
    assert lost(records, found) == []
    assert sealed.stat().st_size == size


def test_a_missing_active_segment(path, records):
    first, second = logs(path, 0)
    begin = int(second.stem)
    second.unlink()
    _, found = mended(path)
    assert lost(records, found) == list(range(begin, ROWS))
    assert first.exists()
    assert next_offsets(path) == [ROWS, ROWS]


@pytest.mark.parametrize("directory", [True, False])
def test_all_segments_are_missing(path, records, directory):
    if directory:
        shutil.rmtree(path / "t-0")
    else:
        for log in logs(path, 0):
            log.unlink()
    _, found = mended(path)
    assert lost(records, found) == list(range(ROWS))
    with logdb.open(path) as db:
        assert (db.log("t").start_offset, db.log("t").end_offset) == (ROWS, ROWS)
    assert next_offsets(path) == [ROWS, ROWS]
    assert logdb.verify(path).ok


def test_a_segment_that_was_set_aside_comes_back(path, records):
    second = logs(path, 0)[1]
    second.rename(f"{second}.orphan")
    with logdb.open(path) as db:
        list(db.log("t", 1).read(0))
    assert not logdb.verify(path).ok
    _, found = mended(path)
    assert lost(records, found) == []
    assert second.exists()


def test_a_stray_segment_is_set_aside(path, records):
    stray = path / "t-0/00000000000000000007.log"
    stray.write_bytes(logs(path, 1)[0].read_bytes())
    _, found = mended(path)
    assert lost(records, found) == []
    assert Path(f"{stray}.orphan").exists()


# ---------------------------------------------------------------- the small files


def test_lost_small_files_are_made_anew(path, records):
    before = snapshot(path)
    for file in files(path):
        if file.suffix != ".log" and file.name not in ("LOCK", "data.mdb"):
            file.unlink()
    _, found = mended(path)
    assert lost(records, found) == []
    after = snapshot(path)
    same = [name for name in before if name.endswith((".log", ".index", ".timeindex", "topic.json", "leader-epoch-checkpoint"))]
    assert {name: after[name] for name in same} == {name: before[name] for name in same}


def test_the_checkpoint_is_made_of_the_batches(path, records):
    file = path / "t-0" / epochs_file.FILE_NAME
    whole = file.read_bytes()
    assert len(epochs_file.decode(whole, "").entries) == 2
    for wrong in [(), ((0, 0),), ((7, 0),), ((0, 0), (1, 19)), ((0, 0), (1, 20), (2, 33)), ((0, 3), (1, 20)), ((1, 0), (2, 20))]:
        file.write_bytes(epochs_file.encode(LeaderEpochs(wrong)))
        _, found = mended(path)
        assert lost(records, found) == []
        assert file.read_bytes() == whole, wrong


def test_a_damaged_lock(path, records):
    whole = (path / "LOCK").read_bytes()
    for data in (b"", b"\0" * 1024, b"x" * 1024, whole[:700], whole + b"more"):
        (path / "LOCK").write_bytes(data)
        _, found = mended(path)
        assert lost(records, found) == []


# ---------------------------------------------------------------- the catalogue


def test_a_lost_catalogue(path, records):
    with Catalogue.open(str(path / "catalogue"), create=False) as catalogue:
        topics, sealed = catalogue.topics(), catalogue.segments("t")
    shutil.rmtree(path / "catalogue")
    _, found = mended(path)
    assert lost(records, found) == []
    with Catalogue.open(str(path / "catalogue"), create=False) as catalogue:
        assert catalogue.topics() == topics
        assert [entry._replace(append_ms=0) for entry in catalogue.segments("t")] == [entry._replace(append_ms=0) for entry in sealed]
    assert next_offsets(path) == [ROWS, ROWS]


@pytest.mark.parametrize("damage", [b"", b"noise", "half", "meta"])
def test_a_damaged_catalogue_is_kept_aside(path, records, damage):
    data_file = path / "catalogue/data.mdb"
    data = data_file.read_bytes()
    if damage == "half":
        data = data[: len(data) // 2]
    elif damage == "meta":
        data = random.Random(1).randbytes(8192) + data[8192:]
    else:
        data = damage
    data_file.write_bytes(data)
    _, found = mended(path)
    assert lost(records, found) == []
    assert (path / "catalogue.damaged-1/data.mdb").read_bytes() == data
    data_file.write_bytes(b"again")
    mended(path)
    assert (path / "catalogue.damaged-2/data.mdb").read_bytes() == b"again"


@pytest.mark.parametrize("bit", [35, 43, 51])
def test_a_catalogue_that_claims_too_many_pages(path, records, bit):
    flip_page_count(path / "catalogue/data.mdb", bit)
    problems = logdb.verify(path).problems
    assert {problem.kind for problem in problems if problem.path == str(path / "catalogue/data.mdb")} == {"damaged"}
    _, found = mended(path)
    assert lost(records, found) == []
    assert next_offsets(path) == [ROWS, ROWS]


def test_the_database_keeps_its_id_and_knows_those_of_producers_if_they_can_be_read(path, records):
    with Catalogue.open(str(path / "catalogue"), create=False) as catalogue:
        catalogue.write(lambda txn: txn.put_next_producer_id(1 << 60))
        before = catalogue.database_id
    with open(path / "catalogue/data.mdb", "ab") as file:
        file.write(bytes(4096))
    mended(path)
    with Catalogue.open(str(path / "catalogue"), create=False) as catalogue:
        assert catalogue.database_id == before
        assert catalogue.read(lambda txn: txn.next_producer_id()) == 1 << 60


def test_configs_come_back_from_any_partition(path, records):
    with logdb.open(path) as db:
        config = dict(db.describe_topic("t").config)
    shutil.rmtree(path / "catalogue")
    (path / "t-0/topic.json").write_text("damaged")
    mended(path)
    with logdb.open(path) as db:
        assert db.describe_topic("t").config == config


def test_a_topic_whose_configs_are_lost_drops_nothing(path, records):
    shutil.rmtree(path / "catalogue")
    (path / "t-0/topic.json").write_text("damaged")
    (path / "t-1/topic.json").unlink()
    report, found = mended(path)
    assert any("configs are lost" in action for action in report.actions)
    assert lost(records, found) == []
    with logdb.open(path) as db:
        assert db.describe_topic("t").config == KEEP_EVERYTHING
        db.alter_topic("t", config={"retention.ms": 1, "cleanup.policy": None})
    assert logdb.verify(path).ok


def test_a_partition_that_the_catalogue_forgot(path, records):
    with logdb.open(path) as db:
        db.alter_topic("t", partitions=3)
        db.log("t", 2).append(b"x")
    with Catalogue.open(str(path / "catalogue"), create=False) as catalogue:
        topic = catalogue.topic("t")
        catalogue.write(lambda txn: (txn.put_topic(topic._replace(partition_count=2)), txn._txn.delete(entries.log_key("t", 2))))
    report, found = mended(path)
    assert [row[0] for row in found.pop(("t", 2))] == [0]
    assert lost(records, found) == []
    assert any("3 partitions by its directories, 2 by the catalogue" in action for action in report.actions)


# ---------------------------------------------------------------- killed, and out of power


def damage_everything(path: Path) -> int:
    """Of every kind; returns how many records cannot come back."""
    sealed, active = logs(path, 0)
    flip(sealed, positions(sealed)[1] + 70)
    flip(sealed, positions(sealed)[3] + 16)
    flip(active, positions(active)[0] + 70)
    (path / "t-0/recovery-point").unlink()
    (path / "t-1/topic.json").unlink()
    (path / "t-1" / epochs_file.FILE_NAME).write_text("damaged")
    logs(path, 1)[1].with_suffix(".index").unlink()
    return 2 * BATCH_RECORDS


@pytest.mark.slow
@pytest.mark.parametrize("catalogue", ["damaged", "whole"])
def test_killed_at_every_call(path, records, tmp_path, catalogue, capsys):
    gone = damage_everything(path)
    if catalogue == "damaged":
        flip(path / "catalogue/data.mdb", 20)
    step = 1 if SCALE > 1 else 2
    at, calls = -random.randrange(step), 1
    while at < calls:
        at += step
        damaged = copy(path, tmp_path / "killed")
        io = PowerCutIO(str(damaged))
        io.kill_at = at
        with commits_noted(io):
            try:
                logdb.repair(damaged, execute=True, io=io)
            except Killed:
                calls = at + 1
        report = logdb.repair(damaged, execute=True)
        where = f"call {at}: {io.calls[-1]}"
        after = logdb.verify(damaged)
        assert after.ok, (where, after.problems, report.actions)
        found = content(damaged)
        assert len(lost(records, found)) == gone, where
        assert content(damaged, "a") == found, where
        if catalogue == "whole" and at % 3 == 0:
            cut = tmp_path / "cut"
            io.cut(str(cut), random.Random(at))
            logdb.repair(cut, execute=True)
            after = logdb.verify(cut)
            assert after.ok, (where, "power cut", after.problems)
            assert len(lost(records, content(cut))) == gone, (where, "power cut")
    with capsys.disabled():
        print(f"\n  repair was killed at every {step}. of its {at - 1} I/O calls")
    assert at > 20


# ---------------------------------------------------------------- empty batches


def test_an_empty_batch_is_what_compaction_leaves():
    batch = empty_batch(10, 25, 3)
    status, head = header(batch)
    assert (status, len(batch)) == (Status.OK, 61)
    assert (head.base_offset, head.last_offset, head.leader_epoch, head.record_count, head.max_timestamp) == (10, 24, 3, 0, -1)


def test_others_read_over_empty_batches(path, records, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        memory_records = pytest.importorskip("kafka.record.memory_records")
    log = logs(path, 0)[0]
    flip(log, positions(log)[1] + 70)
    _, found = mended(path)
    offsets = []
    for file in logs(path, 0):
        memory = memory_records.MemoryRecords(file.read_bytes())
        while (batch := memory.next_batch()) is not None:
            assert batch.validate_crc()
            offsets += [record.offset for record in batch]
    assert offsets == [row[0] for row in found["t", 0]]
    with logdb.open(path, mode="r") as db:
        log = db.log("t")
        assert [offset for table in log.read_arrow() for offset in table["offset"].to_pylist()] == offsets
        at, seen = 0, b""
        while at < log.end_offset:
            view, at = log.read_batches(at, 1)
            seen += bytes(view)
        assert seen == b"".join(file.read_bytes() for file in logs(path, 0))
        for offset in range(BATCH_RECORDS, 2 * BATCH_RECORDS):
            assert next(log.read(offset)).offset == 2 * BATCH_RECORDS


def test_walking_over_an_empty_batch(tmp_path):
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(empty_batch(0, 5, 0) + empty_batch(5, 2**31 - 1, 0))
    walk = SegmentWalk(logdb.IO(), str(file), 0).run()
    assert (walk.flaws, walk.next_offset, walk.record_count, walk.max_timestamp) == ([], 2**31 - 1, 0, -1)
