"""``security.json``: users, tokens, ACLs and quotas of a database.

The file is one line of compact JSON with its CRC (``store.json_line``; docs/format.md has an example), readable by its owner only, as
all of the directory is from the first change on.  A change replaces the whole file, synced, so a crash leaves the old or the new one.
A process that changes it holds the lock of ``security.lock``; readers need no lock.  While the file exists, authentication is on.  A
damaged file is an error; it is never taken for an empty one.

A reader looks at the file every ``LOOK_MS``; ``change`` waits for as long before it returns.
"""

import base64
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from logdb.access.acls import Acl
from logdb.access.credentials import ITERATION_COUNT_MAX, ITERATION_COUNT_MIN, MECHANISMS, Mechanism, ScramCredential
from logdb.access.principals import Principal
from logdb.access.quotas import Quota
from logdb.disk import File, changing, looking, read_file, replace_file
from logdb.errors import CorruptionError, DirectoryLocked, InvalidSecurity, LogdbError, ReadFailed
from logdb.io import IO
from logdb.store import json_line
from logdb.store.directories import is_private, make_private
from logdb.store.json_line import SECURITY_FILE_NAME, SECURITY_LOCK_NAME, SECURITY_SIZE_BYTES_MAX
from logdb.threads import renewed

LOOK_MS = 10
_LOCK_WAIT_S, _LOCK_POLL_S = 10.0, 0.005
_UNREAD = (-1,)  # the version of no file
_DEFAULT = "default"  # the default quota's

T = TypeVar("T")


class Token(NamedTuple):
    """One token, without its secret: ``sha256`` is hexadecimal; times are ms since 1970, ``expires_ms`` None: never."""

    name: str
    owner: Principal
    sha256: str
    created_ms: int
    expires_ms: int | None


class Security(NamedTuple):
    """The content of one ``security.json``; the quota of None is the default quota."""

    users: Mapping[str, Mapping[Mechanism, ScramCredential]] = {}
    super_users: frozenset[Principal] = frozenset()
    tokens: tuple[Token, ...] = ()
    acls: tuple[Acl, ...] = ()
    quotas: Mapping[Principal | None, Quota] = {}


# ---------------------------------------------------------------- the format


def encode(content: Security) -> bytes:
    fields = {
        "users": {
            name: {mechanism: _encode_credential(credential) for mechanism, credential in sorted(credentials.items())}
            for name, credentials in sorted(content.users.items())
        },
        "super_users": sorted(map(str, content.super_users)),
        "tokens": [{**token._asdict(), "owner": str(token.owner)} for token in sorted(content.tokens)],
        "acls": [{**acl._asdict(), "principal": str(acl.principal)} for acl in sorted(set(content.acls))],
        "quotas": {
            _DEFAULT if principal is None else str(principal): quota._asdict()
            for principal, quota in sorted(content.quotas.items(), key=lambda item: (item[0] is not None, str(item[0])))
        },
    }
    return json_line.encode_security(fields)


def _encode_credential(credential: ScramCredential) -> dict[str, object]:
    return {name: part if isinstance(part, int) else base64.b64encode(part).decode() for name, part in credential._asdict().items()}


def decode(data: bytes, path: str) -> Security:
    """Parse a ``security.json``.

    Raises:
        CorruptionError: The bytes are not exactly those that ``encode`` writes.
        UnsupportedFormat: A newer logdb wrote it.
    """
    fields = json_line.decode_security(data, path)
    try:
        content = Security(
            users={name: _credentials(given) for name, given in fields.pop("users").items()},
            super_users=frozenset(map(Principal.parse, fields.pop("super_users"))),
            tokens=tuple(_token(given) for given in fields.pop("tokens")),
            acls=tuple(Acl(**{**given, "principal": Principal.parse(given["principal"])}).check() for given in fields.pop("acls")),
            quotas={
                None if name == _DEFAULT else Principal.parse(name): Quota(**given).check() for name, given in fields.pop("quotas").items()
            },
        )
        same = not fields and encode(content) == data
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(path, 0, f"not users, tokens and ACLs: {error}") from None
    if not same:
        raise CorruptionError(path, 0, "its bytes differ from what logdb writes for this content")
    return content


