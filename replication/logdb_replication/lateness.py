"""How late a machine runs that is starved of processor time, or a peer of its: timeouts grow with it.

No clock and no thread: times are given, in one unit of the caller's.
"""


class Lateness:
    """The largest delay of late: each halves with every half-life, so that one bad moment is forgotten."""

    def __init__(self, half_life: float, largest: float) -> None:
        """``largest``: what a longer delay counts as."""
        self._half_life, self._largest = half_life, largest
        self._late = self._noted_at = 0.0

    def note(self, late: float, now: float) -> None:
        """Something came so much later than it was due; a negative value counts as 0."""
        self._late, self._noted_at = max(self.at(now), min(late, self._largest)), now

    def at(self, now: float) -> float:
        """What is left of the delays before ``now``."""
        return float(self._late * 0.5 ** (max(now - self._noted_at, 0.0) / self._half_life))
