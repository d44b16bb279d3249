import threading

from logdb.errors import DiskFull
from logdb.io import IO
from logdb.store.flusher import Flusher


class FakeLog:
    """A log that waits to be written and synced, once or after some failures."""

    topic, partition = "t", 0

    def __init__(self, failures: int = 0) -> None:
        self.failures, self.written, self.synced = failures, threading.Event(), threading.Event()

    def write_lingering(self, now_ms, linger_ms):
        if self.failures:
            self.failures -= 1
            raise DiskFull("path", 1, "full")
        self.written.set()
        return False

    def sync_due_ms(self):
        return None if self.synced.is_set() else 0

    def sync(self):
        self.synced.set()

    def checkpoint_is_due(self, now_ms):
        return False

    def needs_tending(self):
        return not self.synced.is_set()


def test_what_is_woken_is_written_and_synced_until_nothing_is_left():
    flusher = Flusher(IO(), 1, lambda logs: None)
    flusher.start()
    for failures in (0, 2):
        log = FakeLog(failures)
        flusher.wake_writer(log)
        assert log.written.wait(60)
        assert not log.synced.is_set()
        flusher.wake_syncer(log)
        assert log.synced.wait(60)
    flusher.stop()
    flusher.stop()
    assert not flusher._lingering
    assert not flusher._unsynced
    assert not any(thread.is_alive() for thread in flusher._threads)


def test_an_os_error_does_not_end_the_threads():
    class Unreadable(FakeLog):
        def sync(self):
            if not self.failures:
                self.failures = 1
                raise OSError(5, "Input/output error")
            super().sync()

        def write_lingering(self, now_ms, linger_ms):
            return False

    flusher, log = Flusher(IO(), 1, lambda logs: None), Unreadable()
    flusher.start()
    flusher.wake_syncer(log)
    assert log.synced.wait(60)
    flusher.stop()
