"""The plugins that come with logdb: one table of names.

A property such as ``connector.class`` takes any name of a row: Kafka's short name, with or without ``Connector`` at the end, the
Java class that people have in their files, or the Python class as ``module:Class``.  Plugins of others come by entry points and by
``plugin.path``; they name themselves.
"""

from typing import Literal, NamedTuple

Kind = Literal["source", "sink", "converter", "header_converter", "transformation", "predicate"]


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


PLUGINS: tuple[Plugin, ...] = (
    Plugin(
        "DirectorySourceConnector",
        "source",
        "logdb_connect.connectors.directory:DirectorySourceConnector",
        extra="connect-objects",
    ),
    Plugin(
        "io.confluent.connect.http.HttpSinkConnector",
        "sink",
        "logdb_connect.connectors.http:HttpSinkConnector",
    ),
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
        ("DatagenSource", "DatagenSourceConnector"),
    ),
    Plugin("OutboxSourceConnector", "source", "logdb_connect.connectors.outbox:OutboxSourceConnector", ("OutboxSource",), "connect-sql"),
    Plugin("org.apache.kafka.connect.file.FileStreamSinkConnector", "sink", "logdb_connect.connectors.file:FileStreamSinkConnector"),
    Plugin("org.apache.kafka.connect.file.FileStreamSourceConnector", "source", "logdb_connect.connectors.file:FileStreamSourceConnector"),
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
    Plugin("org.apache.kafka.connect.json.JsonConverter", "converter", "logdb_connect.converters.json:JsonConverter", ("JsonConverter",)),
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
        "org.apache.kafka.connect.json.JsonConverter", "header_converter", "logdb_connect.converters.json:JsonConverter", ("JsonConverter",)
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
        "org.apache.kafka.connect.storage.StringConverter",
        "header_converter",
        "logdb_connect.converters.primitive:StringConverter",
        ("StringConverter",),
    ),
)
"""Add a row for each class, in the order: connectors, converters, transforms, predicates; by name."""
