"""The address at which a door listens, with TLS or without.

Threading: the event loop of the server.
"""

import asyncio
from collections.abc import Callable

from logdb.serving.connection_slots import ConnectionSlot, ConnectionSlots, descriptors
from logdb.serving.tls import Certificate, PendingHandshakes

_BACKLOG = 1024
_ACCEPT_ROUND_COUNT = 2


class Listener:
    """Accepts connections for one door, until ``stop``."""

    def __init__(
        self,
        address: str,
        certificate: Certificate | None,
        slots: ConnectionSlots,
        accept: Callable[[ConnectionSlot | None], asyncio.BaseProtocol],
        *,
        handshake_timeout_ms: int,
    ) -> None:
        """Not open yet.

        Args:
            address: ``host:port``, as ``Server`` has checked it.
            certificate: None: no TLS.
            accept: The door's protocol for a connection; None: the protocol takes the slot itself when the connection is made.
            handshake_timeout_ms: See ``PendingHandshakes``.
        """
        self._address, self._accept = address, accept
        self._server: asyncio.Server | None = None
        self._handshakes: PendingHandshakes | None = None
        if certificate is not None:
            self._handshakes = PendingHandshakes(certificate, slots, accept, timeout_ms=handshake_timeout_ms)

    async def open(self) -> str:
        """Listen; returns the address, with the port that was chosen where it was 0.

        Raises:
            OSError: The address cannot be listened at.
        """
        host, _, port = self._address.rpartition(":")
        begin = (lambda: self._accept(None)) if self._handshakes is None else self._handshakes.begin
        self._server = await asyncio.get_running_loop().create_server(
            begin, host.removeprefix("[").removesuffix("]"), int(port), backlog=descriptors(_BACKLOG)
        )
        return host_and_port(*self._server.sockets[0].getsockname()[:2])

    async def stop(self) -> None:
        """Accept no more connections, if it was opened; the door's protocols of all accepted ones have been made when this returns.

        From its accept on, asyncio takes two rounds of the loop to make a connection, and loses it if the listener is closed
        meanwhile: nothing would close it, nor answer.
        """
        loop = asyncio.get_running_loop()
        if self._server is None:
            return
        try:
            for listening in self._server.sockets:
                loop.remove_reader(listening.fileno())
            for _ in range(_ACCEPT_ROUND_COUNT):
                await asyncio.sleep(0)
        finally:
            self._server.close()

    def abort_handshakes(self) -> None:
        """Close the connections whose handshake is not over."""
        if self._handshakes is not None:
            self._handshakes.abort()


def host_and_port(host: str, port: int) -> str:
    """An address as URLs have it: IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
