"""Our tables of requests and responses beside Kafka's own message files, as kafka-python brings them: each version, both directions."""

import io
import re
import struct
import uuid
import warnings
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from logdb.codec.schema import _range
from logdb_kafka_api.api import Api
from logdb_kafka_api.apis import APIS
from logdb_kafka_api.frames import encode_response, read_header, read_request

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas by importlib.resources.read_text
    from kafka.protocol import admin, consumer, metadata, producer, sasl
    from kafka.protocol.api_header import RequestHeader as TheirHeader

MODULES = (admin, consumer, metadata, producer, sasl)
THEIRS: dict[str, Any] = {name: kind for module in MODULES for name, kind in vars(module).items() if hasattr(kind, "json")}
LACKING = frozenset(("ConsumerGroupHeartbeat", "GetTelemetrySubscriptions", "PushTelemetry"))
"""APIs without a message file in kafka-python.  Real clients send ConsumerGroupHeartbeat (integration/kafka/test_first_questions.py)."""
KNOWN = [api for api in APIS.values() if api.name not in LACKING]
MESSAGES = {message.name: message for api in KNOWN for message in (api.request, api.response)}
ONCE = {  # names that Kafka has for them since its brokers send newer versions of the message to each other
    "v3_and_below_transactional_id": "transactional_id",
    "v3_and_below_producer_id": "producer_id",
    "v3_and_below_producer_epoch": "producer_epoch",
    "v3_and_below_topics": "topics",
    "results_by_topic_v3_and_below": "results_by_topic",
}
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TEXTS = st.one_of(st.text(max_size=5), st.sampled_from(["grüß", "x" * 126, "x" * 127, "x" * 200]))
BYTES = st.one_of(st.binary(max_size=5), st.sampled_from([b"x" * 126, b"x" * 127, b"x" * 300]))
Fields = list[dict[str, Any]]


class Bits(int):
    """A number whose bits kafka-python wants as a set."""


def of_version(fields: Fields, version: int) -> list[tuple[str, dict[str, Any]]]:
    """Fields of a version, by the names that kafka-python has for them."""
    return [(re.sub(r"(?<!^)(?=[A-Z])", "_", field["name"]).lower(), field) for field in fields if version in _range(field["versions"])]


def values(fields: Fields, version: int) -> st.SearchStrategy[dict[str, Any]]:
    drawn = {name: value(field, version) for name, field in of_version(fields, version)}
    return st.fixed_dictionaries(drawn).map(lambda known: {name: known[name] for name in drawn})  # tags in order: they keep ours


def value(field: dict[str, Any], version: int) -> st.SearchStrategy[Any]:
    kind = field["type"]
    if kind.startswith("[]"):
        known = st.lists(value({"type": kind[2:], "fields": field.get("fields")}, version), max_size=2)
    elif kind[0].isupper():
        known = values(field["fields"], version)
    elif kind in BITS:
        half = 1 << BITS[kind] - 1
        known = st.integers(-half, half - 1)
    else:
        known = {
            "bitfield": st.integers(0, (1 << 31) - 1).map(Bits),
            "bool": st.booleans(),
            "float64": st.floats(allow_nan=False),
            "string": TEXTS,
            "bytes": BYTES,
            "records": BYTES,
            "uint16": st.integers(0, (1 << 16) - 1),
            "uuid": st.binary(min_size=16, max_size=16).map(lambda data: uuid.UUID(bytes=data)),
        }[kind]
    return st.one_of(st.none(), known) if version in _range(field.get("nullableVersions", "none")) else known


def our_name(name: str, drawn: dict[str, Any]) -> str:
    if name == "authorized_operations" and "protocol_type" not in drawn:  # kafka-python's short name of two
        return "topic_authorized_operations" if "is_internal" in drawn else "cluster_authorized_operations"
    return ONCE.get(name, name)


def for_us(item: Any) -> Any:
    if isinstance(item, dict):
        return {our_name(name, item): for_us(value) for name, value in item.items()}
    if isinstance(item, list):
        return list(map(for_us, item))
    return item.bytes if isinstance(item, uuid.UUID) else item


