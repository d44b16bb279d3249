import errno
import itertools
import os
import threading

import pytest

import logdb
from logdb.errors import CorruptionError, DirectoryLocked, DiskFull, ReadOnly, SyncFailed, TargetInside, TargetNotEmpty, WriteFailed
from logdb.io import IO
from logdb.model import ProducerIdAndEpoch
from logdb.requests.topic_changes import CreateTopic
from logdb.store.copy import frozen, snapshot_file
from logdb.store.directories import building
from support import damage
from support.copying import fill, is_sound
from support.faulty_io import FaultyIO, concerns
from support.power_cut import die, quiet
from support.transactions import committed, produce
from support.waiting import until

CONFIG = {"segment.bytes": 2048, "index.interval.bytes": 200}
PRODUCER = ProducerIdAndEpoch(7, 0)


@pytest.fixture
def io():
    return FaultyIO()


@pytest.fixture
def db(tmp_path, io):
    with logdb.open(tmp_path / "db", io=io) as opened:
        opened.create_topic("t", partitions=2, config=CONFIG)
        opened.create_topic("empty")
        fill(opened, 0, 200)
        yield opened


# ---------------------------------------------------------------- what is in it


def test_holds_what_was_appended_before_and_nothing_later(db, tmp_path):
    db.log("t").append(b"not flushed")
    done = db.snapshot(tmp_path / "snapshot")
    fill(db, 200, 300)
    content = damage.content(tmp_path / "snapshot")
    assert [len(rows) for rows in content.values()] == [0, 201, 200]
    assert content["t", 0][-1][3] == b"not flushed"
    assert is_sound(tmp_path / "snapshot")
    assert (done.path, done.partition_count) == (str(tmp_path / "snapshot"), 3)
    with logdb.open(tmp_path / "snapshot", mode="r") as snapshot:
        sizes = [partition.size_bytes for topic in ("t", "empty") for partition in snapshot.describe_topic(topic).partitions]
    assert done.size_bytes == sum(sizes) > done.written_bytes > 0


def test_the_source_is_not_touched(db, tmp_path):
    db.close()
    before = damage.snapshot(tmp_path / "db")
    with logdb.open(tmp_path / "db", mode="r") as reader:
        reader.snapshot(tmp_path / "snapshot")
    assert damage.snapshot(tmp_path / "db") == before
    assert is_sound(tmp_path / "snapshot")


def test_a_snapshot_leaves_nothing_behind(db, tmp_path):
    names = sorted(os.listdir(tmp_path / "db"))
    db.snapshot(tmp_path / "snapshot")
    assert sorted(os.listdir(tmp_path)) == ["db", "snapshot"]
    assert sorted(os.listdir(tmp_path / "db")) == names
    assert sorted(os.listdir(tmp_path / "snapshot")) == ["SNAPSHOT", "catalogue", "empty-0", "t-0", "t-1"]
    assert os.listdir(tmp_path / "snapshot" / "catalogue") == ["data.mdb"]


def test_it_has_the_time_of_the_clock_and_the_id_of_the_database(db, tmp_path, io):
    io.now_ms = 1_700_000_000_000
    db.snapshot(tmp_path / "one")
    db.snapshot(tmp_path / "two")
    one, two = (snapshot_file.load(IO(), str(tmp_path / name)) for name in ("one", "two"))
    assert one.created_ms == two.created_ms == 1_700_000_000_000
    assert one.database_id == two.database_id == db._store.database_id
    assert one.snapshot_id != two.snapshot_id


def test_epochs_and_starts_of_logs_are_kept(tmp_path):
    db = logdb.open(tmp_path / "db")
    db.create_topic("t", partitions=2, config=CONFIG)
    fill(db, 0, 100)
    db.flush()
    die(db)
    with logdb.open(tmp_path / "db") as db:
        fill(db, 100, 150)
        db.delete_records("t", 0, 70)
        db.snapshot(tmp_path / "snapshot")
        with logdb.open(tmp_path / "snapshot", mode="r") as snapshot:
            for partition in (0, 1):
                ours, theirs = db.log("t", partition), snapshot.log("t", partition)
                assert (ours.start_offset, ours.end_offset) == (theirs.start_offset, theirs.end_offset)
                assert list(ours.read(ours.start_offset)) == list(theirs.read(theirs.start_offset))
            assert snapshot.log("t", 1).epochs.entries == db.log("t", 1).epochs.entries == ((0, 0), (1, 100))
            assert snapshot.log("t").start_offset == 70
    assert is_sound(tmp_path / "snapshot")


