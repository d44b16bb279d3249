"""How often an address may try a password.

A try costs milliseconds of a processor.  That makes guessing slow, and a flood of tries expensive for the server.  So few tries
run at once, in all and for one address, and an address that failed ``FREE_COUNT`` times in a row waits, twice as long after each
failure.  While it waits it is refused at once, even with the right password.  An IPv6 address stands for its /64.  The loopback is
one address: a process on this machine can use all of 127.0.0.0/8.
"""

import contextlib
import ipaddress
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import lru_cache

from logdb.errors import AuthenticationFailed
from logdb.threads import renewed

FREE_COUNT = 5
"""Failures in a row that cost nothing: people mistype."""
BACK_OFF_MS, BACK_OFF_MS_MAX = 100, 30_000
_PER_ADDRESS, _WAIT_S = 2, 10.0
_ADDRESS_COUNT_MAX = 10_000


class _Address:
    __slots__ = ("failures", "under_way", "until_ms")

    def __init__(self) -> None:
        self.failures, self.until_ms = 0, 0
        self.under_way = threading.Semaphore(_PER_ADDRESS)


class Attempts:
    """The tries of all addresses.

    Threading: any number of threads.
    """

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._lock = renewed(threading.Lock())
        self._addresses: OrderedDict[str, _Address] = OrderedDict()
        self._all = threading.Semaphore(max(1, (os.cpu_count() or 1) // 2))

    @contextlib.contextmanager
    def trying(self, host: str) -> Iterator[Callable[[bool], None]]:
        """Try once; yields a function that takes whether the password was right.  Waits while too many tries run.

        Raises:
            AuthenticationFailed: The address has to wait; the message says how long.
        """
        address = self._of(machine(host))
        self._check(address, host)
        if not address.under_way.acquire(timeout=_WAIT_S):
            raise AuthenticationFailed(f"too many logins from {host} are under way: try again later")
        try:
            self._check(address, host)  # earlier tries may have failed meanwhile
            with self._all:
                yield lambda good: self._note(address, good)
        finally:
            address.under_way.release()

    def _of(self, network: str) -> _Address:
        with self._lock:
            address = self._addresses.get(network)
            if address is None:
                while len(self._addresses) >= _ADDRESS_COUNT_MAX:
                    self._addresses.popitem(last=False)
                address = self._addresses[network] = _Address()
            self._addresses.move_to_end(network)
            return address

    def _check(self, address: _Address, host: str) -> None:
        left_ms = address.until_ms - self._monotonic_ms()
        if left_ms > 0:
            raise AuthenticationFailed(f"{address.failures} logins from {host} failed: try again in {left_ms} ms")

    def _note(self, address: _Address, good: bool) -> None:
        with self._lock:
            address.failures = 0 if good else address.failures + 1
            over = address.failures - FREE_COUNT
            if over >= 0:
                address.until_ms = self._monotonic_ms() + min(BACK_OFF_MS_MAX, BACK_OFF_MS << min(over, 20))


def is_loopback(host: str) -> bool:
    """Whether an address is of this machine."""
    address = _address(host)
    return address is not None and address.is_loopback


@lru_cache(1024)
def network(host: str) -> str:
    """The network that counts as one client: an IPv6 /64, or one IPv4 address; text that is no address stands for itself."""
    address = _address(host)
    if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host if address is None else str(address)


def machine(host: str) -> str:
    """As ``network``; all addresses of the loopback count as one."""
    return "loopback" if is_loopback(host) else network(host)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An address; an IPv4 address that is mapped into IPv6 becomes IPv4."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address
