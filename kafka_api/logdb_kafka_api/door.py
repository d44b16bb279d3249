"""The Kafka door: listens at an address, and ends in order.

    door.py         the listener, and the end
    connection.py   one transport a connection: its memory, its time, and the end
    dispatch.py     the way of a request: decode, identify, run, encode
    apis.py         the APIs by key, as the handlers declare them
    handlers/       each API: its key, messages and behaviour, and the function that answers it
    call.py         what a handler is given
    resources.py    what requests and connections share
    client.py       who is at the other end
    repeated.py     a Produce that repeats the one before it
    topic_ids.py    the names of topics that a request names by their ids
    frames.py       headers and messages
    wire.py         bytes become frames, and answers leave in order: no I/O

A file imports only files below it.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from logdb.access.access_control import AccessControl
from logdb.access.certificates import PrincipalRule
from logdb.model import BY_DEFAULT
from logdb.serving.connection_slots import ConnectionSlot
from logdb.serving.listener import Listener
from logdb.serving.server import Given
from logdb.serving.tls import Certificate, FilePath
from logdb_kafka_api.apis import APIS
from logdb_kafka_api.connection import KafkaConnection
from logdb_kafka_api.dispatch import Dispatcher
from logdb_kafka_api.limits import KafkaLimits
from logdb_kafka_api.resources import KafkaResources

logger = logging.getLogger(__name__)


class KafkaDoor(KafkaResources):
    """One address at which Kafka's wire protocol is spoken.

    Threading: the event loop of the server; ``reload`` any thread.
    """

    LIMITS = KafkaLimits
    OPTIONS = frozenset(("kafka_advertised", "auto_create_topics", "num_partitions", "rack"))

    def __init__(
        self,
        access: AccessControl,
        address: str,
        *,
        kafka_advertised: str | None = None,
        auto_create_topics: bool = False,
        num_partitions: int = BY_DEFAULT,
        rack: str = "",
        tls_cert: FilePath | None = None,
        tls_key: FilePath | None = None,
        tls_client_ca: FilePath | None = None,
        tls_principal: PrincipalRule = "cn",
        **limits: Any,
    ) -> None:
        """Not open yet.

        Args:
            kafka_advertised: The address, ``host:port``, that clients are told to connect to; None: the one that they have reached.
            auto_create_topics: Metadata creates a topic that it names and that does not exist.
            num_partitions: Of topics that are created without a number; -1: 1; in a cluster 2 for each broker.
            rack: Of a broker without a cluster; the nodes of a cluster have theirs in the metadata.
            tls_cert, tls_key, tls_client_ca: See ``Certificate``; none: no TLS.
            tls_principal: How a certificate's subject becomes a principal: see ``access.certificates``.
            limits: See ``KafkaLimits``.

        Raises:
            InvalidCertificate: It cannot be used.
            ValueError: An address, or a number, is invalid.
        """
        certificate = Certificate.of_options(tls_cert, tls_key, tls_client_ca)
        super().__init__(
            access,
            KafkaLimits(**limits),
            APIS,
            kafka_advertised=kafka_advertised,
            auto_create_topics=auto_create_topics,
            num_partitions=num_partitions,
            rack=rack,
            is_encrypted=certificate is not None,
            tls_principal=tls_principal,
        )
        self._address, self._certificate = address, certificate
        self._dispatcher = Dispatcher(self)
        self._listener = Listener(address, certificate, self.slots, self.accept, handshake_timeout_ms=self.limits.header_timeout_ms)

    # ------------------------------------------------------------ its begin and end

    def reload(self) -> None:
        """Read the certificate again, for connections from now on; any thread.

        Raises:
            InvalidCertificate: It cannot be used; the one that was read before still is.
        """
        if self._certificate is not None:
            self._certificate.reload()

    async def open(self) -> Sequence[str]:
        """Listen, if there is an address; returns it, as ``bootstrap.servers`` has it.

        Raises:
            OSError: The address cannot be listened at.
        """
        self.begin_waits()
        return (await self._listener.open(),) if self._address else ()

    def accept(self, slot: ConnectionSlot | None = None) -> KafkaConnection:
        """The protocol for a connection; None: it takes a slot itself."""
        return KafkaConnection(self, self._dispatcher, slot)

    def take_over(self, given: Given) -> KafkaConnection:
        """The protocol for a connection of another door, whose client is known."""
        return KafkaConnection(self, self._dispatcher, given=given)

    async def drain(self, timeout_ms: int) -> None:
        """Take nothing new, answer what is under way, then close; what waits for records is answered at once."""
        self.end_waits()
        try:
            await self._listener.stop()
            for connection in list(self.connections):
                connection.close_if_idle()
            async with asyncio.timeout(timeout_ms / 1000):
                while self.connections:
                    self._none_left.clear()
                    await self._none_left.wait()
        except TimeoutError:
            if self.connections:
                logger.warning("%d connections are cut off after %d ms", len(self.connections), timeout_ms)
        finally:
            if self._sweeping is not None:
                self._sweeping.cancel()
            self._listener.abort_handshakes()
            for connection in list(self.connections):
                connection.abort()
            self.logins.close()
            self.executor.shutdown(wait=False, cancel_futures=True)
