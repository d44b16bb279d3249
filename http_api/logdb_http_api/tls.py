"""TLS in front of a door: its certificate, which can be changed while it is open, and how a connection begins.

Knows certificates, their files, and the first bytes of a connection.  Does not know HTTP beyond one answer, nor principals.

    a connection is accepted  ->  its first byte comes  ->  handshake  ->  the door's own protocol
                                  |                         |
                                  no handshake of TLS:      fails, or takes more than ``HANDSHAKE_S``:
                                  told so in plain HTTP     closed

At most ``BEGINNING_COUNT_MAX`` connections are left of the last arrow at a time; further ones are closed.  Each takes the
certificate that is there when it begins, so a reload changes nothing for those that are open.
"""

import asyncio
import json
import logging
import os
import ssl
from asyncio.sslproto import SSLProtocol  # of ``create_server(ssl=…)``, which has one context for good, and reads the first byte itself
from collections.abc import Callable
from typing import TypeAlias

from logdb.errors import InvalidCertificate
from logdb_http_api.limits import descriptors

logger = logging.getLogger(__name__)

Place: TypeAlias = str | os.PathLike[str]

HANDSHAKE_S = 10
BEGINNING_COUNT_MAX = 1_000
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


class Beginnings:
    """Connections whose handshake is not over.  Used on one event loop."""

    def __init__(self, certificate: Certificate, accept: Callable[[], asyncio.Protocol]) -> None:
        """With none yet.

        Args:
            accept: Makes the protocol for a connection that has shaken hands.
        """
        self.certificate, self._accept = certificate, accept
        self._transports: set[asyncio.Transport] = set()

    def begin(self) -> asyncio.Protocol:
        """The protocol for a connection that was accepted."""
        return _Beginning(self)

    def add(self, transport: asyncio.Transport) -> bool:
        """Whether there is room for one more."""
        if len(self._transports) >= descriptors(BEGINNING_COUNT_MAX):
            return False
        self._transports.add(transport)
        return True

    def discard(self, transport: asyncio.Transport) -> None:
        self._transports.discard(transport)

    def handshake(self, transport: asyncio.Transport, data: bytes) -> None:
        """Go on with TLS.

        Args:
            data: What has come so far.
        """
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()
        over.add_done_callback(lambda over: self._over(transport, over))
        protocol = _Handshake(loop, self._accept(), self.certificate.context, over, server_side=True, ssl_handshake_timeout=HANDSHAKE_S)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.get_buffer(len(data))[: len(data)] = data
        protocol.buffer_updated(len(data))

    def _over(self, transport: asyncio.Transport, over: "asyncio.Future[None]") -> None:
        self.discard(transport)
        error = None if over.cancelled() else over.exception()
        if error is not None:
            logger.debug("%s: no handshake: %s", transport.get_extra_info("peername"), error)

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


class _Beginning(asyncio.Protocol):
    """One connection until its first bytes come."""

    def __init__(self, all_of_them: Beginnings) -> None:
        self._all = all_of_them

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._patience = asyncio.get_running_loop().call_later(HANDSHAKE_S, transport.abort)
        if not self._all.add(transport):
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self._patience.cancel()
        if data[0] == _HANDSHAKE_RECORD:
            self._all.handshake(self._transport, data)
        else:
            self._transport.write(_SPEAK_TLS)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._patience.cancel()
        self._all.discard(self._transport)


def _plain_answer(status: str, said: dict[str, object]) -> bytes:
    body = json.dumps(said).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


_SPEAK_TLS = _plain_answer("400 Bad Request", {"error_code": 400, "message": "this port speaks TLS: ask https://, not http://"})
