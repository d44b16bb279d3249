"""The class that Spark knows as ``format("logdb")``."""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from logdb_spark_source import columns
from logdb_spark_source.batch import BatchReader, Frozen
from logdb_spark_source.options import ReadOptions
from logdb_spark_source.sink import BatchWriter, StreamWriter
from logdb_spark_source.stream import StreamReader


class LogdbDataSource(DataSource):
    """logdb in Spark; Spark makes one, in a process of its own, for each ``load``."""

    _frozen: Frozen | None = None

    @classmethod
    def name(cls) -> str:
        """The name in ``format``."""
        return "logdb"

    def schema(self) -> StructType:
        """The columns to read.  This also fixes the end of a batch: attributes of self are part of every plan.

        Raises:
            InvalidConfig: An option is invalid.
        """
        options = ReadOptions.of(self.options)
        self._frozen = Frozen(options)
        return columns.spark_schema(options.columns)

    def reader(self, schema: StructType) -> BatchReader:
        """The reader of a batch; a schema of the user is a list of columns."""
        options = ReadOptions.of(self.options)
        return BatchReader(options, self._frozen or Frozen(options), columns.of_schema(schema))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 -- Spark's name
        """The reader of a stream."""
        return StreamReader(ReadOptions.of(self.options), columns.of_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """The writer of a DataFrame."""
        return BatchWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 -- Spark's name
        """The writer of a stream."""
        return StreamWriter(self.options, schema, overwrite=overwrite)
