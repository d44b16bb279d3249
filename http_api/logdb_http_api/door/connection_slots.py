"""Places for the connections of a door: how many there are, over all and of each address.

Responsible for refusing one client what would leave none to the others.  An address is an IPv4 address, or the /64 of an IPv6 one.
Used on one event loop.
"""

from collections import Counter

from logdb.access.attempts import network
from logdb_http_api.door.limits import Limits, connections_possible, descriptors

SHARE = 4
"""One of how many parts of all slots one address may have, unless it is said."""
EXTRA_COUNT_MAX = 1_000


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

    def __init__(self, limits: Limits) -> None:
        """All are free."""
        self._limits, self.count = limits, 0
        self._counts = Counter[str]()

    @property
    def is_overfull(self) -> bool:
        """Whether more are taken than there are."""
        return self.count > self._count_max

    @property
    def _count_max(self) -> int:
        return min(self._limits.connections_max, connections_possible())

    def take(self, host: str, *, extra: bool = False) -> ConnectionSlot | None:
        """Take a slot; asked when the connection is there, for many may be accepted before the first of them is.

        Args:
            host: The client's address.
            extra: Up to a thousand more than there are may be taken: by clients that are to be told so after their handshake.

        Returns:
            None: none is free, or the address has as many as it may.
        """
        address, count_max = network(host), self._count_max
        of_address_max = self._limits.connections_per_address_max or max(1, count_max // SHARE)
        if self.count >= count_max + (descriptors(EXTRA_COUNT_MAX) if extra else 0) or self._counts[address] >= of_address_max:
            return None
        self.count += 1
        self._counts[address] += 1
        return ConnectionSlot(self, address)

    def give_back(self, address: str) -> None:
        """One slot of an address; what ``ConnectionSlot`` calls."""
        self.count -= 1
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]
