"""Producers whose open transaction is verified, until a marker ends it: KIP-890's guard of a log, and of the offsets of groups.

Threading: ``give`` in any thread; the others under the lock that orders markers and what is verified.
"""

_COUNT_MAX = 10_000


class Verifications:
    """What was given to those who ask the coordinators of producers."""

    __slots__ = ("_given",)

    def __init__(self) -> None:
        self._given: dict[int, object] = {}

    def give(self, producer_id: int) -> object:
        """What holds until a marker of the producer comes; to be asked for before its coordinator is."""
        if len(self._given) >= _COUNT_MAX:
            self._given.clear()  # who is verified now is verified once more
        return self._given.setdefault(producer_id, object())

    def holds(self, producer_id: int, given: object | None) -> bool:
        """Whether no marker has come since ``given`` was."""
        return given is not None and given is self._given.get(producer_id)

    def end(self, producer_id: int) -> None:
        """A marker of the producer has come."""
        self._given.pop(producer_id, None)
