"""Field ids of a schema that follows another one of the same table.

A column keeps its id if Iceberg can read its earlier values in the new type.  Any other column gets a new id, also under a name that is
known: no reader takes its values for those of the earlier column.
"""

import itertools
from collections.abc import Iterator

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
)


def following(wanted: Schema, table: Table) -> Schema:
    """The schema ``wanted``, with the ids that its columns have in the table; the table's own schema if nothing differs."""
    fresh, current = itertools.count(table.metadata.last_column_id + 1), table.schema()
    schema = Schema(
        *_struct(wanted.as_struct(), current.as_struct(), fresh).fields, schema_id=1 + max(one.schema_id for one in table.metadata.schemas)
    )
    return current if schema == current else schema


def _struct(wanted: StructType, current: StructType | None, fresh: Iterator[int]) -> StructType:
    known = {} if current is None else {field.name: field for field in current.fields}
    return StructType(*[_field(field, known.get(field.name), fresh) for field in wanted.fields])


def _field(wanted: NestedField, current: NestedField | None, fresh: Iterator[int]) -> NestedField:
    if current is not None and not _is_readable(current.field_type, wanted.field_type):
        current = None
    number = next(fresh) if current is None else current.field_id
    kind = _typed(wanted.field_type, None if current is None else current.field_type, fresh)
    return NestedField(number, wanted.name, kind, required=wanted.required)


def _typed(wanted: IcebergType, current: IcebergType | None, fresh: Iterator[int]) -> IcebergType:
    """``current``: None, or a type that is readable as ``wanted``."""
    if isinstance(wanted, StructType):
        return _struct(wanted, current if isinstance(current, StructType) else None, fresh)
    if isinstance(wanted, ListType):
        before = current.element_field if isinstance(current, ListType) else None
        element = _field(wanted.element_field, before, fresh)
        return ListType(element.field_id, element.field_type, element_required=wanted.element_required)
    if isinstance(wanted, MapType):
        before, after = (current.key_field, current.value_field) if isinstance(current, MapType) else (None, None)
        key, value = _field(wanted.key_field, before, fresh), _field(wanted.value_field, after, fresh)
        return MapType(key.field_id, key.field_type, value.field_id, value.field_type, value_required=wanted.value_required)
    return wanted


def _is_readable(current: IcebergType, wanted: IcebergType) -> bool:
    """Whether values of one type can be read as those of another: Iceberg's type promotion."""
    if isinstance(current, ListType) and isinstance(wanted, ListType):
        return _is_readable(current.element_type, wanted.element_type)
    if isinstance(current, MapType) and isinstance(wanted, MapType):
        return current.key_type == wanted.key_type and _is_readable(current.value_type, wanted.value_type)
    if isinstance(current, StructType) and isinstance(wanted, StructType):
        return True
    return current == wanted or _is_promoted(current, wanted)


def _is_promoted(current: IcebergType, wanted: IcebergType) -> bool:
    if isinstance(current, DecimalType) and isinstance(wanted, DecimalType):
        return current.scale == wanted.scale and current.precision <= wanted.precision
    return (type(current), type(wanted)) in {(IntegerType, LongType), (FloatType, DoubleType)}
