"""What recovery believes, cuts, sets aside and refuses: docs/inside/durability.md, "Recovery of a partition", "Torn tail or corruption"."""

import os
import shutil
from pathlib import Path

import pytest

import logdb
from logdb.errors import CorruptionError, LogTruncated, ReadOnly
from logdb.io import IO
from logdb.log.appending import GROUP_SIZE_BYTES
from logdb.log.log import Log
from logdb.log.recovery_point import FILE_NAME
from support.batches import encode_batch, encode_log
from support.damage import flip
from support.power_cut import die

BASE = 20  # digits of a base offset


class Restarted(IO):
    """The same disk after the machine was started anew."""

    def boot_id(self) -> str:
        return "another start"


def file_of(path: Path, base_offset: int = 0, suffix: str = ".log") -> Path:
    return path / "t-0" / f"{base_offset:0{BASE}d}{suffix}"


def values(log: Log) -> list[bytes | None]:
    return [record.value for record in log.read(log.start_offset)]


def crashed(path: Path, *, durable: int, rest: int, level: str = "interval", size: int = 100, **config: object) -> list[bytes]:
    """A database that died with ``durable`` synced batches and ``rest`` written ones, a record each; returns the values."""
    db = logdb.open(path, durability=level)
    db.create_topic("t", config={key.replace("_", "."): value for key, value in config.items()})
    log = db.log("t")
    expected = [b"%06d" % number + bytes(size - 6) for number in range(durable + rest)]
    for value in expected[:durable]:
        log.append_many([value])
    log.flush()
    db._store.checkpoint([log])
    noted = (path / "t-0" / FILE_NAME).read_bytes()
    for value in expected[durable:]:
        log.append_many([value])
    die(db)
    (path / "t-0" / FILE_NAME).write_bytes(noted)  # as unsynced notes may be after a power cut
    return expected


def position(offset: int, size: int = 100) -> int:
    """Where the batch of a record begins, in a segment of batches of one record each."""
    return offset * len(encode_batch([bytes(size)]))


def set_aside(path: Path) -> set[str]:
    return {each.name for each in (path / "t-0").iterdir() if each.suffix in {".torn", ".orphan", ".damaged"}}


def read_only(db: logdb.Database, reason: str) -> Log:
    """The log of a topic that takes no more records, for that reason."""
    log = db.log("t")
    assert log.read_only_reason is not None
    assert reason in log.read_only_reason
    assert db.describe_topic("t").partitions[0].read_only_reason == log.read_only_reason
    with pytest.raises(ReadOnly, match="read-only"):
        log.append(b"x")
    return log


def test_files_that_never_got_their_names_are_removed(tmp_path):
    expected = crashed(tmp_path, durable=3, rest=0)
    for suffix in (".snapshot.tmp", ".txnindex.tmp", ".parquet.tmp"):
        file_of(tmp_path, 2, suffix).write_bytes(b"half")
    (tmp_path / "t-0" / "topic.json.tmp").write_bytes(b"{")
    with logdb.open(tmp_path) as db:
        assert values(db.log("t")) == expected
        assert not list((tmp_path / "t-0").glob("*.tmp"))
    assert logdb.verify(tmp_path).ok


# ---------------------------------------------------------------- past the recovery point


@pytest.mark.parametrize("left", [1, 60, 61, 100])
def test_a_torn_batch_is_cut_and_its_offset_given_again_under_a_new_epoch(tmp_path, left):
    expected = crashed(tmp_path, durable=3, rest=3)
    with file_of(tmp_path).open("r+b") as file:
        file.truncate(position(5) + left)
    with logdb.open(tmp_path, io=Restarted()) as db:
        log = db.log("t")
        assert values(log) == expected[:5]
        assert file_of(tmp_path).stat().st_size == position(5)
        assert any("ends at offset 5" in line for line in db.reports)
        assert not set_aside(tmp_path)
        assert log.leader_epoch == 1
        assert log.append_many([b"new"]) == range(5, 6)
        with pytest.raises(LogTruncated) as caught:
            log.read(6, leader_epoch=0)
        assert (caught.value.epoch_end_offset, caught.value.end_offset) == (5, 6)
    assert logdb.verify(tmp_path).ok