def test_all_records_deleted(db, tmp_path):
    db.delete_records("t", 0, -1)
    db.snapshot(tmp_path / "snapshot")
    with logdb.open(tmp_path / "snapshot", mode="r") as snapshot:
        assert (snapshot.log("t").start_offset, snapshot.log("t").end_offset) == (200, 200)
    assert is_sound(tmp_path / "snapshot")


def test_committed_offsets_are_captured_first_and_transactions_last(db):
    for name in ("__transaction_state", "__consumer_offsets", "a", "zz"):
        db._store.submit(CreateTopic(name, config={"cleanup.policy": "compact"}))
    order = [log.topic for log in frozen._logs(db._store)]
    assert list(dict.fromkeys(order)) == ["__consumer_offsets", "a", "empty", "t", "zz", "__transaction_state"]


# ---------------------------------------------------------------- files


def test_sealed_segments_are_linked(db, tmp_path):
    db.snapshot(tmp_path / "snapshot")
    *sealed, active = damage.logs(tmp_path / "snapshot", 0)
    assert sealed
    for path in sealed:
        for suffix in (".log", ".index", ".timeindex"):
            assert os.path.samefile(path.with_suffix(suffix), tmp_path / "db" / "t-0" / (path.stem + suffix))
    assert os.stat(active).st_nlink == 1


def test_a_large_active_segment_is_rolled_and_linked(tmp_path, monkeypatch):
    monkeypatch.setattr(frozen, "ROLL_SIZE_BYTES", 1000)
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", partitions=2)
        fill(db, 0, 100)
        done = db.snapshot(tmp_path / "snapshot")
        assert done.written_bytes == 0
        first, active = damage.logs(tmp_path / "snapshot", 0)
        assert os.path.samefile(first, tmp_path / "db" / "t-0" / first.name)
        assert (active.name, active.stat().st_size) == (f"{100:020d}.log", 0)
        fill(db, 100, 200)
    assert [len(rows) for rows in damage.content(tmp_path / "snapshot").values()] == [100, 100]
    assert is_sound(tmp_path / "snapshot")
    assert is_sound(tmp_path / "db")


@pytest.mark.parametrize("number", [errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP])
def test_where_nothing_can_be_linked_all_is_copied(db, tmp_path, io, number):
    io.fail("link", number)
    db.snapshot(tmp_path / "snapshot")
    assert {os.stat(path).st_nlink for path in (tmp_path / "snapshot").rglob("*.*")} == {1}
    assert damage.content(tmp_path / "snapshot") == damage.content(tmp_path / "db")
    assert is_sound(tmp_path / "snapshot")


class TwoDevices(FaultyIO):
    """What has ``elsewhere`` in its path is on another device."""

    def device(self, path):
        return 1 + concerns("elsewhere", path)

    def link(self, old, new):
        if concerns("elsewhere", old) != concerns("elsewhere", new):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        super().link(old, new)


def test_to_another_device_all_is_copied_and_nothing_held_up(tmp_path):
    io = TwoDevices()
    with logdb.open(tmp_path / "db", io=io) as db:
        db.create_topic("t", partitions=2, config=CONFIG)
        fill(db, 0, 200)
        names = sorted(os.listdir(tmp_path / "db"))
        appended = []

        def append(kind, path):
            if kind == "copy_range" and len(appended) < 5:
                appended.append(db.log("t").append(b"meanwhile", durability="fsync"))
                if len(appended) == 5:
                    db.delete_records("t", 1, -1)

        io.before = append
        heard = []
        done = db.snapshot(tmp_path / "elsewhere", progress=lambda *heard_of: heard.append(heard_of))
        assert appended == [200, 201, 202, 203, 204]
        assert sorted(os.listdir(tmp_path / "db")) == names
        assert done.written_bytes == done.size_bytes == heard[-1][0] == heard[-1][1]
    assert [len(rows) for rows in damage.content(tmp_path / "elsewhere").values()] == [200, 200]
    assert is_sound(tmp_path / "elsewhere")


def test_damage_is_not_copied_to_another_device(tmp_path):
    io = TwoDevices()
    with logdb.open(tmp_path / "db", io=io) as db:
        db.create_topic("t", partitions=2, config=CONFIG)
        fill(db, 0, 200)
        db._store.checkpoint([db.log("t", 1)])
        first = damage.logs(tmp_path / "db", 1)[0]
        damage.flip(first, 100)
        with pytest.raises(CorruptionError, match="sealed with"):
            db.snapshot(tmp_path / "elsewhere")
        assert sorted(os.listdir(tmp_path)) == ["db"]


