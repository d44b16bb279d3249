"""Records to any destination of dlt: warehouses, lakes, databases.  dlt makes and extends the tables.

The task keeps records until the worker commits offsets, and then loads them in one run.  With ``write.disposition=merge`` a record that
comes again takes its own place: its key is the topic, the partition and the offset, in columns that the sink adds.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from logdb import OffsetAndMetadata, TopicPartition
from logdb_connect.config import REQUIRED, ConfigDef, ConfigKey, at_least, revealed
from logdb_connect.data import SinkRecord
from logdb_connect.errors import ConfigError, ConnectError, DataError, RetriableError
from logdb_connect.plugin import Properties, SinkConnector, SinkTask

_TASK = "task.id"
PLACE = ("_topic", "_partition", "_offset")
"""Columns that say where a record is from."""


class DltSinkTask(SinkTask):
    """Loads records by a pipeline of its own."""

    def start(self, properties: Properties) -> None:
        self._config = config = DltSinkConnector.config_def.parse(properties)
        destination = _destination(config)
        import dlt

        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._pipeline = dlt.pipeline(
            pipeline_name=f"{config['dlt.pipeline.name']}_{properties.get(_TASK, 0)}",
            pipelines_dir=config["dlt.pipelines.dir"],
            destination=destination,
            dataset_name=config["dlt.dataset.name"],
        )
        self._pipeline.abort_packages()  # the worker brings these records again

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        self._forget(partitions)

    def put(self, records: Sequence[SinkRecord]) -> None:
        if sum(map(len, self._rows.values())) >= self._config["batch.size"]:
            self._load()
        for record in records:
            if record.value is None:
                continue
            if isinstance(record.value, Mapping):
                place = (record.original_topic, record.original_partition, record.offset)
                self._rows.setdefault(record.topic, []).append({**record.value, **dict(zip(PLACE, place, strict=True))})
            else:
                kind = type(record.value).__name__
                self.context.report(record, DataError(f"dlt loads structs and maps; a value has the type {kind}: use JsonConverter"))

    def pre_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        self._load()
        return offsets

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        self._forget(partitions)

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        gone = {tuple(each) for each in partitions}
        for topic, rows in self._rows.items():
            self._rows[topic] = [row for row in rows if (row[PLACE[0]], row[PLACE[1]]) not in gone]

    def _load(self) -> None:
        more: dict[str, Any] = {"write_disposition": self._config["write.disposition"]}
        if self._config["write.disposition"] == "merge":
            more["primary_key"] = self._config["primary.key"] or list(PLACE)
        for topic in list(self._rows):
            if not (rows := self._rows[topic]):
                continue
            try:
                self._pipeline.run(rows, table_name=topic, **more)
            except Exception as error:  # destinations have errors of their own
                self._pipeline.abort_packages()
                raise RetriableError(f"dlt could not load {len(rows)} records of {topic}; the task tries again: {_first(error)}") from error
            del self._rows[topic]


class DltSinkConnector(SinkConnector):
    """Records to a destination of dlt: a table for each topic."""

    task_class = DltSinkTask
    version = "1.0"
    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(
            "dlt.destination", "STRING", REQUIRED, "The destination of dlt, such as duckdb, bigquery, snowflake or filesystem.", "HIGH"
        ),
        ConfigKey(
            "dlt.destination.options",
            "PASSWORD",
            None,
            'Options of the destination, as JSON: {"credentials": "postgresql://…"}. Without them, dlt reads its environment variables.',
            "HIGH",
        ),
        ConfigKey("dlt.dataset.name", "STRING", "logdb", "The dataset or schema of the tables.", "HIGH"),
        ConfigKey("dlt.pipeline.name", "STRING", REQUIRED, "The name of the pipeline; a task adds its number.", "HIGH"),
        ConfigKey("dlt.pipelines.dir", "STRING", None, "Where dlt keeps its working files.", "LOW"),
        ConfigKey("write.disposition", "STRING", "append", "append, or merge by primary.key.", "HIGH", values=("append", "merge")),
        ConfigKey("primary.key", "LIST", [], f"Columns of write.disposition=merge; by default {', '.join(PLACE)}.", "HIGH"),
        ConfigKey("batch.size", "INT", 10_000, "How many records a task keeps before it loads them early.", "LOW", at_least(1)),
    )

    def task_configs(self, max_tasks: int) -> Sequence[Properties]:
        return [{**self._properties, _TASK: str(number)} for number in range(max_tasks)]

    def check(self, config: Mapping[str, Any]) -> Mapping[str, str]:
        _destination(config)
        return {}


def _destination(config: Mapping[str, Any]) -> Any:
    """A destination of dlt.

    Raises:
        ConfigError: dlt is missing or has no such destination, or the options are not its.
    """
    os.environ.setdefault("RUNTIME__DLTHUB_TELEMETRY", "false")  # dlt reports its use to its makers unless told otherwise
    try:
        from dlt import destinations
    except ImportError:
        raise ConfigError("dlt.destination", "The dlt sink needs the package dlt: pip install dlt") from None
    name = config["dlt.destination"]
    if name not in destinations.__all__:
        known = ", ".join(sorted(destinations.__all__))
        raise ConfigError("dlt.destination", f"Invalid value {name} for configuration dlt.destination: must be one of {known}")
    text = revealed(config["dlt.destination.options"]) or "{}"
    try:
        return getattr(destinations, name)(**json.loads(text))
    except (ValueError, TypeError) as error:
        message = f"Invalid value [hidden] for configuration dlt.destination.options: must be a JSON object with options of {name}"
        raise ConfigError("dlt.destination.options", message) from error
    except Exception as error:
        raise ConnectError(f"dlt cannot use the destination {name}: {_first(error)}") from error


def _first(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
