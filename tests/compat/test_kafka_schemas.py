"""Kafka's own message files, as kafka-python brings them: our tables made from them write the bytes that it writes."""

import random
import uuid
import warnings
from typing import Any

import pytest

from logdb.codec import schema
from logdb.codec.schema import Array, Field, Message, Struct, Type
from logdb.coordinator.consumer_protocol import Assignment, Subscription
from logdb.model import TopicPartition

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas by importlib.resources.read_text
    from kafka.protocol import admin, consumer, metadata, producer

MODULES = (admin, consumer, metadata, producer)
MESSAGES = {
    name: kind
    for module in MODULES
    for name, kind in vars(module).items()
    if name.endswith(("Request", "Response")) and hasattr(kind, "json")
}


class Id(bytes):
    """A UUID, which kafka-python wants as such."""


class Bits(int):
    """A number whose bits kafka-python wants as a set."""


def for_theirs(value: Any) -> Any:
    if isinstance(value, Bits):
        return {bit for bit in range(31) if value >> bit & 1}
    if isinstance(value, dict):
        return {name: for_theirs(item) for name, item in value.items()}
    if isinstance(value, list):
        return list(map(for_theirs, value))
    return uuid.UUID(bytes=value) if isinstance(value, Id) else value


def snake(name: str) -> str:
    """As kafka-python names its fields."""
    return "".join(f"_{letter.lower()}" if letter.isupper() and at else letter.lower() for at, letter in enumerate(name))


def type_of(field: Any) -> Type:
    name = field["type"]
    if name.startswith("[]"):
        return Array(type_of(field | {"type": name[2:]}))
    if name[0].isupper():
        return Struct(*map(field_of, field["fields"]))
    return getattr(schema, {"bitfield": "INT32"}.get(name, name.upper()))  # type: ignore[no-any-return]


def field_of(field: Any) -> Field:
    options = {"tag": field["tag"]} if "tag" in field else {}
    return Field(snake(field["name"]), type_of(field), field["versions"], nullable=field.get("nullableVersions", "none"), **options)


def message_of(json: Any) -> Message:
    newest = json["validVersions"].split("-")[-1]
    return Message(json["name"], f"0-{newest}", json["flexibleVersions"], *map(field_of, json["fields"]))


def values_of(fields: Any, version: int, rng: random.Random) -> dict[str, Any]:
    return {
        snake(field["name"]): value_of(field, version, rng)
        for field in fields
        if version in schema._range(field["versions"]) and not ("tag" in field and rng.random() < 0.5)
    }


def value_of(field: Any, version: int, rng: random.Random) -> Any:
    name = field["type"]
    if version in schema._range(field.get("nullableVersions", "none")) and rng.random() < 0.3:
        return None
    if name.startswith("[]"):
        return [value_of({"type": name[2:], "fields": field.get("fields")}, version, rng) for _ in range(rng.randrange(3))]
    if name[0].isupper():
        return values_of(field["fields"], version, rng)
    bits = {"int8": 7, "int16": 15, "uint16": 15, "int32": 31, "int64": 63}
    if name in bits:
        return rng.randrange(1 << bits[name])
    simple = {
        "bitfield": lambda: Bits(rng.randrange(1 << 31)),
        "bool": lambda: rng.random() < 0.5,
        "float64": rng.random,
        "string": lambda: "grüß"[: rng.randrange(5)] * rng.choice((1, 100)),
        "bytes": lambda: rng.randbytes(rng.randrange(300)),
        "records": lambda: rng.randbytes(rng.randrange(300)),
        "uuid": lambda: Id(rng.randbytes(16)),
    }
    return simple[name]()


def has_struct_in_tag(fields: Any) -> bool:
    """It writes those without the tagged fields that Kafka gives them."""
    return any((("tag" in field) and "fields" in field) or has_struct_in_tag(field.get("fields", ())) for field in fields)


def theirs(kind: Any, values: dict[str, Any], version: int) -> bytes:
    flexible = kind.flexible_version_q(version)
    return bytes(kind._struct.encode(for_theirs(values), version=version, compact=flexible, tagged=flexible))


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_messages(name: str) -> None:
    kind: Any = MESSAGES[name]
    json: Any = kind._json
    if has_struct_in_tag(json["fields"]):
        return
    message, rng = message_of(json), random.Random(name)
    for version in message.versions:
        for _ in range(5):
            values = values_of(json["fields"], version, rng)
            data = message.encode(values, version)
            assert data == theirs(kind, values, version), (version, values)
            decoded, end = message.decode(data, version)
            assert end == len(data)
            assert message.encode(decoded, version) == data


def test_subscriptions_and_assignments() -> None:
    parts = (TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("b", 0))
    topics = [("a", [1, 2]), ("b", [0])]
    for version in range(4):
        ours = Subscription(("a", "b"), b"u", parts, 4, "r").encode(version)
        kind = consumer.ConsumerProtocolSubscription
        fields = {"topics": ["a", "b"], "user_data": b"u", "owned_partitions": topics, "generation_id": 4, "rack_id": "r"}
        assert ours == kind(version=version, **fields).encode()
        ours = Assignment(parts, b"u").encode(version)
        kind = consumer.ConsumerProtocolAssignment
        assert ours == kind(version=version, assigned_partitions=topics, user_data=b"u").encode()
