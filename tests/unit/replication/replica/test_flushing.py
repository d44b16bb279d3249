"""Syncs of many logs side by side."""

import threading

import pytest

from logdb.errors import ThreadUnavailable
from logdb_replication.replica.flushing import THREAD_COUNT, Flushers


@pytest.fixture
def flushers():
    made = Flushers()
    yield made
    made.close()


def test_several_are_flushed_side_by_side(flushers):
    together, done = threading.Barrier(THREAD_COUNT), []

    def flush(number):
        together.wait(20)
        done.append(number)

    flushers.each(flush, range(3 * THREAD_COUNT))
    assert sorted(done) == list(range(3 * THREAD_COUNT))


@pytest.mark.parametrize("count", [0, 1])
def test_one_is_flushed_by_its_caller(flushers, count):
    threads = []
    flushers.each(lambda _: threads.append(threading.current_thread()), range(count))
    assert threads == [threading.current_thread()] * count


def test_a_round_waits_for_no_thread_that_others_hold(flushers):
    held, go_on, done = threading.Semaphore(0), threading.Event(), []

    def hold(_number):
        held.release()
        go_on.wait(20)

    other = threading.Thread(target=flushers.each, args=(hold, range(THREAD_COUNT)))
    other.start()
    for _ in range(THREAD_COUNT):
        assert held.acquire(timeout=20)
    flushers.each(done.append, range(5))
    assert sorted(done) == list(range(5))
    go_on.set()
    other.join(20)


def test_without_threads_the_caller_flushes_all(flushers, monkeypatch):
    def none(_work):
        raise ThreadUnavailable("logdb-flush", "no more")

    monkeypatch.setattr(flushers._pool, "submit", none)
    done = []
    flushers.each(done.append, range(5))
    assert sorted(done) == list(range(5))
