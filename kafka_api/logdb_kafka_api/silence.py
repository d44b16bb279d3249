"""Brokers that are away, and whose address is silent: it takes no connection, and refuses none.  Their machine is off, or cut off.

Metadata goes on naming a broker that is away (``KafkaResources.brokers``).  But clients that try a silent address wait for their connect
timeout, again and again: sarama 30 s, aiokafka 40 s.  So a broker is left out once its address has been silent for ``SILENT_S``.  Kafka
leaves out every broker that is away, after its session of 9 s.

    asked about an address, and the last answer is older than LOOK_S ──► a thread looks
    it takes or refuses a connection ──► not silent        SILENT_S without that ──► silent

Threading: any thread.  A thread of its own looks at one address, until it knows the answer.
"""

import socket
import threading
import time
from errno import EADDRNOTAVAIL, EAFNOSUPPORT, EHOSTDOWN, EHOSTUNREACH, ENETUNREACH, ETIMEDOUT
from functools import partial

from logdb.errors import ThreadUnavailable
from logdb.threads import renewed, started

LOOK_S, SILENT_S = 5.0, 8.0
_CONNECT_S = 1.0
_SILENT = {EHOSTDOWN, EHOSTUNREACH, ENETUNREACH, ETIMEDOUT}
_UNUSABLE = {EADDRNOTAVAIL, EAFNOSUPPORT}  # of an address of IPv6 where there is none: it says nothing of the other machine

Address = tuple[str, int]


class _Look:
    """What is known of one address; ``until_s``: how long, on the monotonic clock."""

    is_silent, is_under_way, until_s = False, False, 0.0


class Silence:
    """The addresses of the brokers of one cluster.

    Field        Changed by                       Trusted
    ``_looks``   ``is_silent``, ``forget``        under ``_lock``
    """

    def __init__(self) -> None:
        self._lock = renewed(threading.Lock())
        self._looks: dict[Address, _Look] = {}

    def is_silent(self, address: Address) -> bool:
        """Whether the address of a broker that is away was silent at the last look.  Does not wait."""
        with self._lock:
            look = self._looks.setdefault(address, _Look())
            if not look.is_under_way and time.monotonic() >= look.until_s:
                look.is_under_way = True
                try:
                    started("logdb-kafka-silence", partial(self._look, address, look))
                except ThreadUnavailable:  # the next call tries again
                    look.is_under_way = False
            return look.is_silent

    def forget(self, address: Address) -> None:
        """The broker of this address is back."""
        if self._looks:
            with self._lock:
                self._looks.pop(address, None)

    def _look(self, address: Address, look: _Look) -> None:
        is_silent, end_s = look.is_silent, time.monotonic() + (0 if look.is_silent else SILENT_S)
        try:
            while (is_silent := not _answers(address)) and time.monotonic() < end_s:
                time.sleep(_CONNECT_S / 4)  # some systems say at once that there is no way to a host
        finally:
            with self._lock:
                look.is_silent, look.until_s, look.is_under_way = is_silent, time.monotonic() + LOOK_S, False


def _answers(address: Address) -> bool:
    """Whether a connection is taken or refused, at one of the addresses of a name; True if this process cannot tell."""
    try:
        socket.create_connection(address, _CONNECT_S, all_errors=True).close()
    except ExceptionGroup as group:
        told = [error for error in group.exceptions if isinstance(error, OSError) and error.errno not in _UNUSABLE]
        return not told or any(not isinstance(error, TimeoutError) and error.errno not in _SILENT for error in told)
    except (OSError, ValueError):  # the name is unknown, or none
        return True
    return True
