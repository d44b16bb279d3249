"""The memory of the members of a broker's groups: what clients of a server may make it keep, in all and for one host.

A member that another process has joined with keeps its metadata, for each assignor, and its assignment until it leaves or its session is
over; one that was invited and has not joined keeps its id.  A host takes at most as much as it leaves free for others: one alone gets half,
two get a third each, and so on.  Members in this process are not counted.

    field       meaning                                          changed by
    _counts     those of the coordinators that there are         ``count``; the end of a coordinator
    of_host     bytes by host, of one coordinator                that coordinator, with its groups

Threading: a coordinator changes its own count; ``has_room`` and ``count`` in any thread.  Joins at the same moment may together take more
than there is room for, by what each of them brings.
"""

import weakref
from collections import Counter

from logdb.coordinator.groups import Group

_INVITED_BYTES = 1 << 10  # of an id, beside its letters: it costs no more than a request, and has a timer


class MemberCount:
    """The bytes of the members of one coordinator."""

    __slots__ = ("__weakref__", "of_host", "total")

    def __init__(self) -> None:
        self.total, self.of_host = 0, Counter[str]()

    def replace(self, before: Group, after: Group) -> None:
        """A group has other members now."""
        for one, other, sign in ((before, after, -1), (after, before, 1)):
            for member_id, member in one.members.items():
                if other.members.get(member_id) is not member:
                    self._add(member.client_host, sign * member.size_bytes)
            for member_id in one.invited.keys() - other.invited.keys():
                self._add(one.invited[member_id], sign * (_INVITED_BYTES + len(member_id)))

    def _add(self, host: str, size_bytes: int) -> None:
        if host:
            self.total += size_bytes
            self.of_host[host] += size_bytes
            if not self.of_host[host]:
                del self.of_host[host]


class MemberMemory:
    """All coordinators' counts; see above."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._counts = set[weakref.ref[MemberCount]]()

    def count(self) -> MemberCount:
        """The count of one more coordinator, until that ends."""
        made = MemberCount()
        self._counts.add(weakref.ref(made, self._counts.discard))
        return made

    def has_room(self, size_bytes: int, host: str) -> bool:
        """Whether a host may take so much more."""
        counts = [one for ref in list(self._counts) if (one := ref()) is not None]
        taken, own = sum(one.total for one in counts), sum(one.of_host.get(host, 0) for one in counts)
        return not host or size_bytes <= 0 or own + size_bytes <= self.bytes_max - taken - size_bytes
