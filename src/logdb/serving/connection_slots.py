"""Slots for the connections of a door: how many there are in all, and for one address.

One client cannot take the slots of all others.  An address is an IPv4 address, or the /64 of an IPv6 one.  Used on one event loop.
"""

import asyncio
import resource
import sys
from collections import Counter

from logdb.access.attempts import network
from logdb.segment.files import FILES

SHARE = 4
"""One address may have this part of all slots (a quarter) unless an option says otherwise."""
_KEPT_DESCRIPTORS = 4096  # for files, handshakes, and connections that the door refuses
EXTRA_COUNT_MAX = 1_000


def connections_possible() -> int:
    """How many connections there can be, so that files can still be opened: a process without descriptors can write to no new segment."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(1, soft - min(_KEPT_DESCRIPTORS, soft * 5 // 8))


def descriptors(most: int) -> int:
    """``most``, or an eighth of the descriptors that the process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else max(1, min(most, soft // 8))


def host_of(transport: asyncio.BaseTransport) -> str:
    """The client's address; empty: it has none."""
    name = transport.get_extra_info("peername")
    return name[0] if isinstance(name, tuple) else ""


class ConnectionSlot:
    """One slot, until it is given back."""

    __slots__ = ("_address", "_all")

    def __init__(self, slots: "ConnectionSlots", address: str) -> None:
        self._all: ConnectionSlots | None = slots
        self._address = address

    def give_back(self) -> None:
        """Twice is once."""
        if self._all is not None:
            self._all.give_back(self._address)
            self._all = None


class ConnectionSlots:
    """All slots of a door.

    Attributes:
        count: How many are taken.
    """

    def __init__(self, count_max: int, per_address_max: int | None = None) -> None:
        """All slots are free.

        Args:
            count_max: Slots of the door; the process's descriptors may allow fewer.
            per_address_max: Slots of one address; None: a quarter of all.
        """
        self._most, self._per_address_max, self.count = count_max, per_address_max, 0
        self._counts = Counter[str]()

    @property
    def is_overfull(self) -> bool:
        """Whether more are taken than there are."""
        return self.count > self._count_max

    @property
    def _count_max(self) -> int:
        return min(self._most, connections_possible())

    def take(self, host: str, *, extra: bool = False) -> ConnectionSlot | None:
        """Take a slot; asked when the connection is there, for many may be accepted before the first of them is.

        Args:
            host: The client's address.
            extra: Up to a thousand more than there are may be taken: by clients that are to be told so after their handshake.

        Returns:
            None: none is free, or the address has as many as it may.
        """
        address, count_max = network(host), self._count_max
        of_address_max = self._per_address_max or max(1, count_max // SHARE)
        if self.count >= count_max + (descriptors(EXTRA_COUNT_MAX) if extra else 0) or self._counts[address] >= of_address_max:
            return None
        self.count += 1
        self._counts[address] += 1
        FILES.lend(1)
        return ConnectionSlot(self, address)

    def give_back(self, address: str) -> None:
        """One slot of an address; what ``ConnectionSlot`` calls."""
        self.count -= 1
        FILES.lend(-1)
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]
