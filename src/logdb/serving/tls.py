"""TLS in front of a door: its certificate, which can change while the door is open, and the begin of a connection.

    a connection is accepted  ->  its first byte comes  ->  handshake  ->  the door's own protocol
                                  |                         |
                                  no handshake of TLS:      fails:
                                  HTTP is told so, closed   closed

A connection has ``timeout_ms`` for all of that, and takes its slot (``connection_slots``) at the begin: without a free slot it is
closed.  A handshake uses the certificate that is current when it begins: a reload does not change open connections.

OpenSSL accepts a chain of authorities that a client sends.  A client whose own certificate may sign could issue one for any name.
``unlisted_issuer`` finds such chains: each issuer of a client's certificate must be in the file of authorities.
"""

import asyncio
import hashlib
import logging
import os
import re
import ssl
import sys
from asyncio.sslproto import SSLProtocol  # of ``create_server(ssl=…)``, which has one context for good, and reads the first byte itself
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self, TypeAlias

from logdb.access.certificates import distinguished_name
from logdb.errors import InvalidCertificate
from logdb.serving.connection_slots import ConnectionSlot, ConnectionSlots, host_of
from logdb.serving.loop_time import LoopTime

logger = logging.getLogger(__name__)

FilePath: TypeAlias = str | os.PathLike[str]

