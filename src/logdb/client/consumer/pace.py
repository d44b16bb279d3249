"""How often a consumer looks whether something has changed: its group, the topics that it subscribes to.

Knows that a look costs a request where the broker is behind a URL, and that rebalances come in flocks: so it looks often after one, and
twice as seldom with each look that finds nothing.  Does not know what a look is.

Source: Kafka's ``heartbeat.interval.ms`` for how seldom.
"""

SOON_MS = 100
SELDOM_MS = 3_000


class Pace:
    """The looks of one consumer."""

    def __init__(self, fixed_ms: int | None, most_ms: int) -> None:
        """Begin with looking often.

        Args:
            fixed_ms: Always so far apart; None: from ``SOON_MS`` on, up to ``most_ms``.
        """
        self._fixed_ms, self._most_ms = fixed_ms, most_ms
        self._seen: object = None
        self.interval_ms = SOON_MS if fixed_ms is None else fixed_ms

    def looked(self, seen: object) -> None:
        """What a look has found: the same as before, or something else."""
        if self._fixed_ms is None:
            self.interval_ms = min(2 * self.interval_ms, self._most_ms) if seen == self._seen else SOON_MS
            self._seen = seen