def test_a_file_that_is_missing(db, tmp_path):
    db._store.checkpoint([db.log("t", 1)])
    damage.logs(tmp_path / "db", 1)[0].unlink()
    with pytest.raises(CorruptionError, match="missing"):
        db.snapshot(tmp_path / "snapshot")
    assert sorted(os.listdir(tmp_path)) == ["db"]


# ---------------------------------------------------------------- the target


def test_target_that_is_not_empty(db, tmp_path):
    db.snapshot(tmp_path / "snapshot")
    before = damage.snapshot(tmp_path / "snapshot")
    with pytest.raises(TargetNotEmpty):
        db.snapshot(tmp_path / "snapshot")
    assert damage.snapshot(tmp_path / "snapshot") == before
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(TargetNotEmpty):
        db.snapshot(tmp_path / "file")
    (tmp_path / "mine.tmp").mkdir()
    (tmp_path / "mine.tmp" / "letter").write_bytes(b"dear")
    with pytest.raises(TargetNotEmpty):
        db.snapshot(tmp_path / "mine")
    assert (tmp_path / "mine.tmp" / "letter").read_bytes() == b"dear"


def test_target_that_is_empty_or_has_no_parents_yet(db, tmp_path):
    (tmp_path / "there").mkdir()
    for target in (tmp_path / "there", tmp_path / "a" / "b" / "c"):
        db.snapshot(target)
        assert is_sound(target)


def test_target_within_the_database(db, tmp_path):
    for inside in (tmp_path / "db", tmp_path / "db" / "t-0" / "snapshot"):
        with pytest.raises(TargetInside, match=f"{inside} lies inside the database {tmp_path}"):
            db.snapshot(inside)


def test_what_a_killed_process_left_is_removed(db, tmp_path):
    left = tmp_path / "snapshot.tmp"
    (left / "t-0").mkdir(parents=True)
    (left / "BUILDING.tmp").touch()
    (left / "t-0" / "x.log").write_bytes(b"half")
    db.snapshot(tmp_path / "snapshot")
    assert not left.exists()
    assert is_sound(tmp_path / "snapshot")


def test_two_at_once_to_the_same_place(db, tmp_path, io):
    errors = []

    def second(kind, path):
        if kind == "link" and not errors:
            with pytest.raises(DirectoryLocked) as caught, building(IO(), str(tmp_path / "snapshot")):
                pass
            errors.append(caught.value)

    io.before = second
    db.snapshot(tmp_path / "snapshot")
    assert errors[0].retriable
    assert is_sound(tmp_path / "snapshot")


# ---------------------------------------------------------------- reading it


def test_opens_for_reading_only(db, tmp_path):
    db.snapshot(tmp_path / "snapshot")
    before = damage.snapshot(tmp_path / "snapshot")
    with pytest.raises(ReadOnly, match="restore"):
        logdb.open(tmp_path / "snapshot")
    with pytest.raises(ReadOnly, match="repair the database"):
        logdb.repair(tmp_path / "snapshot", execute=True)
    with logdb.open(tmp_path / "snapshot", mode="r") as snapshot:
        with pytest.raises(ReadOnly):
            snapshot.log("t").append(b"x")
        with pytest.raises(ReadOnly):
            snapshot.create_topic("u")
    assert damage.snapshot(tmp_path / "snapshot") == before


class NothingChanges(IO):
    """Fails what would change a file or a directory."""

    def open(self, path, flags, mode=0o644):
        assert flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) == 0, path
        return super().open(path, flags, mode)

    def _refuse(self, *arguments):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    pwrite = truncate = allocate = mkdir = rmdir = rename = link = unlink = copy_range = fdatasync = fsync_dir = lock = _refuse


