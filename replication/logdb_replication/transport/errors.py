"""What can go wrong between two nodes; the root is ``logdb.errors.LogdbError``."""

from logdb.errors import LogdbError


class PeerRefused(LogdbError):
    """A connection between voters was refused."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"refused: {reason}")
        self.reason = reason
