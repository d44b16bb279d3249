"""The object store sink on Spark: a micro-batch becomes one directory for each topic, written by Spark's own writers.

    topics/<topic>/batch=<query>-<number>/partition=0/part-….snappy.parquet

Exactly once: Spark's checkpoint says which records a micro-batch has before it runs.  A batch that runs again replaces its directory.
The name has the id of the query, which the checkpoint keeps: another checkpoint never replaces a batch of this one.
Other readers than Spark see each record once, too: unfinished files lie in ``_temporary``, and the next run deletes them.

Executors go over the records twice: first for schemas, then for rows.  Records of one schema share files.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from logdb_connect import logical
from logdb_connect.connectors.objects.partitioners import partitioner_of
from logdb_connect.connectors.objects.schemas import arrow_schema, to_arrow
from logdb_connect.connectors.objects.sink import ObjectStoreSinkConnector
from logdb_connect.converters.json import JsonConverter
from logdb_connect.data import Schema, SinkRecords
from logdb_connect.errors import ConnectError, DataError
from logdb_connect.runtime.chain import SinkChain
from logdb_connect.spark.records import Job, chain_of, runs
from logdb_connect.spark.settings import base_of

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

_FOUND = "topic string, id string, directories string, schema binary"
_CODECS = {"none": "uncompressed"}
Row = tuple[str, str, tuple[tuple[str, str], ...], Schema | None, Any]
"""Topic, id of the schema, directories, schema, value."""


def write(job: Job, frame: "DataFrame", batch: str) -> None:
    """Store a micro-batch; ``batch`` has the id of the query and the number."""
    config = ObjectStoreSinkConnector.config_def.parse(job["config"])
    frame.persist()
    try:
        found = frame.mapInArrow(partial(_found, job), _FOUND).collect()
        written: set[str] = set()
        for (topic, schema_id), rows in sorted(_grouped(found).items()):
            place = "/".join(each for each in (base_of(config), config["topics.dir"].strip("/"), topic, f"batch={batch}") if each)
            names = {row["directories"] for row in rows}
            if len(names) > 1:
                raise ConnectError(
                    f"The partitioner gives directories of different names in one batch of {topic}: {', '.join(sorted(names))}"
                )
            _write_one(job, frame, config, topic, schema_id, rows, place, mode="append" if topic in written else "overwrite")
            written.add(topic)
    finally:
        frame.unpersist()


def _grouped(found: Sequence[Any]) -> dict[tuple[str, str], list[Any]]:
    groups: dict[tuple[str, str], list[Any]] = {}
    for row in found:
        groups.setdefault((row["topic"], row["id"]), []).append(row)
    return groups


def _write_one(
    job: Job, frame: "DataFrame", config: Mapping[str, Any], topic: str, schema_id: str, rows: list[Any], place: str, *, mode: str
) -> None:
    """The records of one topic and one schema."""
    import pyarrow
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    schemas = [pyarrow.ipc.read_schema(pyarrow.py_buffer(bytes(row["schema"]))) for row in rows]
    kind = from_arrow_schema(pyarrow.unify_schemas(schemas, promote_options="permissive"))
    directories = json.loads(rows[0]["directories"])
    if clash := set(directories) & set(kind.names):
        if config["partitioner.class"].rpartition(".")[2] != "FieldPartitioner":
            raise ConnectError(
                f"The values of {topic} have the field {', '.join(sorted(clash))}, which is also a directory of the partitioner"
            )
        kind = type(kind)([field for field in kind.fields if field.name not in clash])
    for name in directories:
        kind = kind.add(name, "string")
    target = to_arrow_schema(kind).serialize().to_pybytes()
    made = frame.mapInArrow(partial(_rows, job, topic, schema_id, target), kind)
    writer = made.write.mode(mode).option("maxRecordsPerFile", config["flush.size"]).partitionBy(*directories)
    match config["format.class"].rpartition(".")[2]:
        case "JsonFormat":
            writer.option("compression", config["s3.compression.type"]).text(place)
        case "ParquetFormat":
            codec = config["parquet.codec"]
            writer.option("compression", _CODECS.get(codec, codec)).parquet(place)
        case _:
            codec = config["avro.codec"]
            writer.format("avro").option("compression", {"null": "uncompressed", "bzip2": "bzip2"}.get(codec, codec)).save(place)


# On executors -----------------------------------------------------------------------------------------------------------------------


def _found(job: Job, batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
    """Topics, schemas and directories of the records, each once."""
    import pyarrow

    maker, seen, loose = _Maker(job), set[Row | tuple[Any, ...]](), dict[tuple[str, str], list[Any]]()
    out: list[dict[str, Any]] = []
    for topic, schema_id, directories, schema, value in maker.rows(batches):
        names = json.dumps([name for name, _ in directories])
        if schema is None and not maker.is_text:
            loose.setdefault((topic, names), []).append(value)
        elif (topic, schema_id, names) not in seen:
            seen.add((topic, schema_id, names))
            arrow = pyarrow.schema([("value", pyarrow.string())]) if schema is None or maker.is_text else arrow_schema(schema)
            out.append({"topic": topic, "id": schema_id, "directories": names, "schema": arrow.serialize().to_pybytes()})
    for (topic, names), values in loose.items():
        inferred = pyarrow.schema(list(pyarrow.array(values).type))
        out.append({"topic": topic, "id": "", "directories": names, "schema": inferred.serialize().to_pybytes()})
    maker.close()
    types = pyarrow.schema([(name, pyarrow.string()) for name in ("topic", "id", "directories")] + [("schema", pyarrow.binary())])
    yield pyarrow.RecordBatch.from_pylist(out, schema=types)


def _rows(job: Job, topic: str, schema_id: str, target: bytes, batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
    """The rows of one topic and schema."""
    import pyarrow

    schema = pyarrow.ipc.read_schema(pyarrow.py_buffer(target))
    maker = _Maker(job)
    kept: list[dict[str, Any]] = []
    for of, found_id, directories, connect, value in maker.rows(batches):
        if of == topic and found_id == schema_id:
            convert = None if connect is None or maker.is_text else to_arrow(connect)
            row = {"value": value} if maker.is_text else value if convert is None else convert(value)
            kept.append({**row, **dict(directories)})
        if len(kept) >= 10_000:
            yield pyarrow.RecordBatch.from_pylist(kept, schema=schema)
            kept = []
    if kept:
        yield pyarrow.RecordBatch.from_pylist(kept, schema=schema)
    maker.close()


class _Maker:
    """Records of Arrow batches as rows; a record that has none is reported.

    Attributes:
        is_text: Values are lines of JSON.
    """

    def __init__(self, job: Job) -> None:
        config = ObjectStoreSinkConnector.config_def.parse(job["config"])
        self._chain: SinkChain = chain_of(job)
        self._directory, self._extractor = partitioner_of(config)
        self._delimiter: str = config["directory.delim"]
        self._ignores_null = config["behavior.on.null.values"] == "ignore"
        self._format = config["format.class"].rpartition(".")[2]
        self.is_text = self._format == "JsonFormat"
        self._json = JsonConverter()
        self._json.configure({"schemas.enable": False, "decimal.format": config["json.decimal.format"], "converter.type": "value"})
        self._ids: dict[Schema, str] = {}

    def rows(self, batches: "Iterator[pyarrow.RecordBatch]") -> Iterator[Row]:
        for at, records in runs(batches, self._chain):
            for number in range(len(records)):
                try:
                    made = self._made(records, number, at.partition)
                except DataError as error:
                    self._chain.report(records[number], error, self)
                else:
                    if made is not None:
                        yield made

    def close(self) -> None:
        self._chain.close()

    def _made(self, records: SinkRecords, number: int, partition: int) -> Row | None:
        value, schema, topic = records.values[number], records.value_schemas[number], records.topics[number]
        if value is None:
            if self._ignores_null:
                return None
            raise DataError("Null valued records are not writeable with behavior.on.null.values=fail")
        time_ms = None if self._extractor is None else self._extractor(value, records.timestamps_ms[number])
        directories = self._segments(self._directory(value, schema, partition, time_ms))
        if self.is_text:
            text = (self._json.from_connect(topic, schema, value) or b"null").decode()
            return topic, "", directories, None, text
        self._check(schema, value)
        return topic, "" if schema is None else self._id(schema), directories, schema, value

    def _check(self, schema: Schema | None, value: Any) -> None:
        if schema is None and self._format == "AvroFormat":
            raise DataError("AvroFormat needs records with a schema: use a value.converter that has schemas")
        if not isinstance(value, Mapping):
            raise DataError(f"{self._format} stores structs and maps; a value has the type {type(value).__name__}")
        if schema is not None:
            logical.check(schema, value)

    def _segments(self, directory: str) -> tuple[tuple[str, str], ...]:
        found = []
        for segment in directory.split(self._delimiter):
            name, equals, text = segment.partition("=")
            if not equals or not name:
                raise ConnectError(f"logdb.runner=spark needs directories such as 'year'=YYYY, not {segment}: Spark writes name=value")
            found.append((name, text))
        return tuple(found)

    def _id(self, schema: Schema) -> str:
        if (found := self._ids.get(schema)) is None:
            found = self._ids[schema] = repr(schema)
        return found
