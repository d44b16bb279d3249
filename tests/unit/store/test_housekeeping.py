import threading

from logdb.io import IO
from logdb.store.housekeeping import Housekeeping

WAIT_S = 60


class Chore:
    """A task that counts its rounds; the first ``failures`` of them fail."""

    def __init__(self, failures: int = 0) -> None:
        self.failures, self.rounds, self.changed = failures, 0, threading.Condition()

    def work(self):
        with self.changed:
            self.rounds += 1
            self.changed.notify_all()
            if self.rounds <= self.failures:
                raise OSError(5, "Input/output error")

    def wait_for(self, rounds):
        with self.changed:
            return self.changed.wait_for(lambda: self.rounds >= rounds, WAIT_S)


def needs(key):
    return lambda config: key in config


def test_no_thread_begins_before_a_topic_needs_a_task():
    keeping, chore = Housekeeping(IO()), Chore()
    keeping.add("retention", chore.work, interval_ms=1, needed=needs("retention.ms"))
    assert not keeping.consider({"segment.bytes": 1})
    assert keeping._thread is None
    assert keeping.consider({"retention.ms": 1})
    assert keeping.consider({})
    assert chore.wait_for(3)
    keeping.stop()
    assert not keeping._thread.is_alive()


def test_a_failed_round_is_logged_once_and_tried_again(caplog):
    keeping, chore = Housekeeping(IO()), Chore(failures=5)
    keeping.add("retention", chore.work, interval_ms=1, needed=needs("a"))
    keeping.consider({"a": 1})
    assert chore.wait_for(6)
    keeping.stop()
    assert [record.getMessage() for record in caplog.records] == ["retention in the background: [Errno 5] Input/output error"]


def test_a_hastened_task_does_not_wait_for_its_interval():
    keeping, rare, often = Housekeeping(IO()), Chore(), Chore()
    keeping.add("rare", rare.work, interval_ms=1_000_000, needed=needs("a"))
    keeping.add("other", often.work, interval_ms=1_000_000, needed=needs("b"))
    keeping.consider({"a": 1})
    for rounds in (1, 2):
        keeping.hasten("rare")
        assert rare.wait_for(rounds)
    keeping.stop()
    assert often.rounds == 0


def test_stopping_ends_a_pause_and_lets_nothing_begin():
    keeping, paused, told = Housekeeping(IO()), threading.Event(), []

    def work():
        paused.set()
        told.append(keeping.pause(1_000_000))

    keeping.add("long", work, interval_ms=1, needed=needs("a"))
    keeping.consider({"a": 1})
    assert paused.wait(WAIT_S)
    assert not keeping.stopping
    keeping.stop()
    assert keeping.stopping
    assert told == [False]
    late = Housekeeping(IO())
    late.add("late", work, interval_ms=1, needed=needs("a"))
    late.stop()
    assert not late.consider({"a": 1})
