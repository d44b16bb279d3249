"""Errors of Connect."""


class ConnectError(Exception):
    """A connector, a task or a worker failed; the message says what to change."""


class RetriableError(ConnectError):
    """A task could not do its work now: the worker calls again, after a pause, with the same records."""


class DataError(ConnectError):
    """A record, or its schema, is none that a converter, a transform or a sink can work with."""


class ConfigError(ConnectError):
    """A property is missing or wrong.

    Attributes:
        name: The property.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class NotFound(ConnectError):
    """No connector, task or plugin has this name."""


class Conflict(ConnectError):
    """The request does not fit the state: a name is taken, a connector is not stopped, a rebalance goes on.  Retry is safe."""
