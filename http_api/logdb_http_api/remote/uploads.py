"""Uploads to a server: batches that it keeps outside the logs, and appends later (docs/inside/spark.md).

Each call may be repeated after a lost answer: the client chooses the ids, and appended batches have a producer's sequences.

Threading: as the connections.
"""

import uuid
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from logdb.errors import InvalidAnswer
from logdb.model import Buffer, ProducerIdAndEpoch, TopicPartition
from logdb.requests import coding
from logdb_http_api.protocol import (
    BATCHES,
    DISCARD_PATH,
    UPLOAD_PATH,
    UPLOADS_PATH,
    AppendedUploads,
    AppendUploads,
    DiscardUploads,
    NamedUpload,
    path_of,
)
from logdb_http_api.remote.connections import Connections
from logdb_http_api.remote.exchange import send_request

_JSON = {"Content-Type": "application/json"}


class Kept(NamedTuple):
    """An upload: its id, and the URL of the server that has it."""

    id: str
    holder: str


class RemoteUploads:
    """The uploads of one client."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def keep(self, where: TopicPartition, batches: Buffer) -> Kept:
        """Upload whole batches.

        Raises:
            InvalidAnswer: The server is of a version without uploads.
            DiskFull: The server keeps no more.
            NotAuthorized, UnknownTopic, UnknownPartition, ServerUnavailable: As for an append.
        """
        name = uuid.uuid4().hex
        path = _path(UPLOAD_PATH, where, name)
        answer = send_request(self._connections, "PUT", path, batches, {"Content-Type": BATCHES}, key=where)
        return Kept(name, answer.url)

    def append(
        self,
        where: TopicPartition,
        uploads: Sequence[tuple[str, int]],
        producer: ProducerIdAndEpoch,
        sequence: int,
        record_count: int,
        *,
        transactional_id: str,
    ) -> Sequence[str]:
        """Let the leader append uploads, each an id and the CRC of its bytes; returns the ids that it lacks: then nothing was appended.

        At most five batches: the log recognizes no more if the request has to be sent again.

        Raises:
            CorruptionError: The bytes have another CRC.
            errors of ``Session.produce``.
        """
        body = coding.encode(AppendUploads([NamedUpload(*one) for one in uploads], *producer, sequence, transactional_id))
        answer = send_request(self._connections, "POST", path_of(UPLOADS_PATH, where), body, _JSON, key=where)
        said: AppendedUploads = answer.decoded(AppendedUploads)
        if not said.missing and said.next_offset - said.base_offset != record_count:
            raise InvalidAnswer(answer.url, f"offsets [{said.base_offset}, {said.next_offset}) for {record_count} records")
        return said.missing

    def read(self, where: TopicPartition, holder: str, name: str) -> Buffer:
        """The batches of an upload, from the server that has it.

        Raises:
            InvalidAnswer: That server lacks it.
            NotAuthorized, ServerUnavailable: As for an append.
        """
        return send_request(self._connections, "GET", _path(UPLOAD_PATH, where, name), key=self._at(holder)).body

    def discard(self, where: TopicPartition, holder: str, names: Sequence[str]) -> None:
        """Let the server that has them remove uploads."""
        body = coding.encode(DiscardUploads(list(names)))
        send_request(self._connections, "POST", path_of(DISCARD_PATH, where), body, _JSON, key=self._at(holder))

    def _at(self, holder: str) -> tuple[str, str]:
        """The key of requests that go to that server first."""
        key = "uploads", holder
        if self._connections.urls != (holder,):
            self._connections.learn(key, urlsplit(holder).netloc)
        return key


def _path(path: str, where: TopicPartition, name: str) -> str:
    return path_of(path.replace("{id}", name), where)
