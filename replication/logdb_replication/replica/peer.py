"""A connection to another broker: Kafka's frames, on a connection of its HTTP door that was upgraded.

Threading: one thread at a time; ``cut`` any thread.
"""

import contextlib
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from logdb.codec import messages
from logdb.codec.schema import Message, Scattered
from logdb.errors import InvalidAnswer
from logdb.model import Buffer
from logdb_http_api.remote.connection import Address, Security, ServerConnection
from logdb_http_api.remote.wires import HttpRequest

TIMEOUT_S = 3.0
"""For a connection, and for an answer beyond what the request may wait."""
_CLIENT_ID = b"logdb-replica"
_HEADER = struct.Struct(f">ihhih{len(_CLIENT_ID)}sb")
_SIZE = struct.Struct(">i")


class Peer(Protocol):
    """What a follower needs of the broker that it follows."""

    def ask(self, request: "PeerRequest", wait_s: float = 0.0) -> dict[str, Any]:
        """The values of the answer.

        Args:
            wait_s: How long the broker may wait before it answers.

        Raises:
            OSError, InvalidAnswer: The connection is of no more use.
        """

    def cut(self) -> None:
        """End the connection; a request that waits fails at once."""


class PeerRequest(NamedTuple):
    """A request as a frame; see ``remote.wires.FrameRequest``."""

    key: int
    table: Message
    response: Message
    version: int
    values: Mapping[str, Any]
    elements_max: int
    into: bytearray | None = None

    def frame(self, correlation_id: int) -> Sequence[Buffer]:
        out = Scattered()
        out += _HEADER.pack(0, self.key, self.version, correlation_id, len(_CLIENT_ID), _CLIENT_ID, 0)
        self.table.write(out, self.values, self.version)
        _SIZE.pack_into(out, 0, out.size_bytes - _SIZE.size)
        return out.buffers()

    def decoded(self, data: Buffer) -> dict[str, Any]:
        return self.response.decode(data, self.version, elements_max=self.elements_max)[0]

    def of_frame(self, decoded: dict[str, Any], url: str) -> dict[str, Any]:
        del url
        return decoded

    def http(self) -> HttpRequest:
        raise NotImplementedError("a follower's requests are frames")

    def of_http(self, answer: Any) -> dict[str, Any]:
        raise NotImplementedError("a follower's requests are frames")


_ANSWER_ELEMENTS = 4  # for each partition that a request names: its topic, itself, and more than it has


def fetch_request(values: Mapping[str, Any], partition_count: int) -> PeerRequest:
    tables = messages.FETCH_REQUEST, messages.FETCH_RESPONSE
    return PeerRequest(messages.FETCH, *tables, 12, values, _ANSWER_ELEMENTS * partition_count)


def epochs_request(values: Mapping[str, Any], partition_count: int) -> PeerRequest:
    tables = messages.OFFSET_FOR_LEADER_EPOCH_REQUEST, messages.OFFSET_FOR_LEADER_EPOCH_RESPONSE
    return PeerRequest(messages.OFFSET_FOR_LEADER_EPOCH, *tables, 4, values, _ANSWER_ELEMENTS * partition_count)


class HttpPeer:
    """A broker by the URL of its HTTP door, and the token of the cluster."""

    def __init__(self, url: str, security: Security) -> None:
        """Connect.

        Raises:
            OSError: The connection failed, or the server lets it not be upgraded.
        """
        self._connection = ServerConnection(Address.of(url), security, TIMEOUT_S)
        try:
            if not self._connection.upgrade(TIMEOUT_S):
                raise ConnectionError(f"{url} lets no connection go on in Kafka's protocol")
        except BaseException:
            self._connection.close()
            raise

    def ask(self, request: PeerRequest, wait_s: float = 0.0) -> dict[str, Any]:
        timeout_s = wait_s + TIMEOUT_S
        self._connection.send(request, timeout_s)
        self._connection.begin(time.monotonic() + timeout_s, lambda: None)
        answer = self._connection.receive(request)
        if not isinstance(answer, dict):
            raise InvalidAnswer(self._connection.address.url, "no frame")
        return answer

    def cut(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.cut()
