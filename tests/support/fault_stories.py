"""Programs that use a database while libc fails under them, and what they leave looked at.  A server of processes.

``python fault_stories.py`` imports logdb once, then forks a process for each line of JSON that it reads:

    {"work": "prepare" | "run" | "check", "story", "level", "root", "report", "plan", "limit_s"}

"prepare" makes what a story begins with in ``root``, and "run" tells the story, with the plan for faulty_libc.c; both
append notes for the ledger to ``report``.  "check" looks at what is there afterwards, and appends what is wrong.
The server answers with how the process ended: a line of JSON, {"code": …, "hung": bool}.

A story catches what ``LogdbError`` is, and nothing else: what goes past that ends it, with its traceback in the report.
It tries three times, as an application does, then goes on without.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import pathlib
import pkgutil
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import logdb
from logdb.errors import CloseIncomplete, LogdbError, SyncFailed, TargetNotEmpty, TopicExists, UnknownTopic
from support.fault_ledger import Ledger, key, value
from support.faulty_io import FaultyIO

T = TypeVar("T")

TRIES = 3
CONFIG = {"segment.bytes": 1_500, "index.interval.bytes": 100, "flush.ms": 50}
PRODUCER = {"delivery_timeout_ms": 2_000, "retry_backoff_ms": 10, "max_block_ms": 2_000}


class GaveUp(Exception):
    """What the rest of a story needs is not to be had."""


class Told:
    """A story that is being told: its directory, its ledger, and what waits to be written."""

    def __init__(self, root: str, report: str, level: str, notes: list[str]) -> None:
        self.root, self.level = root, level
        self.ledger = Ledger.of(notes)
        self._report = os.open(report, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
        self._next = {stream: max(numbers) + 1 for stream, numbers in self.ledger.tried.items()}
        self._waiting: list[tuple[str, int, str, int, int]] = []
        self._lock = threading.Lock()
        self._open: logdb.Database | None = None

    def path(self, name: str) -> str:
        return os.path.join(self.root, name)

    def note(self, *note: Any) -> None:
        with self._lock:
            self.ledger.take(list(note))
            self.say("note", list(note))

    def say(self, what: str, content: Any) -> None:
        os.write(self._report, f"{what} {json.dumps(content)}\n".encode())

    # ------------------------------------------------------------ what is tried

    def attempt(self, what: str, function: Callable[[], T], *, done: type[LogdbError] | tuple[type[LogdbError], ...] = ()) -> T | None:
        """Its result; None where it failed each time, or ``done`` says that an earlier try had come so far."""
        for number in range(TRIES):
            try:
                return function()
            except LogdbError as error:
                if number and isinstance(error, done):
                    return None
                self.failed(what, error)
        return None

    def failed(self, what: str, error: LogdbError) -> None:
        self.say("error", [what, type(error).__name__, str(error)])

    def open(self, name: str = "db", **options: Any) -> logdb.Database:
        options = {"linger_ms": 1, "durability": self.level, **options}
        db = self.attempt("open", lambda: logdb.open(self.path(name), **options))
        if db is None:
            raise GaveUp("open")
        self._open = db
        self.say("opened", name)
        return db

    def create(self, db: logdb.Database, name: str, partitions: int = 1, **config: Any) -> None:
        self.note("topic", name, None, partitions)
        self.attempt("create_topic", lambda: db.create_topic(name, partitions=partitions, config={**CONFIG, **config}), done=TopicExists)
        with contextlib.suppress(LogdbError):
            self.note("topic", name, name in {topic.name for topic in db.topics()}, partitions)

    def log(self, db: logdb.Database, topic: str, partition: int = 0) -> logdb.Log:
        log = self.attempt("log", lambda: db.log(topic, partition))
        if log is None:
            raise GaveUp("log")
        return log

    def _numbers(self, log: logdb.Log, writer: str, count: int) -> tuple[str, int, str, int, int]:
        stream = (log.topic, log.partition, writer)
        first = self._next.get(stream, 0)
        self._next[stream] = first + count
        self.note("tried", *stream, first, first + count)
        return (*stream, first, first + count)

    def append_many(self, log: logdb.Log, count: int, *, writer: str = "w", level: str | None = None, keyed: bool = False) -> bool:
        *stream, first, stop = self._numbers(log, writer, count)
        values = [value(writer, number) for number in range(first, stop)]
        keys = [key(number) for number in range(first, stop)] if keyed else None
        try:
            log.append_many(values, keys, durability=level)
        except LogdbError as error:
            self.failed("append_many", error)
            kept = len(error.offsets or ())
            self._kept((*stream, first, first + kept), stop)
            return False
        self.note("acked", *stream, first, stop)
        return True

    def append(self, log: logdb.Log, *, writer: str = "w", level: str | None = None) -> bool:
        *stream, first, stop = self._numbers(log, writer, 1)
        try:
            log.append(value(writer, first), durability=level)
        except LogdbError as error:
            self.failed("append", error)
            self._kept((*stream, first, first + len(error.offsets or ())), stop)
            return False
        if (level or self.level) == "fsync":
            self.note("acked", *stream, first, stop)
        else:
            self._waiting.append((*stream, first, stop))
        return True

    def _kept(self, kept: tuple[str, int, str, int, int], stop: int) -> None:
        if kept[3] < kept[4]:
            self._waiting.append(kept)
        if kept[4] < stop:
            self.note("refused", *kept[:3], kept[4], stop)

    def flush(self, log: logdb.Log, *, sync: bool = True) -> None:
        waiting = [kept for kept in self._waiting if kept[:2] == (log.topic, log.partition)]
        if self.attempt("flush", lambda: log.flush(sync=sync) is None):
            self._settled(waiting)

    def _settled(self, waiting: list[tuple[str, int, str, int, int]]) -> None:
        for kept in waiting:
            self._waiting.remove(kept)
            self.note("acked", *kept)

    def append_some(self, log: logdb.Log, *, writer: str = "w") -> None:
        """By each way and at each level."""
        self.append_many(log, 7, writer=writer)
        for level in ("os", "interval", "fsync"):
            self.append(log, writer=writer, level=level)
        self.append_many(log, 9, writer=writer, level="fsync")
        self.append(log, writer=writer)
        self.flush(log, sync=False)
        self.append(log, writer=writer)
        self.flush(log)

    def copy(self, how: str, names: list[str], function: Callable[[], object]) -> None:
        """Make a snapshot or a backup of all that was acknowledged."""
        if self.attempt(how, function, done=TargetNotEmpty) is not None:
            self.note("copied", how, [self.path(name) for name in names])

    # ------------------------------------------------------------ the end

    def look(self, db: logdb.Database) -> None:
        """See that the records read now are those that were appended."""
        if problems := self.attempt("read", lambda: self.ledger.problems(db, settled=False)):
            self.say("wrong", problems)

    def probe(self, db: logdb.Database, topic: str = "t") -> None:
        """Whether records are taken now, at level fsync: the last word about a failed sync."""
        self.say("probe", any(self._probe_once(db, topic) for _ in range(TRIES)))

    def _probe_once(self, db: logdb.Database, topic: str) -> bool:
        log = self.attempt("log", lambda: db.log(topic))
        return log is not None and self.append_many(log, 1, level="fsync", keyed=topic in self.ledger.compacted)

    def close(self, db: logdb.Database) -> None:
        waiting, self._open = list(self._waiting), None
        try:
            db.close()
        except LogdbError as error:
            self.failed("close", error)
            if not isinstance(error, CloseIncomplete | SyncFailed):
                self.say("wrong", [f"close raised {type(error).__name__}: {error}"])
            self._waiting.clear()
            return
        self._settled(waiting)

    def finish(self, db: logdb.Database, topic: str = "t") -> None:
        self.look(db)
        self.probe(db, topic)
        self.close(db)
        self.leave_nothing()
        db = self.open()
        self.look(db)
        self.probe(db, topic)
        self.close(db)

    def leave_nothing(self) -> None:
        """See that a database which was closed left neither descriptors nor threads."""
        if self._open is not None:
            self.close(self._open)
        gc.collect()
        left = []
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                left.append(os.readlink(f"/proc/self/fd/{name}"))
        left = [path for path in left if path.startswith(self.root)]
        threads = {thread.name for thread in threading.enumerate()} - {"logdb-departures"}  # the process's, which ends when it is idle
        left += [name for name in threads if name.startswith("logdb")]
        if left:
            self.say("wrong", [f"left behind after close: {left}"])


# ---------------------------------------------------------------- the stories


def nothing(told: Told) -> None:
    """Begin in an empty directory."""


def some_segments(told: Told) -> None:
    db = told.open()
    told.create(db, "t", 2)
    for partition in range(2):
        for _ in range(2):
            told.append_some(told.log(db, "t", partition))
    told.close(db)


def not_closed(told: Told) -> None:
    """What a process leaves that was killed in the middle of a write."""
    some_segments(told)
    db = told.open()
    log = told.log(db, "t")
    with told.attempt("transaction", lambda: db.transaction("left")) as transaction:
        transaction.send("t", value("tx", 0), partition=1)
        told.note("tried", "t", 1, "tx", 0, 1)
        transaction.flush()
        told.append_some(log)
        told.append_some(log)
        with open(log.segments[-1].path, "ab") as file:
            file.write(bytes(40) + b"torn")
        os._exit(0)


def after_failed_sync(told: Told) -> None:
    """What a process leaves whose last sync failed: the page cache is not to be believed."""
    some_segments(told)
    io = FaultyIO()
    db = told.open(io=io)
    log = told.log(db, "t")
    told.append_some(log)
    io.fail("fdatasync", path="t-0")
    told.append_many(log, 3, level="fsync")
    os._exit(0)


def keyed_segments(told: Told) -> None:
    db = told.open()
    told.note("compacts", "k")
    told.create(db, "k", **{"cleanup.policy": "compact"})
    told.create(db, "t")
    log = told.log(db, "k")
    for _ in range(6):
        told.append_many(log, 12, keyed=True)
    told.close(db)


def with_backups(told: Told) -> None:
    some_segments(told)
    db = told.open()
    told.copy("backup", ["full"], lambda: db.backup(told.path("full")))
    told.append_some(told.log(db, "t"))
    told.copy("backup", ["full", "more"], lambda: db.backup(told.path("more"), base=told.path("full")))
    told.close(db)


def damaged(told: Told) -> None:
    some_segments(told)
    index = max(pathlib.Path(told.path("db/t-0")).glob("*.index"))
    index.write_bytes(index.read_bytes()[:-3])
    os.unlink(told.path("db/t-0/leader-epoch-checkpoint"))
    with open(told.path("db/catalogue/data.mdb"), "r+b") as file:
        file.write(bytes(9_000))


def fresh(told: Told) -> None:
    db = told.open()
    told.create(db, "t", 2)
    told.create(db, "u")
    log = told.log(db, "t")
    told.append_some(log)
    told.append_some(told.log(db, "t", 1))
    told.attempt("alter_topic", lambda: db.alter_topic("t", partitions=3, config={"segment.bytes": 1_200}))
    told.ledger.topics["u"] = None
    told.note("topic", "u", None, 1)
    if told.attempt("delete_topic", lambda: db.delete_topic("u") is None, done=UnknownTopic):
        told.note("topic", "u", False, 1)
    told.attempt("checkpoint", lambda: db._store.checkpoint([log]))
    told.append_some(log)
    told.finish(db)


def reopened(told: Told) -> None:
    db = told.open()
    told.look(db)
    told.append_some(told.log(db, "t"))
    told.close(db)
    told.leave_nothing()
    told.finish(told.open())


def recovered(told: Told) -> None:
    db = told.open()
    told.look(db)
    told.append_some(told.log(db, "t"))
    told.finish(db)


def read_only(told: Told) -> None:
    with told.open(mode="r") as db:
        told.look(db)
        if (report := told.attempt("verify", db.verify)) is not None and not report.ok:
            told.say("verified", [str(problem) for problem in report.problems])
    told.leave_nothing()


def threads(told: Told) -> None:
    db = told.open()
    log = told.log(db, "t")

    def write(writer: str) -> None:
        for _ in range(4):
            told.append(log, writer=writer, level="fsync")
            told.append_many(log, 5, writer=writer)

    writers = [threading.Thread(target=write, args=(f"thread-{number}",)) for number in range(3)]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    told.finish(db)


def producers(told: Told) -> None:
    db = told.open()
    log = told.log(db, "t", 1)
    producer = told.attempt("producer", lambda: db.producer(**PRODUCER))
    if producer is None:
        raise GaveUp("producer")
    for _ in range(3):
        _send(told, log, producer)
    told.attempt("close producer", producer.close)
    told.attempt("checkpoint", lambda: db._store.checkpoint([log]))
    told.finish(db)


def _send(told: Told, log: logdb.Log, producer: logdb.Producer) -> None:
    *stream, first, stop = told._numbers(log, "p", 12)
    futures = {}
    for number in range(first, stop):
        futures[number] = told.attempt("send", partial(producer.send, "t", value("p", number), partition=1))
    told.attempt("flush", producer.flush)
    for number, future in futures.items():
        if future is not None and future.done() and future.exception() is None:
            told.note("acked", *stream, number, number + 1)
        elif future is not None and future.done() and not isinstance(future.exception(), LogdbError):
            told.say("wrong", [f"a future has {future.exception()!r}"])


def topics_of_transactions(told: Told) -> None:
    db = told.open()
    for name in ("a", "b", "in", "t"):
        told.create(db, name)
    told.append_many(told.log(db, "in"), 30)
    transact(told, db, 1, commit=True)
    told.close(db)


class Unwanted(Exception):
    pass


def transact(told: Told, db: logdb.Database, number: int, *, commit: bool) -> None:
    told.note("transaction", number, "begun")
    try:
        with db.consumer("in", group_id="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
            consumer.poll(timeout_ms=100, max_records=1)
            with db.transaction("etl", **PRODUCER) as transaction:
                for topic in ("a", "b"):
                    told.note("tried", topic, 0, "tx", number, number + 1)
                    transaction.send(topic, value("tx", number))
                offsets = {logdb.TopicPartition("in", 0): logdb.OffsetAndMetadata(number)}
                transaction._begun().send_offsets_to_transaction(offsets, consumer.group_metadata())
                if not commit:
                    raise Unwanted
            told.note("transaction", number, "committed")
    except Unwanted:
        told.note("transaction", number, "aborted")
    except LogdbError as error:
        told.failed("transaction", error)


def transactions(told: Told) -> None:
    db = told.open()
    for number in range(2, 6):
        transact(told, db, number, commit=number != 3)
    told.finish(db)


def groups(told: Told) -> None:
    db = told.open()
    for _ in range(2):
        _consume(told, db)
    told.finish(db)


def _consume(told: Told, db: logdb.Database) -> None:
    options = {"group_id": "readers", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = told.attempt("consumer", lambda: db.consumer("t", **options))
    if consumer is None:
        raise GaveUp("consumer")
    for _ in range(3):
        told.attempt("poll", lambda: consumer.poll(timeout_ms=20, max_records=5))
        positions = told.attempt("positions", consumer.positions) or {}
        if not positions:
            continue
        offset = max(position.offset for position in positions.values())
        told.note("offset", "readers", "tried", offset)
        if told.attempt("commit", lambda: consumer.commit() is None):
            told.note("offset", "readers", "acked", offset)
    told.attempt("close consumer", lambda: consumer.close(commit=False))


def compaction(told: Told) -> None:
    db = told.open()
    log = told.log(db, "k")
    for _ in range(2):
        told.attempt("compact", lambda: db.compact("k"))
        told.look(db)
        for _ in range(3):
            told.append_many(log, 8, keyed=True)
    told.finish(db, "k")


def retention(told: Told) -> None:
    db = told.open()
    log = told.log(db, "t")
    for below in (5, 13, 20):
        offsets = told.attempt("read", lambda: [(record.offset, record.value) for record in log.read(log.start_offset)])
        if not offsets:
            continue
        number = max(int(stored.split()[1]) for offset, stored in offsets if offset < below) + 1
        told.note("deletes", "t", 0, number)
        if told.attempt("delete_records", partial(db.delete_records, "t", 0, below)) is not None:
            told.note("deleted", "t", 0, number)
        told.append_some(log)
    for partition in range(2):
        told.note("deletes", "t", partition, 1 << 30)
    told.attempt("alter_topic", lambda: db.alter_topic("t", config={"retention.bytes": 1_500}))
    told.attempt("retention", db._store.writer.retention.enforce)
    told.finish(db)


def snapshot(told: Told) -> None:
    db = told.open()
    told.append_some(told.log(db, "t"))
    told.copy("snapshot", ["snapshot"], lambda: db.snapshot(told.path("snapshot")))
    told.append_some(told.log(db, "t"))
    told.finish(db)


def backup(told: Told) -> None:
    db = told.open()
    told.append_some(told.log(db, "t"))
    told.copy("backup", ["full", "last"], lambda: db.backup(told.path("last"), base=told.path("full")))
    told.copy("backup", ["whole"], lambda: db.backup(told.path("whole")))
    told.finish(db)


def restore(told: Told) -> None:
    told.attempt("restore", lambda: logdb.restore([told.path("full"), told.path("more")], told.path("restored")), done=TargetNotEmpty)


def table(told: Told) -> None:
    for _ in range(2):
        db = told.open()
        mapping = told.attempt("table", partial(db.table, "k"))
        if mapping is not None:
            _use(told, told.log(db, "k"), mapping)
        told.look(db)
        told.close(db)
        told.leave_nothing()


def _use(told: Told, log: logdb.Log, mapping: logdb.Table) -> None:
    for _ in range(3):
        told.append_many(log, 8, keyed=True)
        seen = told.attempt("table", lambda: dict(mapping.items()))
        replayed = told.attempt("read", lambda: latest(log))
        if None not in (seen, replayed) and seen != replayed:
            told.say("wrong", [f"the table has {seen}, the log {replayed}"])


def latest(log: logdb.Log) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in log.read(log.start_offset)}


def parquet(told: Told) -> None:
    db = told.open()
    told.attempt("make_parquet", lambda: db.make_parquet("t"))
    told.append_some(told.log(db, "t"))
    told.attempt("make_parquet", lambda: db.make_parquet("t"))
    told.attempt("topic_tiers", lambda: db.topic_tiers("t"))
    told.note("deletes", "t", 0, 1 << 30)
    told.attempt("delete_records", lambda: db.delete_records("t", 0, 12))
    told.finish(db)


def repair(told: Told) -> None:
    told.attempt("repair", lambda: logdb.repair(told.path("db"), execute=True))


class Story(NamedTuple):
    prepare: Callable[[Told], None]
    run: Callable[[Told], None]


STORIES = {
    "fresh": Story(nothing, fresh),
    "reopened": Story(some_segments, reopened),
    "recovered": Story(not_closed, recovered),
    "distrusted": Story(after_failed_sync, recovered),
    "read_only": Story(not_closed, read_only),
    "threads": Story(some_segments, threads),
    "producers": Story(some_segments, producers),
    "transactions": Story(topics_of_transactions, transactions),
    "groups": Story(some_segments, groups),
    "compaction": Story(keyed_segments, compaction),
    "retention": Story(some_segments, retention),
    "snapshot": Story(some_segments, snapshot),
    "backup": Story(with_backups, backup),
    "restore": Story(with_backups, restore),
    "table": Story(keyed_segments, table),
    "parquet": Story(some_segments, parquet),
    "repair": Story(damaged, repair),
}

# ---------------------------------------------------------------- afterwards


def check(told: Told, story: str) -> list[str]:
    """What is wrong with what a process left, with no fault any more."""
    found = []
    path = told.path("db")
    if story == "repair":
        logdb.repair(path, execute=True)
    if story in {"restore", "snapshot"}:
        _make_again(told, story)
        name = {"restore": "restored", "snapshot": "snapshot"}[story]
        found += _problems_of_copy(told, told.path(name), told.ledger.copies[-1][2] if told.ledger.copies else {})
    with logdb.open(path) as db:
        found += told.ledger.problems(db)
        found += [line for line in db.reports if "corrupt" in line or "orphan" in line]
        if db.topics():
            name = db.topics()[0].name
            compacted = name in told.ledger.compacted
            db.log(name).append_many([b"after 0 "], [b"after"] if compacted else None, durability="fsync")
        if "k" in told.ledger.partitions and dict(db.table("k").items()) != latest(db.log("k")):
            found.append("the table has not what the log has")
    found += [f"verify: {problem}" for problem in logdb.verify(path).problems]
    left = [str(file) for file in pathlib.Path(path).rglob("*") if file.suffix in {".tmp", ".orphan", ".torn", ".damaged", ".cleaned"}]
    if left and story != "repair":
        found.append(f"files are left: {left}")
    for number, (how, paths, acked) in enumerate(told.ledger.copies):
        place = paths[0] if how == "snapshot" else told.path(f"of-{number}")
        if how != "snapshot":
            logdb.restore(paths, place)
        found += _problems_of_copy(told, place, acked)
    return found


def _make_again(told: Told, story: str) -> None:
    """What was not finished is begun anew."""
    with contextlib.suppress(TargetNotEmpty):
        if story == "restore":
            logdb.restore([told.path("full"), told.path("more")], told.path("restored"))
        else:
            with logdb.open(told.path("db")) as db:
                db.snapshot(told.path("snapshot"))


def _problems_of_copy(told: Told, path: str, acked: dict[Any, set[int]]) -> list[str]:
    with logdb.open(path, mode="r") as db:
        found = told.ledger.problems(db, acked)
    found += [f"verify: {problem}" for problem in logdb.verify(path).problems]
    return [f"{os.path.basename(path)}: {problem}" for problem in found]


# ---------------------------------------------------------------- a process for each


def work(request: dict[str, Any]) -> None:
    """In the process that was forked for it."""
    with open(request["report"] + ".err", "w", buffering=1) as err:
        os.dup2(err.fileno(), 1)
        os.dup2(err.fileno(), 2)
    faulthandler.enable()
    faulthandler.dump_traceback_later(request["limit_s"] * 0.8)
    told = Told(request["root"], request["report"], request["level"], request["notes"])

    def unexpected(error: BaseException | None) -> None:
        told.say("wrong", ["".join(traceback.format_exception(error))])

    threading.excepthook = lambda arguments: unexpected(arguments.exc_value)
    sys.unraisablehook = lambda arguments: unexpected(arguments.exc_value)
    if request["plan"]:
        ctypes.CDLL(os.environ["LD_PRELOAD"]).faulty_libc_plan(request["plan"].encode())
    story = STORIES[request["story"]]
    try:
        match request["work"]:
            case "prepare":
                story.prepare(told)
            case "run":
                story.run(told)
            case _ if problems := check(told, request["story"]):
                told.say("wrong", problems)
        told.say("end", None)
    except GaveUp as error:
        told.leave_nothing()
        told.say("end", str(error))
    except BaseException as error:  # noqa: BLE001 -- told in the report
        unexpected(error)


def serve() -> None:
    """Fork for each line; one at a time.  What a story imports late is imported here, once."""
    for name in ("log", "store", "coordinator", "broker", "client"):
        package = importlib.import_module(f"logdb.{name}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            work(request)
            os._exit(0)
        ended = select.poll()
        ended.register(handle := os.pidfd_open(pid), select.POLLIN)
        hung = not ended.poll(request["limit_s"] * 1000)
        os.close(handle)
        if hung:
            os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        print(json.dumps({"code": os.waitstatus_to_exitcode(status), "hung": hung}), flush=True)


if __name__ == "__main__":
    serve()