def test_whole_batches_behind_a_torn_one_are_set_aside(tmp_path):
    expected = crashed(tmp_path, durable=3, rest=5)
    flip(file_of(tmp_path), position(4) + 80)
    tail = file_of(tmp_path).read_bytes()[position(4) :]
    with logdb.open(tmp_path, io=Restarted()) as db:
        assert values(db.log("t")) == expected[:4]
        assert any("the CRC does not match: stored" in line and "computed" in line for line in db.reports)
        db.log("t").append(b"goes on")
    assert set_aside(tmp_path) == {f"{0:0{BASE}d}-{position(4)}.torn"}
    assert file_of(tmp_path, suffix=f"-{position(4)}.torn").read_bytes() == tail
    assert logdb.verify(tmp_path).ok


def test_segments_behind_a_torn_one_are_set_aside(tmp_path):
    expected = crashed(tmp_path, durable=3, rest=20, segment_bytes=1024)
    bases = sorted(int(each.stem) for each in (tmp_path / "t-0").glob("*.log"))
    torn = next(base for base in bases if base > 3)
    flip(file_of(tmp_path, torn), 80)
    with logdb.open(tmp_path, io=Restarted()) as db:
        assert values(db.log("t")) == expected[:torn]
    assert {f"{base:0{BASE}d}.log.torn" for base in bases if base > torn} <= set_aside(tmp_path)
    assert logdb.verify(tmp_path).ok


@pytest.mark.parametrize("zeroes", [1, 100, 1 << 20])
def test_room_that_was_reserved_ahead_is_given_back(tmp_path, zeroes):
    expected = crashed(tmp_path, durable=3, rest=2)
    with file_of(tmp_path).open("ab") as file:
        file.write(bytes(zeroes))
    with logdb.open(tmp_path, io=Restarted()) as db:
        assert values(db.log("t")) == expected
        assert file_of(tmp_path).stat().st_size == position(5)
    assert not set_aside(tmp_path)


def test_at_level_fsync_only_the_last_group_can_be_torn(tmp_path):
    size = GROUP_SIZE_BYTES // 2
    expected = crashed(tmp_path, durable=1, rest=5, level="fsync", size=size)
    data = file_of(tmp_path).read_bytes()
    flip(file_of(tmp_path), position(1, size) + 80)
    with logdb.open(tmp_path, durability="fsync", io=Restarted()) as db:
        log = read_only(db, "more than one group")
        assert values(log) == expected[:1]
    assert file_of(tmp_path).stat().st_size == len(data), "nothing is cut"
    flip(file_of(tmp_path), position(1, size) + 80)
    assert file_of(tmp_path).read_bytes() == data
    assert not set_aside(tmp_path)


def test_at_level_fsync_a_torn_group_is_a_torn_tail(tmp_path):
    expected = crashed(tmp_path, durable=1, rest=3, level="fsync")
    flip(file_of(tmp_path), position(1) + 80)
    with logdb.open(tmp_path, durability="fsync", io=Restarted()) as db:
        assert values(db.log("t")) == expected[:1]
        assert db.log("t").append(b"goes on") == 1


def test_what_the_page_cache_still_has_is_believed_only_under_the_same_boot(tmp_path):
    """A log without a crash of the machine is whole; the same files after one are what their bytes say."""
    expected = crashed(tmp_path, durable=3, rest=3)
    with logdb.open(tmp_path) as db:
        assert values(db.log("t")) == expected
        assert db.log("t").leader_epoch == 1, "every unclean opening begins an epoch"
        assert not [line for line in db.reports if "ends at" in line]


# ---------------------------------------------------------------- before the recovery point


@pytest.mark.parametrize("at", [16, 80])  # magic, a record
def test_a_bad_batch_before_the_point_is_corruption(tmp_path, at):
    expected = crashed(tmp_path, durable=5, rest=3)
    data = file_of(tmp_path).read_bytes()
    flip(file_of(tmp_path), position(2) + at)
    with logdb.open(tmp_path, io=Restarted()) as db:
        log, found = db.log("t"), []
        with pytest.raises(CorruptionError) as caught:
            found.extend(record.value for record in log.read(0))
        assert found == expected[:2]
        assert (caught.value.path, caught.value.position) == (str(file_of(tmp_path)), position(2))
    assert file_of(tmp_path).read_bytes()[: position(2)] == data[: position(2)]
    assert file_of(tmp_path).stat().st_size == len(data), "never cut"
    assert not set_aside(tmp_path)


