"""Waits of the main thread."""

import threading

_LOOK_S = 1.0


def wait(event: threading.Event) -> None:
    """Wait for an event, or for the error that a signal raises.

    The kernel may deliver a signal to another thread, or just before the wait begins.  Python then calls the handler only once the main
    thread runs again, so each wait ends after a second.
    """
    while not event.wait(_LOOK_S):
        pass
