import errno
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import logdb
from logdb import errors
from logdb.model import ProducerIdAndEpoch
from logdb.store import sidecars
from support.columnar import check_same, rows_of_dataset, rows_of_logs
from support.faulty_io import FaultyIO
from support.keyed import Keyed
from support.power_cut import quiet
from support.waiting import until

pytest.importorskip("pyarrow")

NOW = 1_700_000_000_000
DAY = 86_400_000
SMALL = {"segment.bytes": 2_000}


class Kept:
    """A database with a topic ``t``."""

    def __init__(self, path, io=None, partitions=1, **config):
        self.path, self.io, self.now_ms = str(path), io, NOW
        self.keyed = Keyed()
        self.open()
        self.db.create_topic("t", partitions=partitions, config=SMALL | config)

    def open(self):
        self.db = quiet(logdb.open(self.path, batch_size=300, io=self.io, clock=lambda: self.now_ms))

    def reopen(self):
        self.db.close()
        self.open()

    @property
    def log(self):
        return self.db._store.open_log("t", 0)  # not through the broker, which would end the transactions of a test

    def fill(self, count=60, partition=0):
        log = self.db._store.open_log("t", partition)
        log.append_many(
            [None if n % 11 == 0 else b"value %d" % n * (n % 5) for n in range(count)],
            [None if n % 3 == 0 else b"key %d" % (n % 7) for n in range(count)],
            headers=[[("a", b"1"), ("b", None)][: n % 3] for n in range(count)],
            timestamps_ms=[self.now_ms - n for n in range(count)],
        )

    def files(self, partition=0):
        return sorted(name for name in os.listdir(os.path.join(self.path, f"t-{partition}")) if ".parquet" in name)

    def named(self, partition=0):
        return [entry for entry in self.db._store.catalogue.segments("t", partition) if entry.sidecar is not None]

    def check(self, where=""):
        """Dataset and logs agree, the files are those that the catalogue names, nothing is damaged; returns how many files are read."""
        found = check_same(self.db, where=where)
        assert self.files() == [f"{entry.base_offset:020d}-{entry.sidecar.crc:08x}.parquet" for entry in self.named()], where
        assert self.db.verify().ok, where
        return found


@pytest.fixture
def kept(tmp_path):
    made = Kept(tmp_path / "db")
    yield made
    made.db.close()


# ---------------------------------------------------------------- what is in them


def test_sealed_segments_and_what_follows(kept):
    kept.fill()
    made = kept.db.make_parquet("t")
    assert len(made) == 1 and made[0].made == made[0].file_count == len(kept.files()) > 1
    assert made[0].size_bytes == sum(os.path.getsize(os.path.join(kept.path, "t-0", name)) for name in kept.files())
    assert made[0].stable_offset == 60
    assert kept.check() == made[0].made and not kept.db.topic_tiers("t").ranges  # the active segment was rolled over
    kept.fill(40)
    assert kept.check() == made[0].made
    assert [stretch[1:] for stretch in kept.db.topic_tiers("t").ranges] == [(60, 100)]
    again = kept.db.make_parquet("t")[0]
    assert 0 < again.made < again.file_count and not again.damaged
    assert kept.check() == again.file_count


def test_every_partition(tmp_path):
    kept = Kept(tmp_path / "db", partitions=3)
    for partition in range(3):
        kept.fill(20 * partition, partition)
    assert [made.partition for made in kept.db.make_parquet("t")] == [0, 1, 2]
    kept.fill(5, 1)
    assert check_same(kept.db) == sum(len(kept.files(partition)) for partition in range(3))
    assert kept.db.make_parquet("t", 1)[0].made == 1
    kept.db.close()