@pytest.mark.parametrize("zeroed", [False, True])
def test_a_file_that_ends_before_the_point_is_corruption(tmp_path, zeroed):
    expected = crashed(tmp_path, durable=5, rest=0)
    with file_of(tmp_path).open("r+b") as file:
        file.truncate(position(3))
        if zeroed:
            file.truncate(position(5))
    with logdb.open(tmp_path, io=Restarted()) as db:
        log, found = read_only(db, str(file_of(tmp_path))), []
        assert log.end_offset == 5, "no offset is given twice"
        with pytest.raises(CorruptionError):
            found.extend(record.value for record in log.read(0))
        assert found == expected[:3]
    assert file_of(tmp_path).stat().st_size == position(5 if zeroed else 3)


def test_after_a_clean_close_a_shorter_file_is_corruption(tmp_path):
    with logdb.open(tmp_path) as db:
        db.create_topic("t")
        for number in range(3):
            db.log("t").append_many([b"%d" % number])
    with file_of(tmp_path).open("r+b") as file:
        file.truncate(file_of(tmp_path).stat().st_size - 1)
    with logdb.open(tmp_path) as db:
        read_only(db, "bytes")


def test_a_missing_sealed_segment_is_corruption(tmp_path):
    with logdb.open(tmp_path) as db:
        db.create_topic("t", config={"segment.bytes": 1024})
        for number in range(30):
            db.log("t").append_many([b"%d" % number * 50])
    file_of(tmp_path).unlink()
    with logdb.open(tmp_path) as db:
        log = read_only(db, "is missing")
        with pytest.raises(CorruptionError, match="missing"):
            values(log)
        later = log.segments[1].base_offset
        assert next(iter(log.read(later))).offset == later


@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_directory_is_corruption_of_its_log_alone(tmp_path, clean):
    db = logdb.open(tmp_path)
    db.create_topic("t")
    db.create_topic("u")
    db.append_many("t", [b"a"])
    db.append_many("u", [b"b", b"c"])
    db.close() if clean else die(db)
    shutil.rmtree(tmp_path / "t-0")
    for _ in range(3):
        with logdb.open(tmp_path) as db:
            with pytest.raises(CorruptionError, match="directory is missing"):
                db.log("t")
            assert [record.value for record in db.log("u").read(0)] == [b"b", b"c"]
            assert db.log("u").append(b"not kept", expected_offset=2) == 2
            db.log("u")._discard()
    assert not logdb.verify(tmp_path).ok
    logdb.repair(tmp_path, execute=True)
    with logdb.open(tmp_path) as db:
        assert db.log("t").append(b"again") == (1 if clean else 0), "what was synced is not given twice"


# ---------------------------------------------------------------- files that the catalogue does not name


def test_a_file_that_continues_the_log_is_adopted(tmp_path):
    with logdb.open(tmp_path) as db:
        db.create_topic("t")
        db.log("t").append_many([b"a", b"b"])
    file_of(tmp_path, 2).write_bytes(encode_log([[b"c"], [b"d"]], base_offset=2))
    os.truncate(tmp_path / "LOCK", 0)  # as if the close had not come to its end
    with logdb.open(tmp_path) as db:
        assert values(db.log("t")) == [b"a", b"b", b"c", b"d"]
        assert len(db.log("t").segments) == 2


def test_a_file_that_does_not_continue_the_log_is_set_aside(tmp_path):
    expected = crashed(tmp_path, durable=3, rest=1)
    stray = encode_log([[b"x"]], base_offset=77)
    file_of(tmp_path, 77).write_bytes(stray)
    with logdb.open(tmp_path, io=Restarted()) as db:
        assert values(db.log("t")) == expected
        assert any("is no part of the log" in line for line in db.reports)
    assert file_of(tmp_path, 77, ".log.orphan").read_bytes() == stray
    assert not file_of(tmp_path, 77).exists()
