import os
import threading

import pytest

from logdb.meta.reader_writer_lock import ReaderWriterLock
from logdb.threads import renewed

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def status_of_child(work) -> int:
    """0: ``work`` has returned in a forked child; else it raised, or hung."""
    pid = os.fork()
    if pid == 0:
        try:
            threading.Thread(target=lambda: (threading.Event().wait(20), os._exit(3)), daemon=True).start()
            work()
            os._exit(0)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def alone(lock: ReaderWriterLock) -> None:
    with lock.alone():
        pass


def test_many_share_it_and_one_has_it_alone():
    lock, entered, leave, had = ReaderWriterLock(), threading.Event(), threading.Event(), []

    def share() -> None:
        with lock:
            entered.set()
            leave.wait(30)
            had.append("shared")

    threads = [threading.Thread(target=share)]
    threads[0].start()
    assert entered.wait(30)
    with lock:
        pass  # two at a time
    threads.append(threading.Thread(target=lambda: (alone(lock), had.append("alone"))))
    threads[1].start()
    leave.set()
    for thread in threads:
        thread.join(30)
    assert had == ["shared", "alone"]


def test_it_is_reentrant():
    lock = ReaderWriterLock()
    with lock, lock, lock.alone(), lock:
        pass
    alone(lock)


def test_a_child_finds_it_without_the_threads_of_its_parent():
    lock, entered, leave = renewed(ReaderWriterLock()), threading.Event(), threading.Event()

    def share() -> None:
        with lock:
            entered.set()
            leave.wait(30)

    sharer = threading.Thread(target=share)
    sharer.start()
    assert entered.wait(30)
    waiter = threading.Thread(target=alone, args=(lock,))
    waiter.start()
    try:
        assert status_of_child(lambda: (lock.__enter__(), lock.__exit__(None, None, None), alone(lock))) == 0
    finally:
        leave.set()
        sharer.join()
        waiter.join()


def test_who_forks_within_it_is_within_it_in_the_child():
    lock = renewed(ReaderWriterLock())
    with lock:
        assert status_of_child(lambda: (lock.__exit__(None, None, None), alone(lock))) == 0
