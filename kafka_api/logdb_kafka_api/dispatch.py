"""The way of a request: from its frame to its answer.

    frame ─► decode ─► identify ─► authorize and run ─► encode ─► answer
                                     on the loop: what waits for nothing
                                     in a thread, or waiting for others: everything else

A Produce that repeats the one before it is neither decoded nor authorized again (``repeated``).

Threading: the event loop of the door.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from logdb.access.authentication import Identity
from logdb.access.session import AuthorizedSession
from logdb.errors import AuthenticationFailed, InvalidMessage
from logdb.model import Buffer
from logdb.requests.principals import ANONYMOUS
from logdb.serving.logins import UNASKED
from logdb_kafka_api import frames
from logdb_kafka_api.apis import APIS, UNAUTHENTICATED
from logdb_kafka_api.call import Call, Values
from logdb_kafka_api.client import Client
from logdb_kafka_api.frames import RequestHeader, UnsupportedApi
from logdb_kafka_api.handlers import HANDLERS, produce
from logdb_kafka_api.handlers.metadata import unsupported_version
from logdb_kafka_api.repeated import NO_ACKNOWLEDGEMENT, RepeatedProduce, repeatable
from logdb_kafka_api.resources import KafkaResources

_UNAUTHENTICATED = Identity(ANONYMOUS, None)  # before authentication


class Answer(NamedTuple):
    """The buffers of a response, the time in ms for which a quota mutes the connection, and the call to end once they are sent.

    ``later``: the answer itself, once replicas have what the request has appended.
    """

    parts: Sequence[Buffer]
    throttle_ms: int = 0
    call: Call | None = None
    later: "asyncio.Future[Answer] | None" = None


class Dispatcher:
    """Answers the requests of a door's connections."""

    def __init__(self, door: KafkaResources) -> None:
        self._door = door

    def answer_at_once(self, client: Client, frame: Buffer) -> Answer | None:
        """The answer to a small Produce request, which is most of them in number; None: the request waits, or needs more of the door.

        Raises:
            AuthenticationFailed, ConnectionError: as ``answer``.
        """
        repeated = client.repeated
        again = None if repeated is None else repeated.read(frame)
        if repeated is not None and again is not None:
            answer = self._append_again(client, repeated, *again)
            if answer is not None:
                return answer
        kept = client.session  # a kept session finds out itself that authentication is on
        identity = self._door.identity_of(client) if kept is None else client.identity or UNASKED
        if identity is None or self._door.access.quotas.limits(identity.principal):
            return None
        found = self._read_produce(frame) if repeated is None or again is None else repeated.request(*again)
        if found is None or not produce.is_named(self._door, found[0].version, found[1]):
            return None
        header, request = found
        if again is None:
            self._remember(client, header, request, frame)
        appends = produce.appends_of(request, header.version)
        if produce.waits(self._door, request["transactional_id"], appends, produce.durability_of(request)):
            return None
        call = Call(self._door, client, header, self._kept_session(client, identity))
        call.values = request
        values = produce.append_at_once(call, appends)
        if values is None:
            return Answer(())
        if call.replicated is not None:
            return self._later(call, header, values)
        return Answer(frames.encode_response(header, values))

    def _append_again(self, client: Client, repeated: RepeatedProduce, correlation_id: int, records: memoryview) -> Answer | None:
        """The answer to a request that repeats the one before it; None: nothing was done, it takes more than most.

        Raises:
            AuthenticationFailed, ConnectionError: as ``answer``.
        """
        session = client.session
        if session is None:
            return None
        try:
            appended = produce.append_again(self._door, session, repeated, records)
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
    def _remember(client: Client, header: RequestHeader, request: Values, frame: Buffer) -> None:
        """Remember a request that goes where the last one went: a client that appends to partitions in turn repeats none."""
        where = repeatable(header, request, frame)
        is_repeated = where is not None and where == client.appended_to
        client.repeated = RepeatedProduce(header, request, frame) if is_repeated else None
        client.appended_to = where

    def _identified(self, client: Client, key: int) -> AuthorizedSession:
        """The session of whoever asks for the API ``key``, for this request.

        A client without a quota keeps its session: only one of its requests is carried out at a time, but for Produces.

        Raises:
            AuthenticationFailed: as ``answer``.
        """
        kept = client.session
        if kept is not None and not self._door.access.quotas.limits(kept.principal):
            try:
                return self._kept_session(client, client.identity or UNASKED)
            except AuthenticationFailed:
                if client.identity is not None:
                    raise
                client.session = None  # authentication is on by now
        known = self._door.identity_of(client)
        client.is_known = known is not None
        identity = known or (_UNAUTHENTICATED if key in UNAUTHENTICATED else None)
        if identity is None:
            raise AuthenticationFailed(f"{APIS[key].name} before authentication")
        session = self._session(client, identity)
        client.session = session if client.is_known else None
        return session

    def _kept_session(self, client: Client, identity: Identity) -> AuthorizedSession:
        """The session of the last request of a connection, for the next one."""
        kept = client.session
        if kept is not None and kept.principal == identity.principal and kept.credential is identity.credential:
            kept.renew()
            return kept
        client.session = self._session(client, identity)
        return client.session

    def _session(self, client: Client, identity: Identity) -> AuthorizedSession:
        session = self._door.access.session(identity.principal, client.host, identity.credential)
        session.check()
        return session

    async def answer(self, client: Client, frame: bytes | bytearray) -> Answer:
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
        call = Call(self._door, client, header, self._identified(client, header.api.key))
        try:
            await call.begin()
            try:
                call.values = frames.read_request(header, frame, position, frames.ON_LOOP_ELEMENTS_MAX)
            except InvalidMessage:  # or it is large
                await call.begin_large(len(frame))
                call.values = await call.call(frames.read_request, header, frame, position)
            values = await HANDLERS[header.api.key](call)
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