def test_the_file_itself(kept):
    kept.fill(30)
    kept.db.make_parquet("t")
    entry = kept.named()[0]
    path = kept.db.topic_tiers("t").files[0].path
    assert path == os.path.join(kept.path, "t-0", kept.files()[0])
    file = pq.ParquetFile(path, page_checksum_verification=True)
    assert file.schema_arrow.names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    metadata = {key.decode(): value.decode() for key, value in file.metadata.metadata.items()}
    assert metadata == {
        "logdb.format": "1",
        "logdb.topic": "t",
        "logdb.partition": "0",
        "logdb.base_offset": str(entry.base_offset),
        "logdb.next_offset": str(entry.next_offset),
        "logdb.segment_size_bytes": str(entry.size_bytes),
        "logdb.segment_crc": str(entry.crc),
    }
    group = file.metadata.row_group(0)
    codecs = {group.column(n).path_in_schema: group.column(n).compression for n in range(9)}
    assert codecs.pop("value") == "LZ4" and set(codecs.values()) == {"ZSTD"} and len(codecs) == 8


def test_whose_time_it_is(tmp_path):
    kept = Kept(tmp_path / "db")
    kept.fill(10)
    kept.db.alter_topic("t", config={"message.timestamp.type": "LogAppendTime"})
    kept.now_ms += 5
    kept.log.append_many([b"x"] * 3)
    kept.db.make_parquet("t")
    kept.log.append_many([b"y"] * 2)
    table = kept.db.topic_dataset("t").to_table().sort_by("offset")
    assert table["timestamp_type"].to_pylist() == [0] * 10 + [1] * 5
    check_same(kept.db)
    kept.db.close()


def test_transactions(kept):
    log, keyed = kept.log, kept.keyed
    keyed.append(log, 120, 5, 3)
    for number in range(6):
        keyed.append(log, 12, 5, 3)
        keyed.transact(log, number, 6, 5, commit=number % 2 == 0)
    keyed.transact(log, 90, 3, 5, commit=None)
    keyed.append(log, 60, 5, 3)
    log.flush()
    made = kept.db.make_parquet("t")[0]
    assert made.stable_offset < log.end_offset
    assert all(entry.next_offset <= made.stable_offset for entry in kept.named())
    partly = [entry for entry in kept.named() if entry.sidecar.committed_only]
    assert 0 < len(partly) < len(kept.named()), "some segments have records of aborted transactions, some not"
    assert kept.check() == made.file_count
    assert len(kept.db.topic_tiers("t").files) == made.file_count - len(partly)
    keyed.end(log, 90, commit=False)
    assert kept.db.make_parquet("t")[0].stable_offset == log.end_offset
    assert kept.check() == len(kept.named()) > made.file_count


def test_markers_are_durable_before_what_they_decided_counts(tmp_path):
    kept = Kept(tmp_path / "db", io := FaultyIO())
    kept.keyed.transact(kept.log, 1, 60, 5, commit=True)
    kept.log.roll()
    kept.db._store.checkpoint([kept.log])
    synced = io.count("fdatasync", ".log")
    kept.log.append_marker(ProducerIdAndEpoch(2, 0), commit=True, coordinator_epoch=0)
    kept.db._store.writer.sidecars._due(kept.log)
    assert io.count("fdatasync", ".log") == synced + 1
    kept.db.close()


def test_an_empty_topic(kept):
    assert kept.db.make_parquet("t")[0][2:] == (0, 0, 0, 0, 0)
    assert kept.db.topic_dataset("t").count_rows() == 0


# ---------------------------------------------------------------- how they go


def test_retention(kept):
    kept.fill(200)
    kept.db.make_parquet("t")
    before = kept.files()
    kept.db.alter_topic("t", config={"retention.bytes": 4_000})
    kept.db._store.writer.retention.enforce()
    assert 0 < len(kept.files()) < len(before) and set(kept.files()) < set(before)
    kept.check()


@pytest.mark.parametrize("offset", [1, 50, 117, 200])
def test_delete_records(kept, offset):
    kept.fill(200)
    kept.db.make_parquet("t")
    kept.db.delete_records("t", 0, offset)
    kept.check(offset)
    assert all(file.start_offset >= offset for file in kept.db.topic_tiers("t").files)
    kept.db.make_parquet("t")
    kept.check(offset)


