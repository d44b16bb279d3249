import ast
import functools
import os
import threading
import weakref
from pathlib import Path

import pytest

from logdb import threads
from logdb.errors import Closed, ThreadUnavailable
from logdb.pools import Pool

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "src/logdb",
    "http_api/logdb_http_api",
    "kafka_api/logdb_kafka_api",
    "replication/logdb_replication",
    "spark_source/logdb_spark_source",
    "iceberg/logdb_iceberg",
)
SOURCES = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
PRIMITIVES = {"Lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore"}
PER_LOG = "one of many, and renewed by Log.forked where a child can meet it"
ELSEWHERE = {  # what is not renewed by itself, and why a child does not wait for it
    "src/logdb/threads.py": "the type of one",
    "http_api/logdb_http_api/door/file_ranges.py": "one of each answer; a child sends none",
    "src/logdb/disk.py": "one of each open file, renewed by FileCache.forked",
    "src/logdb/log/log.py": PER_LOG,
    "src/logdb/log/log_sync.py": PER_LOG,
    "src/logdb/log/readable.py": PER_LOG,
    "src/logdb/log/segment_writer.py": PER_LOG,
    "src/logdb/log/tail.py": PER_LOG,
    "src/logdb/log/transactions.py": PER_LOG,
    "src/logdb/log/group_commit.py": "a child's commits are refused before",
    "src/logdb/log/recovery_point.py": "a child notes nothing",
    "src/logdb/segment/segment.py": "a child saves nothing",
    "src/logdb/store/flusher.py": "waited for by threads that a child does not have; setting it waits for no thread",
    "src/logdb/store/lock.py": "made anew by after_fork_in_child",
    "src/logdb/meta/environment.py": "taken before a fork, by the thread that forks",
    "src/logdb/meta/reader_writer_lock.py": "the same; that of transactions is renewed as a whole",
    "src/logdb/client/producer/accumulator.py": "a child's wait is refused before",
    "src/logdb/access/attempts.py": "semaphores of a server's logins",
    "http_api/logdb_http_api/remote/connections.py": "a semaphore; a child's requests are refused before",
}


@functools.cache
def threaded() -> list[Path]:
    """The sources that speak of ``threading``: to parse the others takes seconds."""
    return [path for path in SOURCES if "threading" in path.read_text()]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def calls_of(tree: ast.AST, module: str) -> list[ast.Call]:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute))
    return [call for call in calls if isinstance(call.func.value, ast.Name) and call.func.value.id == module]


def unrenewed(tree: ast.AST) -> list[int]:
    """Lines where a primitive that outlives its function is kept without being renewed."""
    inside = {
        id(found)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "renewed"
        for found in ast.walk(call)
    }
    of_a_function = {
        id(found)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and all(isinstance(name, ast.Name | ast.Tuple) for name in node.targets)
        if not any(isinstance(target, ast.Attribute) for name in node.targets for target in ast.walk(name))
        for found in ast.walk(node.value)
    }
    found = [call for call in calls_of(tree, "threading") if call.func.attr in PRIMITIVES]
    return [call.lineno for call in found if id(call) not in inside | of_a_function]


def test_every_lock_is_renewed_in_a_forked_child_or_said_why_not():
    found = {name_of(path): lines for path in threaded() if (lines := unrenewed(ast.parse(path.read_text())))}
    assert found.keys() == ELSEWHERE.keys()


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import threading\nlock = threading.Lock()", [2]),
        ("import threading\nlock = renewed(threading.Lock())", []),
        ("import threading\nclass A:\n def f(self):\n  self.x, self.y = threading.Event(), 1", [4]),
        ("import threading\nclass A:\n def f(self):\n  self.x = renewed(threading.Condition(threading.Lock()))", []),
        ("import threading\ndef f():\n  done = threading.Event()", []),
    ],
)
def test_the_search_for_locks(source, lines):
    assert unrenewed(ast.parse(source)) == lines


