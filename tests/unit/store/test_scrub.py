"""What the scrub reads, when, and what it calls damage."""

import contextlib
from pathlib import Path

import pytest

from logdb.errors import CorruptionError
from logdb.requests.topic_changes import CreateTopic, DeleteTopic
from logdb.requests.topics import Compact
from logdb.store import scrub
from logdb.store.store import Store
from support.damage import flip
from support.faulty_io import FaultyIO

WRITING = {"pwrite", "create", "fdatasync", "fsync_dir", "rename", "unlink", "truncate", "allocate", "mkdir", "link"}


@pytest.fixture
def io():
    return FaultyIO()


@pytest.fixture
def store(tmp_path, io):
    with contextlib.closing(Store.open(tmp_path / "db", io=io, scrub_bytes_per_second=1 << 30)) as opened:
        yield opened


def filled(store, topic="t", **config):
    """Some sealed segments of one size, and an active one."""
    store.submit(CreateTopic(topic, partitions=1, config={"segment.bytes": 1_024, **config}))
    log = store.open_log(topic, 0)
    for number in range(40):
        log.append(b"%d" % (number % 10) * 50, key=b"%d" % (number % 4))
        log.flush()
    store.checkpoint([log])
    return log


def sealed(store, topic="t"):
    return store.catalogue.segments(topic, 0)


def rounds(store, count=scrub.ROUNDS_OF_A_PASS):
    for _ in range(count):
        store.writer.scrub._round()


def test_a_pass_reads_each_segment_once_and_writes_nothing(store, io, monkeypatch):
    log, read = filled(store), []
    monkeypatch.setattr(store.writer.scrub, "_read", lambda segment, size_bytes: read.append(segment.base_offset))
    done = len(io.calls)
    rounds(store, scrub.ROUNDS_OF_A_PASS // 2)
    assert 0 < len(read) < len(sealed(store))
    rounds(store, scrub.ROUNDS_OF_A_PASS // 2)
    assert sorted(read) == [one.base_offset for one in sealed(store)]
    assert len(log.segments) == len(read) + 1
    assert not {kind for kind, _ in io.calls[done:]} & WRITING


def test_a_good_log_has_no_damage_and_what_differs_is_damage(store, caplog):
    log = filled(store)
    rounds(store)
    assert log.damage is None
    path = Path(log.segments[3].path)
    flip(path, 80)
    rounds(store)
    assert f"{sealed(store)[3].crc:08x}" in log.damage
    assert str(path) in log.damage
    rounds(store)
    assert len([one for one in caplog.records if "the CRC of the file" in one.getMessage()]) == 1


def test_a_file_that_ends_early_is_damage(store):
    log = filled(store)
    path = Path(log.segments[0].path)
    path.write_bytes(path.read_bytes()[:-1])
    rounds(store)
    assert log.damage is not None


def test_a_file_that_is_gone_is_damage(store):
    log = filled(store)
    path = Path(log.segments[3].path)
    path.unlink()
    log.segments[3].file = None  # as the cache of open files does
    rounds(store)
    assert log.damage is not None
    assert str(path) in log.damage


def test_segments_that_are_replaced_or_deleted_while_they_are_read_are_no_damage(store, monkeypatch):
    log = filled(store, **{"cleanup.policy": "compact"})
    running, before = store.writer.scrub, sealed(store)

    def compacted(topic, partition):
        store.submit(Compact(topic, partition))
        return log

    with monkeypatch.context() as patch:
        patch.setattr(running, "_log", compacted)  # after the round has looked into the catalogue
        running._left = [("t", 0, 0)]
        rounds(store)
    assert sealed(store) != before
    assert log.damage is None
    monkeypatch.setattr(running.background, "pause", lambda _wait_ms: store.submit(DeleteTopic("t")) or True)
    rounds(store)


def test_what_cannot_be_read_is_no_damage(store, io, caplog):
    log = filled(store)
    io.fail("pread", path=".log")
    rounds(store)
    assert log.damage is None
    assert any("Input/output error" in one.getMessage() for one in caplog.records)


def test_a_log_that_cannot_be_opened_does_not_hold_up_the_others(store, monkeypatch, caplog):
    filled(store, "bad")
    filled(store, "good")
    running, read = store.writer.scrub, []

    def opened(topic, partition):
        if topic == "bad":
            raise CorruptionError("bad-0", 0, "the partition's directory is missing")
        return store.open_log(topic, partition)

    monkeypatch.setattr(scrub, "ROUNDS_OF_A_PASS", 1)
    monkeypatch.setattr(running, "_log", opened)
    monkeypatch.setattr(running, "_read", lambda segment, size_bytes: read.append(segment.base_offset))
    running._round()
    assert sorted(read) == [one.base_offset for one in sealed(store, "good")]
    assert "the partition's directory is missing" in caplog.text


def test_without_a_rate_there_is_no_thread(tmp_path):
    with contextlib.closing(Store.open(tmp_path / "db")) as opened:
        filled(opened)
        assert not opened.writer.scrub.background.stop()