def test_compaction(tmp_path):
    kept = Kept(tmp_path / "db", **{"cleanup.policy": "compact", "delete.retention.ms": DAY})
    for number in range(3):
        kept.keyed.append(kept.log, 80, 30, 3)
        kept.keyed.transact(kept.log, number, 6, 12, commit=number != 1)
        kept.log.flush()
        kept.db.make_parquet("t")
        assert kept.check() > 1
        kept.db.compact("t")
        kept.check()
        kept.keyed.check(kept.log)
    kept.now_ms += 2 * DAY
    kept.reopen()
    kept.db.compact("t")
    kept.db.make_parquet("t")
    assert kept.check() == len(kept.named())
    kept.db.close()


def test_a_segment_that_is_swapped_while_its_sidecar_is_made(tmp_path, monkeypatch):
    kept = Kept(tmp_path / "db", **{"cleanup.policy": "compact"})
    kept.keyed.append(kept.log, 80, 5, 3)
    kept.log.flush()
    kept.log.roll()
    kept.db._store.checkpoint([kept.log])
    sidecars = kept.db._store.writer.sidecars
    write = sidecars._write

    def slow(*args, **options):
        found = write(*args, **options)
        kept.db.compact("t")
        return found

    monkeypatch.setattr(sidecars, "_write", slow)
    assert sidecars._make_missing(kept.log) == 0
    assert kept.files() == []
    monkeypatch.undo()
    assert sidecars._make_missing(kept.log) > 0
    kept.check()
    kept.db.close()


def test_two_threads_that_make_the_same_sidecars(kept, monkeypatch):
    kept.fill(120)
    due, both_know = sidecars.Sidecars._due, threading.Barrier(2, timeout=30)

    def found(self, log):
        missing = due(self, log)
        both_know.wait()
        return missing

    with monkeypatch.context() as patch:
        patch.setattr(sidecars.Sidecars, "_due", found)
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda _: kept.db.make_parquet("t"), range(2)))
    assert kept.check() > 1


def test_a_damaged_one_is_removed_while_another_thread_makes_it(kept, monkeypatch):
    kept.fill()
    kept.db.make_parquet("t")
    flipped(os.path.join(kept.path, "t-0", kept.files()[0]), 100, 0)
    made = kept.db._store.writer.sidecars
    commit, asked = made._commit, []

    def slow(log, named, sidecar):
        found = commit(log, named, sidecar)
        if sidecar is None:
            asked.append(threads.submit(made._make_missing, log))
            wait(asked, timeout=0.5)  # without the lock it is done by then
        return found

    with ThreadPoolExecutor(1) as threads:
        monkeypatch.setattr(made, "_commit", slow)
        kept.db.make_parquet("t")
    assert len(asked) == 1 and asked[0].result() <= 1
    assert kept.check() > 1


def test_a_topic_that_is_deleted_and_made_again(kept):
    kept.fill(100)
    kept.db.make_parquet("t")
    kept.db.delete_topic("t")
    with pytest.raises(errors.UnknownTopic):
        kept.db.topic_dataset("t")
    kept.db.create_topic("t", config=SMALL)
    assert kept.files() == [] and kept.check() == 0
    kept.fill(10)
    kept.check()


def test_a_topic_that_is_deleted_while_a_sidecar_is_made(kept, monkeypatch):
    kept.fill(100)
    sidecars = kept.db._store.writer.sidecars
    write = sidecars._write

    def slow(*args, **options):
        found = write(*args, **options)
        kept.db.delete_topic("t")
        kept.db.create_topic("t", config=SMALL)
        return found

    monkeypatch.setattr(sidecars, "_write", slow)
    with pytest.raises(errors.UnknownTopic):
        kept.db.make_parquet("t")
    monkeypatch.undo()
    assert kept.files() == []
    kept.fill(50)
    kept.db.make_parquet("t")
    assert kept.check() > 0