def test_reads_from_a_file_system_that_takes_no_writes(db, tmp_path):
    produce(db.log("t"), PRODUCER, 0, transactional=True)
    db.snapshot(tmp_path / "snapshot")
    names = sorted(tmp_path.joinpath("snapshot").rglob("*"))
    for path in names:
        path.chmod(0o555 if path.is_dir() else 0o444)
    with logdb.open(tmp_path / "snapshot", mode="r", io=NothingChanges()) as snapshot:
        assert [len(list(snapshot.log("t", partition).read(0))) for partition in (0, 1)] == [201, 200]
        assert snapshot.log("t").offset_for_timestamp(150) == 150
        assert len(committed(snapshot.log("t"))) == 200
        assert sum(batch.num_rows for batch in snapshot.log("t").read_arrow(199)) == 2
    assert sorted(tmp_path.joinpath("snapshot").rglob("*")) == names
    assert logdb.verify(tmp_path / "snapshot", io=NothingChanges()).ok


def test_a_snapshot_of_a_snapshot(db, tmp_path):
    produce(db.log("t"), PRODUCER, 0)
    db.snapshot(tmp_path / "one")
    before = damage.snapshot(tmp_path / "one")
    with logdb.open(tmp_path / "one", mode="r") as one:
        one.snapshot(tmp_path / "two")
    assert damage.snapshot(tmp_path / "one") == before
    assert is_sound(tmp_path / "two")
    assert damage.content(tmp_path / "two") == damage.content(tmp_path / "one")


def test_a_mark_that_is_damaged(db, tmp_path):
    db.snapshot(tmp_path / "snapshot")
    mark = tmp_path / "snapshot" / "SNAPSHOT"
    for position in range(mark.stat().st_size):
        damage.flip(mark, position)
        with pytest.raises(CorruptionError, match="SNAPSHOT"):
            logdb.open(tmp_path / "snapshot", mode="r")
        with pytest.raises(ReadOnly, match="restore"):
            logdb.open(tmp_path / "snapshot")
        if position % 50 == 0:
            assert [os.path.basename(problem.path) for problem in logdb.verify(tmp_path / "snapshot").problems] == ["SNAPSHOT"]
        damage.flip(mark, position)
    assert is_sound(tmp_path / "snapshot")


def test_a_catalogue_that_is_damaged(db, tmp_path):
    db.snapshot(tmp_path / "snapshot")
    damage.flip(tmp_path / "snapshot" / "catalogue" / "data.mdb", 5000)
    with pytest.raises(logdb.errors.CatalogueDamaged):
        logdb.open(tmp_path / "snapshot", mode="r")
    assert not logdb.verify(tmp_path / "snapshot").ok


# ---------------------------------------------------------------- what is refused


def test_a_reader_beside_the_writer_cannot_freeze(db, tmp_path):
    with logdb.open(tmp_path / "db", mode="r") as reader, pytest.raises(ReadOnly, match="open for writing"):
        reader.snapshot(tmp_path / "snapshot")


def test_a_directory_that_a_crash_left_is_opened_for_writing_first(tmp_path):
    db = quiet(logdb.open(tmp_path / "db"))
    db.create_topic("t", partitions=2)
    fill(db, 0, 10)
    die(db)
    with logdb.open(tmp_path / "db", mode="r") as reader, pytest.raises(ReadOnly, match="not closed cleanly"):
        reader.snapshot(tmp_path / "snapshot")
    with logdb.open(tmp_path / "db") as db:
        db.snapshot(tmp_path / "snapshot")
    assert is_sound(tmp_path / "snapshot")


