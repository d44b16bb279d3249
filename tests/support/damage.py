"""A small database to be damaged, the ways to damage it, and what is left of it afterwards."""

import os
import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import logdb
from logdb.store import reserve
from support.power_cut import die

PARTITIONS = 2
CONFIG = {"segment.bytes": 1200, "index.interval.bytes": 200, "retention.ms": 1_000_000_000}
BATCHES = 8
BATCH_RECORDS = 5
NOW = 1_700_000_000_000

Content = dict[tuple[str, int], list[tuple[Any, ...]]]


def build(path: Path, **config: Any) -> Content:
    """A closed database: two partitions of two segments and two leader epochs each; returns its records."""
    db = logdb.open(path)
    db.create_topic("t", partitions=PARTITIONS, config=CONFIG | config)
    append(db, 0, BATCHES // 2)
    db.flush()
    die(db)  # so that there are two epochs
    with logdb.open(path) as db:
        append(db, BATCHES // 2, BATCHES)
    for partition in range(PARTITIONS):
        assert len(logs(path, partition)) == 2
    return content(path)


def append(db: logdb.Database, first: int, stop: int) -> None:
    for partition in range(PARTITIONS):
        log = db.log("t", partition)
        for batch in range(first, stop):
            rows = range(batch * BATCH_RECORDS, (batch + 1) * BATCH_RECORDS)
            values = [b"value %d of %d " % (row, partition) * 2 for row in rows]
            log.append_many(values, [b"key %d" % row for row in rows], timestamps_ms=[NOW + row for row in rows])


def logs(path: Path, partition: int) -> list[Path]:
    return sorted((path / f"t-{partition}").glob("*.log"))


def content(path: Path, mode: str = "r") -> Content:
    """All records; raises what reading raises."""
    found = {}
    with logdb.open(path, mode=mode) as db:
        for topic in db.topics():
            for partition in range(topic.partition_count):
                log = db.log(topic.name, partition)
                found[topic.name, partition] = [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in log.read(log.start_offset)]
    return found


def files(path: Path) -> list[Path]:
    """Every file that holds data."""
    return sorted(file for file in path.rglob("*") if file.is_file() and file.name not in ("lock.mdb", reserve.FILE_NAME))


def snapshot(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in files(path)}


def copy(path: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(path, to))


# ---------------------------------------------------------------- damage


def flip(file: Path, position: int, mask: int = 0x10) -> None:
    with open(file, "r+b") as opened:
        opened.seek(position)
        byte = opened.read(1)[0]
        opened.seek(position)
        opened.write(bytes([byte ^ mask]))


def flip_page_count(file: Path, bit: int) -> None:
    """Flip a bit of the number of the last page in the current meta page of a ``data.mdb``.

    Source: LMDB 0.9, ``MDB_meta``: ``mm_last_pg``, ``mm_txnid``.
    """
    at = [page * os.sysconf("SC_PAGE_SIZE") + 136 for page in (0, 1)]
    data = file.read_bytes()
    current = max(at, key=lambda position: int.from_bytes(data[position + 8 : position + 16], sys.byteorder))
    (count,) = struct.unpack_from("=Q", data, current)
    overwrite(file, current, struct.pack("=Q", count ^ (1 << bit)))


def overwrite(file: Path, position: int, data: bytes) -> None:
    with open(file, "r+b") as opened:
        opened.seek(position)
        opened.write(data)


def batches(data: bytes) -> Iterator[tuple[int, int]]:
    """Position and size of the batches that lie back to back, by their lengths."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
        yield at, size
        at += size
