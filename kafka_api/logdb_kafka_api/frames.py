"""Frames: what stands between a connection's bytes and the tables of messages; no I/O.

::

    frame      size int32 | header | message
    request    api key int16 | version int16 | correlation id int32 | client id nullable string | tagged fields, if flexible
    response   correlation id int32 | tagged fields, if flexible and not of ApiVersions

A client that asks ApiVersions in a version that this door lacks is answered in version 0 (KIP-511), which every client reads; so the
header of that answer has no tagged fields in any version.

The caller takes the size off, and compares it with its limit before it takes memory.
"""

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from logdb.codec.messages import RESPONSE_HEADER
from logdb.codec.schema import Message, Scattered
from logdb.errors import InvalidMessage
from logdb.model import Buffer
from logdb_kafka_api.api import API_VERSIONS, Api

ELEMENTS_MAX = 100_000
"""The elements of all arrays of one request, and its unknown tagged fields."""

ON_LOOP_ELEMENTS_MAX = 1_000
"""Those of a request that is decoded on the loop, which takes some milliseconds; one of more is decoded in a thread."""

_HEADER = struct.Struct(">hhih")  # up to the length of the client id, which is an int16 in flexible versions, too
_NO_TAGGED_FIELDS = b"\0"
_TAGGED_FIELDS = Message("tagged fields of a header", "2", "2")
_SIZE = struct.Struct(">i")
_SIZE_AND_CORRELATION_ID = struct.Struct(">ii")


class RequestHeader(NamedTuple):
    """The header of a request for an API that there is, in a version that it has; ``is_flexible``: so are its messages."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    is_flexible: bool


class UnsupportedApi(Exception):
    """A request for an API, or a version of one, that this door lacks.

    ``api``: the one whose version is unknown; None: there is no such API.
    ``header``: for the answer that says so, in version 0, to ApiVersions; None where the protocol has no such answer.
    """

    def __init__(self, key: int, version: int, api: Api | None, header: RequestHeader | None) -> None:
        known = "there is no such API" if api is None else f"{api.name} has {api.request.versions[0]} to {api.request.versions[-1]}"
        super().__init__(f"unsupported: API {key} in version {version}; {known}")
        self.key, self.version, self.api, self.header = key, version, api, header


def read_header(frame: Buffer, apis: Mapping[int, Api]) -> tuple[RequestHeader, int]:
    """The header of a request for one of ``apis``, and where its message begins.

    Raises:
        UnsupportedApi: The API or its version is unknown; what follows the header is not looked at.
        InvalidMessage: The bytes are no header.
    """
    if len(frame) < _HEADER.size:
        raise InvalidMessage(0, f"{len(frame)} bytes, a header has {_HEADER.size}")
    key, version, correlation_id, length = _HEADER.unpack_from(frame)
    position = _HEADER.size + max(length, 0)
    if position > len(frame) or length < -1:
        raise InvalidMessage(_HEADER.size, f"a client id of length {length} where {len(frame) - _HEADER.size} bytes are left")
    client_id = _text(bytes(frame[_HEADER.size : position])) if length >= 0 else None
    api = apis.get(key)
    if api is None or version not in api.request.versions:
        answer = RequestHeader(api, 0, correlation_id, client_id, False) if api is not None and key == API_VERSIONS else None
        raise UnsupportedApi(key, version, api, answer)
    is_flexible = api.request.is_flexible(version)
    if is_flexible:
        if frame[position : position + 1] == _NO_TAGGED_FIELDS:
            position += 1
        else:
            _, position = _TAGGED_FIELDS.decode(frame, 2, position, elements_max=ELEMENTS_MAX)
    return RequestHeader(api, version, correlation_id, client_id, is_flexible), position


@lru_cache
def _text(client_id: bytes) -> str:
    try:
        return client_id.decode()
    except UnicodeDecodeError as error:
        raise InvalidMessage(_HEADER.size, f"a client id is not UTF-8: {error.reason}") from None


def read_request(header: RequestHeader, frame: Buffer, position: int, elements_max: int = ELEMENTS_MAX) -> dict[str, Any]:
    """The message behind the header; record batches are borrowed from ``frame``.

    Bytes behind the message are ignored, as a Kafka ignores them: librdkafka writes an int32 for the null array of Metadata 9 to 12.

    Raises:
        InvalidMessage: The bytes are no such message, or it has more than ``elements_max`` elements and unknown tagged fields.
    """
    return header.api.request.decode(frame, header.version, position, elements_max=elements_max)[0]


def encode_response(header: RequestHeader, values: Mapping[str, Any]) -> list[Buffer]:
    """The frame that answers a request; record batches are not copied.

    Raises:
        InvalidMessage: A value does not fit into its field, or the frame has more than 2,147,483,647 bytes.
    """
    out = Scattered()
    out += _SIZE_AND_CORRELATION_ID.pack(0, header.correlation_id)
    response = header.api.response
    if header.is_flexible and header.api.key != API_VERSIONS:
        if "next_offset" in values:
            RESPONSE_HEADER.write(out, values, 1)
        else:
            out += _NO_TAGGED_FIELDS
    response.write(out, values, header.version)
    size_bytes = out.size_bytes - _SIZE.size
    if size_bytes >= 1 << 31:
        raise InvalidMessage(0, f"{response.name} of {size_bytes} bytes")
    _SIZE.pack_into(out, 0, size_bytes)
    return out.buffers()
