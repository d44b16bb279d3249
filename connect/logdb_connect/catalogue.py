"""The plugins that come with logdb: one table of names.

A property such as ``connector.class`` takes any name of a row: Kafka's short name, with or without ``Connector`` at the end, the
Java class that people have in their files, or the Python class as ``module:Class``.  Plugins of others come by entry points and by
``plugin.path``; they name themselves.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

Kind = Literal["source", "sink", "converter", "header_converter", "transformation", "predicate"]


_AVRO = "avro"
_BOTH: tuple[Kind, ...] = ("converter", "header_converter")


class Plugin(NamedTuple):
    """One plugin.

    Attributes:
        name: The Java class that others know it by, or its own name: what ``/connector-plugins`` shows.
        kind: What it is.
        target: The Python class, ``module:Class``; imported where it is used.
        others: More names.
        extra: The extra of logdb that installs what it needs.
    """

    name: str
    kind: Kind
    target: str
    others: tuple[str, ...] = ()
    extra: str = "connect"


def _converters() -> Iterator[Plugin]:
    package = "org.apache.kafka.connect"
    modules = {"json.JsonConverter": "json", "storage.StringConverter": "primitive"}
    primitive = ("Boolean", "ByteArray", "Double", "Float", "Integer", "Long", "Short")
    modules |= {f"converters.{name}Converter": "primitive" for name in primitive}
    for name, module in sorted(modules.items()):
        short = name.rpartition(".")[2]
        for kind in _BOTH:
            yield Plugin(f"{package}.{name}", kind, f"logdb_connect.converters.{module}:{short}", (short,))
    yield Plugin(
        "io.confluent.connect.avro.AvroConverter", "converter", "logdb_connect.converters.avro:AvroConverter", ("AvroConverter",), _AVRO
    )
    target = "logdb_connect.converters.json_schema:JsonSchemaConverter"
    yield Plugin("io.confluent.connect.json.JsonSchemaConverter", "converter", target, ("JsonSchemaConverter",))
    target = "logdb_connect.converters.simple_header:SimpleHeaderConverter"
    yield Plugin(f"{package}.storage.SimpleHeaderConverter", "header_converter", target, ("SimpleHeaderConverter",))


def _transforms() -> Iterator[Plugin]:
    """A transform of keys and values is two classes, as in Kafka: ``InsertField$Key`` and ``InsertField$Value``."""
    package = "org.apache.kafka.connect.transforms"
    of_parts = {
        "fields": ("ExtractField", "Flatten", "HoistField", "InsertField", "MaskField", "ReplaceField", "SetSchemaMetadata"),
        "types": ("Cast", "TimestampConverter"),
        "headers": ("HeaderFrom",),
    }
    of_records = {
        "fields": ("ValueToKey",),
        "headers": ("DropHeaders", "InsertHeader"),
        "predicates": ("Filter",),
        "routes": ("RegexRouter", "TimestampRouter"),
    }
    for module, names in of_parts.items():
        for name in names:
            for part in ("Key", "Value"):
                target = f"logdb_connect.transforms.{module}:{name}{part}"
                yield Plugin(f"{package}.{name}${part}", "transformation", target, (f"{name}${part}", f"{name}{part}"))
    for module, names in of_records.items():
        for name in names:
            yield Plugin(f"{package}.{name}", "transformation", f"logdb_connect.transforms.{module}:{name}", (name,))
    yield Plugin("ApplyFunction", "transformation", "logdb_connect.transforms.python:ApplyFunction")
    for name in ("HasHeaderKey", "RecordIsTombstone", "TopicNameMatches"):
        yield Plugin(f"{package}.predicates.{name}", "predicate", f"logdb_connect.transforms.predicates:{name}", (name,))


PLUGINS: tuple[Plugin, ...] = (
    Plugin("DirectorySourceConnector", "source", "logdb_connect.connectors.directory:DirectorySourceConnector", (), "connect-objects"),
    Plugin("DltSinkConnector", "sink", "logdb_connect.connectors.dlt_sink:DltSinkConnector", (), "connect-dlt"),
    Plugin("io.confluent.connect.http.HttpSinkConnector", "sink", "logdb_connect.connectors.http:HttpSinkConnector"),
    Plugin(
        "io.confluent.connect.jdbc.JdbcSinkConnector",
        "sink",
        "logdb_connect.connectors.sql.sink:JdbcSinkConnector",
        ("JdbcSink",),
        "connect-sql",
    ),
    Plugin(
        "io.confluent.connect.jdbc.JdbcSourceConnector",
        "source",
        "logdb_connect.connectors.sql.source:JdbcSourceConnector",
        ("JdbcSource",),
        "connect-sql",
    ),
    Plugin(
        "io.confluent.connect.s3.S3SinkConnector",
        "sink",
        "logdb_connect.connectors.objects.sink:ObjectStoreSinkConnector",
        ("ObjectStoreSink",),
        "connect-objects",
    ),
    Plugin(
        "io.confluent.connect.s3.source.S3SourceConnector",
        "source",
        "logdb_connect.connectors.objects.source:ObjectStoreSourceConnector",
        ("ObjectStoreSource",),
        "connect-objects",
    ),
    Plugin(
        "io.confluent.kafka.connect.datagen.DatagenConnector",
        "source",
        "logdb_connect.connectors.datagen:DatagenConnector",
        (
            "DatagenSource",
            "DatagenSourceConnector",
        ),
    ),
    Plugin(
        "io.debezium.connector.mariadb.MariaDbConnector",
        "source",
        "logdb_connect.connectors.capture.mysql:MariaDbConnector",
        (
            "MariaDbConnector",
            "MariaDb",
        ),
        "connect-mysql",
    ),
    Plugin(
        "io.debezium.connector.mysql.MySqlConnector",
        "source",
        "logdb_connect.connectors.capture.mysql:MySqlConnector",
        (
            "MySqlConnector",
            "MySql",
        ),
        "connect-mysql",
    ),
    Plugin(
        "io.debezium.connector.postgresql.PostgresConnector",
        "source",
        "logdb_connect.connectors.capture.postgresql:PostgresConnector",
        (
            "PostgresConnector",
            "Postgres",
        ),
        "connect-postgresql",
    ),
    Plugin("org.apache.kafka.connect.file.FileStreamSinkConnector", "sink", "logdb_connect.connectors.file:FileStreamSinkConnector"),
    Plugin("org.apache.kafka.connect.file.FileStreamSourceConnector", "source", "logdb_connect.connectors.file:FileStreamSourceConnector"),
    Plugin(
        "org.apache.kafka.connect.mirror.MirrorCheckpointConnector",
        "source",
        "logdb_connect.connectors.mirror.checkpoints:MirrorCheckpointConnector",
        ("MirrorCheckpoint",),
    ),
    Plugin(
        "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector",
        "source",
        "logdb_connect.connectors.mirror.checkpoints:MirrorHeartbeatConnector",
        ("MirrorHeartbeat",),
    ),
    Plugin(
        "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source",
        "logdb_connect.connectors.mirror.source:MirrorSourceConnector",
        ("MirrorSource",),
    ),
    Plugin("OutboxSourceConnector", "source", "logdb_connect.connectors.outbox:OutboxSourceConnector", ("OutboxSource",), "connect-sql"),
    Plugin("SingerSourceConnector", "source", "logdb_connect.connectors.singer:SingerSourceConnector"),
    Plugin(
        "SqliteCaptureConnector",
        "source",
        "logdb_connect.connectors.capture.sqlite:SqliteCaptureConnector",
        ("SqliteCapture",),
        "connect-sql",
    ),
    Plugin(
        "io.confluent.connect.avro.AvroConverter", "converter", "logdb_connect.converters.avro:AvroConverter", ("AvroConverter",), "avro"
    ),
    Plugin(
        "io.confluent.connect.json.JsonSchemaConverter",
        "converter",
        "logdb_connect.converters.json_schema:JsonSchemaConverter",
        ("JsonSchemaConverter",),
    ),
    Plugin(
        "org.apache.kafka.connect.converters.BooleanConverter",
        "converter",
        "logdb_connect.converters.primitive:BooleanConverter",
        ("BooleanConverter",),
    ),
    Plugin(
        "org.apache.kafka.connect.converters.ByteArrayConverter",
        "converter",
        "logdb_connect.converters.primitive:ByteArrayConverter",
        ("ByteArrayConverter",),
    ),
    Plugin(
        "org.apache.kafka.connect.converters.DoubleConverter",
        "converter",
        "logdb_connect.converters.primitive:DoubleConverter",
        ("DoubleConverter",),
    ),
    Plugin(
        "org.apache.kafka.connect.converters.FloatConverter",
        "converter",
        "logdb_connect.converters.primitive:FloatConverter",
        ("FloatConverter",),
    ),
    Plugin(
        "org.apache.kafka.connect.converters.IntegerConverter",
        "converter",
        "logdb_connect.converters.primitive:IntegerConverter",
        ("IntegerConverter",),
    ),
    Plugin(
        "org.apache.kafka.connect.converters.LongConverter",
        "converter",
        "logdb_connect.converters.primitive:LongConverter",
        ("LongConverter",),
    ),
    Plugin(
        "org.apache.kafka.connect.converters.ShortConverter",
        "converter",
        "logdb_connect.converters.primitive:ShortConverter",
        ("ShortConverter",),
    ),
    Plugin("org.apache.kafka.connect.json.JsonConverter", "converter", "logdb_connect.converters.json:JsonConverter", ("JsonConverter",)),
    Plugin(
        "org.apache.kafka.connect.storage.StringConverter",
        "converter",
        "logdb_connect.converters.primitive:StringConverter",
        ("StringConverter",),
    ),
    Plugin(
        "org.apache.kafka.connect.converters.BooleanConverter",
        "header_converter",
        "logdb_connect.converters.primitive:BooleanConverter",
        ("BooleanConverter",),
    ),
    Plugin(
        "org.apache.kafka.connect.converters.ByteArrayConverter",
        "header_converter",
        "logdb_connect.converters.primitive:ByteArrayConverter",
        ("ByteArrayConverter",),
    ),
    Plugin(
        "org.apache.kafka.connect.converters.DoubleConverter",
        "header_converter",
        "logdb_connect.converters.primitive:DoubleConverter",
        ("DoubleConverter",),
    ),
    Plugin(
        "org.apache.kafka.connect.converters.FloatConverter",
        "header_converter",
        "logdb_connect.converters.primitive:FloatConverter",
        ("FloatConverter",),
    ),
    Plugin(
        "org.apache.kafka.connect.converters.IntegerConverter",
        "header_converter",
        "logdb_connect.converters.primitive:IntegerConverter",
        ("IntegerConverter",),
    ),
    Plugin(
        "org.apache.kafka.connect.converters.LongConverter",
        "header_converter",
        "logdb_connect.converters.primitive:LongConverter",
        ("LongConverter",),
    ),
    Plugin(
        "org.apache.kafka.connect.converters.ShortConverter",
        "header_converter",
        "logdb_connect.converters.primitive:ShortConverter",
        ("ShortConverter",),
    ),
    Plugin(
        "org.apache.kafka.connect.json.JsonConverter", "header_converter", "logdb_connect.converters.json:JsonConverter", ("JsonConverter",)
    ),
    Plugin(
        "org.apache.kafka.connect.storage.SimpleHeaderConverter",
        "header_converter",
        "logdb_connect.converters.simple_header:SimpleHeaderConverter",
        ("SimpleHeaderConverter",),
    ),
    Plugin(
        "org.apache.kafka.connect.storage.StringConverter",
        "header_converter",
        "logdb_connect.converters.primitive:StringConverter",
        ("StringConverter",),
    ),
    Plugin("ApplyFunction", "transformation", "logdb_connect.transforms.python:ApplyFunction"),
    Plugin(
        "org.apache.kafka.connect.transforms.Cast$Key",
        "transformation",
        "logdb_connect.transforms.types:CastKey",
        (
            "Cast$Key",
            "CastKey",
        ),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.Cast$Value",
        "transformation",
        "logdb_connect.transforms.types:CastValue",
        (
            "Cast$Value",
            "CastValue",
        ),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.DropHeaders",
        "transformation",
        "logdb_connect.transforms.headers:DropHeaders",
        ("DropHeaders",),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.ExtractField$Key",
        "transformation",
        "logdb_connect.transforms.fields:ExtractFieldKey",
        (
            "ExtractField$Key",
            "ExtractFieldKey",
        ),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.ExtractField$Value",
        "transformation",
        "logdb_connect.transforms.fields:ExtractFieldValue",
        (
            "ExtractField$Value",
            "ExtractFieldValue",
        ),
    ),
    Plugin("org.apache.kafka.connect.transforms.Filter", "transformation", "logdb_connect.transforms.predicates:Filter", ("Filter",)),
    Plugin(
        "org.apache.kafka.connect.transforms.Flatten$Key",
        "transformation",
        "logdb_connect.transforms.fields:FlattenKey",
        (
            "Flatten$Key",
            "FlattenKey",
        ),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.Flatten$Value",
        "transformation",
        "logdb_connect.transforms.fields:FlattenValue",
        (
            "Flatten$Value",
            "FlattenValue",
        ),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.HeaderFrom$Key",
        "transformation",
        "logdb_connect.transforms.headers:HeaderFromKey",
        (
            "HeaderFrom$Key",
            "HeaderFromKey",
        ),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.HeaderFrom$Value",
        "transformation",
        "logdb_connect.transforms.headers:HeaderFromValue",
        (
            "HeaderFrom$Value",
            "HeaderFromValue",
        ),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.HoistField$Key",
        "transformation",
        "logdb_connect.transforms.fields:HoistFieldKey",
        (
            "HoistField$Key",
            "HoistFieldKey",
        ),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.HoistField$Value",
        "transformation",
        "logdb_connect.transforms.fields:HoistFieldValue",
        (
            "HoistField$Value",
            "HoistFieldValue",
        ),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.InsertField$Key",
        "transformation",
        "logdb_connect.transforms.fields:InsertFieldKey",
        (
            "InsertField$Key",
            "InsertFieldKey",
        ),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.InsertField$Value",
        "transformation",
        "logdb_connect.transforms.fields:InsertFieldValue",
        (
            "InsertField$Value",
            "InsertFieldValue",
        ),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.InsertHeader",
        "transformation",
        "logdb_connect.transforms.headers:InsertHeader",
        ("InsertHeader",),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.MaskField$Key",
        "transformation",
        "logdb_connect.transforms.fields:MaskFieldKey",
        (
            "MaskField$Key",
            "MaskFieldKey",
        ),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.MaskField$Value",
        "transformation",
        "logdb_connect.transforms.fields:MaskFieldValue",
        (
            "MaskField$Value",
            "MaskFieldValue",
        ),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.RegexRouter", "transformation", "logdb_connect.transforms.routes:RegexRouter", ("RegexRouter",)
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.ReplaceField$Key",
        "transformation",
        "logdb_connect.transforms.fields:ReplaceFieldKey",
        (
            "ReplaceField$Key",
            "ReplaceFieldKey",
        ),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transformation",
        "logdb_connect.transforms.fields:ReplaceFieldValue",
        (
            "ReplaceField$Value",
            "ReplaceFieldValue",
        ),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.SetSchemaMetadata$Key",
        "transformation",
        "logdb_connect.transforms.fields:SetSchemaMetadataKey",
        (
            "SetSchemaMetadata$Key",
            "SetSchemaMetadataKey",
        ),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.SetSchemaMetadata$Value",
        "transformation",
        "logdb_connect.transforms.fields:SetSchemaMetadataValue",
        (
            "SetSchemaMetadata$Value",
            "SetSchemaMetadataValue",
        ),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.TimestampConverter$Key",
        "transformation",
        "logdb_connect.transforms.types:TimestampConverterKey",
        (
            "TimestampConverter$Key",
            "TimestampConverterKey",
        ),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.TimestampConverter$Value",
        "transformation",
        "logdb_connect.transforms.types:TimestampConverterValue",
        (
            "TimestampConverter$Value",
            "TimestampConverterValue",
        ),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.TimestampRouter",
        "transformation",
        "logdb_connect.transforms.routes:TimestampRouter",
        ("TimestampRouter",),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.ValueToKey", "transformation", "logdb_connect.transforms.fields:ValueToKey", ("ValueToKey",)
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
        "predicate",
        "logdb_connect.transforms.predicates:HasHeaderKey",
        ("HasHeaderKey",),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
        "predicate",
        "logdb_connect.transforms.predicates:RecordIsTombstone",
        ("RecordIsTombstone",),
    ),
    Plugin(
        "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        "predicate",
        "logdb_connect.transforms.predicates:TopicNameMatches",
        ("TopicNameMatches",),
    ),
)
"""Add a row for each class, in the order: connectors, converters, transforms, predicates; by name."""