TLS_OPTIONS = frozenset(("tls_cert", "tls_key", "tls_client_ca", "tls_principal"))
"""Options that each door takes."""
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2: forward secret and authenticated.  Those of TLS 1.3 are all so."""
_HANDSHAKE_RECORD = 0x16  # RFC 8446, section 5.1: the first byte of a client that speaks TLS
_SAID = b'{"error_code": 400, "message": "this port speaks TLS: ask https://, not http://"}'
_ASK_TLS = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (
    len(_SAID),
    _SAID,
)
"""The answer to a method of HTTP, in capitals; a client of Kafka begins with the size of a frame."""


_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_LISTED_COUNT_MAX = 10_000


class _Context(ssl.SSLContext):
    """A server's context.

    Attributes:
        listed: SHA-256 of clients' certificates whose issuers are all in the file of authorities.  A resumed session has no chain.
    """

    listed: dict[bytes, None]


class Certificate:
    """A server's certificate and key, and the authorities of its clients' certificates.

    Attributes:
        context: For the next connection.
    """

    def __init__(
        self, cert_file: FilePath, key_file: FilePath | None = None, client_ca_file: FilePath | None = None, *, alpn: Sequence[str] = ()
    ) -> None:
        """Read the files.

        Args:
            cert_file: The server's certificate, and those between it and its authority, PEM.
            key_file: Its key, PEM, without a passphrase; None: it is in ``cert_file``.
            client_ca_file: Certificates of the authorities of clients, PEM; None: clients are asked for no certificate.
            alpn: Names of the protocols that the door speaks (RFC 7301).

        Raises:
            InvalidCertificate: A file cannot be read, or they don't belong together.
        """
        self._cert_file, self._key_file, self._client_ca_file, self._alpn = cert_file, key_file, client_ca_file, alpn
        self.context = self._read()

    @classmethod
    def of_options(
        cls,
        tls_cert: FilePath | None = None,
        tls_key: FilePath | None = None,
        tls_client_ca: FilePath | None = None,
        *,
        alpn: Sequence[str] = (),
    ) -> Self | None:
        """The certificate that a door's options name; None: they name none, so that the door has no TLS.

        Raises:
            InvalidCertificate: as ``Certificate``.
            ValueError: There is a key, or an authority, but no certificate.
        """
        if tls_cert is not None:
            return cls(tls_cert, tls_key, tls_client_ca, alpn=alpn)
        if tls_key is not None or tls_client_ca is not None:
            raise ValueError("tls_key and tls_client_ca are of use only with tls_cert")
        return None

    def reload(self) -> None:
        """Read the files again, for connections from now on; any thread.

        Raises:
            InvalidCertificate: They cannot be used; the certificate stays as it was.
        """
        try:
            self.context = self._read()
        except InvalidCertificate as error:
            logger.error("%s; the certificate that was read before stays in use", error)
            raise
        logger.info("%s was read again", os.fspath(self._cert_file))

    def _read(self) -> ssl.SSLContext:
        context = _Context(ssl.PROTOCOL_TLS_SERVER)
        context.listed = {}
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(CIPHERS)
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        if self._alpn:
            context.set_alpn_protocols(list(self._alpn))
        try:
            context.load_cert_chain(self._cert_file, self._key_file, _no_passphrase)
        except (OSError, ValueError) as error:
            raise InvalidCertificate(_places(self._cert_file, self._key_file), _reason(error)) from error
        if self._client_ca_file is not None:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # an authority of the file need not be a root
            try:
                context.load_verify_locations(self._client_ca_file)
            except (OSError, ValueError) as error:
                raise InvalidCertificate(_places(self._client_ca_file), _reason(error)) from error
            self._warn_if_it_may_sign()
        return context

    def _warn_if_it_may_sign(self) -> None:
        """Warn if the server's own certificate may sign: clients' certificates are then often made in the same way."""
        try:
            with open(self._cert_file, encoding="latin-1") as file:
                found = _PEM.search(file.read())
            authorities = _authorities(ssl.PEM_cert_to_DER_cert(found[0])) if found else []
        except (OSError, ValueError):  # it was replaced meanwhile: the next reload reads it
            return
        for own in authorities:
            if own["subject"] != own["issuer"]:
                logger.warning(
                    "%s may sign other certificates (CA:TRUE). A client with such a certificate could sign one for any user. "
                    "Issue certificates of servers and clients with basicConstraints=critical,CA:FALSE",
                    os.fspath(self._cert_file),
                )


def unlisted_issuer(connection: ssl.SSLObject) -> str | None:
    """The first issuer of a client's certificate that is not in the file of authorities; None: each issuer is.

    A certificate that may itself sign is logged, once.

    Args:
        connection: Of a client that has shown a certificate, after the handshake.
    """
    context, certificate = connection.context, connection.getpeercert(True)
    assert isinstance(context, _Context)
    assert certificate is not None
    digest = hashlib.sha256(certificate).digest()
    if digest in context.listed:
        return None
    chain = _verified_chain(connection)
    if not chain:
        return "a TLS session that began long ago (begin a new one)"
    listed = set(context.get_ca_certs(binary_form=True))
    for issuer in chain[1:]:
        if issuer not in listed:
            return _names(issuer)
    if certificate not in listed and _authorities(certificate):
        logger.warning(
            "the client certificate of %s may sign other certificates (CA:TRUE): issue it again with basicConstraints=critical,CA:FALSE",
            _names(certificate),
        )
    while len(context.listed) >= _LISTED_COUNT_MAX:
        del context.listed[next(iter(context.listed))]
    context.listed[digest] = None
    return None


def _verified_chain(connection: ssl.SSLObject) -> list[bytes]:
    """From the client's certificate to an authority of the file, as DER; empty for a resumed session."""
    if sys.version_info >= (3, 13):
        return connection.get_verified_chain()
    chain = connection._sslobj.get_verified_chain() or ()  # type: ignore[attr-defined]  # public since 3.13
    return [ssl.PEM_cert_to_DER_cert(certificate.public_bytes()) for certificate in chain]


def _authorities(certificate: bytes) -> "list[dict[str, Any]]":
    """The fields of a certificate, DER, if it may sign others; empty if it may not."""
    store = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    store.load_verify_locations(cadata=certificate)
    return store.get_ca_certs()


def _names(certificate: bytes) -> str:
    """The subject of an authority, quoted."""
    return ", ".join(repr(distinguished_name(one["subject"])[:200]) for one in _authorities(certificate)) or "a certificate"


def _no_passphrase() -> str:
    """Without this, OpenSSL asks at the terminal."""
    raise ValueError("the key has a passphrase: must be a key without one")


def _places(*files: FilePath | None) -> str:
    return ", ".join(os.fspath(file) for file in files if file is not None)


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError) and error.reason is not None:
        return error.reason.lower().replace("_", " ")
    if isinstance(error, ssl.SSLError):
        return "not in PEM"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


