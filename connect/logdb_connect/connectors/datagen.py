"""Made-up records, by an Avro schema: for demonstrations and tests.  The names of properties are those of ``kafka-connect-datagen``.

The record number n of a task depends on ``random.seed``, the task and n only.  So a restart goes on with the record that would have come.
"""

import itertools
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from logdb_connect.config import REQUIRED, ConfigDef, ConfigKey
from logdb_connect.connectors import limits
from logdb_connect.connectors.objects.schemas import of_avro
from logdb_connect.data import Schema, SourceBatch
from logdb_connect.errors import ConfigError, ConnectError, DataError
from logdb_connect.plugin import Properties, SourceConnector, SourceTask

Make = Callable[[random.Random, int], Any]
"""The value of a field, from chance and the number of the record."""

_MUST_BE = "it must be the Avro schema of a record"
_BATCH = 500
_IDLE_S = 0.2


def _string(regex: str) -> dict[str, Any]:
    return {"type": "string", "arg.properties": {"regex": regex}}


def _one_of(*options: Any, kind: str = "string") -> dict[str, Any]:
    return {"type": kind, "arg.properties": {"options": list(options)}}


def _range(kind: str, low: float, high: float) -> dict[str, Any]:
    return {"type": kind, "arg.properties": {"range": {"min": low, "max": high}}}


def _steps(kind: str, start: int, step: int = 1) -> dict[str, Any]:
    return {"type": kind, "arg.properties": {"iteration": {"start": start, "step": step}}}


def _record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": "ksql", "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


_USER, _2017_MS = _string("User_[1-9]"), 1_487_715_775_521
QUICKSTARTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "orders": (
        "orderid",
        _record(
            "orders",
            ordertime=_range("long", _2017_MS, 1_519_273_364_600),
            orderid=_steps("int", 0),
            itemid=_string("Item_[1-9][0-9]{0,2}"),
            orderunits=_range("double", 0.1, 10.0),
            address=_record(
                "address", city=_string("City_[1-9][0-9]?"), state=_string("State_[1-9][0-9]?"), zipcode=_range("long", 10_000, 99_999)
            ),
        ),
    ),
    "pageviews": (
        "viewtime",
        _record("pageviews", viewtime=_steps("long", 1, 10), userid=_USER, pageid=_string("Page_[1-9][0-9]?")),
    ),
    "ratings": (
        "rating_id",
        _record(
            "ratings",
            rating_id=_steps("long", 1),
            user_id=_range("int", 1, 20),
            stars=_range("int", 1, 5),
            route_id=_range("int", 1, 10_000),
            rating_time=_steps("long", 1, 10),
            channel=_one_of("web", "ios", "iOS-test", "android"),
            message=_one_of("good", "late again", "why so slow?", "friendly crew", "would fly again"),
        ),
    ),
    "stock_trades": (
        "symbol",
        _record(
            "StockTrade",
            side=_one_of("BUY", "SELL"),
            quantity=_range("int", 1, 5000),
            symbol=_one_of("ZBZX", "ZJZZT", "ZTEST", "ZVV", "ZVZZT", "ZWZZT", "ZXZZT"),
            price=_range("int", 5, 1000),
            account=_one_of("ABC123", "LMN456", "XYZ789"),
            userid=_USER,
        ),
    ),
    "users": (
        "userid",
        _record(
            "users",
            registertime=_range("long", _2017_MS, 1_519_273_364_600),
            userid=_USER,
            regionid=_string("Region_[1-9]"),
            gender=_one_of("MALE", "FEMALE", "OTHER"),
        ),
    ),
}
"""By name: the field that is the key, and the schema."""


class DatagenSourceTask(SourceTask):
    """Makes records."""

    def start(self, properties: Properties) -> None:
        self._config = config = DatagenConnector.config_def.parse(properties)
        self._task = int(properties.get("task.id", 0))
        self._key_field, avro = schema_of(config)
        self._schema = of_avro(avro)
        self._key_schema = None if self._key_field is None else _field(self._schema, self._key_field)
        self._make = maker(avro)
        self._partition = {"task.id": self._task}
        found = self.context.offset(self._partition)
        self._number = 0 if found is None else int(found["current.iteration"])
        self._random = random.Random()  # noqa: S311 made-up data
        self._pauses = random.Random()  # noqa: S311

    def poll(self) -> SourceBatch | None:
        most, interval_ms = self._config["iterations"], self._config["max.interval"]
        left = most - self._number if most > 0 else _BATCH
        if left <= 0:
            self.context.wait(_IDLE_S)
            return None
        if interval_ms > 0:
            self.context.wait(interval_ms / 1000 * self._pauses.random())
        values = [self._record(self._number + each) for each in range(min(left, 1 if interval_ms > 0 else _BATCH))]
        self._number += len(values)
        return SourceBatch(
            source_partition=self._partition,
            offset={"current.iteration": self._number},
            topic=self._config["kafka.topic"],
            values=values,
            value_schema=self._schema,
            keys=None if self._key_field is None else [each[self._key_field] for each in values],
            key_schema=self._key_schema,
        )

    def _record(self, number: int) -> Any:
        self._random.seed(f"{self._config['random.seed']}/{self._task}/{number}")
        return self._make(self._random, number)


