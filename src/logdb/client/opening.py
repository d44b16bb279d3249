"""``logdb.open``: opens a directory, or the URLs of servers.  A package announces the URL schemes that it opens by entry points."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, overload

from logdb.announced import announced
from logdb.client import local
from logdb.client.addresses import directory_or_urls, without_credentials
from logdb.client.database import Database
from logdb.errors import ServerUnavailable, missing_package
from logdb.io import IO
from logdb.mistakes import OF_THE_CALL
from logdb.model import Durability, Duration, plain_options
from logdb.signatures import shown
from logdb.store.cleaner import CLEANER_BYTES_PER_SECOND
from logdb.store.retention import CHECK_INTERVAL_MS
from logdb.store.state import Mode

StrPath: TypeAlias = str | os.PathLike[str]

SESSIONS = "logdb.sessions"
"""The group of these entry points: scheme = module:function(urls, **options) -> Database."""


@overload
def open(
    path: StrPath,
    *,
    mode: Mode = "a",
    durability: Durability = "interval",
    batch_size: int = 16_384,
    linger_ms: Duration = 5,
    retention_check_interval_ms: Duration = CHECK_INTERVAL_MS,
    cleaner_bytes_per_second: int = CLEANER_BYTES_PER_SECOND,
    offsets_retention_minutes: int | None = None,
    io: IO | None = None,
    clock: Callable[[], int] | None = None,
) -> Database: ...


@overload
def open(
    path: str | Sequence[str],
    *,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    ca_file: StrPath | None = None,
    cert_file: StrPath | None = None,
    key_file: StrPath | None = None,
    batch_size: int = 262_144,
    timeout_ms: Duration = 30_000,
    connect_timeout_ms: Duration | None = None,
    rack: str | None = None,
    clock: Callable[[], int] | None = None,
) -> Database: ...


def open(path: "StrPath | Sequence[str]", **options: Any) -> Database:
    """Open the database in a directory, created if it is missing; or the one of a server.

    Args:
        path: The directory; or ``http://host:port``, ``https://host:port``, or several of them, of one server or cluster.
        mode: ``"a"`` to append and read: one handle at a time.  ``"r"`` to read, also beside a writer
            in this or another process.
        durability: What an acknowledged record survives, unless its topic or call says otherwise.
            ``"os"``: the process.  ``"interval"``: the machine too, after ``flush.ms`` (1 s) at most.
            ``"fsync"``: the machine, at once.
        batch_size: Bytes at which an open batch is closed, 101 to 1,048,576.
        linger_ms: How long a record waits in memory for others before it is written, 0 to 60,000.
        retention_check_interval_ms: The shortest time between two checks for old records in the background (Kafka's
            ``log.retention.check.interval.ms``), 1 or more.  An opening, a full segment, a changed limit and a close check at once.
        cleaner_bytes_per_second: Limit of compaction's reads and writes in the background, over all topics, 1 or more.
        offsets_retention_minutes: How long the committed offsets of a group without members are kept, 1 or more;
            None: until the group is deleted.
        io: Does file and clock calls; for tests.
        clock: Milliseconds since 1970, for records without a timestamp; None: the machine's,
            read coarsely (it may lag by a tick, 4 ms).
        user, password: For a URL: credentials (HTTP Basic).
        token: For a URL: a bearer token instead.  Without any of these, the credentials come from the URL itself
            (``http://user:password@host``), or from the variables LOGDB_TOKEN, or LOGDB_USER and LOGDB_PASSWORD.
        ca_file: For an ``https`` URL: trusted certificates, PEM; None: the system's.
        cert_file, key_file: For an ``https`` URL: the client's certificate and its key, PEM.
        timeout_ms: For a URL: the longest time of one request with all its retries, 1 or more.
        connect_timeout_ms: For a URL: the longest time to reach a server the first time, 1 or more; None: 3,000, or ``timeout_ms`` if
            that is less.  After its first answer, ``timeout_ms`` applies.
        rack: For a URL: where this client is.  Large reads then go to a replica in that rack, if one is in sync, instead of the leader.
            None: the variable LOGDB_RACK; ``""``: read at leaders.

    Returns:
        The database; close it, or use it in a ``with`` statement.

    Raises:
        DirectoryLocked: Another handle has it open for writing; the error names the process.
        NotADatabase: The directory holds other files, or with ``mode="r"`` none.
        CatalogueDamaged: ``logdb repair`` rebuilds it.
        UnsupportedFormat: A newer logdb wrote it.
        ServerUnavailable: No server answers at any of the URLs, or none that is trusted; a warning is logged for the first
            failure of each.
        AuthenticationFailed: The server refuses the credentials.
        InvalidCertificate: One of the files is missing, or not a certificate.
        ValueError: A URL with a scheme that no installed package opens; or a str that looks like a mistake:
            ``localhost:8080``, ``:memory:``, an empty one.  A ``Path`` is always a path.
        ModuleNotFoundError: A URL needs the packages of the extra ``http``.
        TypeError: An option that a directory, or a URL, does not have; or the argument is neither of the two.
    """
    place = directory_or_urls(path)
    if isinstance(place, str):
        return _opened("a directory", local.open_database, place, options)
    return _opened("a URL", _session_of(place), place, options)


open.__signature__ = shown(open)  # type: ignore[attr-defined]  # what inspect and help look for


def _opened(kind: str, function: Callable[..., Database], place: "str | Sequence[str]", options: Mapping[str, Any]) -> Database:
    known = getattr(function, "__kwdefaults__", None) or options  # a callable without defaults raises its own TypeError
    if unknown := options.keys() - known.keys():
        raise TypeError(f"{kind} is opened without {', '.join(sorted(unknown))}; options are {', '.join(known)}")
    try:
        return function(place, **plain_options(options))
    except (*OF_THE_CALL, ServerUnavailable) as error:
        cause = error.__cause__
        raise error.with_traceback(None) from cause and cause.with_traceback(None)


def _session_of(urls: Sequence[str]) -> Callable[..., Database]:
    """The function that opens URLs of their scheme."""
    from urllib.parse import urlsplit

    if not urls:
        raise ValueError("no URL is given")
    schemes = {url: urlsplit(url).scheme for url in urls}
    known = announced(SESSIONS)
    if not known:
        raise ValueError(f"{without_credentials(urls[0])!r}: no package that opens URLs is installed")
    for url, scheme in schemes.items():
        if scheme not in known:
            raise ValueError(
                f"{without_credentials(url)!r}: the URL of a server begins with {' or '.join(f'{name}://' for name in sorted(known))}"
            )
    if len(set(schemes.values())) > 1:
        raise ValueError(f"{', '.join(repr(without_credentials(url)) for url in urls)}: all URLs have the same scheme")
    try:
        function: Callable[..., Database] = known[schemes[urls[0]]].load()
    except ModuleNotFoundError as error:
        raise missing_package("a URL", error.name or "") from error
    return function
