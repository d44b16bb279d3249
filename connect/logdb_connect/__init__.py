"""Connect: data in and out of logdb without writing a program.

The worker runs connectors from Kafka Connect's property files: ``logdb connect standalone WORKER.properties CONNECTOR.properties``.
This package has what a plugin implements; ``logdb_connect.plugin`` says how it lives.  The worker is an application of logdb's client
API: it works on a directory, a served directory, a cluster and, with the extra ``connect-kafka``, on Kafka.
"""

from logdb_connect.config import REQUIRED, ConfigDef, ConfigKey, Password
from logdb_connect.data import ConnectRecord, Field, Header, Schema, SinkRecord, SourceBatch, SourceRecord, SourceRecords, struct
from logdb_connect.errors import ConfigError, ConnectError, DataError, RetriableError
from logdb_connect.plugin import (
    Connector,
    ConnectorContext,
    Converter,
    HeaderConverter,
    Predicate,
    Properties,
    SinkConnector,
    SinkTask,
    SinkTaskContext,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
    Transform,
)

__all__ = [
    "REQUIRED",
    "ConfigDef",
    "ConfigError",
    "ConfigKey",
    "ConnectError",
    "ConnectRecord",
    "Connector",
    "ConnectorContext",
    "Converter",
    "DataError",
    "Field",
    "Header",
    "HeaderConverter",
    "Password",
    "Predicate",
    "Properties",
    "RetriableError",
    "Schema",
    "SinkConnector",
    "SinkRecord",
    "SinkTask",
    "SinkTaskContext",
    "SourceBatch",
    "SourceConnector",
    "SourceRecord",
    "SourceRecords",
    "SourceTask",
    "SourceTaskContext",
    "Transform",
    "struct",
]
