"""Properties that the sink and the source of object stores share: Confluent's names and defaults."""

from logdb_connect.config import REQUIRED, ConfigDef, ConfigKey, at_least
from logdb_connect.connectors.objects.formats import AVRO_CODECS, PARQUET_CODECS

_COMPRESSIONS = ("none", "gzip")
_BEHAVIORS = ("fail", "ignore")


def _level(level: int) -> str | None:
    return None if -1 <= level <= 9 else "must be between -1 and 9"


STORE = ConfigDef(
    ConfigKey("s3.bucket.name", "STRING", None, "The S3 Bucket. Required unless store.url names another store", "HIGH"),
    ConfigKey("s3.region", "STRING", "us-west-2", "The AWS region to be used the connector.", "MEDIUM"),
    ConfigKey(
        "store.url",
        "STRING",
        None,
        "Store's connection URL, if applicable: an endpoint of S3 (http://host:9000), or another store: gs://bucket/path, "
        "az://account/container/path, file:///directory, memory:///name, webhdfs://host:9870/path",
        "HIGH",
    ),
    ConfigKey(
        "aws.access.key.id",
        "STRING",
        "",
        "The AWS access key ID used to authenticate personal AWS credentials. "
        "Without it, the environment (AWS_ACCESS_KEY_ID, a web identity, the instance) provides the credentials",
        "HIGH",
    ),
    ConfigKey(
        "aws.secret.access.key",
        "PASSWORD",
        None,
        "The secret access key used to authenticate personal AWS credentials such as IAM credentials.",
        "HIGH",
    ),
    ConfigKey("s3.path.style.access.enabled", "BOOLEAN", True, "Specifies whether or not to enable path style access to the bucket", "LOW"),
    ConfigKey("s3.part.size", "INT", 26214400, "The Part Size in S3 Multi-part Uploads.", "HIGH", at_least(5242880)),
    ConfigKey("s3.part.retries", "INT", 3, "Maximum number of retry attempts for failed requests.", "MEDIUM", at_least(0)),
    ConfigKey(
        "s3.retry.backoff.ms",
        "LONG",
        200,
        "How long to wait in milliseconds before attempting the first retry of a failed S3 request.",
        "LOW",
        at_least(0),
    ),
    ConfigKey("topics.dir", "STRING", "topics", "Top level directory to store the data ingested from Kafka.", "HIGH"),
    ConfigKey("directory.delim", "STRING", "/", "Directory delimiter pattern", "MEDIUM"),
    ConfigKey("file.delim", "STRING", "+", "File delimiter pattern", "MEDIUM"),
)

FORMAT = ConfigDef(
    ConfigKey(
        "format.class",
        "CLASS",
        "io.confluent.connect.s3.format.json.JsonFormat",
        "The format class to use when writing data to the store: JsonFormat, ByteArrayFormat, AvroFormat or ParquetFormat, "
        "or Confluent's Java class.",
        "HIGH",
    ),
    ConfigKey("format.bytearray.extension", "STRING", ".bin", "Output file extension for ByteArrayFormat.", "LOW"),
    ConfigKey("format.bytearray.separator", "STRING", "\n", "String inserted between records for ByteArrayFormat.", "LOW"),
    ConfigKey(
        "json.decimal.format",
        "STRING",
        "BASE64",
        "Controls which format json converter will serialize decimals in: BASE64 or NUMERIC.",
        "LOW",
        lambda value: None if value.upper() in {"BASE64", "NUMERIC"} else "must be BASE64 or NUMERIC",
    ),
    ConfigKey("s3.compression.type", "STRING", "none", "Compression type for JsonFormat and ByteArrayFormat.", "LOW", values=_COMPRESSIONS),
    ConfigKey("s3.compression.level", "INT", -1, "Compression level of gzip; -1 is its default.", "LOW", _level),
    ConfigKey("avro.codec", "STRING", "null", "The Avro compression codec to be used for output files.", "LOW", values=AVRO_CODECS),
    ConfigKey(
        "parquet.codec", "STRING", "snappy", "The Parquet compression codec to be used for output files.", "LOW", values=PARQUET_CODECS
    ),
)

ROTATION = ConfigDef(
    ConfigKey("flush.size", "INT", REQUIRED, "Number of records written to store before invoking file commits.", "HIGH", at_least(1)),
    ConfigKey(
        "rotate.interval.ms",
        "LONG",
        -1,
        "The span of time of the records of one object, by timestamp.extractor. The first record of the object is its begin. "
        "The default value -1 means that this feature is disabled.",
        "HIGH",
    ),
    ConfigKey(
        "rotate.schedule.interval.ms",
        "LONG",
        -1,
        "The time interval in milliseconds to periodically invoke file commits, by the wall clock, from 00:00 of the timezone on. "
        "The default value -1 means that this feature is disabled.",
        "MEDIUM",
    ),
    ConfigKey(
        "rotate.file.on.partition.change",
        "BOOLEAN",
        True,
        "Whether an object ends where a record belongs to another directory. Counts with rotate.interval.ms.",
        "LOW",
    ),
    ConfigKey(
        "filename.offset.zero.pad.width",
        "INT",
        10,
        "Width to zero pad offsets in store's filenames if offsets are too short, so that names sort as offsets do.",
        "LOW",
        at_least(0),
    ),
    ConfigKey(
        "behavior.on.null.values",
        "STRING",
        "fail",
        "How to handle records with a null value (i.e. Kafka tombstone records): fail or ignore.",
        "LOW",
        values=_BEHAVIORS,
    ),
    ConfigKey("storage.class", "CLASS", None, "The underlying storage layer. Has no effect: store.url decides.", "LOW"),
    ConfigKey(
        "schema.compatibility",
        "STRING",
        "NONE",
        "The schema compatibility rule: NONE, an object ends where the schema changes.",
        "LOW",
        values=("NONE",),
    ),
)

PARTITIONER = ConfigDef(
    ConfigKey(
        "partitioner.class",
        "CLASS",
        "io.confluent.connect.storage.partitioner.DefaultPartitioner",
        "The partitioner to use when writing data to the store: DefaultPartitioner, FieldPartitioner, TimeBasedPartitioner, "
        "DailyPartitioner or HourlyPartitioner, or Confluent's Java class.",
        "HIGH",
    ),
    ConfigKey("partition.field.name", "LIST", [], "The names of the partitioning fields when FieldPartitioner is used.", "MEDIUM"),
    ConfigKey("partition.duration.ms", "LONG", -1, "The duration of a partition milliseconds used by TimeBasedPartitioner.", "MEDIUM"),
    ConfigKey(
        "path.format",
        "STRING",
        "",
        "The format of the data directories when partitioning with TimeBasedPartitioner, such as 'year'=YYYY/'month'=MM/'day'=dd.",
        "MEDIUM",
    ),
    ConfigKey("locale", "STRING", "", "The locale to use when partitioning with TimeBasedPartitioner, such as en-US.", "MEDIUM"),
    ConfigKey(
        "timezone",
        "STRING",
        "",
        "The timezone to use when partitioning with TimeBasedPartitioner, such as UTC, Europe/Paris or +02:00.",
        "MEDIUM",
    ),
    ConfigKey(
        "timestamp.extractor",
        "STRING",
        "Wallclock",
        "The extractor that gets the timestamp for records when partitioning with TimeBasedPartitioner: Wallclock, Record or RecordField.",
        "MEDIUM",
    ),
    ConfigKey("timestamp.field", "STRING", "timestamp", "The record field to be used as timestamp by the timestamp extractor.", "MEDIUM"),
)
