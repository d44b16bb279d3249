"""What a checkpoint that fails leaves behind."""

import gc
import os

import pytest

import logdb
from logdb.errors import DiskFull
from logdb.segment.segment import Segment


@pytest.fixture
def no_garbage_collection():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def deleted_files(path):
    """The open files of this process below a directory that have no name any more."""
    names = []
    for number in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:  # of the list itself
            continue
    return [name for name in names if name.startswith(str(path)) and name.endswith("(deleted)")]


@pytest.mark.local
def test_after_a_seal_that_failed_a_deletion_frees_its_room(tmp_path, monkeypatch, no_garbage_collection):
    """A full disk: the room comes back at once, and not when Python collects its garbage."""

    def full(segment):
        raise DiskFull(segment.path, 240, "no space")

    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"segment.bytes": 20_000})
        log = db.log("t")
        with monkeypatch.context() as patch:
            patch.setattr(Segment, "seal", full)
            log.append_many([b"x" * 100] * 2_000)
            db.flush()
            kept = db._store.open_log("t")
            assert len(kept.segments) > 5
            with pytest.raises(DiskFull):
                db._store.checkpoint([kept])
            db.delete_records("t", 0, log.end_offset - 1)
        assert deleted_files(tmp_path) == []
