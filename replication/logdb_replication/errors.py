"""What can go wrong with a node of a cluster; the root is ``logdb.errors.LogdbError``."""

from logdb.errors import LogdbError


class InvalidClusterConfig(LogdbError, ValueError):
    """A key of a ``cluster.toml`` has a value that is not allowed, or contradicts another one; ``key`` empty: the file as a whole."""

    def __init__(self, path: str, key: str, value: object, allowed: str) -> None:
        super().__init__(f"{path}: {key} = {value!r}: {allowed}" if key else f"{path}: {allowed}")
        self.path, self.key, self.value, self.allowed = path, key, value, allowed


class InvalidCluster(LogdbError, ValueError):
    """What a new cluster is to have does not fit together; ``what`` says which part."""

    def __init__(self, what: str, value: object, allowed: str) -> None:
        super().__init__(f"{what} {value}: {allowed}")
        self.what, self.value, self.allowed = what, value, allowed
