"""The client of a connection: who it is, and what a connection keeps of its requests.  No I/O but a login's.

Threading: the event loop of the door.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from logdb.access.authentication import Identity
from logdb_kafka_api.sasl import Exchange

if TYPE_CHECKING:
    from logdb.access.session import AuthorizedSession
    from logdb.model import TopicPartition
    from logdb_kafka_api.repeated import RepeatedProduce
    from logdb_kafka_api.replica_session import ReplicaSession


class Client(ABC):
    """One client.

    ==================== ======================== ==============================================================
    field                changed by               to be trusted
    ==================== ======================== ==============================================================
    ``host``             the connection, once     always
    ``identity``         authentication, or the   while the access control calls its credential valid
                         door that gave it
    ``is_known``         the begin of the         as of the last request: the client has authenticated, or need not
                         connection, each request
    ``session``          ``Dispatcher``,          always: it is of ``identity``, for the next request
                         ``go_on``
    ``repeated``,        the same                 always: the last Produce that was read there, if the next may repeat it; where that one
    ``appended_to``                               appends to
    ``exchange``         SaslHandshake, ``go_on`` from the handshake until the client is authenticated
    ``is_raw``           the same                 the next frame is a message of the exchange, without a header
    ``is_ending``        a handler                the connection is closed behind the answer
    ``replica_session``  Fetch; the connection    always: what a follower fetches here; None: it has begun no session
    ==================== ======================== ==============================================================
    """

    def __init__(self, identity: Identity | None) -> None:
        self.host = ""
        self.identity, self.is_known = identity, identity is not None
        self.session: AuthorizedSession | None = None
        self.repeated: RepeatedProduce | None = None
        self.appended_to: TopicPartition | None = None
        self.exchange: Exchange | None = None
        self.is_raw = self.is_ending = False
        self.replica_session: ReplicaSession | None = None

    def end_replica_session(self) -> None:
        """Let go of the partitions that a follower fetches here."""
        session, self.replica_session = self.replica_session, None
        if session is not None:
            session.close()

    @abstractmethod
    def address_here(self) -> tuple[str, int]:
        """Where the client has reached the server."""

    async def go_on(self, token: bytes) -> bytes:
        """The answer to the next message of the SASL exchange; with the last one the client is authenticated.

        Raises:
            AuthenticationFailed, NoRoom: It is over.
        """
        exchange, self.exchange = self.exchange, None
        assert exchange is not None
        answer, identity = await exchange.reply(token)
        if identity is None:
            self.exchange = exchange
        else:
            self.identity, self.is_known, self.is_raw = identity, True, False
            self.session = self.repeated = None
        return answer
