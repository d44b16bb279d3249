"""The database behind a URL."""

import os
import ssl
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from logdb.client.addresses import path_of
from logdb.client.database import Database
from logdb.client.opening import StrPath
from logdb.client.security_admin import SecurityAdmin
from logdb.client.table.view import TopicViews
from logdb.errors import InvalidCertificate, LocalOnly
from logdb.log.isolation import IsolationLevel
from logdb.mistakes import checked_call, must_be
from logdb.model import TopicInfo
from logdb.requests.report import Copied, Progress, Report
from logdb.requests.security import SubmittedCredentialStore
from logdb.store.sidecars import MadeSidecars
from logdb.store.state import Mode
from logdb_http_api.remote import downloading
from logdb_http_api.remote.connection import Security, credentials_of
from logdb_http_api.remote.connections import Connections
from logdb_http_api.remote.session import RemoteSession

if TYPE_CHECKING:
    from logdb.store.tables import UpdatedTable
    from logdb.store.tiers import TopicTiers


CONNECT_TIMEOUT_MS = 3_000


class RemoteDatabase(Database):
    """Topics and partitions of a server."""

    def __init__(self, session: RemoteSession) -> None:
        super().__init__(session)
        self._remote = session

    @property
    def _session(self) -> RemoteSession:
        return self._remote

    @property
    def path(self) -> str:
        return self._remote.connections.urls[0]

    @property
    def mode(self) -> Mode:
        return "a"

    @property
    def security(self) -> SecurityAdmin:
        return SecurityAdmin(SubmittedCredentialStore(self._remote), self._remote.connections.open_url)

    @checked_call
    def describe_topic(self, name: str) -> TopicInfo:
        return self._remote.described_by_leaders(name)

    def verify(self, progress: Progress | None = None) -> Report:  # noqa: ARG002 -- the server reports no progress
        return self._remote.verify()

    def snapshot(self, path: str | os.PathLike[str], *, progress: Progress | None = None) -> Copied:
        return downloading.snapshot(self._remote.connections, self._remote.io, path_of(path), progress)

    def backup(
        self, path: str | os.PathLike[str], *, base: str | os.PathLike[str] | None = None, progress: Progress | None = None
    ) -> Copied:
        return downloading.backup(
            self._remote.connections, self._remote.io, path_of(path), progress, None if base is None else path_of(base)
        )

    def make_parquet(self, topic: str, partition: int | None = None, *, progress: Progress | None = None) -> list[MadeSidecars]:  # noqa: ARG002 -- the interface's
        raise LocalOnly("make_parquet", self.path)

    def update_iceberg(self, topic: str) -> "UpdatedTable":  # noqa: ARG002 -- the interface's
        raise LocalOnly("update_iceberg", self.path)

    def topic_tiers(self, topic: str, *, isolation_level: IsolationLevel = "read_uncommitted") -> "TopicTiers":  # noqa: ARG002 -- the interface's
        raise LocalOnly("topic_tiers", self.path)

    def _open_views(self) -> TopicViews:
        session = self._remote
        return TopicViews(session, None, clean_offset=self._clean_offset, io=session.io, clock_ms=session.clock or session.io.clock_ms)

    def _clean_offset(self, topic: str, partition: int) -> int:
        return self._remote.describe_topic(topic).partitions[partition].clean_offset


def open_urls(
    urls: Sequence[str],
    *,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    ca_file: StrPath | None = None,
    cert_file: StrPath | None = None,
    key_file: StrPath | None = None,
    batch_size: int = 262_144,
    timeout_ms: int = 30_000,
    connect_timeout_ms: int | None = None,
    rack: str | None = None,
    clock: Callable[[], int] | None = None,
) -> Database:
    """See ``logdb.open``; checks that a server answers, and accepts the credentials.

    Without ``user``, ``token`` and a user in the URL, the credentials are those of the variables LOGDB_TOKEN, or LOGDB_USER and
    LOGDB_PASSWORD.  Without ``rack``, it is that of LOGDB_RACK.
    """
    if timeout_ms < 1:
        raise ValueError(must_be("timeout_ms", timeout_ms, "1 or more"))
    if connect_timeout_ms is None:
        connect_timeout_ms = min(CONNECT_TIMEOUT_MS, timeout_ms)
    elif connect_timeout_ms < 1:
        raise ValueError(must_be("connect_timeout_ms", connect_timeout_ms, "1 or more"))
    given = password
    if user is None and token is None:
        user, password, token = _credentials(urls[0], password)
    if user is not None and token is not None:
        raise ValueError("user and token are both given: give one of them")
    if user is None and given is not None:
        raise ValueError("a password is given without a user")
    security = Security(user, password, token, _context(ca_file, cert_file, key_file))
    rack = os.environ.get("LOGDB_RACK", "") if rack is None else rack
    connections = Connections(urls, security, timeout_ms=timeout_ms, connect_timeout_ms=connect_timeout_ms, rack=rack)
    session = RemoteSession(connections, batch_size=batch_size, clock=clock)
    try:
        session.ends.ends({}, 0)
    except BaseException:
        session.close()
        raise
    return RemoteDatabase(session)


def _context(ca_file: StrPath | None, cert_file: StrPath | None, key_file: StrPath | None) -> ssl.SSLContext | None:
    """The TLS context; None without settings.

    Raises:
        InvalidCertificate: A file is missing or invalid.
    """
    if ca_file is None and cert_file is None:
        return None
    at = ca_file
    try:
        context = ssl.create_default_context(cafile=ca_file)
        if cert_file is not None:
            at = cert_file
            context.load_cert_chain(cert_file, key_file)
    except OSError as error:  # ssl.SSLError is a subclass
        raise InvalidCertificate(os.fspath(at or ""), error.strerror or str(error)) from error
    return context


def _credentials(url: str, password: str | None) -> tuple[str | None, str | None, str | None]:
    """User, password and token, from the URL or the environment."""
    user, secret = credentials_of(url)
    if user is not None:
        return user, password or secret, None
    environment = os.environ
    if token := environment.get("LOGDB_TOKEN"):
        return None, None, token
    return environment.get("LOGDB_USER"), password or environment.get("LOGDB_PASSWORD"), None
