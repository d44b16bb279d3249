"""The memory that long frames are received to.

Some of it is kept: the kernel takes longer to give new pages than a frame takes to fill them.
"""

import sys

_STEP_BYTES = 256 << 10  # rooms are that much larger each: frames of about one size share theirs
_KEPT_BYTES_MAX = 2 << 20  # of one room
_KEPT_COUNT_MAX = 4
_UNUSED = 3  # references: of the list, of a variable, of the call that counts them


class Rooms:
    """Rooms of one door.

    ``_kept`` is changed by ``take``.  A room in it is free while nothing else refers to it: a frame, or a view of one, keeps it until it is
    gone, even where a thread still reads what a lost connection has sent.

    Threading: the event loop of the door.
    """

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self, size_bytes: int) -> bytearray:
        """A room of at least that size; what lies in it is of no meaning."""
        unused = None
        for position in range(len(self._kept)):
            room = self._kept[position]
            if sys.getrefcount(room) == _UNUSED:
                if len(room) >= size_bytes:
                    return room
                unused = position
        room = bytearray(-(-size_bytes // _STEP_BYTES) * _STEP_BYTES)
        if len(room) > _KEPT_BYTES_MAX:
            return room
        if len(self._kept) < _KEPT_COUNT_MAX:
            self._kept.append(room)
        elif unused is not None:
            self._kept[unused] = room
        return room
