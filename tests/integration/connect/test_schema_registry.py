"""The converters with a schema registry of others: Apicurio's.  Skipped, with the reason, where it cannot be had."""

import pytest

from logdb_connect import DataError, Schema, struct
from logdb_connect.converters.avro import AvroConverter
from logdb_connect.converters.json_schema import JsonSchemaConverter
from logdb_connect.data import OPTIONAL_STRING, STRING
from logdb_connect.logical import EPOCH
from logdb_connect.values import TIMESTAMP_SCHEMA
from support.apicurio import apicurio, missing

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(300)]
ORDER = struct("shop.Order", id=Schema(type="int16"), at=TIMESTAMP_SCHEMA, note=OPTIONAL_STRING, tags=Schema(type="array", values=STRING))
VALUE = {"id": 7, "at": EPOCH, "note": None, "tags": ["a"]}
STRATEGY = "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    if (reason := missing()) is not None:
        pytest.skip(reason)
    with apicurio(tmp_path_factory.mktemp("apicurio") / "log") as served:
        yield served


def converter(kind, url, **config):
    made = kind()
    given = {"schema.registry.url": url, **{name.replace("_", "."): str(value) for name, value in config.items()}}
    made.configure({**made.config_def.parse(given), "converter.type": "value"})
    return made


@pytest.mark.parametrize("kind", [AvroConverter, JsonSchemaConverter])
def test_values_come_back(url, kind):
    topic = f"orders-{kind.__name__}"
    fixed = converter(kind, url, auto_register_schemas=False)
    with pytest.raises(DataError, match="404"):
        fixed.from_connect(topic, ORDER, VALUE)
    data = converter(kind, url).from_connect(topic, ORDER, VALUE)
    assert fixed.from_connect(topic, ORDER, VALUE) == data
    assert converter(kind, url, normalize_schemas=True).from_connect(topic, ORDER, VALUE) is not None
    latest = converter(kind, url, auto_register_schemas=False, use_latest_version=True)
    assert latest.from_connect(topic, ORDER.replace(doc="another"), VALUE) == data
    named = converter(kind, url, value_subject_name_strategy=STRATEGY)
    for used in (fixed, converter(kind, url)):
        assert used.to_connect(topic, data) == (ORDER, VALUE)
        assert used.to_connect(topic, named.from_connect(topic, ORDER, VALUE)) == (ORDER, VALUE)
        with pytest.raises(DataError, match="404"):
            used.to_connect(topic, b"\x00\x00\x0f\x00\x00x")


def test_a_topic_with_two_schemas(url):
    used = converter(AvroConverter, url)
    first, second = used.from_connect("t", STRING, "a"), used.from_connect("t", Schema(type="int64"), 1)
    assert first[:5] != second[:5]
    assert used.to_connect_many("t", [first, second]) == ([STRING, Schema(type="int64")], ["a", 1])
