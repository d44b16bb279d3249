"""Connectors for tests of the worker: they fail, block and count as a test wants."""

import ctypes
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from logdb import TopicPartition
from logdb_connect import (
    REQUIRED,
    ConfigDef,
    ConfigKey,
    RetriableError,
    SinkConnector,
    SinkTask,
    SourceConnector,
    SourceRecord,
    SourceTask,
)


class Counter(SourceTask):
    """Writes the numbers from its offset on."""

    def start(self, properties):
        self._topic, self._partition = properties["topic"], {"counter": properties["number"]}
        self._limit = int(properties["limit"])
        offset = self.context.offset(self._partition)
        self._next = 0 if offset is None else offset["next"]

    def poll(self):
        if self._next >= self._limit:
            self.context.wait(0.05)
            return None
        begin, self._next = self._next, min(self._next + 10, self._limit)
        return [
            SourceRecord(
                topic=self._topic,
                value=f"{self._partition['counter']}:{number}",
                source_partition=self._partition,
                source_offset={"next": number + 1},
            )
            for number in range(begin, self._next)
        ]


class CounterConnector(SourceConnector):
    config_def = ConfigDef(
        ConfigKey("topic", "STRING", REQUIRED, "Topic to write to.", "HIGH"),
        ConfigKey("limit", "LONG", 100, "Where to stop counting."),
        ConfigKey("counters", "INT", 1, "How many counters there are."),
    )
    task_class = Counter

    def start(self, properties):
        self._config = self.config_def.parse(properties)

    def task_configs(self, max_tasks):
        count = min(max_tasks, self._config["counters"])
        shared = {"topic": self._config["topic"], "limit": str(self._config["limit"])}
        return [{**shared, "number": str(number)} for number in range(count)]


class Blocking(SourceTask):
    """Never returns from ``poll``, whatever it is told."""

    released: ClassVar[threading.Event] = threading.Event()

    def poll(self):
        self.released.wait()


class BlockingConnector(SourceConnector):
    task_class = Blocking

    def task_configs(self, max_tasks):
        return [{}]


class BlockingStart(SourceConnector):
    task_class = Blocking

    def start(self, properties):
        Blocking.released.wait()

    def task_configs(self, max_tasks):
        return [{}]


class Scripted(SinkTask):
    """Keeps records; raises what the test puts into ``failures`` first."""

    kept: ClassVar[list[Any]] = []
    failures: ClassVar[list[Exception]] = []
    calls: ClassVar[list[str]] = []

    def put(self, records: Sequence[Any]) -> None:
        if records and self.failures:
            raise self.failures.pop(0)
        self.kept.extend(record.value for record in records)
        self.calls.append(f"put {len(records)}")

    def flush(self, offsets):
        self.calls.append(f"flush after {len(self.kept)}")


class ScriptedConnector(SinkConnector):
    task_class = Scripted

    def task_configs(self, max_tasks):
        return [{} for _ in range(max_tasks)]


class Slow(SinkTask):
    """Takes its time for each record."""

    def put(self, records):
        time.sleep(0.01 * len(records))


def retriable(count: int) -> list[Exception]:
    return [RetriableError("not now") for _ in range(count)]


class Watched(SinkTask):
    """Keeps records, and whether the group had an offset of their partition before; leaves the group in its first commit."""

    kept: ClassVar[list[tuple[Any, bool]]] = []
    leave: ClassVar[list[Any]] = []

    def put(self, records):
        for record in records:
            at = TopicPartition(record.original_topic, record.original_partition)
            self.kept.append((record.value, self.context.committed(at) is not None))

    def pre_commit(self, offsets):
        while self.leave:
            self.leave.pop()()
        return offsets


class WatchedConnector(ScriptedConnector):
    task_class = Watched


