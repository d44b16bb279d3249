import contextlib
import errno
import itertools
import os
import shutil

import pytest

import logdb
from logdb.errors import (
    BackupDamaged,
    BackupMismatch,
    CorruptionError,
    DirectoryLocked,
    DiskFull,
    ReadOnly,
    TargetNotEmpty,
    WriteFailed,
)
from logdb.io import IO
from logdb.model import ProducerIdAndEpoch
from logdb.requests.topic_changes import CreateTopic
from logdb.store.copy import backup as backup_module
from logdb.store.copy.backup import backup
from logdb.store.copy.backup_file import BackupReader
from logdb.store.store import Store
from support import damage
from support.copying import fill, is_sound
from support.faulty_io import FaultyIO, concerns
from support.transactions import committed, produce

CONFIG = {"segment.bytes": 2048, "index.interval.bytes": 200, "retention.ms": 1_000_000_000_000}
PRODUCER = ProducerIdAndEpoch(7, 0)


@pytest.fixture
def io():
    return FaultyIO()


@pytest.fixture
def db(tmp_path, io):
    with logdb.open(tmp_path / "db", io=io) as opened:
        opened.create_topic("t", partitions=2, config=CONFIG)
        opened.create_topic("empty")
        fill(opened, 0, 100)
        yield opened


def records(path):
    """By partition, as a reader sees them; leader epochs and all."""
    with logdb.open(path, mode="r") as db:
        logs = [db.log(topic.name, number) for topic in db.topics(internal=True) for number in range(topic.partition_count)]
        return {f"{log.topic}-{log.partition}": (log.start_offset, list(log.read(log.start_offset))) for log in logs}


def of(db):
    logs = [db.log(topic.name, number) for topic in db.topics(internal=True) for number in range(topic.partition_count)]
    return {f"{log.topic}-{log.partition}": (log.start_offset, list(log.read(log.start_offset))) for log in logs}


def stored(path):
    """The files in a backup: topic id, partition, base offset, kind and size of each."""
    with BackupReader(IO(), str(path)) as reader:
        return {(*name, size_bytes) for name, size_bytes, _ in reader.files()}


# ---------------------------------------------------------------- there and back


def test_a_backup_is_restored(db, tmp_path):
    done = db.backup(tmp_path / "full")
    before = of(db)
    fill(db, 100, 120)
    assert sorted(os.listdir(tmp_path)) == ["db", "full"]
    restored = logdb.restore(tmp_path / "full", tmp_path / "restored")
    assert sorted(os.listdir(tmp_path)) == ["db", "full", "restored"]
    assert sorted(os.listdir(tmp_path / "restored")) == ["LOCK", "catalogue", "empty-0", "t-0", "t-1"]
    assert records(tmp_path / "restored") == before
    assert done.partition_count == restored.partition_count == 3
    assert done.size_bytes == restored.size_bytes
    assert done.written_bytes == (tmp_path / "full").stat().st_size < done.size_bytes
    assert restored.id == db._store.database_id
    assert is_sound(tmp_path / "restored")
    with logdb.open(tmp_path / "restored") as again:
        assert again.reports == ()
        assert again.describe_topic("t").config == CONFIG
        assert again.describe_topic("t").topic_id == db.describe_topic("t").topic_id
        assert again.log("t").append(b"goes on", durability="fsync") == 100
    assert is_sound(tmp_path / "restored")


def test_a_restored_log_tells_what_was_lost(db, tmp_path):
    db.backup(tmp_path / "full")
    fill(db, 100, 120)
    seen = list(db.log("t").read(0))[-1]
    logdb.restore(tmp_path / "full", tmp_path / "restored")
    with logdb.open(tmp_path / "restored") as again:
        fill(again, 100, 130)
        with pytest.raises(logdb.errors.LogTruncated) as caught:
            again.log("t").read(seen.offset + 1, leader_epoch=seen.leader_epoch)
        assert caught.value.epoch_end_offset == 100


