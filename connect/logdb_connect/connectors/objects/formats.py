"""The contents of objects: JSON lines, raw bytes, Avro and Parquet, by the libraries that others maintain.

A writer collects the records of one object.  What it writes is a function of the records, so an object that is written again has the
same content.
"""

import abc
import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from logdb.codec.avro_bounds import EMPTY_COUNT_MAX, AvroBounds
from logdb_connect import logical
from logdb_connect.connectors.objects.schemas import (
    arrow_schema,
    avro_schema,
    is_plain,
    of_arrow,
    of_arrow_value,
    of_avro,
    to_arrow,
)
from logdb_connect.converters.json import JsonConverter
from logdb_connect.data import BYTES, Schema
from logdb_connect.errors import ConfigError, DataError

Config = Mapping[str, Any]
Rows = tuple[Schema | None, list[Any]]
"""Values that share a schema."""

_PARQUET_ROWS = 65_536
_PARQUET_EXTENSIONS = {"none": "", "snappy": ".snappy", "gzip": ".gz", "brotli": ".br", "lz4": ".lz4", "zstd": ".zstd"}
PARQUET_CODECS = tuple(_PARQUET_EXTENSIONS)
AVRO_CODECS = ("null", "deflate", "snappy", "bzip2")


class Writer(abc.ABC):
    """The records of one object.  ``add`` takes all of the values, or raises and has taken none."""

    @abc.abstractmethod
    def add(self, topic: str, values: Sequence[Any]) -> None:
        """More values, of the writer's schema.

        Raises:
            DataError: One of them does not fit the schema or the format.
        """

    @abc.abstractmethod
    def finish(self, name: str) -> bytes:
        """The content of the object ``name``."""


class Format(abc.ABC):
    """One of the formats.

    Attributes:
        extension: The end of an object's name.
        content_type: As HTTP has it.
        needs_schema: Whether an object has records of one schema only.
    """

    extension: str
    content_type: str
    needs_schema = False

    @abc.abstractmethod
    def writer(self, schema: Schema | None) -> Writer:
        """A writer of values of a schema.

        Raises:
            DataError: The format cannot have this schema.
        """

    @abc.abstractmethod
    def read(self, data: bytes) -> Iterator[Rows]:
        """The values of an object, in order.

        Raises:
            DataError: It is none of this format's.
        """


# Lines --------------------------------------------------------------------------------------------------------------------------


class _Lines(Writer):
    def __init__(self, encode: Callable[[str, Sequence[Any]], Sequence[bytes]], separator: bytes, level: int | None) -> None:
        self._encode, self._separator, self._level = encode, separator, level
        self._parts: list[bytes] = []

    def add(self, topic: str, values: Sequence[Any]) -> None:
        lines = self._encode(topic, values)
        self._parts.append(self._separator.join(lines) + self._separator)

    def finish(self, name: str) -> bytes:
        data = b"".join(self._parts)
        return data if self._level is None else gzip.compress(data, self._level if self._level >= 0 else 6, mtime=0)


def _level(config: Config) -> int | None:
    """The level of gzip, or None where objects are not compressed."""
    return config["s3.compression.level"] if config["s3.compression.type"] == "gzip" else None


def _unzipped(data: bytes) -> bytes:
    try:
        return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"the content is no gzip: {error}") from error


class JsonFormat(Format):
    """One JSON value a line, without schemas."""

    content_type = "application/json"

    def __init__(self, config: Config) -> None:
        self._level = _level(config)
        self.extension = ".json" if self._level is None else ".json.gz"
        self._converter = JsonConverter()
        self._converter.configure({"schemas.enable": False, "decimal.format": config["json.decimal.format"], "converter.type": "value"})

    def writer(self, schema: Schema | None) -> Writer:
        def encode(topic: str, values: Sequence[Any]) -> Sequence[bytes]:
            return [each or b"null" for each in self._converter.from_connect_many(topic, schema, values)]

        return _Lines(encode, b"\n", self._level)

    def read(self, data: bytes) -> Iterator[Rows]:
        lines = [each for each in _unzipped(data).split(b"\n") if each.strip()]
        yield None, self._converter.to_connect_many("", lines)[1]