class DatagenConnector(SourceConnector):
    """Made-up records."""

    task_class = DatagenSourceTask
    version = "1.0"
    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey("kafka.topic", "STRING", REQUIRED, "Topic to write to", "HIGH"),
        ConfigKey("quickstart", "STRING", "", f"Name of quickstart to use: {', '.join(QUICKSTARTS)}", "HIGH", values=("", *QUICKSTARTS)),
        ConfigKey("max.interval", "LONG", 500, "Max interval between messages (ms)", "HIGH"),
        ConfigKey("iterations", "LONG", -1, "Number of messages to send from each task, or less than 1 for unlimited", "HIGH"),
        ConfigKey(
            "schema.string",
            "STRING",
            "",
            "The literal JSON-encoded Avro schema to use, in place of quickstart",
            "HIGH",
        ),
        ConfigKey("schema.filename", "STRING", "", "Filename of schema to use, in place of quickstart", "HIGH"),
        ConfigKey("schema.keyfield", "STRING", "", "Name of field to use as the message key", "HIGH"),
        ConfigKey("random.seed", "LONG", 0, "Another number makes other records", "LOW"),
    )

    def task_configs(self, max_tasks: int) -> Sequence[Properties]:
        return [{**self._properties, "task.id": str(number)} for number in range(max_tasks)]

    def check(self, config: Mapping[str, Any]) -> Mapping[str, str]:
        try:
            maker(schema_of(config)[1])
        except ConfigError as error:
            return {error.name: str(error)}
        return {}


def schema_of(config: Mapping[str, Any]) -> tuple[str | None, Mapping[str, Any]]:
    """The field that is the key, and the Avro schema.

    Raises:
        ConfigError: Not exactly one property names a schema, or it is none.
    """
    given = [name for name in ("quickstart", "schema.string", "schema.filename") if config[name]]
    if len(given) != 1:
        raise ConfigError(given[-1] if given else "quickstart", "Exactly one of quickstart, schema.string and schema.filename must be set")
    name = given[0]
    key: str | None = config["schema.keyfield"] or None
    if name == "quickstart":
        quick_key, schema = QUICKSTARTS[config[name]]
        return key or quick_key, schema
    text = config[name]
    if name == "schema.filename":
        try:
            limits.check_path(text)
            with open(text, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError, ConnectError) as error:
            raise ConfigError(name, f"Invalid value {config[name]} for configuration {name}: {error}") from error
    try:
        parsed = json.loads(text)
        whole = of_avro(parsed)
        if key is not None:
            _field(whole, key)
    except (ValueError, KeyError, TypeError, AttributeError, DataError) as error:
        raise ConfigError(
            name, f"Invalid value for configuration {name}: it must be the Avro schema of a record in JSON: {error}"
        ) from error
    if not isinstance(parsed, Mapping) or parsed.get("type") != "record":
        raise ConfigError(name, f"Invalid value for configuration {name}: {_MUST_BE}")
    return key, parsed


def _field(schema: Schema, name: str) -> Schema:
    found = schema.field(name)
    if found is None:
        raise DataError(f"schema.keyfield={name} must be a field of the schema")
    return found.schema


# Values -------------------------------------------------------------------------------------------------------------------------


