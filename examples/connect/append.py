"""A sink in 30 lines: each record becomes a line at the end of a file, at least once.

plugin.path=examples/connect                        in the worker's properties
connector.class=append:AppendConnector              in the connector's
"""

import os
from collections.abc import Mapping, Sequence

from logdb import OffsetAndMetadata, TopicPartition
from logdb_connect import REQUIRED, ConfigDef, ConfigKey, Properties, SinkConnector, SinkRecord, SinkTask


class Append(SinkTask):
    def start(self, properties: Properties) -> None:
        self.file = open(AppendConnector.config_def.parse(properties)["file"], "a", encoding="utf-8")  # noqa: SIM115 -- stop closes it

    def put(self, records: Sequence[SinkRecord]) -> None:
        self.file.writelines(f"{record.topic} {record.offset} {record.value}\n" for record in records)

    def flush(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.file.flush()  # the worker commits the offsets of these records next
        os.fsync(self.file.fileno())

    def stop(self) -> None:
        if hasattr(self, "file"):
            self.file.close()


class AppendConnector(SinkConnector):
    task_class = Append
    config_def = ConfigDef(ConfigKey("file", "STRING", REQUIRED, "The file to append to"))

    def start(self, properties: Properties) -> None:
        self.properties = properties

    def task_configs(self, max_tasks: int) -> list[Properties]:
        return [self.properties]
