"""A connector in 30 lines: a record each second, numbered, and none twice.

plugin.path=examples/connect                        in the worker's properties
connector.class=heartbeat:HeartbeatConnector        in the connector's
"""

from logdb_connect import REQUIRED, ConfigDef, ConfigKey, Properties, SourceConnector, SourceRecord, SourceTask

HEART = {"heart": "one"}


class Heartbeat(SourceTask):
    def start(self, properties: Properties) -> None:
        self.config = HeartbeatConnector.config_def.parse(properties)
        found = self.context.offset(HEART)
        self.next = found["next"] if found else 0

    def poll(self) -> list[SourceRecord]:
        self.context.wait(self.config["interval.ms"] / 1000)
        beat, self.next = f"beat {self.next}", self.next + 1
        return [SourceRecord(topic=self.config["topic"], value=beat, source_partition=HEART, source_offset={"next": self.next})]


class HeartbeatConnector(SourceConnector):
    task_class = Heartbeat
    config_def = ConfigDef(
        ConfigKey("topic", "STRING", REQUIRED, "The topic to write to"),
        ConfigKey("interval.ms", "INT", 1000, "The time between two records"),
    )

    def start(self, properties: Properties) -> None:
        self.properties = properties

    def task_configs(self, max_tasks: int) -> list[Properties]:
        return [self.properties]
