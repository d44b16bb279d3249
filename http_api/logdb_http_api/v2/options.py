"""The options of a consumer instance of REST v2, and the patterns of topics for subscriptions.

Source: Confluent's kafka-rest, ``CreateConsumerInstanceRequest``; ``isolation.level`` and ``enable.auto.commit`` are
Strimzi's.
"""

import re
import uuid
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, cast

from logdb.client.consumer.config import ConsumerConfig
from logdb.errors import InvalidConfig
from logdb.mistakes import one_of
from logdb_http_api.door.schemas import Number, OneOf
from logdb_http_api.errors import ApiError
from logdb_http_api.v2.formats import BINARY, JSON, NO_REGISTRY, WITH_SCHEMA
from logdb_http_api.v2.instances import HEARTBEAT_MS, Reading

_TIMEOUT_MS_MAX = 300_000
SIZE_BYTES_MIN_MAX = 10_000_000
NAME_LENGTH_MAX = PATTERN_LENGTH_MAX = 249

_ALIASES = {
    "id": "name",
    "responseMinBytes": "fetch.min.bytes",
    "requestWaitMs": "consumer.request.timeout.ms",
    "enable.auto.commit": "auto.commit.enable",
}
_NAMES = ("name", "format", "auto.offset.reset", "auto.commit.enable", "fetch.min.bytes", "consumer.request.timeout.ms", "isolation.level")
ALL = (*_NAMES, *_ALIASES)
SHAPE = {
    "name?": str,
    "format?": Literal["binary", "json"],
    "auto.offset.reset?": Literal["earliest", "latest", "none"],
    "auto.commit.enable?": OneOf(bool, Literal["true", "false"]),
    "fetch.min.bytes?": OneOf(Number(-1, SIZE_BYTES_MIN_MAX), str),
    "consumer.request.timeout.ms?": OneOf(Number(0), str),
    "isolation.level?": Literal["read_uncommitted", "read_committed"],
}

_FLAGS = {"true": True, "false": False}
_FORMATS = {"binary": BINARY, "json": JSON}


class Options(NamedTuple):
    """The options of a new instance."""

    name: str
    config: ConsumerConfig
    reading: Reading


def parse(given: Mapping[str, Any], group_id: str) -> Options:
    """The options of a request; names are some of ``ALL``.

    Raises:
        ApiError: An invalid value; 422.
    """
    options = {_ALIASES.get(name, name): value for name, value in given.items()}
    name = options.get("name", f"rest-consumer-{uuid.uuid4()}")
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_LENGTH_MAX:
        raise invalid(f"name is {name!r:.80}: must be a string of 1 to {NAME_LENGTH_MAX} characters")
    size_bytes_min = _number(options, "fetch.min.bytes", -1, SIZE_BYTES_MIN_MAX, 40001)
    timeout_ms = _number(options, "consumer.request.timeout.ms", 0, _TIMEOUT_MS_MAX, 42204)
    try:
        config = ConsumerConfig(
            group_id=group_id,
            auto_offset_reset=options.get("auto.offset.reset", "latest"),
            enable_auto_commit=_flag(options, "auto.commit.enable", True),
            isolation_level=options.get("isolation.level", "read_uncommitted"),
            heartbeat_interval_ms=HEARTBEAT_MS,
            iteration_timeout_ms=0,
            client_id=name,
        )
    except (InvalidConfig, TypeError) as error:
        raise invalid(str(error)) from None
    return Options(name, config, Reading(_format(options.get("format", "binary")), max(size_bytes_min or 0, 0), timeout_ms))


def _format(name: Any) -> str:
    known = str(name).lower()
    if known in WITH_SCHEMA.values():
        raise invalid(f"format={known}: {NO_REGISTRY}")
    if known not in _FORMATS:
        raise ApiError(422, 422, f"Invalid format type. format is {name!r:.80}: must be {one_of(_FORMATS)}")
    return _FORMATS[known]


def _flag(options: Mapping[str, Any], name: str, default: bool) -> bool:
    text = str(options.get(name, default)).lower()
    if text not in _FLAGS:
        raise invalid(f"{name} is {text[:80]!r}: must be true or false")
    return _FLAGS[text]


def _number(options: Mapping[str, Any], name: str, least: int, most: int, code: int) -> int | None:
    value = options.get(name)
    if value is None:
        return None
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value, re.ASCII):
        value = int(value)
    if type(value) is not int or not least <= value <= most:
        raise invalid(f"{name} is {value!r:.80}: must be a whole number in [{least}, {most}]", code)
    return value


def invalid(what: str, code: int = 42204) -> ApiError:
    """The error for an invalid value of an option."""
    bounds = ". It does not abide by the constraints" if code == 40001 else ""
    return ApiError(422, code, f"Invalid consumer configuration{bounds}: {what}")


# ---------------------------------------------------------------- patterns

_PATTERN_MEMORY_BYTES = 64 << 10  # of the compiled pattern; RE2 refuses a larger one


def pattern(text: Any) -> "re.Pattern[str]":
    """A pattern of topic names, compiled by RE2: its time is linear in the length of a name, for every pattern.

    Raises:
        ApiError: It is not a pattern, has look-arounds or back references, or is too large; 422.

    Source: https://github.com/google/re2/wiki/Syntax.
    """
    import re2  # few requests have a pattern

    if not isinstance(text, str) or not 1 <= len(text) <= PATTERN_LENGTH_MAX:
        raise ApiError(422, 422, f"topic_pattern is {text!r:.80}: must be a regular expression of 1 to {PATTERN_LENGTH_MAX} characters")
    options = re2.Options()
    options.max_mem, options.never_capture, options.log_errors = _PATTERN_MEMORY_BYTES, True, False
    try:
        return cast("re.Pattern[str]", re2.compile(text, options))
    except re2.error as error:
        reason = str(error.args[0], "utf-8", "replace")
    except UnicodeEncodeError as error:
        reason = str(error)
    raise ApiError(422, 422, f"topic_pattern {text!r} is not supported: {reason}")