class ByteArrayFormat(Format):
    """The bytes of each value, and a separator."""

    content_type = "application/octet-stream"

    def __init__(self, config: Config) -> None:
        self._level = _level(config)
        self._separator = config["format.bytearray.separator"].encode()
        self.extension = config["format.bytearray.extension"] + ("" if self._level is None else ".gz")

    def writer(self, schema: Schema | None) -> Writer:
        def encode(topic: str, values: Sequence[Any]) -> Sequence[bytes]:
            for each in values:
                if not isinstance(each, bytes | bytearray | memoryview):
                    raise DataError(f"ByteArrayFormat stores bytes; a value has the type {type(each).__name__}: use ByteArrayConverter")
            return list(map(bytes, values))

        return _Lines(encode, self._separator, self._level)

    def read(self, data: bytes) -> Iterator[Rows]:
        data = _unzipped(data)
        if self._separator:
            yield BYTES, data.removesuffix(self._separator).split(self._separator) if data else []
        else:
            yield BYTES, [data]


# Avro ---------------------------------------------------------------------------------------------------------------------------


class AvroFormat(Format):
    """An Avro container file."""

    extension = ".avro"
    content_type = "avro/binary"
    needs_schema = True

    def __init__(self, config: Config) -> None:
        self._codec = config["avro.codec"]

    def writer(self, schema: Schema | None) -> Writer:
        if schema is None:
            raise DataError("AvroFormat needs records with a schema: use a value.converter that has schemas")
        return _AvroWriter(schema, self._codec)

    def read(self, data: bytes) -> Iterator[Rows]:
        import fastavro

        values, left = list[Any](), EMPTY_COUNT_MAX
        try:
            blocks: Any = fastavro.block_reader(io.BytesIO(data))
            schema, bounds = of_avro(blocks.writer_schema), AvroBounds(blocks.writer_schema)
            for block in blocks:
                left = bounds.check(block.bytes_.getvalue(), block.num_records, left)
                values += block
        except DataError:
            raise
        except Exception as error:  # fastavro has many classes of errors, and the library of each codec has its own
            raise DataError(f"the content is no Avro: {error}") from error
        yield schema, values


class _AvroWriter(Writer):
    def __init__(self, schema: Schema, codec: str) -> None:
        import fastavro

        self._schema, self._codec = schema, codec
        try:
            self._avro = fastavro.parse_schema(avro_schema(schema))
        except fastavro.schema.SchemaParseException as error:
            raise DataError(f"Avro cannot have the schema of a record: {error}") from error
        self._values: list[Any] = []

    def add(self, topic: str, values: Sequence[Any]) -> None:
        for each in values:
            logical.check(self._schema, each)
        self._values += values

    def finish(self, name: str) -> bytes:
        import fastavro

        file = io.BytesIO()
        marker = hashlib.blake2b(name.encode(), digest_size=16).digest()
        fastavro.writer(file, self._avro, self._values, codec=self._codec, sync_marker=marker)
        return file.getvalue()


# Parquet ------------------------------------------------------------------------------------------------------------------------


class ParquetFormat(Format):
    """A Parquet file.  Records without schema get one that Arrow infers for each object."""

    content_type = "application/vnd.apache.parquet"
    needs_schema = True

    def __init__(self, config: Config) -> None:
        self._codec = config["parquet.codec"]
        self.extension = f"{_PARQUET_EXTENSIONS[self._codec]}.parquet"

    def writer(self, schema: Schema | None) -> Writer:
        if schema is not None and schema.type != "struct":
            raise DataError(f"ParquetFormat stores structs; a record has a schema of the type {schema.type}")
        return _ParquetWriter(schema, self._codec)

    def read(self, data: bytes) -> Iterator[Rows]:
        import pyarrow

        return parquet_rows(pyarrow.BufferReader(data), _PARQUET_ROWS)


