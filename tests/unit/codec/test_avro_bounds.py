"""Values of a few bytes that would take all memory, or end the process."""

import io
import threading

import pytest

from logdb.codec.avro_bounds import DEPTH_MAX, EMPTY_COUNT_MAX, WRITTEN_DEPTH_MAX, AvroBounds

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
        with pytest.raises(ValueError, match=f"more than {EMPTY_COUNT_MAX} items that take no bytes: must be at most {EMPTY_COUNT_MAX}"):
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


def test_fields_of_no_bytes_are_bounded_by_the_schema():
    nulls = ["null"] * 1_001
    check(record("Flat", *nulls), b"")
    check(array(record("R", "boolean", FIXED, *nulls)), number(5_000) + bytes(5_001))


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
