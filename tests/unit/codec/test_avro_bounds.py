"""Values of a few bytes that would take all memory, or end the process."""

import io
import os
import runpy
import subprocess
import sys
import threading

import pytest

from logdb.codec import avro_bounds
from logdb.codec.avro_bounds import DEPTH_MAX, EMPTY_COUNT_MAX, EMPTY_PER_BYTE_MAX, WRITTEN_DEPTH_MAX, AvroBounds

fastavro = pytest.importorskip("fastavro")


def record(name, *types):
    return {"type": "record", "name": name, "fields": [{"name": f"f{number}", "type": one} for number, one in enumerate(types)]}


def array(items):
    return {"type": "array", "items": items}


def number(value):
    out, value = b"", value << 1 if value >= 0 else (-value << 1) - 1
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def encoded(schema, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def check(schema, data, count=1):
    AvroBounds(fastavro.parse_schema(schema)).check(data, count)


EMPTY, FIXED = record("E"), {"type": "fixed", "name": "F", "size": 0}


@pytest.mark.parametrize(
    "items",
    ["null", {"type": "null"}, FIXED, EMPTY, record("a.b.R", EMPTY, "null", FIXED)],
    ids=["null", "object", "fixed", "empty", "of empty"],
)
def test_items_of_no_bytes(items):
    check(array(items), number(EMPTY_COUNT_MAX // 4) + b"\0")
    for count in (EMPTY_COUNT_MAX + 1, 1 << 62):
        with pytest.raises(ValueError, match=f"more than {EMPTY_COUNT_MAX} records and items that take no bytes"):
            check(array(items), number(count) + b"\0")
    with pytest.raises(ValueError, match="no bytes"):
        check(array(items), number(-1 << 62) + b"\0\0")


def test_such_items_anywhere():
    inner = array("null")
    for schema in (record("R", ["null", inner]), array(["null", inner]), {"type": "map", "values": inner}, record("R", FIXED, array("F"))):
        head = {"record": b"\2", "array": b"\2\2", "map": b"\2\2k"}[schema["type"]] if "F" not in str(schema) else b""
        check(schema, head + number(10) + bytes(3))
        with pytest.raises(ValueError, match="no bytes"):
            check(schema, head + number(1 << 40) + bytes(3))


def test_records_that_double():
    """Of no byte at all, and in items of one byte."""
    schema = EMPTY
    for level in range(60):
        schema = record(f"R{level}", schema, f"R{level - 1}" if level else "E")
    with pytest.raises(ValueError, match="no bytes"):
        check(schema, b"")
    with pytest.raises(ValueError, match="no bytes"):
        check(array(record("R", "boolean", schema)), number(1) + bytes(2))


def test_fields_of_no_bytes():
    """A record may have many, but a million records of a byte each may not."""
    nulls = ["null"] * 1_001
    check(record("Flat", *nulls), b"")
    items = array(record("R", "boolean", FIXED, *nulls))
    check(items, number(99) + bytes(100))
    with pytest.raises(ValueError, match="no bytes"):
        check(items, number(5_000) + bytes(5_001))
    few = array(record("R", "boolean", *["null"] * (EMPTY_PER_BYTE_MAX - 2)))
    check(few, number(50_000) + bytes(50_001))


def doubled(levels):
    """Of no bytes: 2^(levels + 1) - 1 records."""
    schema = record("R0")
    for level in range(1, levels + 1):
        schema = record(f"R{level}", schema, f"R{level - 1}")
    return schema


def test_records_that_double_for_each_byte():
    """511 records for each boolean."""
    row = record("Row", "boolean", doubled(8))
    for schema, head in ((array(row), number(1_000)), (record("S", array(row)), number(-1_000) + b"\0")):
        with pytest.raises(ValueError, match="no bytes"):
            check(schema, head + bytes(1_001))
    with pytest.raises(ValueError, match="no bytes"):
        check(row, bytes(1_000), 1_000)
    for schema in ({"type": "map", "values": doubled(8)}, array(["null", doubled(8)])):
        with pytest.raises(ValueError, match="no bytes"):
            check(schema, number(1_000) + (b"\0" if schema["type"] == "map" else b"\2") * 1_000 + b"\0")
    check(row, bytes(100), 100)


def test_records_around_each_byte():
    """A record takes memory, too."""
    row = "boolean"
    for level in range(39):
        row = record(f"R{level}", row)
    check(row, bytes(2_000), 2_000)
    with pytest.raises(ValueError, match="no bytes"):
        check(row, bytes(10_000), 10_000)


def test_the_blocks_of_an_object_share_the_bound():
    bounds = AvroBounds(fastavro.parse_schema(EMPTY))
    left = bounds.check(b"", EMPTY_COUNT_MAX - 1)
    assert bounds.check(b"", 1, left) == 0
    with pytest.raises(ValueError, match="no bytes"):
        bounds.check(b"", 1, 0)
    with pytest.raises(ValueError, match="it has -5 values"):
        bounds.check(b"", -5, left)
    bounds = AvroBounds(fastavro.parse_schema(array("null")))
    left = bounds.check(number(60_000) + b"\0")
    assert left == EMPTY_COUNT_MAX - 60_000
    with pytest.raises(ValueError, match="no bytes"):
        bounds.check(number(60_000) + b"\0", 1, left)
    assert bounds.check(number(EMPTY_PER_BYTE_MAX) + b"\0", 1, left) == left


def test_usual_values_are_not_walked(monkeypatch):
    """Optional fields, records in records, arrays and maps of records, a list."""
    monkeypatch.setattr(avro_bounds, "_Walk", None)
    address = record("Address", ["null", "string"], ["null", record("Point", "double", "double")])
    order = record("Order", "long", address, ["null", "Address"], array("Address"), {"type": "map", "values": array(["null", "Point"])})
    check(order, bytes(20))
    check(order, bytes(20_000), 1_000)
    check(record("Optional", *[["null", record(f"O{each}", ["null", "int"])] for each in range(100)]), bytes(100))
    check(NODE, nodes(100)[0])


def test_a_block_of_records_of_no_bytes():
    check(EMPTY, b"", EMPTY_COUNT_MAX)
    with pytest.raises(ValueError, match="no bytes"):
        check(EMPTY, b"", 1 << 60)


NODE = record("shop.Node", "int", ["null", "shop.Node"])
TREE = record("T", array("T"), {"type": "map", "values": "T"})


def nodes(count):
    """The encoding of a list, and the list."""
    value = None
    for _ in range(count):
        value = {"f0": 1, "f1": value}
    return (number(1) + b"\2") * (count - 1) + number(1) + b"\0", value


def branches(levels):
    """A tree of records and arrays."""
    value = {"f0": [], "f1": {}}
    for _ in range(levels // 2 - 1):
        value = {"f0": [value], "f1": {}}
    return value


def test_a_record_in_itself():
    check(NODE, nodes(DEPTH_MAX)[0])
    with pytest.raises(ValueError, match=f"nested deeper than {DEPTH_MAX}"):
        check(NODE, nodes(DEPTH_MAX + 1)[0])
    with pytest.raises(ValueError, match="nested deeper"):
        check(NODE, b"\0\2" * 100_000)
    with pytest.raises(ValueError, match="nested deeper"):
        check(TREE, b"\2" * 100_000)
    with pytest.raises(ValueError, match=r"shop\.R contains itself in each value"):
        check(record("shop.R", "shop.R"), b"")


def test_records_that_lie_in_one_another_without_a_byte():
    """100 levels in a byte."""
    schema = ["null", "R99"]
    for level in range(100):
        schema = record(f"R{level}", schema)
    check(schema, b"\2" * (DEPTH_MAX // 100 - 1) + b"\0")
    with pytest.raises(ValueError, match="nested deeper"):
        check(schema, b"\2" * (DEPTH_MAX // 100) + b"\0")


def chain(levels, *, default=None, is_empty=True):
    """One record in another, each by the name of the one before; the text itself is flat."""
    records = [record("R0", *([] if is_empty else ["boolean"])), *(record(f"R{each}", f"R{each - 1}") for each in range(1, levels))]
    if default is not None:
        for each in records:
            for field in each["fields"]:
                field["default"] = default
    return record("Root", ["null", record("D", *records)], f"R{levels - 1}")


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_chain_of_names(is_empty):
    check(chain(12, is_empty=is_empty), bytes(2))
    check(chain(DEPTH_MAX - 1, is_empty=is_empty), bytes(2))
    for levels in (DEPTH_MAX, 10_000):
        with pytest.raises(ValueError, match="nested deeper"):
            check(chain(levels, is_empty=is_empty), bytes(2))
    root = fastavro.parse_schema(chain(10_000, is_empty=is_empty))
    with pytest.raises(ValueError, match="nested deeper"):
        AvroBounds(root).check(bytes(200), 100)
    for around in (array, lambda items: {"type": "map", "values": items}):
        schema = around(chain(DEPTH_MAX - 1, is_empty=is_empty))
        head = number(1) + (b"\1a" if schema["type"] == "map" else b"")
        with pytest.raises((ValueError, EOFError)):
            check(schema, head + bytes(3))


def test_a_chain_of_empty_records_in_an_array():
    names = [record("R0"), *(record(f"R{each}", f"R{each - 1}") for each in range(1, DEPTH_MAX - 1))]
    for depth, is_refused in ((3, False), (2, True)):
        schema = record("Root", ["null", record("D", *names)], array(f"R{DEPTH_MAX - depth}"))
        if is_refused:
            with pytest.raises(ValueError, match="nested deeper"):
                check(schema, b"\0\2\0")
        else:
            check(schema, b"\0\2\0")


def test_a_chain_of_names_in_a_block_of_empty_records():
    schema = record("R0")
    for level in range(1, DEPTH_MAX // 10):
        schema = record(f"R{level}", schema)
    check(schema, b"", 2)
    many = [record("S0"), *(record(f"S{each}", f"S{each - 1}") for each in range(1, DEPTH_MAX + 1))]
    with pytest.raises(ValueError, match="nested deeper"):
        check(record("All", *many), b"", 2)


def test_a_union_in_a_union_is_refused():
    """fastavro reads it, one level for each."""
    with pytest.raises(ValueError, match="a union contains a union"):
        check(record("R", ["null", ["int", ["string", "R"]]]), b"\0")


@pytest.mark.parametrize("size", [-1, "8", 1.5])
def test_a_size_that_is_none(size):
    with pytest.raises(ValueError, match="F has the size"):
        check(array({"type": "fixed", "name": "F", "size": size}), number(1 << 40) + b"\0")


def test_a_schema_that_is_nested_too_deep():
    schema = "int"
    for _ in range(3_000):
        schema = {"type": "array", "items": schema}
    with pytest.raises(ValueError, match="the schema is nested too deep"):
        AvroBounds(schema)


def test_defaults_that_are_nested_too_deep():
    """fastavro writes the default of a field that is missing, in that value the next one, and so on."""
    node = record("N", ["N", "null"])
    node["fields"][0]["default"] = {}
    with pytest.raises(ValueError, match="nested deeper"):
        check_value(node, {})
    check_value(node, {"f0": None})
    assert encoded(node, {"f0": None}) == b"\2"
    with pytest.raises(ValueError, match="nested deeper"):
        check_value(chain(10_000, default={}), {"f0": None, "f1": {}})
    with pytest.raises(ValueError, match="nested deeper"):
        check_value(chain(10_000, default={}), {"f0": None, "f1": {"f0": {}}})
    check_value(chain(WRITTEN_DEPTH_MAX - 1, default={}), {"f0": None, "f1": {}})
    assert encoded(chain(WRITTEN_DEPTH_MAX - 1, default={}), {"f0": None, "f1": {}}) == b"\0"


SMALL_STACK = r"""
import io, os, runpy, sys, threading
import fastavro

os.confstr = lambda _name: None
made = runpy.run_path(sys.argv[1])
read, written = made["DEPTH_MAX"], made["WRITTEN_DEPTH_MAX"]
node = {"type": "record", "name": "N", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", "N"]}]}
bounds, done = made["AvroBounds"](fastavro.parse_schema(node)), []

def both_ways():
    data, value = b"\2\2" * (read - 1) + b"\2\0", None
    bounds.check(data)
    fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(node), None)
    for _ in range(written):
        value = {"a": 1, "b": value}
    bounds.check_value(value)
    fastavro.schemaless_writer(io.BytesIO(), fastavro.parse_schema(node), value)
    done.append((read, written))

threading.stack_size(128 << 10)  # musl's default
thread = threading.Thread(target=both_ways)
thread.start()
thread.join()
assert done, "it failed"
print(*done[0])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="musl is of Linux")
def test_musls_stack_bears_the_deepest_in_a_thread(monkeypatch):
    command = [sys.executable, "-c", SMALL_STACK, avro_bounds.__file__]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "40 25\n"), ended.stderr

    def refuse(_name):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "confstr", refuse)  # as musl answers
    assert runpy.run_path(avro_bounds.__file__)["DEPTH_MAX"] == 40
    monkeypatch.setattr(sys, "platform", "darwin")  # CPython asks for 16 MiB
    assert runpy.run_path(avro_bounds.__file__)["DEPTH_MAX"] == 1_000


def test_fastavros_stack_bears_the_deepest_in_a_thread():
    node, done = fastavro.parse_schema(NODE), []

    def both_ways():
        fastavro.schemaless_reader(io.BytesIO(nodes(DEPTH_MAX)[0]), node, None)
        done.append(fastavro.schemaless_reader(io.BytesIO(encoded(NODE, nodes(WRITTEN_DEPTH_MAX)[1])), node, None))

    thread = threading.Thread(target=both_ways)
    thread.start()
    thread.join()
    value, levels = done[0], 0
    while value:
        value, levels = value["f1"], levels + 1
    assert levels == WRITTEN_DEPTH_MAX


def maps(count):
    value = {"f0": {}}
    for _ in range(count):
        value = {"f0": {"k": value, "l": None}}
    return value


def check_value(schema, value):
    AvroBounds(fastavro.parse_schema(schema)).check_value(value)


def test_a_value_before_it_is_encoded():
    check_value(NODE, nodes(WRITTEN_DEPTH_MAX)[1])
    check_value(TREE, branches(WRITTEN_DEPTH_MAX))
    for schema, value in ((NODE, nodes(WRITTEN_DEPTH_MAX + 1)[1]), (TREE, branches(WRITTEN_DEPTH_MAX + 2)), (TREE, branches(100_000))):
        with pytest.raises(ValueError, match="nested deeper"):
            check_value(schema, value)
    ring = {"f0": 1}
    ring["f1"] = ("shop.Node", ring)
    with pytest.raises(ValueError, match="nested deeper"):
        check_value(NODE, ring)
    with pytest.raises(ValueError, match="nested deeper"):
        check_value(["null", NODE], ("shop.Node", ring))
    with pytest.raises(ValueError, match="nested deeper"):
        check_value(record("S", {"type": "map", "values": ["null", "S"]}), maps(5_000))


def test_only_fields_of_the_schema_count_in_a_value():
    """A program's own links are left out of the encoding."""
    parent = {"f0": 1}
    parent |= {"f1": {"f0": 2, "f1": None, "parent": parent}, "self": parent}
    check_value(NODE, parent)
    assert encoded(NODE, parent) == number(1) + b"\2" + number(2) + b"\0"


def test_a_walk_reads_all_types():
    """Beside an array of nulls, which makes it look."""
    every = record(
        "all.R", array("null"), "boolean", "int", "long", "float", "double", "bytes", "string",
        {"type": "enum", "name": "N", "symbols": ["a", "b"]},
        {"type": "fixed", "name": "G", "size": 3}, "all.G", "N", ["null", "string", "all.R"], {"type": "map", "values": array("long")},
        {"type": "long", "logicalType": "timestamp-millis"}, ["null", "all.R"],
    )  # fmt: skip
    value = dict(zip([f"f{number}" for number in range(16)], [
        [None] * 3, True, -(1 << 31), (1 << 63) - 1, 1.5, -2.5, b"\xff" * 300, "ü", "b", b"abc", b"def", "a", "x",
        {"a": [1, -(1 << 63)], "ä": []}, 5, None,
    ], strict=True))  # fmt: skip
    data = encoded(every, {**value, "f15": value})
    check(every, data)
    for size in range(len(data)):
        with pytest.raises((ValueError, EOFError)):
            check(every, data[:size])
    negative = record("R", array("null"), "string")
    for wrong in (b"\0" + number(-5), b"\xff" * 11, number(-2) + b"\0\0"):
        with pytest.raises((ValueError, EOFError)):
            check(negative, wrong)