def test_what_is_removed_under_a_dataset_is_an_error(kept):
    kept.fill(200)
    kept.db.make_parquet("t")
    dataset, before = kept.db.topic_dataset("t"), rows_of_logs(kept.db, "t")
    assert rows_of_dataset(dataset, "t") == before
    kept.db.delete_records("t", 0, 150)
    with pytest.raises(FileNotFoundError):
        dataset.to_table()


def test_a_dataset_ends_where_the_log_did(kept):
    kept.fill(100)
    dataset, before = kept.db.topic_dataset("t"), rows_of_logs(kept.db, "t")
    kept.fill(10)
    assert rows_of_dataset(dataset, "t") == before
    kept.db.delete_records("t", 0, 90)
    with pytest.raises(errors.OffsetOutOfRange):
        dataset.to_table()


def test_copies_have_none(kept, tmp_path):
    kept.fill(100)
    kept.db.make_parquet("t")
    kept.fill(10)
    rows = rows_of_logs(kept.db, "t")
    kept.db.snapshot(tmp_path / "snapshot")
    kept.db.backup(tmp_path / "backup")
    assert logdb.verify(tmp_path / "snapshot").ok
    assert not [name for name in os.listdir(tmp_path / "snapshot" / "t-0") if "parquet" in name]
    for source in ("snapshot", "backup"):
        logdb.restore(tmp_path / source, tmp_path / f"from-{source}")
        with logdb.open(tmp_path / f"from-{source}") as db:
            assert rows_of_dataset(db.topic_dataset("t"), "t") == rows
            assert db.make_parquet("t")[0].made
            assert rows_of_dataset(db.topic_dataset("t"), "t") == rows
    with logdb.open(tmp_path / "snapshot", mode="r") as db:
        assert rows_of_dataset(db.topic_dataset("t"), "t") == rows
        with pytest.raises(errors.ReadOnly):
            db.make_parquet("t")


# ---------------------------------------------------------------- who reads


def test_beside_the_writer(kept):
    kept.fill(100)
    kept.db.make_parquet("t")
    kept.fill(10)
    kept.log.flush(sync=False)
    with logdb.open(kept.path, mode="r") as reader:
        assert check_same(reader) == len(kept.files())
        kept.db.delete_records("t", 0, 60)
        kept.fill(50)
        kept.db.make_parquet("t")
        assert check_same(reader) == len(kept.files()) - 1  # of the one that the log begins in


def test_a_file_is_not_there(kept, caplog):
    kept.fill(100)
    kept.db.make_parquet("t")
    names = kept.files()
    os.unlink(os.path.join(kept.path, "t-0", names[1]))
    assert check_same(kept.db) == len(names) - 1
    assert "missing" in caplog.text
    problem = kept.db.verify().problems[0]
    assert (os.path.basename(problem.path), problem.kind) == (names[1], "missing")
    made = kept.db.make_parquet("t")[0]
    assert (made.made, made.damaged, made.file_count) == (1, 1, len(names))
    assert kept.check() == len(names) and kept.files() == names


def flipped(path, at, bit):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))


def test_flips_are_reported_and_never_served(kept, record_property):
    kept.fill(25)
    kept.db.make_parquet("t")
    entry, name = kept.named()[0], kept.files()[0]
    path, rows = os.path.join(kept.path, "t-0", name), rows_of_logs(kept.db, "t")
    footer_at = entry.sidecar.size_bytes - entry.sidecar.footer_size_bytes
    whole = Path(path).read_bytes()
    assert whole[:4] == b"PAR1" and footer_at > 600
    refused = unused = 0
    pages, footer = range(0, footer_at, 3), range(footer_at, len(whole), 27)
    for at in (*pages, *footer):
        flipped(path, at, at % 8)
        dataset = kept.db.topic_dataset("t")
        if len(kept.db.topic_tiers("t").files) < len(kept.files()):
            unused += 1
            assert at >= footer_at
        try:
            assert rows_of_dataset(dataset, "t") == rows, f"byte {at}"
        except (OSError, ValueError):  # pyarrow's errors are these
            assert at < footer_at, "a damaged footer is seen before the file is used"
            refused += 1
        flipped(path, at, at % 8)
    assert Path(path).read_bytes() == whole
    assert refused > len(pages) * 0.75 and unused == len(footer)
    record_property("told", f"sidecars: of flips in {len(pages)} bytes of pages {refused} are refused, the others change no row")