def maker(avro: Any, named: dict[str, Make] | None = None) -> Make:
    """What makes values of an Avro schema, by its ``arg.properties``: options, range, iteration, regex, length.

    Raises:
        ConfigError: A property is unknown or wrong.
    """
    named = {} if named is None else named
    if isinstance(avro, list):
        makes = [maker(each, named) for each in avro]
        return lambda chance, number: chance.choice(makes)(chance, number)
    if isinstance(avro, str):
        return named[avro] if avro in named else _plain(avro, {})
    given = avro.get("arg.properties", {})
    if "options" in given:
        options = given["options"]
        return lambda chance, number: chance.choice(options)
    if "iteration" in given:
        return _iteration(given["iteration"])
    match avro["type"]:
        case "record":
            makes_of = {each["name"]: maker(each["type"], named) for each in avro["fields"]}
            named[avro["name"]] = record = lambda chance, number: {name: make(chance, number) for name, make in makes_of.items()}
            return record
        case "array" | "map" as kind:
            item, key = maker(avro["items" if kind == "array" else "values"], named), _plain("string", {})
            low, high = _length(given, (0, 5))
            if kind == "array":
                return lambda chance, number: [item(chance, number) for _ in range(chance.randint(low, high))]
            return lambda chance, number: {key(chance, number): item(chance, number) for _ in range(chance.randint(low, high))}
        case "enum":
            symbols = avro["symbols"]
            return lambda chance, number: chance.choice(symbols)
        case "fixed":
            size = avro["size"]
            return lambda chance, number: chance.randbytes(size)
        case str() as kind:
            return _plain(kind, given)
        case inner:
            return maker(inner, named)


def _plain(kind: str, given: Mapping[str, Any]) -> Make:
    match kind:
        case "null":
            return lambda chance, number: None
        case "boolean":
            return lambda chance, number: chance.random() < 0.5
        case "int" | "long":
            limits_ = given.get("range", {})
            bits = 31 if kind == "int" else 63
            low, high = int(limits_.get("min", 0)), int(limits_.get("max", (1 << bits) - 1))
            return lambda chance, number: chance.randint(low, high)
        case "float" | "double":
            limits_ = given.get("range", {})
            least, most = float(limits_.get("min", 0)), float(limits_.get("max", 1))
            return lambda chance, number: chance.uniform(least, most)
        case "string" if "regex" in given:
            return _of_regex(given["regex"])
        case "string":
            low, high = _length(given, (8, 8))
            return lambda chance, number: "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(low, high)))
        case "bytes":
            low, high = _length(given, (8, 8))
            return lambda chance, number: chance.randbytes(chance.randint(low, high))
    raise ConfigError("schema.string", f"Avro has no type {kind}")


def _length(given: Mapping[str, Any], default: tuple[int, int]) -> tuple[int, int]:
    found = given.get("length", {"min": default[0], "max": default[1]})
    return (int(found["min"]), int(found["max"])) if isinstance(found, Mapping) else (int(found), int(found))


def _iteration(given: Mapping[str, Any]) -> Make:
    start, step, restart = given.get("start", 0), given.get("step", 1), given.get("restart")
    count = None if restart is None else max(1, -(-(restart - start) // step))
    return lambda chance, number: start + step * (number if count is None else number % count)


_PIECE = re.compile(r"(\[[^\]]+\]|\\.|\(([^()]*)\)|[^\[\](){}?*+|\\])(?:\{(\d+)(?:,(\d+))?\}|([?*+]))?")
_TIMES = {"?": (0, 1), "*": (0, 8), "+": (1, 8)}


def _of_regex(regex: str) -> Make:
    """Strings that match a simple regular expression: characters, classes, groups of alternatives, and how often they come."""
    pieces: list[tuple[Callable[[random.Random], str], int, int]] = []
    at = 0
    while at < len(regex):
        found = _PIECE.match(regex, at)
        if found is None:
            raise ConfigError("schema.string", f"Cannot make strings of the regex {regex}: {regex[at:]} is not supported")
        low, high = _TIMES[found[5]] if found[5] else (int(found[3] or 1), int(found[4] or found[3] or 1))
        pieces.append((_one(found[1], found[2]), low, high))
        at = found.end()
    return lambda chance, number: "".join(one(chance) for one, low, high in pieces for _ in range(chance.randint(low, high)))


def _one(text: str, group: str | None) -> Callable[[random.Random], str]:
    if group is not None:
        choices: Sequence[str] = group.split("|")
    elif text.startswith("["):
        spans = re.findall(r"(.)-(.)|(.)", text[1:-1])
        choices = list(
            itertools.chain.from_iterable(map(chr, range(ord(low), ord(high) + 1)) if low else [one] for low, high, one in spans)
        )
    else:
        choices = {"\\d": "0123456789", "\\w": "abcdefghijklmnopqrstuvwxyz0123456789_"}.get(text, [text.removeprefix("\\")])
    return lambda chance: chance.choice(choices)
