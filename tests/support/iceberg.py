"""Iceberg tables of topics beside their logs."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

from pyiceberg.table import StaticTable

from logdb.codec.parquet import LOG_COLUMNS


def location(db, topic="t"):
    """The current metadata of a topic's table, as a reader of the directory finds it."""
    parent = os.path.join(db.path, "iceberg", topic, "metadata")
    with open(os.path.join(parent, "version-hint.text")) as file:
        return os.path.join(parent, f"v{file.read()}.metadata.json")


def table(db, topic="t"):
    return StaticTable.from_metadata(location(db, topic))


def rows(batch):
    """Rows of a table of mode key_value by partition and offset; each of them once."""
    found = {}
    for row in batch.to_pylist():
        place = row["partition"], row["offset"]
        assert place not in found, place
        headers = [(one["key"], one["value"]) for one in row["headers"] or ()] or None  # pyiceberg makes an empty list of a null
        found[place] = row["topic"], row["key"], row["value"], row["timestamp"], row["timestampType"], headers
    return found


def logged(db, topic="t", ends=None):
    """The same of the logs, up to ``ends``."""
    found = {}
    for partition in range(db.describe_topic(topic).partition_count):
        log = db.log(topic, partition)
        end = None if ends is None else ends[partition]
        if end is not None and end <= log.start_offset:
            continue
        for row in log.read_arrow(end_offset=end, columns=LOG_COLUMNS, isolation_level="read_committed").read_all().to_pylist():
            headers = [(one["key"], one["value"]) for one in row["headers"]] or None
            found[partition, row["offset"]] = topic, row["key"], row["value"], row["timestamp"], row["timestamp_type"], headers
    return found


_FORKING = """
import io, os, signal, sys, traceback
import logdb
from logdb_iceberg import files, tables

tables.SNAPSHOT_COUNT = 3  # so that files go with each commit

def step(function, last, steps=[0]):
    def call(*arguments, **options):
        steps[0] += 1
        if steps[0] == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return call

def update(path, last):
    with logdb.open(path, batch_size=300) as db:
        db.make_parquet("t")
        for name in ("fsync", "link", "replace", "unlink"):
            setattr(os, name, step(getattr(os, name), last))
        files._SyncedFile.write = step(io.FileIO.write, last)
        db._store.writer.tables._update(db._store.catalogue.topic("t"))
        os._exit(0)

for line in sys.stdin:  # each in a child: to import all of it takes seconds
    path, last = line.rstrip().split(chr(9))
    if (child := os.fork()) == 0:
        try:
            update(path, int(last))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@contextlib.contextmanager
def killed_commits() -> Iterator[Callable[[str, int], bool]]:
    """What updates the table in a process that dies at a step; it returns whether the process came so far."""
    with subprocess.Popen([sys.executable, "-c", _FORKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:

        def killed(path: str, step: int) -> bool:
            child.stdin.write(f"{path}\t{step}\n")
            child.stdin.flush()
            status = int(child.stdout.readline())
            assert status in (0, -9)
            return status == -9

        yield killed
        child.stdin.close()
        assert child.wait(60) == 0
