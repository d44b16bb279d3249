"""The tables that ``streams.join_latest`` looks keys up in: each is on the disk of its executor and follows its topic.

    <store>/<hash of the location>/<number>.lock     locked by the Python worker that uses the slot
                                   <number>/         the slot: views of tables, one for each topic (``db.table``)

An executor has as many slots as Python workers at a time.  Spark ends a worker that has been idle for a minute.  The next worker takes
over the slot and reads only newer records.  The default store is in a local directory of Spark, which is deleted with the executor.

Threading: any thread.
"""

import fcntl
import hashlib
import itertools
import os
import tempfile
import threading
from dataclasses import dataclass

import logdb
from logdb.client.table.table import Table
from logdb.client.table.view import TopicViews
from logdb.io import IO
from logdb.threads import renewed
from logdb_spark_source.executors import open_in_task
from logdb_spark_source.location import Location

_LOCAL_DIRECTORIES = "SPARK_LOCAL_DIRS"  # Spark sets it for its Python workers


@dataclass
class _Slot:
    """A slot, and the views in it.  ``database``: the handle that the views read, replaced when ``Location.open`` replaces it."""

    path: str
    pid: int
    database: logdb.Database
    views: TopicViews


_lock = renewed(threading.Lock())
_slots: dict[tuple[Location, str | None], _Slot] = {}


def table_of(place: Location, topic: str, store: str | None) -> Table:
    """The table of a topic in the slot of this process.

    Args:
        store: The directory of the slots; None: in a local directory of Spark.

    Raises:
        NotADatabase, AuthenticationFailed, ServerUnavailable: as ``open_in_task``.
        UnknownTopic: at the first look-up, if the topic does not exist.
    """
    with _lock:
        database, known = open_in_task(place), _slots.get((place, store))
        if known is None or known.pid != os.getpid():
            path = _take_slot(store, place)
            known = _slots[place, store] = _Slot(path, os.getpid(), database, _views(database, path))
        elif known.database is not database:
            known.views.close()
            known.database, known.views = database, _views(database, known.path)
        return Table(database.session, known.views.of(topic), IO())


def _views(database: logdb.Database, path: str) -> TopicViews:
    def clean_offset(topic: str, partition: int) -> int:
        return database.describe_topic(topic).partitions[partition].clean_offset

    io = IO()
    return TopicViews(database.session, path, clean_offset=clean_offset, io=io, clock_ms=io.clock_ms)


def _take_slot(store: str | None, place: Location) -> str:
    """Lock the first free slot for the life of this process; returns its directory."""
    root = store or os.environ.get(_LOCAL_DIRECTORIES, "").split(",", maxsplit=1)[0] or tempfile.mkdtemp(prefix="logdb-tables-")
    base = os.path.join(root, "logdb-tables", hashlib.sha256(str(place).encode()).hexdigest()[:16])
    os.makedirs(base, mode=0o700, exist_ok=True)
    for number in itertools.count():
        lock = os.open(os.path.join(base, f"{number}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            path = os.path.join(base, str(number))
            os.makedirs(path, mode=0o700, exist_ok=True)
            return path
    raise AssertionError("count() has no end")