def parquet_rows(source: Any, at_once: int) -> Iterator[Rows]:
    """The rows of a Parquet file, from what pyarrow can open.

    Raises:
        DataError: It is none.
    """
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(source)
        schema = of_arrow(file.schema_arrow)
        for batch in file.iter_batches(batch_size=at_once):
            rows = _rows_of(batch)
            yield schema, rows if is_plain(schema) else [of_arrow_value(schema, each) for each in rows]
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"the content is no Parquet: {error}") from error


def _rows_of(batch: Any) -> list[Any]:
    """The rows as Python has them; raises DataError, which names the column, for a value that Python cannot hold."""
    try:
        return cast(list[Any], batch.to_pylist())
    except (LookupError, OverflowError, ValueError):
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                column.to_pylist()
            except OverflowError as error:  # Python's integers have no limit
                raise DataError(f"the column {name!r} has a time that is not between the years 1 and 9999: {error}") from error
            except LookupError as error:
                raise DataError(f"the column {name!r} has a time zone that Python does not know: {error}") from error
            except ValueError as error:
                raise DataError(f"the column {name!r} has a value that Python cannot hold: {error}") from error
        raise


class _ParquetWriter(Writer):
    def __init__(self, schema: Schema | None, codec: str) -> None:
        self._schema = schema
        self._is_nested = schema is not None and any(each.schema.type in {"struct", "array", "map"} for each in schema.fields)
        self._arrow = None if schema is None else arrow_schema(schema)
        self._convert = None if schema is None else to_arrow(schema)
        self._codec = codec
        self._values: list[Any] = []
        self._batches: list[Any] = []

    def add(self, topic: str, values: Sequence[Any]) -> None:
        for each in values:
            if not isinstance(each, Mapping):
                raise DataError(f"ParquetFormat stores structs and maps; a value has the type {type(each).__name__}")
        if self._schema is not None and self._is_nested:
            for each in values:
                logical.check(self._schema, each)
        rows = list(values) if self._convert is None else [self._convert(each) for each in values]
        if self._arrow is None:
            self._values += rows
        else:
            self._batches.append(self._batch(rows))

    def finish(self, name: str) -> bytes:
        import pyarrow
        from pyarrow import parquet

        if self._arrow is None:
            self._batches = [self._batch(self._values)]
        table = pyarrow.Table.from_batches(self._batches)
        file = pyarrow.BufferOutputStream()
        parquet.write_table(table, file, compression=self._codec, row_group_size=_PARQUET_ROWS)
        return bytes(file.getvalue())

    def _batch(self, rows: list[Any]) -> Any:
        import pyarrow

        try:
            if self._arrow is None:  # columns that only some rows have are found, too
                return pyarrow.RecordBatch.from_struct_array(pyarrow.array(rows))
            batch = pyarrow.RecordBatch.from_pylist(rows, schema=self._arrow)
        except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"Arrow cannot have the values of a record: {error}") from error
        for field, column in zip(self._arrow, batch.columns, strict=True):
            if column.null_count and not field.nullable:
                raise DataError(f"Invalid value: null used for required field: {field.name!r}")
        return batch


FORMATS: Mapping[str, Callable[[Config], Format]] = {
    "AvroFormat": AvroFormat,
    "ByteArrayFormat": ByteArrayFormat,
    "JsonFormat": JsonFormat,
    "ParquetFormat": ParquetFormat,
}


def format_of(config: Config) -> Format:
    """The format that ``format.class`` names, by Confluent's class or its last part.

    Raises:
        ConfigError: None has this name.
    """
    name = config["format.class"]
    make = FORMATS.get(name.rpartition(".")[2])
    if make is None:
        raise ConfigError(
            "format.class",
            f"Invalid value {name} for configuration format.class: Class {name} could not be found. Use one of {', '.join(FORMATS)}",
        )
    return make(config)
