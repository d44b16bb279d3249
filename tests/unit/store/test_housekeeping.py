import threading

from logdb.io import IO
from logdb.store.housekeeping import UNTIL_ASKED, Housekeeping
from support.clock import StillIO
from support.waiting import until

WAIT_S = 60


class Chore:
    """A task that counts its rounds; the first ``failures`` of them fail.  ``rest_ms``: what the others return."""

    def __init__(self, failures: int = 0, rest_ms: float | None = None) -> None:
        self.failures, self.rest_ms, self.rounds, self.changed = failures, rest_ms, 0, threading.Condition()
        self.during = lambda: None

    def work(self):
        with self.changed:
            self.rounds += 1
            self.changed.notify_all()
            if self.rounds <= self.failures:
                raise OSError(5, "Input/output error")
        self.during()
        return self.rest_ms

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


def test_a_task_with_nothing_to_do_sleeps_until_it_is_asked():
    keeping, chore = Housekeeping(IO()), Chore(rest_ms=UNTIL_ASKED)
    keeping.add("rare", chore.work, interval_ms=1, needed=needs("a"))
    keeping.consider({"a": 1})
    for rounds in (1, 2, 3):
        assert chore.wait_for(rounds)
        until(lambda: keeping._tasks["rare"].due_ms == UNTIL_ASKED, "the round is over")
        keeping.ask("rare")
    assert chore.wait_for(4)
    keeping.stop()


def test_a_request_waits_for_the_interval_since_the_last_round():
    io, chore = StillIO(), Chore(rest_ms=UNTIL_ASKED)
    keeping = Housekeeping(io)
    keeping.add("rare", chore.work, interval_ms=500, first_ms=UNTIL_ASKED, needed=needs("a"))
    keeping._loop = lambda: None  # the test does the rounds itself
    keeping.consider({"a": 1})
    task, begun_ms = keeping._tasks["rare"], io.now_ms
    assert task.due_ms == UNTIL_ASKED
    io.now_ms += 200
    keeping.ask("rare")
    keeping.ask("rare")
    assert task.due_ms == begun_ms + 500
    io.now_ms += 300
    keeping._do(task)
    assert task.due_ms == UNTIL_ASKED
    chore.during = lambda: keeping.ask("rare")  # what comes while a round looks may be missed by it
    io.now_ms += 10_000
    keeping._do(task)
    assert task.due_ms == io.now_ms + 500


def test_a_rest_is_no_shorter_than_the_interval():
    io = StillIO()
    for rest_ms, due_ms in ((None, 500), (0, 500), (499, 500), (501, 501)):
        keeping, chore = Housekeeping(io), Chore(rest_ms=rest_ms)
        keeping.add("one", chore.work, interval_ms=500, needed=needs("a"))
        keeping._do(keeping._tasks["one"])
        assert keeping._tasks["one"].due_ms == io.now_ms + due_ms


def test_what_was_asked_for_before_the_thread_began_is_done_at_once():
    keeping, chore = Housekeeping(IO()), Chore(rest_ms=UNTIL_ASKED)
    keeping.add("rare", chore.work, interval_ms=1_000_000, first_ms=UNTIL_ASKED, needed=needs("a"))
    keeping.ask("rare")
    keeping.consider({"a": 1})
    assert chore.wait_for(1)
    assert keeping.stop()
    assert not Housekeeping(IO()).stop()


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