def for_them(item: Any) -> Any:
    if isinstance(item, dict):
        return {name: for_them(value) for name, value in item.items()}
    if isinstance(item, list):
        return list(map(for_them, item))
    return {bit for bit in range(31) if item >> bit & 1} if isinstance(item, Bits) else item


def decoded(item: Any, drawn: Any) -> Any:
    """What one of us has decoded, with the names that were drawn: neither leaves out the fields that the version lacks."""
    if isinstance(drawn, dict):
        if isinstance(item, dict):
            return {name: decoded(item[our_name(name, drawn)], value) for name, value in drawn.items()}
        return {name: decoded(getattr(item, name), value) for name, value in drawn.items()}
    if isinstance(drawn, list):
        assert len(item) == len(drawn)
        return [decoded(*pair) for pair in zip(item, drawn, strict=True)]
    if isinstance(drawn, uuid.UUID):
        return uuid.UUID(bytes=item) if isinstance(item, bytes) else item
    if isinstance(drawn, Bits):
        return sum(1 << bit for bit in item) if isinstance(item, set) else item
    return bytes(item) if isinstance(item, memoryview) else item


def encoded_by_them(kind: Any, drawn: dict[str, Any], version: int) -> bytes:
    flexible = kind.flexible_version_q(version)
    return bytes(kind._struct.encode(for_them(drawn), version=version, compact=flexible, tagged=flexible))


def decoded_by_them(kind: Any, data: bytes, version: int) -> Any:
    flexible = kind.flexible_version_q(version)
    stream = io.BytesIO(data)
    found = kind._struct.decode(stream, version=version, compact=flexible, tagged=flexible, data_class=kind)
    assert stream.tell() == len(data)
    return found


def test_the_messages_that_it_lacks_are_those_that_are_named() -> None:
    assert {f"{name}Request" for name in LACKING}.isdisjoint(THEIRS)


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_every_version_both_ways(name: str) -> None:
    ours, theirs = MESSAGES[name], THEIRS[name]
    assert ours.versions[-1] <= theirs.max_version

    @settings(max_examples=10, phases=[Phase.generate])  # to shrink nested values takes minutes
    @given(st.fixed_dictionaries({version: values(theirs._json["fields"], version) for version in ours.versions}))
    def both_ways(of_versions: dict[int, dict[str, Any]]) -> None:
        for version, drawn in of_versions.items():
            data = ours.encode(for_us(drawn), version)
            assert data == encoded_by_them(theirs, drawn, version), version
            mine, end = ours.decode(data, version)
            assert end == len(data)
            assert decoded(mine, drawn) == drawn, version
            assert decoded(decoded_by_them(theirs, data, version), drawn) == drawn, version

    both_ways()


@pytest.mark.parametrize("api", KNOWN, ids=lambda api: api.name)
def test_the_key_and_the_first_version_that_is_flexible(api: Api) -> None:
    for message in (api.request, api.response):
        theirs = THEIRS[message.name]
        assert (theirs.API_KEY, theirs.name) == (api.key, message.name)
        assert [message.is_flexible(version) for version in message.versions] == list(map(theirs.flexible_version_q, message.versions))
    assert api.request.versions == api.response.versions


@pytest.mark.parametrize("api", KNOWN, ids=lambda api: api.name)
def test_frames_with_headers(api: Api) -> None:
    for version in api.request.versions:
        flexible = api.request.is_flexible(version)
        header = TheirHeader(request_api_key=api.key, request_api_version=version, correlation_id=7, client_id="grüß")
        body = api.request.encode({}, version)
        frame = header.encode(flexible=flexible) + body
        mine, position = read_header(frame, APIS)
        assert (mine, frame[position:]) == ((api, version, 7, "grüß", flexible), body)
        values = read_request(mine, frame, position)
        assert api.request.encode(values, version) == body

        size, answer = struct.unpack(">i", b"".join(encode_response(mine, {}))[:4])[0], b"".join(encode_response(mine, {}))[4:]
        stream = io.BytesIO(answer)
        theirs = THEIRS[api.response.name]
        theirs[version].parse_header(stream)
        assert (size, answer[stream.tell() :]) == (len(answer), api.response.encode({}, version))
