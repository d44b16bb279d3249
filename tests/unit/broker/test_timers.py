import itertools
import threading

import pytest

from logdb.broker.timers import Timers
from logdb.io import IO
from support import interrupts


class StoppedClock(IO):
    """Time goes on when the test says so."""

    def __init__(self):
        self.now = 1_000

    def monotonic_ms(self):
        return self.now


class Fired:
    """What fired, and was due still."""

    def __init__(self, io):
        self.keys = []
        self.timers = Timers(io, self.fire)
        self.timers._thread = threading.current_thread()  # the test is the thread

    def fire(self, key):
        if self.timers.claim(key):
            self.keys.append(key)

    def at(self, now):
        self.timers._io.now = now
        self.timers.fire_due()
        keys, self.keys = self.keys, []
        return keys


@pytest.fixture
def fired():
    return Fired(StoppedClock())


def test_in_the_order_of_time(fired):
    for key, delay in (("c", 30), ("a", 10), ("b", 20)):
        fired.timers.set(key, delay)
    assert fired.at(1_009) == []
    assert fired.at(1_020) == ["a", "b"]
    assert fired.at(1_030) == ["c"]
    assert fired.at(9_999) == []


def test_set_anew_later_and_earlier(fired):
    fired.timers.set("late", 10)
    fired.timers.set("late", 50)
    fired.timers.set("soon", 50)
    fired.timers.set("soon", 10)
    assert fired.at(1_010) == ["soon"]
    assert fired.at(1_049) == []
    assert fired.at(1_050) == ["late"]


def test_cancelled(fired):
    fired.timers.set("a", 10)
    fired.timers.set("a", None)
    fired.timers.set("never set", None)
    assert fired.at(2_000) == []
    fired.timers.set("a", 10)
    assert fired.at(2_010) == ["a"]


def test_forgotten_with_what_they_belong_to(fired):
    for number in range(4):
        fired.timers.set(("a" if number % 2 else "b", number), 10 * (4 - number))
    fired.timers.set(("a", 1), 100)
    fired.timers.forget(lambda key: key[0] == "a")
    fired.timers.set(("a", 3), 15)
    assert fired.at(2_000) == [("a", 3), ("b", 2), ("b", 0)]
    assert not fired.timers._heap and not fired.timers._queued_ms and not fired.timers._due_ms


def test_set_anew_between_firing_and_handling(fired):
    fired.timers.set("a", 10)
    fired.timers._fire = lambda key: None
    assert fired.at(1_010) == []
    fired.timers.set("a", 10)
    assert not fired.timers.claim("a")
    fired.timers._fire = fired.fire
    assert fired.at(1_020) == ["a"]


def test_heartbeats_do_not_grow_the_heap(fired):
    for beat in range(1_000):
        fired.at(1_000 + beat)
        fired.timers.set("session", 10_000)
    for _ in range(1_000):
        fired.timers.set("transaction", 60_000)
        fired.timers.set("transaction", None)
    assert len(fired.timers._heap) == 2


def test_a_callback_that_fails_does_not_keep_others_from_firing(fired, caplog):
    def fire(key):
        if key == "bad":
            raise RuntimeError("bad")
        fired.keys.append(key)

    fired.timers._fire = fire
    fired.timers.set("bad", 1)
    fired.timers.set("good", 2)
    assert fired.at(1_002) == ["good"]
    assert "bad" in caplog.text


def test_the_thread_fires_and_ends():
    seen = threading.Event()
    timers = Timers(IO(), lambda key: seen.set())
    assert timers._thread is None
    timers.start()
    timers.set("far", 3_600_000)
    timers.set("near", 1)
    assert seen.wait(30)
    timers.stop()
    assert not timers._thread.is_alive()
    timers.set("after the end", 0)
    assert timers._due_ms == {}


def test_an_interrupt_at_any_place_leaves_timers_that_can_be_set_and_stopped(monkeypatch):
    """Also in the code of ``threading``: a start may leave a thread that nobody knows, and an entered condition stays locked."""
    monkeypatch.setattr(interrupts, "SOURCES", (*interrupts.SOURCES, "/threading.py"))
    for number in itertools.count(1):
        timers = Timers(IO(), lambda key: None)

        def work(timers=timers):
            timers.start()
            timers.set("key", 60_000)

        interrupted = interrupts.Interrupted(number, work)
        interrupts.finished(timers.start, interrupted.place)
        interrupts.finished(timers.stop, interrupted.place)
        if interrupted.place is None:
            return
        assert interrupted.error is not None
