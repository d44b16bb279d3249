"""What tests/integration/connect/test_kafka_plugins.py does not compare with Kafka: records stay as they are, errors, our own transform."""

import importlib
import sys
import types

import pytest

from logdb_connect import ConfigError, DataError, Header, Schema, SourceRecord, struct
from logdb_connect.catalogue import PLUGINS
from logdb_connect.data import STRING, TIMESTAMP
from logdb_connect.logical import EPOCH
from logdb_connect.transforms.fields import InsertFieldValue, ReplaceFieldValue, path_of
from logdb_connect.transforms.headers import HeaderFromValue
from logdb_connect.transforms.python import ApplyFunction
from logdb_connect.transforms.routes import RegexRouter
from logdb_connect.transforms.types import CastValue, TimestampConverterValue

PERSON = struct("person", name=STRING, age=Schema(type="int32"), at=Schema(type="int64", name=TIMESTAMP, version=1, optional=True))


def made(kind, **config):
    plugin = kind()
    plugin.configure(kind.config_def.parse({name.replace("_", "."): value for name, value in config.items()}))
    return plugin


def record(value=None, schema=PERSON, **parts):
    given = {"source_partition": {}, "source_offset": {}, "topic": "orders", "value": value, "value_schema": schema, **parts}
    return SourceRecord(**given)


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (InsertFieldValue, {"static_field": "s", "static_value": "x"}),
        (ReplaceFieldValue, {"exclude": "age"}),
        (CastValue, {"spec": "age:string"}),
        (HeaderFromValue, {"fields": "age", "headers": "h", "operation": "move"}),
        (TimestampConverterValue, {"field": "at", "target_type": "unix"}),
    ],
)
@pytest.mark.parametrize("schema", [PERSON, None])
def test_a_record_is_never_changed_in_place(kind, config, schema):
    def original():
        return record({"name": "a", "age": 3, "at": EPOCH}, schema, headers=[Header("k", "v")])

    given = original()
    assert made(kind, **config).apply(given) != given
    assert given == original()


def test_the_schema_is_made_once():
    used = made(InsertFieldValue, static_field="s!", static_value="x")
    first, second = (used.apply(record({"name": text, "age": 3})) for text in "ab")
    assert first.value_schema is second.value_schema
    assert first.value == {"name": "a", "age": 3, "at": None, "s": "x"}


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("a", ["a"]),
        ("a.b.c", ["a", "b", "c"]),
        ("a.", ["a", ""]),
        ("`a.b`.c", ["a.b", "c"]),
        ("a.`b.c`", ["a", "b.c"]),
        ("`a`b`.c", ["a`b", "c"]),
        ("`a\\`.b`.c", ["a`.b", "c"]),
    ],
)
def test_paths_of_fields(path, steps):
    assert path_of(path, "V2") == steps
    assert path_of(path, "V1") == [path]


@pytest.mark.parametrize("path", ["`a", "a.`b", "`a\\`"])
def test_a_path_with_an_open_backtick(path):
    with pytest.raises(ConfigError, match="Incomplete backtick pair"):
        path_of(path, "V2")


def test_a_pattern_of_a_user_takes_linear_time():
    router = made(RegexRouter, regex="(a|aa)+b", replacement="x")
    assert router.apply(record(topic="a" * 200)).topic == "a" * 200
    with pytest.raises(ConfigError, match="back references are not supported"):
        made(RegexRouter, regex="(a)\\1", replacement="x")


def test_a_function_of_python(monkeypatch):
    module = types.ModuleType("shop_records")
    module.shout = lambda given: None if given.value is None else given.replace(value=given.value.upper())
    monkeypatch.setitem(sys.modules, "shop_records", module)
    used = made(ApplyFunction, function="shop_records:shout")
    assert used.apply(record("a", STRING)).value == "A"
    assert used.apply(record(None, STRING)) is None
    used = made(ApplyFunction, function="builtins:str")
    with pytest.raises(DataError, match="must return a record or None, not str"):
        used.apply(record("a", STRING))


@pytest.mark.parametrize("text", ["shout", "no_such_module:f", "json:no_such", "json:__name__", ":f", "json:"])
def test_a_function_that_is_none(text):
    with pytest.raises(ConfigError, match="Invalid value"):
        made(ApplyFunction, function=text)


def test_the_catalogue_names_classes_that_are_there():
    for plugin in PLUGINS:
        module, _, attribute = plugin.target.partition(":")
        if module.startswith(("logdb_connect.transforms.", "logdb_connect.converters.")):
            assert isinstance(getattr(importlib.import_module(module), attribute), type)
