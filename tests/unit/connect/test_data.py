"""Bounds of a schema: a short text may stand for one that nobody can hash."""

import pytest

from logdb_connect.connectors.objects.schemas import of_avro
from logdb_connect.converters.avro import connect_schema
from logdb_connect.data import SCHEMA_DEPTH_MAX, Schema
from logdb_connect.errors import DataError


def doubled(count):
    """Records that contain the one before twice, by its name."""
    record = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": "int"}]}
    for number in range(1, count):
        fields = [{"name": "a", "type": record}, {"name": "b", "type": f"R{number - 1}"}]
        record = {"type": "record", "name": f"R{number}", "fields": fields}
    return record


@pytest.mark.parametrize("read", [of_avro, connect_schema])
def test_records_that_double_are_refused(read):
    assert hash(read(doubled(10))) == hash(read(doubled(10)))
    with pytest.raises(DataError, match="schemas in"):
        read(doubled(60))


def test_a_chain_is_refused_before_python_s_recursion_ends():
    schema = Schema(type="string")
    for _ in range(SCHEMA_DEPTH_MAX - 1):
        schema = Schema(type="array", values=schema)
    assert hash(schema) == hash(schema.replace(doc=None))
    with pytest.raises(DataError, match=f"{SCHEMA_DEPTH_MAX + 1} levels"):
        Schema(type="array", values=schema)
