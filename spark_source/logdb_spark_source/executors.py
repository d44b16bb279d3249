"""What a task on an executor says if its machine lacks something: the host, the cause and the remedy."""

import socket

import logdb
from logdb.errors import AuthenticationFailed, LogdbError, NotADatabase, ServerUnavailable
from logdb_spark_source.location import Location

_REMEDIES: tuple[tuple[type[LogdbError], str], ...] = (
    (NotADatabase, "every executor must see the directory of the option path: share it between the machines, or serve it and give url"),
    (
        AuthenticationFailed,
        "set LOGDB_TOKEN, or LOGDB_USER and LOGDB_PASSWORD, in the environment of the executors too: in spark-env.sh of each worker",
    ),
    (ServerUnavailable, "every executor must reach the server: url must not name localhost, and the server must listen on the network"),
)


def open_in_task(place: Location) -> logdb.Database:
    """The database, in a task; see ``Location.open``.

    Raises:
        NotADatabase, AuthenticationFailed, ServerUnavailable: With the host and the remedy.
    """
    try:
        return place.open(patient=True)
    except LogdbError as error:
        raise said_by_host(error) from error.__cause__


def said_by_host(error: LogdbError) -> LogdbError:
    """The error, with the host; where the machine lacks something, also with the remedy."""
    remedy = next((f". {remedy[0].upper()}{remedy[1:]}" for kind, remedy in _REMEDIES if isinstance(error, kind)), "")
    error.args = (f"on host {socket.gethostname()}: {error}{remedy}",)
    return error
