"""Nodes as processes that are killed and stopped while records are acknowledged by all in-sync replicas."""

import itertools
import os
import signal
import threading
import time

import pytest

import logdb
from logdb.errors import LogdbError
from support.cluster_process import ClusterProcess, cluster_process, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]  # processes start, and sessions lapse


@pytest.fixture
def cluster(tmp_path):
    with cluster_process(tmp_path) as cluster:
        with logdb.open(cluster.urls) as db:
            db.create_topic("t", partitions=1, replication_factor=3)
        yield cluster


def state(cluster: ClusterProcess):
    with logdb.open(cluster.urls) as db:
        return db.describe_topic("t").partitions[0]


def values(db) -> list[int]:
    return [int(record.value) for record in db.log("t").read(0)]


class Load:
    """One acknowledged record after the other, from a thread; ``acknowledged``: by offset."""

    def __init__(self, cluster: ClusterProcess) -> None:
        self.acknowledged: dict[int, int] = {}
        self.failure: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(cluster.urls,))
        self._thread.start()

    def _run(self, urls) -> None:
        try:
            with logdb.open(urls) as db, db.producer(acks="all", enable_idempotence=True) as producer:
                for number in itertools.count():
                    if self._stop.is_set():
                        return
                    self.acknowledged[producer.send("t", b"%d" % number).result(timeout=60).offset] = number
        except Exception as error:  # noqa: BLE001 -- told where it is waited for
            self.failure = error

    def goes_on(self) -> float:
        """Wait for more records; returns how long it took."""
        begun, count = time.monotonic(), len(self.acknowledged)
        eventually(lambda: self.failure or len(self.acknowledged) >= count + 3, 60)
        assert self.failure is None, self.failure
        return time.monotonic() - begun

    def stop(self) -> dict[int, int]:
        self._stop.set()
        self._thread.join()
        assert self.failure is None, self.failure
        return self.acknowledged


def test_leaders_are_killed_under_load_and_nothing_is_lost(cluster):
    load = Load(cluster)
    for _ in range(2):
        load.goes_on()
        leader = state(cluster).leader
        cluster.kill(leader)
        load.goes_on()
        cluster.start(leader)
        eventually(lambda: len(state(cluster).in_sync) == 3)
    acknowledged = load.stop()
    with logdb.open(cluster.urls) as db:
        stored = values(db)
    assert stored == list(range(len(stored)))  # each once, in order
    assert all(stored[offset] == number for offset, number in acknowledged.items())


def test_all_are_killed_at_once(cluster):
    load = Load(cluster)
    load.goes_on()
    for process in cluster.processes.values():
        process.kill()
    for number in cluster.numbers:
        cluster.kill(number)
    cluster.start()
    load.goes_on()
    acknowledged = load.stop()
    with logdb.open(cluster.urls) as db:
        stored = values(db)
    assert stored == list(range(len(stored)))
    assert all(stored[offset] == number for offset, number in acknowledged.items())


def test_with_two_of_three_dead_writes_are_refused_and_reads_served(cluster):
    with logdb.open(cluster.urls) as db:
        db.log("t").append_many([b"0"])
    leader = state(cluster).leader
    others = [number for number in cluster.numbers if number != leader]
    for number in others:
        cluster.kill(number)
    with logdb.open(cluster.url(leader), timeout_ms=10_000) as alone:
        assert values(alone) == [0]
        with pytest.raises(LogdbError) as info:
            alone.log("t").append_many([b"1"])
        assert not info.value.retriable  # the leader may have the record: the same call could store it twice
        with pytest.raises(LogdbError):
            alone.create_topic("u")
        assert values(alone) == [0]
    cluster.start(*others)
    with logdb.open(cluster.urls) as db:
        db.log("t").append_many([b"2"])
        assert values(db)[-1] == 2


def test_a_leader_that_stands_still_is_replaced_and_refuses_what_comes_later(cluster):
    with logdb.open(cluster.urls) as db:
        db.log("t").append_many([b"0"])
        leader = state(cluster).leader
        os.kill(cluster.processes[leader].pid, signal.SIGSTOP)
        rest = [cluster.url(number) for number in cluster.numbers if number != leader]
        with logdb.open(rest, timeout_ms=600_000) as others:  # a description does not wait for the silent leader
            eventually(lambda: others.describe_topic("t").partitions[0].leader not in (None, leader))
            others.log("t").append_many([b"1"])
        os.kill(cluster.processes[leader].pid, signal.SIGCONT)
        eventually(lambda: len(state(cluster).in_sync) == 3)
        db.log("t").append_many([b"2"])
        assert values(db) == [0, 1, 2]