def test_a_partition_that_is_damaged(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", partitions=2, config=CONFIG)
        fill(db, 0, 200)
    damage.logs(tmp_path / "db", 1)[0].unlink()
    with logdb.open(tmp_path / "db") as db, pytest.raises(CorruptionError, match="logdb repair"):
        db.snapshot(tmp_path / "snapshot")
    assert sorted(os.listdir(tmp_path)) == ["db"]


def test_after_a_failed_sync_there_are_no_snapshots(db, tmp_path, io):
    io.fail("fdatasync", path="t-0")
    with pytest.raises(SyncFailed):
        db.log("t").append(b"x", durability="fsync")
    io.heal()
    with pytest.raises(SyncFailed):
        db.snapshot(tmp_path / "snapshot")
    assert sorted(os.listdir(tmp_path)) == ["db"]


def test_disk_full_at_every_call(db, tmp_path, io):
    """Whatever finds no room: there is no snapshot, nothing is left of it, and the database goes on."""
    db.snapshot(tmp_path / "whole")
    kinds = ("mkdir", "create", "link", "copy_range", "pwrite")
    count = itertools.count(1)
    failed = 0
    for at in count:
        left = itertools.count()

        def no_room(kind, path, at=at, left=left):
            if path.startswith(str(tmp_path / "snapshot")) and kind in kinds and next(left) == at - 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

        io.before = no_room
        try:
            db.snapshot(tmp_path / "snapshot")
            break
        except DiskFull:
            failed += 1
        assert sorted(os.listdir(tmp_path)) == ["db", "whole"], at
    assert failed > 20
    assert is_sound(tmp_path / "snapshot")
    io.before = lambda kind, path: None
    fill(db, 200, 210)


def test_no_other_failure_goes_without_a_name(db, tmp_path, io):
    for kind in ("mkdir", "create", "link", "copy_range", "pwrite", "rename"):
        io.fail(kind, errno.EIO, str(tmp_path / "snapshot"))
        with pytest.raises(WriteFailed):
            db.snapshot(tmp_path / "snapshot")
        io.heal()
        assert sorted(os.listdir(tmp_path)) == ["db"], kind


# ---------------------------------------------------------------- transactions


def test_an_open_transaction_counts_as_aborted(db, tmp_path):
    log = db.log("t")
    produce(log, PRODUCER, 0, [b"committed"], transactional=True)
    log.append_marker(PRODUCER, commit=True, coordinator_epoch=0)
    produce(log, PRODUCER, 1, [b"aborted"], transactional=True)
    log.append_marker(PRODUCER, commit=False, coordinator_epoch=0)
    produce(log, PRODUCER, 2, [b"open"], transactional=True)
    log.append(b"after")
    db.snapshot(tmp_path / "snapshot")
    assert committed(log)[200:] == [b"committed"]
    log.append_marker(PRODUCER, commit=True, coordinator_epoch=0)
    with logdb.open(tmp_path / "snapshot", mode="r") as snapshot:
        frozen_log = snapshot.log("t")
        assert frozen_log.last_stable_offset == frozen_log.end_offset == 206
        assert frozen_log.open_transactions() == []
        assert committed(frozen_log)[200:] == [b"committed", b"after"]
        assert [found.first_offset for found in frozen_log.aborted_transactions(0, 206)] == [202, 204]
        assert [record.value for record in frozen_log.read(200)] == [b"committed", b"aborted", b"open", b"after"]
    assert committed(log)[200:] == [b"committed", b"open", b"after"]


def test_aborted_transactions_of_sealed_segments_come_with_them(db, tmp_path):
    log, sequence = db.log("t"), itertools.count()
    for _ in range(40):
        produce(log, PRODUCER, next(sequence), [b"no " * 20], transactional=True)
        log.append_marker(PRODUCER, commit=False, coordinator_epoch=0)
    log.append(b"yes")
    db.snapshot(tmp_path / "snapshot")
    assert len(list((tmp_path / "snapshot" / "t-0").glob("*.txnindex"))) > 2
    with logdb.open(tmp_path / "snapshot", mode="r") as snapshot:
        assert committed(snapshot.log("t"))[200:] == [b"yes"]
        assert snapshot.log("t").aborted_transactions(0, 281) == log.aborted_transactions(0, 281)


def test_no_marker_lies_between_the_ends_of_two_partitions(db, tmp_path):
    lock, logs = db._store.transaction_lock, [db.log("t", partition) for partition in (0, 1)]
    for log in logs:
        produce(log, PRODUCER, 0, [b"both"], transactional=True)
    taken = threading.Thread(target=db.snapshot, args=(tmp_path / "snapshot",))
    with lock:
        logs[0].append_marker(PRODUCER, commit=True, coordinator_epoch=0)
        taken.start()
        until(lambda: lock._waiting, "the snapshot waits for the lock")
        logs[1].append_marker(PRODUCER, commit=True, coordinator_epoch=0)
    taken.join()
    with logdb.open(tmp_path / "snapshot", mode="r") as snapshot:
        assert [committed(snapshot.log("t", partition))[200:] for partition in (0, 1)] == [[b"both"], [b"both"]]


def test_files_of_a_partition_are_all_known():
    """A new kind of file of a sealed segment would have to be linked, and stored in backups."""
    from logdb.segment.segment import Segment

    segment = Segment(IO(), "/nowhere", 0, writable=False)
    known = {segment.path, segment._index_path(), segment._time_index_path(), segment.transactions._path}
    assert {path[-len(suffix) :] for path in known for suffix in frozen.SEALED_SUFFIXES if path.endswith(suffix)} == set(
        frozen.SEALED_SUFFIXES
    )
    assert len(known) == len(frozen.SEALED_SUFFIXES)
