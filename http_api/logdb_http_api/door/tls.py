"""TLS in front of a door: its certificate, which can be changed while it is open, and how a connection begins.

Knows certificates, their files, and the first bytes of a connection.  Does not know HTTP beyond one answer, nor principals.

    a connection is accepted  ->  its first byte comes  ->  handshake  ->  the door's own protocol
                                  |                         |
                                  no handshake of TLS:      fails:
                                  told so in plain HTTP     closed

What is left of the last arrow takes ``header_timeout_ms`` at most, and a place (``places``) from the begin on: where there is none,
the connection is closed.  Each takes the certificate that is there when it begins, so a reload changes nothing for those that are open.
"""

import asyncio
import json
import logging
import os
import ssl
from asyncio.sslproto import SSLProtocol  # of ``create_server(ssl=…)``, which has one context for good, and reads the first byte itself
from functools import partial
from typing import TypeAlias

from logdb.errors import InvalidCertificate
from logdb_http_api.door.connections import Connection, Connections, host_of

logger = logging.getLogger(__name__)

Place: TypeAlias = str | os.PathLike[str]

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2: forward secret and authenticated.  Those of TLS 1.3 are all so."""
_HANDSHAKE_RECORD = 0x16  # RFC 8446, section 5.1: the first byte of a client that speaks TLS


class Certificate:
    """A server's certificate and key, and whose clients' certificates it believes.

    Attributes:
        context: For the next connection.
    """

    def __init__(self, cert_file: Place, key_file: Place | None = None, client_ca_file: Place | None = None) -> None:
        """Read the files.

        Args:
            cert_file: The server's certificate, and those between it and its authority, PEM.
            key_file: Its key, PEM, without a passphrase; None: it is in ``cert_file``.
            client_ca_file: Certificates of the authorities of clients, PEM; None: clients are asked for no certificate.

        Raises:
            InvalidCertificate: A file cannot be read, or they don't belong together.
        """
        self._cert_file, self._key_file, self._client_ca_file = cert_file, key_file, client_ca_file
        self.context = self._read()

    def reload(self) -> None:
        """Read the files again, for connections from now on; where they cannot be used, what was read before still counts.

        Raises:
            InvalidCertificate: as when it was made.
        """
        try:
            self.context = self._read()
        except InvalidCertificate as error:
            logger.error("%s; the certificate that was read before still counts", error)
            raise
        logger.info("%s was read again", os.fspath(self._cert_file))

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(CIPHERS)
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self._cert_file, self._key_file, _no_passphrase)
        except (OSError, ValueError) as error:
            raise InvalidCertificate(_places(self._cert_file, self._key_file), _reason(error)) from error
        if self._client_ca_file is not None:
            context.verify_mode = ssl.CERT_OPTIONAL
            try:
                context.load_verify_locations(self._client_ca_file)
            except (OSError, ValueError) as error:
                raise InvalidCertificate(_places(self._client_ca_file), _reason(error)) from error
        return context


def _no_passphrase() -> str:
    """Rather than to ask at the terminal."""
    raise ValueError("the key has a passphrase, wanted is one without")


def _places(*files: Place | None) -> str:
    return ", ".join(os.fspath(file) for file in files if file is not None)


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError) and error.reason is not None:
        return error.reason.lower().replace("_", " ")
    if isinstance(error, ssl.SSLError):
        return "not in PEM"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


class PendingHandshakes:
    """Connections whose handshake is not over.  Used on one event loop."""

    def __init__(self, certificate: Certificate, connections: Connections) -> None:
        """With none yet; ``connections``: those that have shaken hands."""
        self.certificate, self._connections = certificate, connections
        self._transports: set[asyncio.Transport] = set()

    def begin(self) -> asyncio.Protocol:
        """The protocol for a connection that was accepted."""
        return _PendingHandshake(self, self._connections)

    def add(self, transport: asyncio.Transport) -> None:
        self._transports.add(transport)

    def discard(self, transport: asyncio.Transport) -> None:
        self._transports.discard(transport)

    def abort(self) -> None:
        """Close them all."""
        for transport in list(self._transports):
            transport.abort()


class _Handshake(SSLProtocol):
    """Tells a client why its handshake fails, by the alert that OpenSSL has ready; asyncio drops it with the connection."""

    def _on_handshake_complete(self, handshake_exc: BaseException | None) -> None:
        if handshake_exc is not None:
            self._process_outgoing()  # type: ignore[attr-defined]  # typeshed does not know it
        super()._on_handshake_complete(handshake_exc)


class _PendingHandshake(asyncio.Protocol):
    """One connection until its handshake is over."""

    def __init__(self, all_of_them: PendingHandshakes, connections: Connections) -> None:
        self._all, self._connections = all_of_them, connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._patience = self._connections.loop.call_later(self._connections.limits.header_timeout_ms / 1000, transport.abort)
        self._all.add(transport)
        self._place = self._connections.slots.take(host_of(transport), extra=True)
        if self._place is None:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if data[0] == _HANDSHAKE_RECORD:
            self._shake_hands(data)
        else:
            self._transport.write(_SPEAK_TLS)
            self._transport.close()

    def _shake_hands(self, data: bytes) -> None:
        """Go on with TLS; ``data``: what has come so far."""
        loop = self._connections.loop
        over: asyncio.Future[None] = loop.create_future()
        connection = self._connections.accept(self._place)
        over.add_done_callback(partial(self._over, connection))
        protocol = _Handshake(loop, connection, self._all.certificate.context, over, server_side=True)
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.get_buffer(len(data))[: len(data)] = data
        protocol.buffer_updated(len(data))

    def _over(self, connection: Connection, over: "asyncio.Future[None]") -> None:
        error = None if over.cancelled() else over.exception()
        if error is not None:
            logger.debug("%s: no handshake: %s", self._transport.get_extra_info("peername"), error)
        self._patience.cancel()
        self._all.discard(self._transport)
        if not connection.is_made and self._place is not None:
            self._place.give_back()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._patience.cancel()
        self._all.discard(self._transport)
        if self._place is not None:
            self._place.give_back()


def _plain_answer(status: str, said: dict[str, object]) -> bytes:
    body = json.dumps(said).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


_SPEAK_TLS = _plain_answer("400 Bad Request", {"error_code": 400, "message": "this port speaks TLS: ask https://, not http://"})