def test_an_increment_has_what_its_base_lacks(db, tmp_path):
    db.backup(tmp_path / "full")
    fill(db, 100, 150)
    db.create_topic("later")
    db.log("later").append(b"x")
    db.delete_records("t", 0, 60)
    db.backup(tmp_path / "second", base=tmp_path / "full")
    second = of(db)
    fill(db, 150, 160)
    db.delete_topic("empty")
    db.backup(tmp_path / "third", base=tmp_path / "second")
    third = of(db)
    files = [stored(tmp_path / name) for name in ("full", "second", "third")]
    assert len(files[0]) > 8
    for base, increment in itertools.pairwise(files):
        assert len(increment) > 2
        assert len(base & increment) <= 2, "what was the active segment of a partition may be sealed by now"
    logdb.restore([tmp_path / name for name in ("third", "full", "second")], tmp_path / "three")
    assert records(tmp_path / "three") == third
    logdb.restore([tmp_path / "full", tmp_path / "second"], tmp_path / "two")
    assert records(tmp_path / "two") == second
    for name in ("two", "three"):
        assert is_sound(tmp_path / name)


def logs_stored(path):
    """The bytes of ``.log`` files in a backup."""
    return sum(size_bytes for *_, kind, size_bytes in stored(path) if kind == "log")


def grown(tmp_path, steps):
    """Backups of a log of one active segment, which ``steps`` change in between; returns their names."""
    names = ["full", *(f"increment {number}" for number in range(len(steps)))]
    with logdb.open(tmp_path / "grows") as db:
        db.create_topic("t")
        db.log("t").append_many([os.urandom(1000) for _ in range(300)])
        db.backup(tmp_path / names[0])
        for step, base, name in zip(steps, names, names[1:], strict=False):
            step(db)
            db.backup(tmp_path / name, base=tmp_path / base)
        wanted = of(db)
    logdb.restore([tmp_path / name for name in names], tmp_path / "restored")
    assert records(tmp_path / "restored") == wanted
    assert is_sound(tmp_path / "restored")
    return names


def more(db):
    db.log("t").append_many([os.urandom(1000) for _ in range(10)])


def sealed(db):
    db.log("t").roll()
    more(db)
    db.flush()