@pytest.mark.parametrize("region", ["magic", "page", "footer", "length", "cut", "grown"])
def test_damage_is_reported_and_mended(kept, region):
    kept.fill(100)
    kept.db.make_parquet("t")
    name = kept.files()[1]
    path, size = os.path.join(kept.path, "t-0", name), kept.named()[1].sidecar.size_bytes
    if region == "cut":
        os.truncate(path, size - 1)
    elif region == "grown":
        with open(path, "ab") as file:
            file.write(b"\0")
    else:
        flipped(path, {"magic": 0, "page": 300, "footer": size - 100, "length": size - 7}[region], 3)
    problem = kept.db.verify().problems[0]
    assert (os.path.basename(problem.path), problem.kind) == (name, "damaged")
    if region not in ("magic", "page"):
        check_same(kept.db)
    made = kept.db.make_parquet("t")[0]
    assert (made.made, made.damaged) == (1, 1)
    assert kept.check() == made.file_count


def test_repair_forgets_a_damaged_one(tmp_path):
    kept = Kept(tmp_path / "db")
    kept.fill(100)
    kept.db.make_parquet("t")
    kept.db.close()
    flipped(os.path.join(kept.path, "t-0", kept_name := kept.files()[1]), 300, 3)
    assert not logdb.verify(kept.path).ok
    assert any(kept_name in action for action in logdb.repair(kept.path).actions)
    assert logdb.repair(kept.path, execute=True).actions
    assert logdb.verify(kept.path).ok
    kept.open()
    check_same(kept.db)
    assert kept.files() == []  # the log was opened
    kept.db.make_parquet("t")
    assert kept.check() > 1
    kept.db.close()


def test_a_damaged_log_gives_no_sidecar(kept):
    kept.fill(100)
    kept.log.flush()
    kept.log.roll()
    kept.db._store.checkpoint([kept.log])
    flipped(kept.log.segments[1].path, 700, 1)
    with pytest.raises(errors.CorruptionError):
        kept.db.make_parquet("t")
    assert len(kept.files()) == len(kept.named()) == 1


# ---------------------------------------------------------------- files that the catalogue does not name, and disks that fail


def test_opening_removes_what_no_entry_names(tmp_path):
    kept = Kept(tmp_path / "db")
    kept.fill(100)
    kept.db.make_parquet("t")
    kept.db.close()
    names = kept.files()
    strays = ["00000000000000000000.parquet.tmp", "00000000000000000000-00000000.parquet"]
    for stray in strays:
        shutil.copy(os.path.join(kept.path, "t-0", names[0]), os.path.join(kept.path, "t-0", stray))
    mine = os.path.join(kept.path, "t-0", "mine.parquet")
    shutil.copy(os.path.join(kept.path, "t-0", names[0]), mine)
    report = logdb.verify(kept.path)
    assert report.ok and all(any(f"{stray}: unfinished work" in note for note in report.notes) for stray in strays)
    with logdb.open(kept.path, mode="r") as reader:
        check_same(reader)
    assert set(strays) < set(kept.files())  # who reads removes nothing
    kept.open()
    check_same(kept.db)
    assert kept.files() == sorted([*names, "mine.parquet"])
    kept.db.close()


@pytest.mark.parametrize("room", [0, 500])
def test_no_room(tmp_path, room):
    kept = Kept(tmp_path / "db", io := FaultyIO())
    kept.fill(100)
    kept.log.flush()
    kept.log.roll()
    kept.db._store.checkpoint([kept.log])
    io.room = room
    with pytest.raises(errors.DiskFull):
        kept.db._store.writer.sidecars._make_missing(kept.log)
    io.heal()
    assert kept.files() == [] and kept.named() == []
    kept.db.make_parquet("t")
    assert kept.check() > 1
    kept.db.close()