def _credentials(given: Mapping[str, Mapping[str, Any]]) -> dict[Mechanism, ScramCredential]:
    found: dict[Mechanism, ScramCredential] = {}
    for mechanism in MECHANISMS:
        if (fields := given.get(mechanism)) is not None:
            iterations = fields["iterations"]
            if not ITERATION_COUNT_MIN <= iterations <= ITERATION_COUNT_MAX:
                raise ValueError(f"iterations={iterations}")
            salt, stored_key, server_key = (base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key"))
            found[mechanism] = ScramCredential(salt, iterations, stored_key, server_key)
    return found


def _token(given: Mapping[str, Any]) -> Token:
    token = Token(**{**given, "owner": Principal.parse(given["owner"])})
    for time_ms in (token.created_ms, token.expires_ms or 0):
        if not isinstance(time_ms, int):
            raise TypeError(f"a token's time is {time_ms!r}")
    return token


# ---------------------------------------------------------------- the file


def load(io: IO, directory: str) -> Security | None:
    """Read the file of a database; None where there is none.  Raises CorruptionError, UnsupportedFormat, ReadFailed."""
    path = os.path.join(directory, SECURITY_FILE_NAME)
    try:
        data = read_file(io, path, SECURITY_SIZE_BYTES_MAX)
    except FileNotFoundError:
        return None
    return decode(data, path)


def change(io: IO, directory: str, edit: "Callable[[Security], tuple[Security, T]]") -> T:
    """Change the file, or create it; when this returns the change is durable, and in effect in every process.

    Args:
        edit: Takes the content; returns the new content, and what ``change`` returns.  If it raises, the file is unchanged.

    Raises:
        DirectoryLocked: Another process has held the lock for ten seconds.
        InvalidSecurity: The new content is larger than readers accept.
        CorruptionError, UnsupportedFormat, DiskFull, WriteFailed, SyncFailed: The file is unchanged.
    """
    path = os.path.join(directory, SECURITY_FILE_NAME)
    with _locked(io, os.path.join(directory, SECURITY_LOCK_NAME)):
        content, result = edit(load(io, directory) or Security())
        data = encode(content)
        if len(data) > SECURITY_SIZE_BYTES_MAX:
            raise InvalidSecurity(f"{path} would have {len(data)} bytes: allowed are {SECURITY_SIZE_BYTES_MAX}")
        if not is_private(io, directory):
            make_private(io, directory)
        with changing(path):
            File(io, path + ".tmp", os.O_RDWR | os.O_CREAT, 0o600).close()
        replace_file(io, path, data)
    time.sleep((LOOK_MS + 1) / 1000)  # clocks of ms are up to one behind
    return result


@contextlib.contextmanager
def _locked(io: IO, path: str) -> Iterator[None]:
    with changing(path):
        file = File(io, path, os.O_RDWR | os.O_CREAT, 0o600)
    with file:
        until = time.monotonic() + _LOCK_WAIT_S
        while not file.lock():
            if time.monotonic() >= until:
                raise DirectoryLocked(path, pid=0, host="", since="")
            time.sleep(_LOCK_POLL_S)
        try:
            yield
        finally:
            file.unlock()


class Watched:
    """The file as it was at most ``LOOK_MS`` ago; read again whenever it was replaced.

    The file stays open, so that no other file gets its inode number: a stat of the name tells whether it was replaced.

    Threading: any number of threads.
    """

    def __init__(self, io: IO, directory: str, take: Callable[[Security | None], None]) -> None:
        """Nothing is read yet.

        Args:
            take: Called with the content; None: the file is absent.
        """
        self._io, self.path, self._take = io, os.path.join(directory, SECURITY_FILE_NAME), take
        self._lock = renewed(threading.Lock())
        self._file: File | None = None
        self._version: tuple[int, ...] | None = _UNREAD
        self._looked_ms = -LOOK_MS

    def refresh(self) -> None:
        """Call ``take`` if the file was replaced; looks once in ``LOOK_MS``.

        Raises:
            CorruptionError, UnsupportedFormat: The file is damaged; it is read again when it was replaced.
            ReadFailed: The file cannot be read; the next look tries again.
        """
        now_ms = self._io.monotonic_ms()
        if now_ms - self._looked_ms < LOOK_MS:
            return
        with self._lock:
            with looking(self.path):
                version = self._io.path_version(self.path)
            try:
                if version != self._version:
                    self._take(self._read())
                    self._version = version
            except ReadFailed:
                raise
            except LogdbError:
                self._version = version  # a damaged file is not read twice
                raise
            finally:
                self._looked_ms = now_ms

    @property
    def is_there(self) -> bool:
        """Whether the file existed at the last look."""
        return self._file is not None

    def _read(self) -> Security | None:
        self._let_go()
        try:
            self._file = File(self._io, self.path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        return decode(self._file.read(SECURITY_SIZE_BYTES_MAX, 0), self.path)

    def _let_go(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close the file; ``take`` is not called any more."""
        with self._lock:
            self._let_go()
