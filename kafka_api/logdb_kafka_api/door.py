"""The Kafka door: listens, finds out who asks, and hands requests to handlers.

connection.py   one protocol a connection: frames, their order, silence, and the end
frames.py       headers and messages
repeated.py     a Produce that repeats the one before it
topic_ids.py    the names of topics that a request names by their ids
call.py         what a handler is given
handlers/       the APIs, by family
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from logdb.access.access_control import AccessControl
from logdb.access.authentication import Identity
from logdb.access.certificates import PrincipalRule
from logdb.access.session import AuthorizedSession
from logdb.errors import AuthenticationFailed, InvalidMessage
from logdb.mistakes import must_be
from logdb.model import BY_DEFAULT, PARTITION_COUNT_MAX, Buffer
from logdb.requests.principals import ANONYMOUS
from logdb.serving.connection_slots import ConnectionSlot, ConnectionSlots
from logdb.serving.listener import Listener
from logdb.serving.logins import UNASKED, Logins
from logdb.serving.loop_time import LoopTime
from logdb.serving.resources import DoorResources
from logdb.serving.server import Given
from logdb.serving.tls import Certificate, FilePath
from logdb_kafka_api import frames
from logdb_kafka_api.apis import APIS
from logdb_kafka_api.call import Call, Values
from logdb_kafka_api.connection import Answer, Connection
from logdb_kafka_api.frames import RequestHeader, UnsupportedApi
from logdb_kafka_api.handlers import HANDLERS, UNADVERTISED, UNAUTHENTICATED, produce
from logdb_kafka_api.handlers.metadata import advertised, unsupported_version
from logdb_kafka_api.limits import ROOM_BYTES, KafkaLimits
from logdb_kafka_api.repeated import NO_ACKNOWLEDGEMENT, RepeatedProduce, repeatable
from logdb_kafka_api.topic_ids import TopicIds

logger = logging.getLogger(__name__)

_MISSING_MAX = 100
_UNAUTHENTICATED = Identity(ANONYMOUS, None)  # before authentication


class KafkaDoor(DoorResources):
    """One address at which Kafka's wire protocol is spoken.

    ================== ============================ ================================================================
    field              changed by                   to be trusted
    ================== ============================ ================================================================
    ``connections``    each connection              always: those that have begun and not ended
    ``scratch``        the connection that reads    within one call of the loop
    ``room``           the connection that has it   None while a connection receives a frame to it
    ``_unsupported``   ``is_news``                  always: keys of the APIs of which a client asked for an unknown version
    ``_missing``       ``note_missing``             always: topics that clients asked for in vain, up to ``_MISSING_MAX``
    ``_sweeping``      ``watch``, ``_sweep``        always: the earliest time that a connection may have to be cut off
    ================== ============================ ================================================================

    Threading: the event loop of the server; ``reload`` any thread.
    """

    LIMITS = KafkaLimits
    OPTIONS = frozenset(("kafka_advertised", "auto_create_topics", "num_partitions"))
    limits: KafkaLimits

    def __init__(
        self,
        access: AccessControl,
        address: str,
        *,
        kafka_advertised: str | None = None,
        auto_create_topics: bool = False,
        num_partitions: int = BY_DEFAULT,
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
            tls_cert, tls_key, tls_client_ca: See ``Certificate``; none: no TLS.
            tls_principal: How a certificate's subject becomes a principal: see ``access.certificates``.
            limits: See ``KafkaLimits``.

        Raises:
            InvalidCertificate: It cannot be used.
            ValueError: An address, or a number, is invalid.
        """
        super().__init__(access, KafkaLimits(**limits), "logdb-kafka")
        if num_partitions != BY_DEFAULT and num_partitions not in range(1, PARTITION_COUNT_MAX + 1):
            raise ValueError(must_be("num_partitions", num_partitions, f"1 to {PARTITION_COUNT_MAX}"))
        self._address = address
        self._client_address = None if kafka_advertised is None else _host_and_port(kafka_advertised)
        self.auto_create_topics, self.num_partitions = auto_create_topics, num_partitions
        self._certificate = Certificate.of_options(tls_cert, tls_key, tls_client_ca)
        self.logins = Logins(access, tls_principal)
        self.slots = ConnectionSlots(self.limits.connections_max, self.limits.connections_per_address_max)
        self.connections = set[Connection]()
        self.scratch = memoryview(bytearray(ROOM_BYTES))
        self.room: memoryview | None = memoryview(bytearray(ROOM_BYTES))
        self.advertised = [advertised(key) for key in sorted(HANDLERS.keys() - UNADVERTISED)]
        self.topics = TopicIds(access)
        self._none_left = asyncio.Event()
        self._unsupported = set[int]()
        self._missing = set[str]()
        self._sweeping: asyncio.TimerHandle | None = None
        self._time = LoopTime()
        self._listener = Listener(address, self._certificate, self.slots, self.accept, handshake_timeout_ms=self.limits.header_timeout_ms)

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

    def accept(self, slot: ConnectionSlot | None = None) -> Connection:
        """The protocol for a connection; None: it takes a slot itself."""
        return Connection(self, slot)

    def take_over(self, given: Given) -> Connection:
        """The protocol for a connection of another door, whose client is known."""
        return Connection(self, given=given)

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

    async def pause(self, delay_ms: int) -> None:
        """Wait for as long as a quota says, or until the door drains."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.ending.wait(), delay_ms / 1000)

    # ------------------------------------------------------------ connections

    def lost(self, connection: Connection) -> None:
        """A connection has ended."""
        self.connections.discard(connection)
        if not self.connections:
            self._none_left.set()

    def watch(self, connection: Connection) -> None:
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

    def now_s(self) -> float:
        """The time that clients have."""
        return self._time.now_s()

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
        is_news = error.key in APIS and error.key not in self._unsupported
        if is_news:
            self._unsupported.add(error.key)
        return is_news

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

    def brokers(self, connection: Connection) -> dict[int, tuple[str, int]]:
        """Host and port by node, of all brokers with a Kafka listener; without a cluster, the address that the client has reached.

        A broker that is away is one of them until it leaves the cluster.  If an answer leaves it out, librdkafka forgets it, but its cache
        of coordinators still refers to it: ``send_offsets_to_transaction`` then never returns.  kafka-python's producer stops for good.
        """
        if not self.access.is_replicated:
            return {self.access.node_id: self._client_address or connection.address_here()}
        return {one.node_id: one.addresses["kafka"] for one in self.access.brokers() if "kafka" in one.addresses}

    def advertised_listener(self, connection: Connection) -> str:
        """The address of this broker as Kafka writes it: PROTOCOL://HOST:PORT."""
        host, port = self.brokers(connection).get(self.access.node_id) or connection.address_here()
        protocol = ("SASL_" if self.access.authentication else "") + ("SSL" if self._certificate else "PLAINTEXT")
        return f"{protocol}://[{host}]:{port}" if ":" in host else f"{protocol}://{host}:{port}"

    def serving(self) -> frozenset[int]:
        """The nodes that clients can reach now: those that are not fenced, and this one."""
        here = self.access.node_id
        if not self.access.is_replicated:
            return frozenset((here,))
        return frozenset(one.node_id for one in self.access.brokers() if "kafka" in one.addresses and not one.fenced) | {here}

    # ------------------------------------------------------------ who

    def identity_of(self, connection: Connection) -> Identity | None:
        """Who the client of a connection is; None: it has to authenticate first."""
        if connection.identity is not None:
            return connection.identity
        return None if self.access.authentication else UNASKED

    def certified(self, transport: asyncio.Transport) -> Identity | None:
        """Who the client of a connection is by its certificate; None: it has shown none, or authentication is off.

        Raises:
            AuthenticationFailed: The certificate names no principal, or its issuer is not in the file of authorities.
        """
        return self.logins.by_certificate(transport.get_extra_info("ssl_object")) if self.access.authentication else None

    # ------------------------------------------------------------ a request

    def answer_at_once(self, connection: Connection, frame: Buffer) -> Answer | None:
        """The answer to a small Produce request, which is most of them in number; None: the request waits, or needs more of the door.

        Raises:
            AuthenticationFailed, ConnectionError: as ``answer``.
        """
        repeated = connection.repeated
        again = None if repeated is None else repeated.read(frame)
        if repeated is not None and again is not None:
            answer = self._append_again(connection, repeated, *again)
            if answer is not None:
                return answer
        kept = connection.session  # a kept session finds out itself that authentication is on
        identity = self.identity_of(connection) if kept is None else connection.identity or UNASKED
        if identity is None or self.access.quotas.limits(identity.principal):
            return None
        found = self._read_produce(frame) if repeated is None or again is None else repeated.request(*again)
        if found is None or not produce.is_named(self, found[0].version, found[1]):
            return None
        header, request = found
        if again is None:
            self._remember(connection, header, request, frame)
        appends = produce.appends_of(request, header.version)
        if produce.waits(self, request["transactional_id"], appends, produce.durability_of(request)):
            return None
        call = Call(self, connection, header, self._kept_session(connection, identity))
        call.values = request
        values = produce.append_at_once(call, appends)
        if values is None:
            return Answer(())
        if call.replicated is not None:
            return self._later(call, header, values)
        return Answer(frames.encode_response(header, values))

    def _append_again(self, connection: Connection, repeated: RepeatedProduce, correlation_id: int, records: memoryview) -> Answer | None:
        """The answer to a request that repeats the one before it; None: nothing was done, it takes more than most.

        Raises:
            AuthenticationFailed, ConnectionError: as ``answer``.
        """
        session = connection.session
        if session is None:
            return None
        try:
            appended = produce.append_again(self, session, repeated, records)
        except AuthenticationFailed:
            raise
        except Exception as error:
            refused = produce.failed(session, repeated.where, error, by_id=bool(repeated.topic_id))
            if repeated.acks == NO_ACKNOWLEDGEMENT:
                raise produce.unacknowledged(refused) from error
            return Answer(repeated.refusal(correlation_id, refused))
        if appended is None:
            return None
        return Answer(() if repeated.acks == NO_ACKNOWLEDGEMENT else (repeated.answer(correlation_id, *appended),))

    @staticmethod
    def _read_produce(frame: Buffer) -> tuple[RequestHeader, Values] | None:
        """The header and the message of a Produce request; None: it is none, or it is large."""
        try:
            header, position = frames.read_header(frame)
            return header, frames.read_request(header, frame, position, frames.ON_LOOP_ELEMENTS_MAX)
        except (UnsupportedApi, InvalidMessage):
            return None

    @staticmethod
    def _remember(connection: Connection, header: RequestHeader, request: Values, frame: Buffer) -> None:
        """Remember a request that goes where the last one went: a client that appends to partitions in turn repeats none."""
        where = repeatable(header, request, frame)
        is_repeated = where is not None and where == connection.appended_to
        connection.repeated = RepeatedProduce(header, request, frame) if is_repeated else None
        connection.appended_to = where

    def _kept_session(self, connection: Connection, identity: Identity) -> AuthorizedSession:
        """The session of the requests of a connection that are answered at once, for the next of them."""
        kept = connection.session
        if kept is not None and kept.principal == identity.principal and kept.credential is identity.credential:
            kept.renew()
            return kept
        connection.session = self._session(connection, identity)
        return connection.session

    def _session(self, connection: Connection, identity: Identity) -> AuthorizedSession:
        session = self.access.session(identity.principal, connection.host, identity.credential)
        session.check()
        return session

    async def answer(self, connection: Connection, frame: bytes | bytearray) -> Answer:
        """Answer one request.

        Raises:
            UnsupportedApi, InvalidMessage: The request cannot be answered; the connection has to be closed.
            AuthenticationFailed: The client did not authenticate, or its credential is no longer valid.
        """
        try:
            header, position = frames.read_header(frame)
        except UnsupportedApi as error:
            if error.header is None:
                raise
            return Answer(frames.encode_response(error.header, unsupported_version()))
        key = header.api.key
        identity = self.identity_of(connection) or (_UNAUTHENTICATED if key in UNAUTHENTICATED else None)
        if identity is None:
            raise AuthenticationFailed(f"{header.api.name} before authentication")
        call = Call(self, connection, header, self._session(connection, identity))
        try:
            await call.begin()
            try:
                call.values = frames.read_request(header, frame, position, frames.ON_LOOP_ELEMENTS_MAX)
            except InvalidMessage:  # or it is large
                await call.begin_large(len(frame))
                call.values = await call.call(frames.read_request, header, frame, position)
            values = await HANDLERS[key](call)
            if call.replicated is not None and values is not None:
                if not call.is_large:
                    return self._later(call, header, values)
                await call.replicated()
            return await self._finished(call, header, values)
        except BaseException:
            call.end()
            raise

    async def _finished(self, call: Call, header: RequestHeader, values: Values | None) -> Answer:
        delay_ms = call.session.take_throttle_ms()
        parts: Sequence[Buffer] = ()
        if values is not None:
            values = {**values, "throttle_time_ms": delay_ms}
            parts = await call.aside(frames.encode_response, header, values)
        await call.finish(sum(map(len, parts)))
        return Answer(parts, delay_ms, call)

    def _later(self, call: Call, header: RequestHeader, values: Values) -> Answer:
        """An answer that waits for replicas; the request's memory is free meanwhile, and its connection may go on."""
        call.values = {}
        later = asyncio.get_running_loop().create_task(self._replicated(call, header, values))
        later.add_done_callback(partial(_end_failed, call))
        return Answer((), later=later)

    async def _replicated(self, call: Call, header: RequestHeader, values: Values) -> Answer:
        assert call.replicated is not None
        await call.replicated()
        return await self._finished(call, header, values)


def _end_failed(call: Call, later: "asyncio.Task[Answer]") -> None:
    if later.cancelled() or later.exception() is not None:
        call.end()


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 1 <= int(port) <= 65535:
        raise ValueError(must_be("kafka_advertised", address, "host:port, the port in [1, 65535]"))
    return host.removeprefix("[").removesuffix("]"), int(port)
