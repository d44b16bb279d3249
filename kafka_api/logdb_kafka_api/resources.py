"""What the requests of a Kafka door share, and what its connections share: no listener, and no connection itself.

Threading: the event loop of the server.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Protocol

from logdb.access.access_control import AccessControl
from logdb.access.authentication import Identity
from logdb.access.certificates import PrincipalRule
from logdb.mistakes import must_be
from logdb.model import BY_DEFAULT, PARTITION_COUNT_MAX
from logdb.requests.nodes import BrokerInfo
from logdb.serving.connection_slots import ConnectionSlots
from logdb.serving.limits import Limits
from logdb.serving.logins import UNASKED, Logins
from logdb.serving.loop_time import LoopTime
from logdb.serving.resources import DoorResources
from logdb_kafka_api.api import Api
from logdb_kafka_api.client import Client
from logdb_kafka_api.frames import UnsupportedApi
from logdb_kafka_api.limits import ROOM_BYTES, KafkaLimits
from logdb_kafka_api.silence import Silence
from logdb_kafka_api.topic_ids import TopicIds

logger = logging.getLogger(__name__)

_MISSING_MAX = 100


class OpenConnection(Protocol):
    """A connection that has begun; its client has only so long."""

    host: str
    is_new: bool

    def deadline_s(self, limits: Limits) -> float | None: ...

    def close_if_idle(self) -> None: ...

    def abort(self) -> None: ...


class KafkaResources(DoorResources):
    """The resources of one Kafka door.

    ================== ============================ ================================================================
    field              changed by                   to be trusted
    ================== ============================ ================================================================
    ``scratch``        the connection that reads    within one call of the loop
    ``room``           the connection that has it   None while a connection receives a frame to it
    ``topics``         requests that name ids       see ``TopicIds``
    ``_silence``       ``brokers``                  see ``Silence``
    ``_unsupported``   ``is_news``                  always: keys of the APIs of which a client asked for an unknown version
    ``_missing``       ``note_missing``             always: topics that clients asked for in vain, up to ``_MISSING_MAX``
    ``connections``    each connection              always: those that have begun and not ended
    ``_none_left``     ``lost``                     set once the last of them has ended
    ``_sweeping``      ``watch``, ``_sweep``        always: the earliest time that a connection may have to be cut off
    ================== ============================ ================================================================
    """

    limits: KafkaLimits

    def __init__(
        self,
        access: AccessControl,
        limits: KafkaLimits,
        apis: Mapping[int, Api],
        *,
        kafka_advertised: str | None,
        auto_create_topics: bool,
        num_partitions: int,
        rack: str,
        is_encrypted: bool,
        tls_principal: PrincipalRule,
    ) -> None:
        super().__init__(access, limits, "logdb-kafka")
        self.apis = apis
        if num_partitions != BY_DEFAULT and num_partitions not in range(1, PARTITION_COUNT_MAX + 1):
            raise ValueError(must_be("num_partitions", num_partitions, f"1 to {PARTITION_COUNT_MAX}"))
        self._client_address = None if kafka_advertised is None else _host_and_port(kafka_advertised)
        self.auto_create_topics, self.num_partitions = auto_create_topics, num_partitions
        self._rack, self._is_encrypted = rack, is_encrypted
        self.logins = Logins(access, tls_principal)
        self.slots = ConnectionSlots(limits.connections_max, limits.connections_per_address_max)
        self.scratch = memoryview(bytearray(ROOM_BYTES))
        self.room: memoryview | None = memoryview(bytearray(ROOM_BYTES))
        self.topics = TopicIds(access)
        self._silence = Silence()
        self._unsupported = set[int]()
        self._missing = set[str]()
        self.connections = set[OpenConnection]()
        self._none_left = asyncio.Event()
        self._sweeping: asyncio.TimerHandle | None = None
        self._time = LoopTime()
        self.now_s = self._time.now_s  # the time that clients have

    async def pause(self, delay_ms: int) -> None:
        """Wait for as long as a quota says, or until the door drains."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.ending.wait(), delay_ms / 1000)

    # ------------------------------------------------------------ connections

    def begun(self, connection: OpenConnection) -> None:
        """A connection has begun."""
        self.connections.add(connection)
        self.watch(connection)

    def lost(self, connection: OpenConnection) -> None:
        """A connection has ended."""
        self.connections.discard(connection)
        if not self.connections:
            self._none_left.set()

    def watch(self, connection: OpenConnection) -> None:
        """Look at the connections again when the time of this one is over, if not before: an idle door wakes for nothing else."""
        deadline_s = connection.deadline_s(self.limits)
        if deadline_s is None:
            return
        # One look serves all connections whose time is over by then.
        period_s = self.limits.header_timeout_ms / LoopTime.LOOKS / 1000
        due_s = deadline_s + period_s
        if connection.is_new:  # often, to notice that the loop has no turn for it
            due_s = min(due_s, self.now_s() + period_s)
        when_s = self._time.on_loop_s(due_s)
        if self._sweeping is None or when_s < self._sweeping.when():
            if self._sweeping is not None:
                self._sweeping.cancel()
            self._sweeping = asyncio.get_running_loop().call_at(when_s, self._sweep)

    def _sweep(self) -> None:
        """Cut off the connections whose time is over."""
        if self._sweeping is not None:
            self._time.came(self._sweeping)
        self._sweeping, now_s = None, self.now_s()
        for connection in list(self.connections):
            deadline_s = connection.deadline_s(self.limits)
            if deadline_s is not None and deadline_s <= now_s:
                logger.info("%s: silent for too long; the connection is closed", connection.host)
                connection.abort()
            else:
                self.watch(connection)

    def is_news(self, error: UnsupportedApi) -> bool:
        """Whether this is the first request for an unknown version of an API: the later ones fill no log."""
        is_news = error.api is not None and error.key not in self._unsupported
        if is_news:
            self._unsupported.add(error.key)
        return is_news

    # ------------------------------------------------------------ brokers

    def note_missing(self, topic: str, *, is_allowed: bool) -> None:
        """Log that a client asks for a topic that does not exist: once for each name, and for a bounded number of names.

        The client repeats the request until it gives up, a producer after 60 s, and names no reason.

        Args:
            topic: A valid name.
            is_allowed: The client allows that the topic is created.
        """
        if topic in self._missing or len(self._missing) > _MISSING_MAX:
            return
        self._missing.add(topic)
        if len(self._missing) > _MISSING_MAX:
            logger.warning("clients ask for more than %d topics that do not exist; further names are not logged", _MISSING_MAX)
            return
        option = ", or serve with --auto-create-topics" if is_allowed and not self.auto_create_topics else ""
        logger.warning(
            "a client waits for the topic %s, which does not exist: create it ('logdb topics create %s')%s", topic, topic, option
        )

    def brokers(self, client: Client) -> dict[int, tuple[str, int]]:
        """Host and port by node, of all brokers with a Kafka listener; without a cluster, the address that the client has reached.

        A broker that is away is one of them until it leaves the cluster, or is silent.  If an answer leaves it out, librdkafka forgets it,
        but its cache of coordinators still refers to it: ``send_offsets_to_transaction`` then never returns.  kafka-python's producer stops
        for good.
        """
        if not self.access.is_replicated:
            return {self.access.metadata.node_id: self._client_address or client.address_here()}
        found = {}
        for one in self.access.metadata.brokers():
            if (address := one.addresses.get("kafka")) is not None and not self._is_silent(one, address):
                found[one.node_id] = address
        return found

    def _is_silent(self, broker: BrokerInfo, address: tuple[str, int]) -> bool:
        if broker.fenced and broker.node_id != self.access.metadata.node_id:
            return self._silence.is_silent(address)
        self._silence.forget(address)
        return False

    def racks(self) -> dict[int, str]:
        """The rack of each broker that has one."""
        if not self.access.is_replicated:
            return {self.access.metadata.node_id: self._rack} if self._rack else {}
        return {one.node_id: one.rack for one in self.access.metadata.brokers() if one.rack}

    def advertised_listener(self, client: Client) -> str:
        """The address of this broker as Kafka writes it: PROTOCOL://HOST:PORT."""
        host, port = self.brokers(client).get(self.access.metadata.node_id) or client.address_here()
        protocol = ("SASL_" if self.access.authentication else "") + ("SSL" if self._is_encrypted else "PLAINTEXT")
        return f"{protocol}://[{host}]:{port}" if ":" in host else f"{protocol}://{host}:{port}"

    def serving(self) -> frozenset[int]:
        """The nodes that clients can reach now: those that are not fenced, and this one."""
        here = self.access.metadata.node_id
        if not self.access.is_replicated:
            return frozenset((here,))
        return frozenset(one.node_id for one in self.access.metadata.brokers() if "kafka" in one.addresses and not one.fenced) | {here}

    # ------------------------------------------------------------ who

    def identity_of(self, client: Client) -> Identity | None:
        """Who the client of a connection is; None: it has to authenticate first."""
        if client.identity is not None:
            return client.identity
        return None if self.access.authentication else UNASKED

    def certified(self, transport: asyncio.Transport) -> Identity | None:
        """Who the client of a connection is by its certificate; None: it has shown none, or authentication is off.

        Raises:
            AuthenticationFailed: The certificate names no principal, or its issuer is not in the file of authorities.
        """
        return self.logins.by_certificate(transport.get_extra_info("ssl_object")) if self.access.authentication else None


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 1 <= int(port) <= 65535:
        raise ValueError(must_be("kafka_advertised", address, "host:port, the port in [1, 65535]"))
    return host.removeprefix("[").removesuffix("]"), int(port)
