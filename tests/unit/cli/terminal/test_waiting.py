import signal
import threading
import time

import pytest

from logdb.cli.terminal.waiting import wait


class Arrived(Exception):
    pass


def test_a_signal_that_another_thread_got_ends_the_wait():
    def raises(*_: object) -> None:
        raise Arrived

    def send() -> None:
        time.sleep(0.2)  # the main thread waits by then; if not, the test passes anyhow
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    former = signal.signal(signal.SIGUSR1, raises)
    event = threading.Event()
    thread = threading.Thread(target=send)
    late = threading.Timer(20, event.set)
    late.start()
    try:
        thread.start()
        with pytest.raises(Arrived):
            wait(event)
    finally:
        late.cancel()
        thread.join()
        signal.signal(signal.SIGUSR1, former)


def test_it_ends_with_the_event():
    event = threading.Event()
    event.set()
    wait(event)
