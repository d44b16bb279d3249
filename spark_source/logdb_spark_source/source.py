"""What Spark knows as ``format("logdb")``.

Knows which class does what.  Does not know how.
"""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from logdb_spark_source import columns
from logdb_spark_source.batch import BatchReader, Frozen
from logdb_spark_source.options import ReadOptions
from logdb_spark_source.sink import BatchWriter, StreamWriter
from logdb_spark_source.stream import StreamReader


class LogdbDataSource(DataSource):
    """logdb in Spark; made by Spark, in a process of its own, once for each ``load``."""

    _frozen: Frozen | None = None

    @classmethod
    def name(cls) -> str:
        """What is given to ``format``."""
        return "logdb"

    def schema(self) -> StructType:
        """The columns that are read.  Where a batch ends is decided here: what is set on self goes with every plan.

        Raises:
            InvalidConfig: An option is not what it should be.
        """
        options = ReadOptions.of(self.options)
        self._frozen = Frozen(options)
        return columns.spark_schema(options.columns)

    def reader(self, schema: StructType) -> BatchReader:
        """What reads a batch; a schema of the user's is a list of columns."""
        options = ReadOptions.of(self.options)
        return BatchReader(options, self._frozen or Frozen(options), columns.of_schema(schema))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 -- Spark's name
        """What reads a stream."""
        return StreamReader(ReadOptions.of(self.options), columns.of_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """What appends a DataFrame."""
        return BatchWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 -- Spark's name
        """What appends a stream."""
        return StreamWriter(self.options, schema, overwrite=overwrite)