def test_every_thread_is_started_where_a_failure_has_a_name():
    for path in SOURCES:
        if name_of(path) not in {"src/logdb/threads.py", "src/logdb/pools.py"}:
            assert "ThreadPoolExecutor" not in path.read_text(), path
            if path in threaded():
                calls = calls_of(ast.parse(path.read_text()), "threading")
                assert not [call for call in calls if call.func.attr in {"Thread", "Timer"}], path


def test_what_cannot_be_started_is_an_error_by_name(monkeypatch):
    for error in (RuntimeError("can't start new thread"), MemoryError()):
        monkeypatch.setattr(threading.Thread, "start", lambda self, error=error: (_ for _ in ()).throw(error))
        with pytest.raises(ThreadUnavailable, match="the thread logdb-x cannot be started") as raised:
            threads.started("logdb-x", int)
        assert raised.value.retriable
    monkeypatch.undo()
    ran = threading.Event()
    threads.started("logdb-x", ran.set).join(30)
    assert ran.is_set()


# ---------------------------------------------------------------- forks


def child_is_fine(work) -> bool:
    """Whether ``work`` returns true in a forked child, within some seconds."""
    pid = os.fork()
    if pid == 0:
        try:
            threading.Thread(target=lambda: (threading.Event().wait(20), os._exit(3)), daemon=True).start()
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def held_elsewhere(*primitives):
    """Have another thread hold these until the event that is returned is set."""
    held, enough = threading.Event(), threading.Event()

    def hold() -> None:
        for primitive in primitives:
            primitive.acquire()
        held.set()
        enough.wait()
        for primitive in primitives:
            primitive.release()

    threading.Thread(target=hold, daemon=True).start()
    assert held.wait(30)
    return enough


def test_a_child_finds_them_free():
    kinds = [threading.Lock(), threading.RLock(), threading.Condition(), threading.Condition(threading.Lock())]
    for primitive in kinds:
        threads.renewed(primitive)
    enough = held_elsewhere(*kinds)
    try:
        assert child_is_fine(lambda: all(primitive.acquire(timeout=0) for primitive in kinds))
    finally:
        enough.set()


def test_an_event_that_is_being_set_at_the_fork():
    event = threads.renewed(threading.Event())
    enough = held_elsewhere(event._cond)
    try:
        assert child_is_fine(lambda: event.set() or event.wait(0))
    finally:
        enough.set()


def test_who_forks_with_a_lock_has_it_still():
    lock = threads.renewed(threading.RLock())
    condition = threads.renewed(threading.Condition(lock))

    def leave() -> bool:
        lock.release()
        return lock.acquire(timeout=0)

    with lock, condition:
        assert child_is_fine(leave)


def test_they_are_not_kept():
    lock = threads.renewed(threading.Lock())
    gone = weakref.ref(lock)
    del lock
    assert gone() is None


# ---------------------------------------------------------------- pools


class Failing:
    """``Thread.start`` fails for threads with a name that begins so, a number of times."""

    def __init__(self, monkeypatch, name: str, count: int) -> None:
        self.left, start = count, threading.Thread.start

        def failing(thread) -> None:
            if thread.name.startswith(name) and self.left:
                self.left -= 1
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", failing)


def test_a_pool_without_a_thread_calls_nothing_later(monkeypatch):
    pool, called = Pool(2, "logdb-pool"), []
    failing = Failing(monkeypatch, "logdb-pool", 1)
    with pytest.raises(ThreadUnavailable, match="logdb-pool"):
        pool.submit(called.append, "refused")
    assert not failing.left
    pool.submit(called.append, "done").result(30)
    assert called == ["done"]
    pool.shutdown()


def test_the_threads_of_a_pool_take_turns(monkeypatch):
    pool, begun, go_on = Pool(2, "logdb-pool"), threading.Event(), threading.Event()
    first = pool.submit(lambda: (begun.set(), go_on.wait(30)))
    assert begun.wait(30)
    failing = Failing(monkeypatch, "logdb-pool", 1)
    second = pool.submit(int, "7")
    assert not failing.left and not second.done()
    go_on.set()
    assert second.result(30) == 7 and first.result(30)
    pool.shutdown()


def test_a_pool_that_was_shut_down():
    pool = Pool(1, "logdb-pool")
    pool.shutdown()
    with pytest.raises(Closed):
        pool.submit(int)
