"""Something to copy, by a snapshot or a backup, and whether a copy is sound."""

import os

import logdb


def fill(db: logdb.Database, first: int, stop: int) -> None:
    """Records [first, stop) of two partitions; with segments of 2 KiB a batch of ten is about half a segment."""
    for partition in (0, 1):
        for begin in range(first, stop, 10):
            rows = range(begin, min(begin + 10, stop))
            db.log("t", partition).append_many([b"value %d " % row * 9 for row in rows], timestamps_ms=rows)


def is_sound(path: str | os.PathLike[str]) -> bool:
    """Nothing is wrong with a directory, nor noteworthy."""
    report = logdb.verify(path)
    assert report.ok, report.problems
    assert not report.notes
    return True
