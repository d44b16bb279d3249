"""Opening a database by what it is named: a directory, or the URLs of servers.

Knows that a URL's scheme belongs to whichever package announces it.  Does not know what it opens.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, overload

from logdb.client import local
from logdb.client.addresses import directory_or_urls, without_credentials
from logdb.client.database import Database
from logdb.errors import missing_package
from logdb.io import IO
from logdb.mistakes import OF_THE_CALL
from logdb.model import Durability
from logdb.store.cleaner import CLEANER_BYTES_PER_SECOND
from logdb.store.state import Mode

Place: TypeAlias = str | os.PathLike[str]

SESSIONS = "logdb.sessions"
"""The entry points by which a package says which URL schemes it opens: scheme = module:function(urls, **options) -> Database."""


@overload
def open_database(
    path: Place,
    *,
    mode: Mode = "a",
    durability: Durability = "interval",
    batch_size: int = 16_384,
    linger_ms: int = 5,
    cleaner_bytes_per_second: int = CLEANER_BYTES_PER_SECOND,
    offsets_retention_minutes: int | None = None,
    io: IO | None = None,
    clock: Callable[[], int] | None = None,
) -> Database: ...


@overload
def open_database(
    path: str | Sequence[str],
    *,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    ca_file: Place | None = None,
    cert_file: Place | None = None,
    key_file: Place | None = None,
    batch_size: int = 262_144,
    timeout_ms: int = 30_000,
    connect_timeout_ms: int | None = None,
    clock: Callable[[], int] | None = None,
) -> Database: ...


def open_database(path: "Place | Sequence[str]", **options: Any) -> Database:
    """Open the database in a directory, making it if it is not there; or the one that a server holds.

    Args:
        path: The directory; or ``http://host:port``, ``https://host:port``, or several of them, of one server or cluster.
        mode: ``"a"`` to append and read: one handle at a time.  ``"r"`` to read, beside a writer
            in this or another process.
        durability: What an acknowledged record survives, unless its topic or call says otherwise.
            ``"os"``: the process.  ``"interval"``: the machine too, after ``flush.ms`` (1 s) at most.
            ``"fsync"``: the machine, at once.
        batch_size: Bytes at which an open batch is closed, 101 to 1,048,576.
        linger_ms: How long a record waits in memory for others before it is written, 0 to 60,000.
        retention_check_interval_ms: How often at most old records are looked for in the background (Kafka's
            ``log.retention.check.interval.ms``), 1 or more; also when it is opened, when a segment is full, and when it is closed.
        cleaner_bytes_per_second: What compaction in the background may read and write, over all topics, 1 or more.
        offsets_retention_minutes: How long the committed offsets of a group without members are kept, 1 or more;
            None: until the group is deleted.
        io: What touches files and clock; for tests.
        clock: Milliseconds since 1970, for records without a timestamp; None: the machine's,
            read coarsely (it may lag by a tick, 4 ms).
        user, password: Of a URL: who to be there (HTTP Basic).
        token: Of a URL: a bearer token instead.  Without any of these, the URL itself (``http://user:password@host``) says who
            to be, or the variables LOGDB_TOKEN, or LOGDB_USER and LOGDB_PASSWORD.
        ca_file: Of an ``https`` URL: certificates to trust, PEM; None: the system's.
        cert_file, key_file: Of an ``https`` URL: the certificate to show, and its key, PEM.
        timeout_ms: Of a URL: how long one request, and all tries of it, may take, 1 or more.
        connect_timeout_ms: Of a URL: how long to try to reach a server at first, 1 or more; None: 3,000, or ``timeout_ms`` if that is
            less.  A server that has answered once is waited for by ``timeout_ms``.

    Returns:
        The database; close it, or use it in a ``with`` statement.

    Raises:
        DirectoryLocked: Another handle appends to it; names the process.
        NotADatabase: The directory holds something else, or with ``mode="r"`` nothing.
        CatalogueDamaged: ``logdb repair`` rebuilds it.
        UnsupportedFormat: A newer logdb wrote it.
        ServerUnavailable: No server answers at any of the URLs, or none that is trusted; after the first failure of each a warning
            is logged.
        AuthenticationFailed: The server does not know whoever asks.
        InvalidCertificate: One of the files is not there, or no certificate.
        ValueError: A URL of a scheme that nothing installed here opens; or a name that looks like something other than a
            directory's: ``localhost:8080``, ``:memory:``, nothing at all.  A ``Path`` is a path, whatever it looks like.
        ModuleNotFoundError: A URL needs what the extra ``http`` installs.
        TypeError: An option that a directory, or a URL, does not have; or neither of the two is given.
    """
    place = directory_or_urls(path)
    if isinstance(place, str):
        return _opened("a directory", local.open_database, place, options)
    return _opened("a URL", _session_of(place), place, options)


def _opened(kind: str, function: Callable[..., Database], place: "str | Sequence[str]", options: Mapping[str, Any]) -> Database:
    known = getattr(function, "__kwdefaults__", None) or options  # others' callables say for themselves what they lack
    if unknown := options.keys() - known.keys():
        raise TypeError(f"{kind} is opened without {', '.join(sorted(unknown))}; options are {', '.join(known)}")
    try:
        return function(place, **options)
    except OF_THE_CALL as error:
        raise error.with_traceback(None) from error.__cause__


def _session_of(urls: Sequence[str]) -> Callable[..., Database]:
    """What opens URLs of their scheme."""
    from importlib.metadata import entry_points  # a directory needs none of these
    from urllib.parse import urlsplit

    if not urls:
        raise ValueError("no URL is given")
    schemes = {url: urlsplit(url).scheme for url in urls}
    known = {point.name: point for point in entry_points(group=SESSIONS)}
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
