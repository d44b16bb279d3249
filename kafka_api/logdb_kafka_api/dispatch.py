"""The way of a request: from its frame to its answer.

    frame ─► decode ─► identify ─► authorize and run ─► encode ─► answer
             ``begin`` ──────────► on the loop: what waits for nothing (``Api.at_once``)
                        ``finish`` in a thread, or waiting for others: everything else (``Api.run``)

A Produce that repeats the one before it is neither decoded nor encoded anew: ``repeated`` is a cache of these two steps.

Threading: the event loop of the door.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from logdb.access.authentication import Identity
from logdb.access.session import AuthorizedSession
from logdb.errors import AuthenticationFailed, InvalidMessage
from logdb.model import Buffer
from logdb.requests.principals import ANONYMOUS
from logdb.serving.logins import UNASKED
from logdb_kafka_api import frames
from logdb_kafka_api.api import Api
from logdb_kafka_api.call import AtOnce, Call, Values
from logdb_kafka_api.client import Client
from logdb_kafka_api.frames import RequestHeader, UnsupportedApi
from logdb_kafka_api.handlers import produce
from logdb_kafka_api.handlers.metadata import unsupported_version
from logdb_kafka_api.repeated import RepeatedProduce, repeatable
from logdb_kafka_api.resources import KafkaResources

_UNAUTHENTICATED = Identity(ANONYMOUS, None)  # before authentication


@dataclass(slots=True)  # a named tuple takes twice as long to make
class Answer:
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
        self._door, self._apis, self._quotas = door, door.apis, door.access.quotas

    def begin(self, client: Client, frame: Buffer) -> Answer | Call:
        """Decode a request, and find out who asks; answer it if it waits for nothing.

        Returns:
            The answer, or the call, which ``finish`` carries out; its values are borrowed from ``frame``.

        Raises:
            UnsupportedApi, InvalidMessage: The request cannot be answered; the connection has to be closed.
            AuthenticationFailed: The client did not authenticate, or its credential is no longer valid.
            ConnectionError: It failed, and the client wants no answer.
        """
        repeated, session = client.repeated, None
        again = None if repeated is None else repeated.read(frame)
        if repeated is not None and again is not None:
            session = self._identified(client, repeated.header.api)
            if not (self._quotas.are_set and self._quotas.limits(session.principal)):
                answer = produce.append_again(self._door, session, repeated, again[1])
                if answer is not None:
                    return Answer(repeated.encode(again[0], answer))
        try:
            header, body_at = frames.read_header(frame, self._apis)
        except UnsupportedApi as error:
            if error.header is None:
                raise
            return Answer(frames.encode_response(error.header, unsupported_version(error.header.api)))
        call = Call(self._door, client, header, body_at, session or self._identified(client, header.api), {})
        at_once = header.api.at_once
        return call if at_once is None else self._answer_at_once(call, at_once, frame)

    def _answer_at_once(self, call: Call, at_once: AtOnce, frame: Buffer) -> Answer | Call:
        with contextlib.suppress(InvalidMessage):  # or it is large
            call.values = frames.read_request(call.header, frame, call.body_at, frames.ON_LOOP_ELEMENTS_MAX)
        if not call.values or self._quotas.limits(call.session.principal):
            return call
        answer = at_once(call)
        self._remember(call.client, call.header, call.values, frame)
        if answer is None:
            return call
        (values,) = answer
        if call.replicated is not None and values is not None:
            return self._later(call, values)
        return Answer(() if values is None else frames.encode_response(call.header, values))

    @staticmethod
    def _remember(client: Client, header: RequestHeader, request: Values, frame: Buffer) -> None:
        """Remember a request that goes where the last one went: a client that appends to partitions in turn repeats none."""
        where = repeatable(header, request, frame)
        is_repeated = where is not None and where == client.appended_to
        client.repeated = RepeatedProduce(header, request, frame) if is_repeated else None
        client.appended_to = where

    def _identified(self, client: Client, api: Api) -> AuthorizedSession:
        """The session of whoever asks for an API, for this request.

        A client without a quota keeps its session: only one of its requests is carried out at a time, but for Produces.

        Raises:
            AuthenticationFailed: as ``begin``.
        """
        kept = client.session
        if kept is not None and not (self._quotas.are_set and self._quotas.limits(kept.principal)):
            by = client.identity or UNASKED
            try:
                if kept.credential is by.credential and kept.principal == by.principal:
                    kept.renew()
                    return kept
                client.session = self._session(client, by)
                return client.session
            except AuthenticationFailed:
                if client.identity is not None:
                    raise
                client.session = None  # authentication is on by now
        known = self._door.identity_of(client)
        client.is_known = known is not None
        identity = known or (_UNAUTHENTICATED if api.before_authentication else None)
        if identity is None:
            raise AuthenticationFailed(f"{api.name} before authentication")
        session = self._session(client, identity)
        client.session = session if client.is_known else None
        return session

    def _session(self, client: Client, identity: Identity) -> AuthorizedSession:
        session = self._door.access.session(identity.principal, client.host, identity.credential)
        session.check()
        return session

    async def finish(self, call: Call, frame: Buffer) -> Answer:
        """Carry out a call that waits, on the loop or in threads.

        Args:
            frame: The request; it is decoded again where its values were borrowed from a buffer that others have now.

        Raises:
            InvalidMessage: The request cannot be answered; the connection has to be closed.
            AuthenticationFailed: The credential of the client is no longer valid.
        """
        try:
            await call.begin()
            await self._decode(call, frame)
            values = await call.header.api.run(call)
            if call.replicated is not None and values is not None:
                if not call.is_large:
                    return self._later(call, values)
                await call.replicated()
            return await self._finished(call, values)
        except BaseException:
            call.end()
            raise

    async def _decode(self, call: Call, frame: Buffer) -> None:
        if call.values:
            return
        try:
            call.values = frames.read_request(call.header, frame, call.body_at, frames.ON_LOOP_ELEMENTS_MAX)
        except InvalidMessage:  # or it is large
            await call.begin_large(len(frame))
            call.values = await call.call(frames.read_request, call.header, frame, call.body_at)

    async def _finished(self, call: Call, values: Values | None) -> Answer:
        delay_ms = call.session.take_throttle_ms()
        parts: Sequence[Buffer] = ()
        if values is not None:
            values = {**values, "throttle_time_ms": delay_ms}
            parts = await call.aside(frames.encode_response, call.header, values)
        await call.finish(sum(map(len, parts)))
        return Answer(parts, delay_ms, call)

    def _later(self, call: Call, values: Values) -> Answer:
        """An answer that waits for replicas; the request's memory is free meanwhile, and its connection may go on."""
        call.values = {}
        later = asyncio.get_running_loop().create_task(self._replicated(call, values))
        later.add_done_callback(partial(_end_failed, call))
        return Answer((), later=later)

    async def _replicated(self, call: Call, values: Values) -> Answer:
        assert call.replicated is not None
        await call.replicated()
        return await self._finished(call, values)


def _end_failed(call: Call, later: "asyncio.Task[Answer]") -> None:
    if later.cancelled() or later.exception() is not None:
        call.end()