@pytest.mark.parametrize(
    ("kind", "error"), [("fdatasync", errors.SyncFailed), ("rename", errors.WriteFailed), ("create", errors.WriteFailed)]
)
def test_a_failing_call(tmp_path, kind, error):
    kept = Kept(tmp_path / "db", io := FaultyIO())
    kept.fill(100)
    kept.log.flush()
    kept.log.roll()
    kept.db._store.checkpoint([kept.log])
    io.fail(kind, errno.EIO, ".parquet.tmp")
    with pytest.raises(error):
        kept.db._store.writer.sidecars._make_missing(kept.log)
    io.heal()
    assert kept.files() == [] and kept.named() == []
    check_same(kept.db)
    kept.db.close()


# ---------------------------------------------------------------- in the background


def test_in_the_background(tmp_path):
    io = FaultyIO()
    with logdb.open(tmp_path / "db", io=io, batch_size=300) as db:
        db.create_topic("plain", config=SMALL)
        db.create_topic("t", config=SMALL | {"logdb.parquet": "true"})
        for topic in ("plain", "t"):
            db.log(topic).append_many([b"value %d" % n * 5 for n in range(100)])
        db.flush()
        db._store.checkpoint([db.log("t"), db.log("plain")])
        sealed = len(db._store.catalogue.segments("t", 0))
        sidecars = db._store.writer.sidecars
        sidecars.background.hasten("parquet")
        until(lambda: sum(entry.sidecar is not None for entry in db._store.catalogue.segments("t", 0)) == sealed, "each has a sidecar")
        assert check_same(db) == sealed > 1
        assert not [name for name in os.listdir(tmp_path / "db" / "plain-0") if "parquet" in name]
        assert db.describe_topic("t").config["logdb.parquet"] is True


def test_no_topic_asks_for_them(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"logdb.parquet": False})
        assert db._store.writer.sidecars.background._thread is None


def test_closing_does_not_wait_for_all(tmp_path):
    kept = Kept(tmp_path / "db")
    kept.fill(100)
    sidecars = kept.db._store.writer.sidecars
    sidecars._stopping = True
    with pytest.raises(errors.Closed, match="being closed"):
        kept.db.make_parquet("t")
    assert kept.files() == []
    kept.db.close()


# ---------------------------------------------------------------- other people's readers


def test_duckdb_polars_and_pandas(kept):
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    kept.fill(200)
    kept.db.make_parquet("t")
    kept.fill(30)
    rows, dataset = rows_of_logs(kept.db, "t"), kept.db.topic_dataset("t")
    by_key = {key: sum(row.key == key for row in rows) for key in {row.key for row in rows}}
    assert dict(duckdb.sql("select key, count(*) from dataset group by key").fetchall()) == by_key
    late = [row.offset for row in rows if row.offset >= 190 and row.value]
    asked = 'select "offset" from dataset where "offset" >= 190 and octet_length(value) > 0 order by 1'
    assert [found for (found,) in duckdb.sql(asked).fetchall()] == late
    lazy = polars.scan_pyarrow_dataset(dataset).filter(polars.col("offset") >= 190).select("offset", "value").sort("offset")
    assert [offset for offset, value in lazy.collect().rows() if value] == late
    frame = dataset.to_table(columns=["offset", "value"]).to_pandas()
    assert len(frame) == len(rows) and frame["value"].isna().sum() == sum(row.value is None for row in rows)


def test_over_a_url(tmp_path):
    with logdb.open(tmp_path / "db") as db, logdb.serve(db, http="127.0.0.1:0") as server:
        db.create_topic("t")
        with logdb.open(server.addresses[0]) as remote:
            for name in ("make_parquet", "topic_tiers"):
                with pytest.raises(errors.LocalOnly, match=name):
                    getattr(remote, name)("t")


def test_an_isolation_level_that_there_is_not(kept):
    with pytest.raises(ValueError, match="read_committed"):
        kept.db.topic_dataset("t", isolation_level="serializable")