def test_an_increment_has_only_the_new_bytes_of_the_active_segment(tmp_path):
    names = grown(tmp_path, [more, lambda _db: None, more, sealed, more])
    sizes = [logs_stored(tmp_path / name) // 1000 for name in names]
    assert (sizes[0] >= 300, sizes[1:]) == (True, [10, 0, 10, 10, 10])
    assert sorted({(tmp_path / name).read_bytes()[11] for name in names}) == [1, 2]
    for count in range(1, len(names)):
        logdb.restore([tmp_path / name for name in names[:count]], tmp_path / f"first {count}")
        assert is_sound(tmp_path / f"first {count}")


def test_an_increment_whose_base_lost_its_bytes_has_the_whole_file(tmp_path):
    """The base has other bytes than the database: its active segment was truncated, or compacted, and has grown again."""
    with contextlib.closing(Store.open(str(tmp_path / "db"))) as store:
        store.submit(CreateTopic("t"))
        log = store.open_log("t")
        log.append_many([os.urandom(1000) for _ in range(300)])
        backup(store, str(tmp_path / "full"))
        store.truncate_to("t", 0, 200)
        log.append_many([os.urandom(1000) for _ in range(150)])
        backup(store, str(tmp_path / "second"), str(tmp_path / "full"))
        wanted = [record.value for record in log.read(0)]
    assert logs_stored(tmp_path / "second") > 340_000
    logdb.restore([tmp_path / "full", tmp_path / "second"], tmp_path / "restored")
    assert [record.value for record in records(tmp_path / "restored")["t-0"][1]] == wanted


def test_increments_of_an_earlier_logdb_are_restored(tmp_path, monkeypatch):
    monkeypatch.setattr(backup_module, "_continued", lambda *_: None)
    names = grown(tmp_path, [more, sealed])
    assert {(tmp_path / name).read_bytes()[11] for name in names} == {1}


def test_an_outline_is_enough_for_the_next_increment(tmp_path):
    grown(tmp_path, [more])
    with BackupReader(IO(), str(tmp_path / "increment 0")) as reader:
        (tmp_path / "outline").write_bytes(reader.outline())
    with logdb.open(tmp_path / "grows") as db:
        more(db)
        db.backup(tmp_path / "third", base=tmp_path / "outline")
    assert logs_stored(tmp_path / "third") < 20_000
    logdb.restore([tmp_path / name for name in ("full", "increment 0", "third")], tmp_path / "again")
    assert len(records(tmp_path / "again")["t-0"][1]) == 320


def test_a_chain_whose_bytes_do_not_fit_is_refused(tmp_path, monkeypatch):
    """The list of an increment continues another file than that of its base, or one that no backup has."""
    true = backup_module._continued
    for number, change in enumerate([{"size_bytes": 5000}, {"crc": 7}]):
        monkeypatch.setattr(backup_module, "_continued", lambda *given, change=change: (found := true(*given)) and found._replace(**change))
        (tmp_path / str(number)).mkdir()
        with pytest.raises((BackupDamaged, CorruptionError), match=r"no file has|the CRC of the file"):
            grown(tmp_path / str(number), [more])
        assert not (tmp_path / str(number) / "restored").exists()


def test_increments_onto_the_same_base_are_two_ends(db, tmp_path):
    db.backup(tmp_path / "full")
    db.backup(tmp_path / "a", base=tmp_path / "full")
    fill(db, 100, 110)
    db.backup(tmp_path / "b", base=tmp_path / "full")
    logdb.restore([tmp_path / "full", tmp_path / "b"], tmp_path / "restored")
    assert records(tmp_path / "restored") == of(db)
    with pytest.raises(BackupMismatch, match="2 increments"):
        logdb.restore([tmp_path / "full", tmp_path / "a", tmp_path / "b"], tmp_path / "neither")


def test_an_increment_of_an_unchanged_store_is_small(db, tmp_path):
    fill(db, 100, 1000)
    db.backup(tmp_path / "full")
    assert len(db.log("t").segments) > 50
    db.backup(tmp_path / "unchanged", base=tmp_path / "full")
    assert (tmp_path / "unchanged").stat().st_size < 4 << 10


def test_a_topic_made_anew_is_another_one(db, tmp_path):
    db.backup(tmp_path / "full")
    db.delete_topic("t")
    db.create_topic("t", partitions=2, config=CONFIG)
    fill(db, 0, 30)
    db.backup(tmp_path / "second", base=tmp_path / "full")
    logdb.restore([tmp_path / "full", tmp_path / "second"], tmp_path / "restored")
    assert records(tmp_path / "restored") == of(db)


def test_a_restored_database_is_backed_up_onto_the_same_chain(db, tmp_path):
    db.backup(tmp_path / "full")
    logdb.restore(tmp_path / "full", tmp_path / "restored")
    with logdb.open(tmp_path / "restored") as again:
        fill(again, 100, 130)
        again.backup(tmp_path / "second", base=tmp_path / "full")
        logdb.restore([tmp_path / "full", tmp_path / "second"], tmp_path / "twice")
        assert records(tmp_path / "twice") == of(again)
    assert is_sound(tmp_path / "twice")


def test_producers_and_transactions_go_with_it(db, tmp_path):
    log, sequence = db.log("t"), itertools.count()
    for _ in range(20):
        produce(log, PRODUCER, next(sequence), [b"no " * 20], transactional=True)
        log.append_marker(PRODUCER, commit=False, coordinator_epoch=0)
    db.backup(tmp_path / "full")
    produce(log, PRODUCER, next(sequence), [b"yes"], transactional=True)
    log.append_marker(PRODUCER, commit=True, coordinator_epoch=0)
    produce(log, PRODUCER, next(sequence), [b"open"], transactional=True)
    log.append(b"after")
    db.backup(tmp_path / "second", base=tmp_path / "full")
    logdb.restore([tmp_path / "full", tmp_path / "second"], tmp_path / "restored")
    assert is_sound(tmp_path / "restored")
    with contextlib.closing(Store.open(tmp_path / "restored")) as again:  # a broker would abort what no coordinator knows
        found = again.open_log("t")
        assert found.last_stable_offset == log.last_stable_offset == 142
        assert committed(found) == committed(log)
        assert found.aborted_transactions(0, 142) == log.aborted_transactions(0, 142)
        assert produce(found, PRODUCER, 21, [b"open"], transactional=True) == range(142, 143)  # it is known
        found.append_marker(PRODUCER, commit=True, coordinator_epoch=0)
        assert committed(found)[-3:] == [b"yes", b"open", b"after"]


def test_a_compacted_topic(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("kv", config={"cleanup.policy": "compact", "segment.bytes": 4096, "min.cleanable.dirty.ratio": 0.01})
        log = db.log("kv")
        for row in range(500):
            log.append(b"%d" % row * 9, b"%d" % (row % 20))
        log.flush()
        db.compact("kv")
        db.backup(tmp_path / "full")
        db.snapshot(tmp_path / "snapshot")
        for row in range(500):
            log.append(b"%d" % row * 5, b"%d" % (row % 30))
        log.flush()
        db.compact("kv")
        db.backup(tmp_path / "second", base=tmp_path / "full")
        logdb.restore([tmp_path / "full", tmp_path / "second"], tmp_path / "restored")
        assert records(tmp_path / "restored") == of(db)
    assert {r.key: r.value for r in records(tmp_path / "snapshot")["kv-0"][1]} == {b"%d" % (n % 20): b"%d" % n * 9 for n in range(480, 500)}
    for name in ("db", "snapshot", "restored"):
        assert is_sound(tmp_path / name)


# ---------------------------------------------------------------- offline


def test_a_closed_directory_and_a_snapshot(db, tmp_path, io):
    db.snapshot(tmp_path / "snapshot")
    content = of(db)
    db.close()
    before = {name: damage.snapshot(tmp_path / name) for name in ("db", "snapshot")}
    for name in ("db", "snapshot"):
        with logdb.open(tmp_path / name, mode="r") as reader:
            reader.backup(tmp_path / f"{name}-backup")
        logdb.restore(tmp_path / f"{name}-backup", tmp_path / f"{name}-restored")
        assert records(tmp_path / f"{name}-restored") == content
    assert {name: damage.snapshot(tmp_path / name) for name in ("db", "snapshot")} == before


def test_a_snapshot_is_restored_from_its_directory(db, tmp_path):
    produce(db.log("t"), PRODUCER, 0, [b"open"], transactional=True)
    db.snapshot(tmp_path / "snapshot")
    heard = []
    done = logdb.restore(tmp_path / "snapshot", tmp_path / "restored", progress=lambda *told: heard.append(told))
    assert heard[-1][0] == heard[-1][1] == done.size_bytes
    assert records(tmp_path / "restored") == of(db)
    assert {os.stat(path).st_nlink for path in (tmp_path / "restored").rglob("*.log")} == {1}
    assert is_sound(tmp_path / "restored")
    with logdb.open(tmp_path / "restored") as again:
        first, (epoch, start) = again.log("t").epochs.entries
        assert (first, start) == ((0, 0), 101)
        assert epoch >= 1, "by chance another one than that of other histories"
        again.log("t").append_marker(PRODUCER, commit=False, coordinator_epoch=0)
    assert is_sound(tmp_path / "snapshot")


def test_damage_in_a_snapshot_is_not_restored(db, tmp_path):
    db.snapshot(tmp_path / "snapshot")
    for number, match in ((0, "sealed with"), (-1, "CRC does not match")):
        path = damage.logs(tmp_path / "snapshot", 0)[number]
        damage.flip(path, 100)
        with pytest.raises(CorruptionError, match=match) as caught:
            logdb.restore(tmp_path / "snapshot", tmp_path / "restored")
        assert caught.value.path == str(path)
        assert not (tmp_path / "restored").exists()
        damage.flip(path, 100)


def test_damage_in_the_database_is_not_backed_up(db, tmp_path):
    db._store.checkpoint([db.log("t")])
    for number, match in ((0, "sealed with"), (-1, "CRC does not match")):
        path = damage.logs(tmp_path / "db", 0)[number]
        damage.flip(path, 100)
        with pytest.raises(CorruptionError, match=match) as caught:
            db.backup(tmp_path / "full")
        assert caught.value.path == str(path)
        assert sorted(os.listdir(tmp_path)) == ["db"]
        assert not [name for name in os.listdir(tmp_path / "db") if name.endswith(".tmp")]
        damage.flip(path, 100)


def test_damage_in_the_active_segment_is_not_copied_into_a_snapshot(db, tmp_path):
    path = damage.logs(tmp_path / "db", 0)[-1]
    damage.flip(path, 100)
    with pytest.raises(CorruptionError, match="CRC does not match") as caught:
        db.snapshot(tmp_path / "snapshot")
    assert caught.value.path == str(path)
    assert sorted(os.listdir(tmp_path)) == ["db"]


# ---------------------------------------------------------------- progress


def test_progress(db, tmp_path):
    written, restored = [], []
    db.backup(tmp_path / "full", progress=lambda *told: written.append(told))
    logdb.restore(tmp_path / "full", tmp_path / "restored", progress=lambda *told: restored.append(told))
    for told in (written, restored):
        assert [done for done, _, _ in told] == sorted(done for done, _, _ in told)
        assert len({total for _, total, _ in told}) == 1
    assert written[-1][0] == written[-1][1]
    assert written[-1][2].startswith("t-1/")
    assert restored[-1][2] == "t-1"


# ---------------------------------------------------------------- what is refused


def test_a_file_that_is_there(db, tmp_path):
    (tmp_path / "mine").write_bytes(b"precious")
    for taken in (tmp_path / "mine", tmp_path):
        with pytest.raises(TargetNotEmpty):
            db.backup(taken)
    assert (tmp_path / "mine").read_bytes() == b"precious"


def test_a_target_that_is_not_empty(db, tmp_path):
    db.backup(tmp_path / "full")
    (tmp_path / "there").mkdir()
    logdb.restore(tmp_path / "full", tmp_path / "there")
    before = damage.snapshot(tmp_path / "there")
    with pytest.raises(TargetNotEmpty):
        logdb.restore(tmp_path / "full", tmp_path / "there")
    assert damage.snapshot(tmp_path / "there") == before


def test_chains_that_are_none(db, tmp_path):
    db.backup(tmp_path / "full")
    db.backup(tmp_path / "second", base=tmp_path / "full")
    db.backup(tmp_path / "third", base=tmp_path / "second")
    db.backup(tmp_path / "other full")
    for names in (["second"], ["full", "third"], ["full", "other full"], ["other full", "second"], ["full", "full"], ["second", "third"]):
        with pytest.raises(BackupMismatch):
            logdb.restore([tmp_path / name for name in names], tmp_path / "restored")
        assert not (tmp_path / "restored").exists()
    with pytest.raises(ValueError, match="name a snapshot or backups"):
        logdb.restore([], tmp_path / "restored")


def test_a_base_of_another_database(db, tmp_path):
    with logdb.open(tmp_path / "another") as another:
        another.backup(tmp_path / "stranger")
    with pytest.raises(BackupMismatch, match="database"):
        db.backup(tmp_path / "second", base=tmp_path / "stranger")
    (tmp_path / "junk").write_bytes(b"no backup")
    with pytest.raises(BackupDamaged):
        db.backup(tmp_path / "second", base=tmp_path / "junk")
    assert not (tmp_path / "second").exists()


def test_a_base_that_was_made_anew(db, tmp_path):
    """An increment goes onto the very file that it was made for."""
    db.backup(tmp_path / "full")
    db.backup(tmp_path / "second", base=tmp_path / "full")
    (tmp_path / "full").unlink()
    db.backup(tmp_path / "full")
    with pytest.raises(BackupMismatch):
        logdb.restore([tmp_path / "full", tmp_path / "second"], tmp_path / "restored")


def test_a_directory_is_not_restored_beside_its_writer(db, tmp_path):
    with pytest.raises(ReadOnly, match="open for writing"):
        logdb.restore(tmp_path / "db", tmp_path / "restored")
    assert sorted(os.listdir(tmp_path)) == ["db"]


def test_two_at_once_into_the_same_file(db, tmp_path, io):
    errors = []

    def second(kind, path):
        if kind == "pwrite" and path.endswith("full.tmp") and not errors:
            errors.append(None)
            with pytest.raises(DirectoryLocked) as caught:
                db.backup(tmp_path / "full")
            errors[0] = caught.value

    io.before = second
    db.backup(tmp_path / "full")
    assert errors[0].retriable
    logdb.restore(tmp_path / "full", tmp_path / "restored")


# ---------------------------------------------------------------- damage and full disks


def test_every_flipped_byte_of_a_backup(tmp_path):
    """Nothing is restored, and nothing is left."""
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"segment.bytes": 1024})
        for row in range(3):
            db.log("t").append_many([b"value %d" % row * 30] * 3)
        produce(db.log("t"), PRODUCER, 0, transactional=True)
        db.backup(tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    for position in range(0, len(whole), 1):
        (tmp_path / "flipped").write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        with pytest.raises(BackupDamaged):
            logdb.restore(tmp_path / "flipped", tmp_path / "restored")
    assert sorted(os.listdir(tmp_path)) == ["db", "flipped", "whole"]


def test_a_flipped_byte_in_the_base_is_found_even_where_nothing_of_it_is_needed(db, tmp_path):
    db.backup(tmp_path / "full")
    db.delete_topic("t")
    db.backup(tmp_path / "second", base=tmp_path / "full")
    logdb.restore([tmp_path / "full", tmp_path / "second"], tmp_path / "sound")
    damage.flip(tmp_path / "full", (tmp_path / "full").stat().st_size // 2)
    with pytest.raises(BackupDamaged) as caught:
        logdb.restore([tmp_path / "full", tmp_path / "second"], tmp_path / "restored")
    assert caught.value.path == str(tmp_path / "full")
    assert not (tmp_path / "restored").exists()


def test_disk_full_while_backing_up(db, tmp_path, io):
    failed = 0
    for at in itertools.count():
        left = itertools.count()

        def no_room(kind, path, at=at, left=left):
            ours = path.startswith(str(tmp_path / "full")) or (concerns(".tmp", path) and kind in {"mkdir", "link"})
            if ours and kind in {"mkdir", "create", "link", "pwrite"} and next(left) == at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

        io.before = no_room
        try:
            db.backup(tmp_path / "full")
            break
        except DiskFull:
            failed += 1
        assert sorted(os.listdir(tmp_path)) == ["db"], at
        assert not [name for name in os.listdir(tmp_path / "db") if name.endswith(".tmp")], at
    assert failed > 10
    logdb.restore(tmp_path / "full", tmp_path / "restored")
    assert records(tmp_path / "restored") == of(db)


def test_disk_full_while_restoring(db, tmp_path):
    db.backup(tmp_path / "full")
    size_bytes, room = db.log("t").size_bytes + db.log("t", 1).size_bytes, 0
    while True:
        io = FaultyIO()
        io.room = room
        try:
            logdb.restore(tmp_path / "full", tmp_path / "restored", io=io)
            break
        except DiskFull:
            assert sorted(os.listdir(tmp_path)) == ["db", "full"]
        room += 1500
    assert room > size_bytes
    assert records(tmp_path / "restored") == of(db)


def test_other_failures_while_restoring(db, tmp_path):
    db.backup(tmp_path / "full")
    for kind in ("mkdir", "create", "pwrite", "rename"):
        io = FaultyIO()
        io.fail(kind, errno.EIO, str(tmp_path / "restored"))
        with pytest.raises(WriteFailed):
            logdb.restore(tmp_path / "full", tmp_path / "restored", io=io)
        assert sorted(os.listdir(tmp_path)) == ["db", "full"], kind


def test_a_backup_that_was_killed_leaves_a_file_that_the_next_one_writes_over(db, tmp_path):
    (tmp_path / "full.tmp").write_bytes(b"x" * 100_000)
    db.backup(tmp_path / "full")
    assert sorted(os.listdir(tmp_path)) == ["db", "full"]
    with BackupReader(IO(), str(tmp_path / "full")) as reader:
        list(reader.files())


def test_links_that_a_killed_backup_held_go_with_the_next_opening(db, tmp_path):
    db.close()
    held = tmp_path / "db" / "2f6a7c1e-6d0b-4a51-9a54-0f6c2f1f2a77.tmp"
    shutil.copytree(tmp_path / "db" / "t-0", held / "t-0")
    with logdb.open(tmp_path / "db"):
        assert not held.exists()
    assert is_sound(tmp_path / "db")