class Moving(SourceTask):
    """Counts its parts.  The task that has part 1 alone hangs at 5 with a record in hand, until another one has the part."""

    hangs: ClassVar[threading.Event] = threading.Event()
    released: ClassVar[threading.Event] = threading.Event()

    def start(self, properties):
        self._parts = properties["parts"].split(",")
        found = {part: self.context.offset({"part": part}) for part in self._parts}
        self._next = {part: 0 if offset is None else offset["next"] for part, offset in found.items()}

    def poll(self):
        if len(self._parts) == 2:
            self.released.set()
        if all(number >= 20 for number in self._next.values()):
            self.context.wait(0.05)
            return None
        return self._records()

    def _records(self):
        for part, number in self._next.items():
            if number < 20:
                if self._parts == ["1"] and number == 5:
                    self.hangs.set()
                    self.released.wait(20)
                self._next[part] = number + 1
                yield SourceRecord(
                    topic="moving", value=f"{part}:{number}", source_partition={"part": part}, source_offset={"next": number + 1}
                )


class MovingConnector(SourceConnector):
    task_class = Moving

    def task_configs(self, max_tasks):
        return [{"parts": "0"}, {"parts": "1"}] if max_tasks > 1 else [{"parts": "0,1"}]


class Crashing(Counter):
    """Counts to 50, then does what ``how`` says, unless the file ``once`` is there; it makes the file first."""

    def start(self, properties):
        super().start(properties)
        self._how, self._once = properties["how"], properties["once"]

    def poll(self):
        if self._next >= 50 and not os.path.exists(self._once):
            with open(self._once, "w", encoding="utf-8"):
                pass
            CRASHES[self._how]()
        return super().poll()


def _recurse() -> None:
    """C code that keeps the interpreter for hours: no other thread runs."""
    re.match("(a*)*b", "a" * 64)


def _fork_and_exit() -> None:
    """A process that was forked has the pipes of this one, and outlives it."""
    if os.fork() == 0:
        time.sleep(600)
    os._exit(7)


CRASHES: dict[str, Callable[[], object]] = {
    "segfault": lambda: ctypes.string_at(0),
    "exit": lambda: os._exit(7),
    "fork": _fork_and_exit,
    "error": lambda: 1 / 0,
    "block": lambda: threading.Event().wait(),
    "endless": _recurse,
}


class CrashingConnector(CounterConnector):
    config_def = CounterConnector.config_def + ConfigDef(
        ConfigKey("how", "STRING", REQUIRED, "One of CRASHES."),
        ConfigKey("once", "STRING", REQUIRED, "A file."),
    )
    task_class = Crashing

    def task_configs(self, max_tasks):
        return [{**one, "how": self._config["how"], "once": self._config["once"]} for one in super().task_configs(max_tasks)]


class CrashingSink(SinkTask):
    """Writes records into a file.  While the file ``armed`` is there, ``poison`` kills it by a signal, and ``stuck`` keeps C code busy."""

    def start(self, properties):
        self._armed, self._file = properties["armed"], properties["file"]

    def put(self, records):
        for record in records:
            if record.value == "poison" and os.path.exists(self._armed):
                os.kill(os.getpid(), signal.SIGKILL)
            if record.value == "stuck" and os.path.exists(self._armed):
                os.unlink(self._armed)
                _recurse()
        with open(self._file, "a", encoding="utf-8") as file:
            file.writelines(f"{record.value}\n" for record in records)


class CrashingSinkConnector(SinkConnector):
    task_class = CrashingSink

    def start(self, properties):
        self._given = {name: properties[name] for name in ("armed", "file")}

    def task_configs(self, max_tasks):
        return [self._given]


class Ending(Counter):
    """Counts in polls of ten.  Commits after each number that ends in 4, aborts after 19, and commits after the poll that has 39."""

    def start(self, properties):
        super().start(properties)
        self.contexts.append(self.context.transaction_context)

    contexts: ClassVar[list[Any]] = []

    def poll(self):
        records = super().poll()
        transactions = self.context.transaction_context
        for record in records or ():
            number = record.source_offset["next"] - 1
            if transactions is not None and number % 10 == 4:
                transactions.commit_transaction(record)
            if transactions is not None and number == 19:
                transactions.abort_transaction(record)
            if transactions is not None and number == 39:
                transactions.commit_transaction()
        return records


class EndingConnector(CounterConnector):
    task_class = Ending

    def can_define_transaction_boundaries(self, properties):
        return properties.get("able", "yes") == "yes"