_NEVER_S = 86_400  # asyncio's own time for a handshake counts while the loop has no turn


class PendingHandshakes:
    """The connections of a door whose handshake is not over.  Used on one event loop."""

    def __init__(
        self,
        certificate: Certificate,
        slots: ConnectionSlots,
        accept: Callable[[ConnectionSlot], asyncio.BaseProtocol],
        *,
        timeout_ms: int,
    ) -> None:
        """There are none yet.

        Args:
            accept: The door's protocol for a connection after its handshake.  From ``connection_made`` on it owns the slot.
            timeout_ms: From the begin of a connection to the end of its handshake.
        """
        self.certificate, self.slots, self.accept, self.timeout_ms = certificate, slots, accept, timeout_ms
        self._began_s: dict[asyncio.Transport, float] = {}
        self._time = LoopTime()
        self._sweeper: asyncio.TimerHandle | None = None  # while there is a connection

    def begin(self) -> asyncio.Protocol:
        """The protocol for a connection that was accepted."""
        return _PendingHandshake(self)

    def add(self, transport: asyncio.Transport) -> None:
        self._began_s[transport] = self._time.now_s()
        self._watch()

    def discard(self, transport: asyncio.Transport) -> None:
        self._began_s.pop(transport, None)
        if not self._began_s and self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    def abort(self) -> None:
        """Close all of them."""
        for transport in list(self._began_s):
            transport.abort()

    def _watch(self) -> None:
        if self._sweeper is None and self._began_s:
            loop = asyncio.get_running_loop()
            self._sweeper = loop.call_later(self.timeout_ms / LoopTime.LOOKS / 1000, self._sweep)

    def _sweep(self) -> None:
        """Close those whose time is over."""
        if self._sweeper is not None:
            self._time.came(self._sweeper)
        self._sweeper, due_s = None, self._time.now_s() - self.timeout_ms / 1000
        for transport, began_s in list(self._began_s.items()):
            if began_s < due_s:
                transport.abort()
        self._watch()


class _Handshake(SSLProtocol):
    """Sends a client the alert that says why its handshake failed; asyncio drops it with the connection.

    Attributes:
        completed: The handshake succeeded, and the door's protocol was told of the connection.
    """

    completed = False

    def _on_handshake_complete(self, handshake_exc: BaseException | None) -> None:
        if handshake_exc is not None:
            self._process_outgoing()  # type: ignore[attr-defined]  # typeshed does not know it
        self.completed = handshake_exc is None
        super()._on_handshake_complete(handshake_exc)


class _PendingHandshake(asyncio.Protocol):
    """One connection until its handshake is over."""

    def __init__(self, pending: PendingHandshakes) -> None:
        self._pending, self._loop = pending, asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._pending.add(transport)
        self._slot = self._pending.slots.take(host_of(transport), extra=True)
        if self._slot is None:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._slot is not None and data[0] == _HANDSHAKE_RECORD:
            self._begin_handshake(data, self._slot)
        else:
            if data[:1].isupper():
                self._transport.write(_ASK_TLS)
            self._transport.close()

    def _begin_handshake(self, data: bytes, slot: ConnectionSlot) -> None:
        """Go on with TLS; ``data``: what has come so far."""
        over: asyncio.Future[None] = self._loop.create_future()
        accepted, context = self._pending.accept(slot), self._pending.certificate.context
        protocol = _Handshake(self._loop, accepted, context, over, server_side=True, ssl_handshake_timeout=_NEVER_S)
        over.add_done_callback(partial(self._over, slot, protocol))
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.get_buffer(len(data))[: len(data)] = data
        protocol.buffer_updated(len(data))

    def _over(self, slot: ConnectionSlot, handshake: _Handshake, over: "asyncio.Future[None]") -> None:
        error = None if over.cancelled() else over.exception()
        if error is not None:
            logger.debug("%s: no handshake: %s", self._transport.get_extra_info("peername"), error)
        self._pending.discard(self._transport)
        if error is not None or not handshake.completed:
            slot.give_back()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._pending.discard(self._transport)
        if self._slot is not None:
            self._slot.give_back()
