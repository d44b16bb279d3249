"""A machine whose clocks stand still until a test moves them."""

from logdb.io import IO


class StillIO(IO):
    """Real files; ``now_ms`` is the wall clock and the monotonic one."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def clock_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms
