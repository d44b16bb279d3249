"""A topic as one pyarrow dataset: its Parquet files, and the records that have none.

``store.tiers`` finds the files.  If retention deletes one meanwhile, the dataset is built again.
"""

from typing import TYPE_CHECKING

from logdb.codec import parquet
from logdb.errors import OffsetOutOfRange
from logdb.log.isolation import IsolationLevel

if TYPE_CHECKING:
    import pyarrow.dataset

    from logdb.client.database import Database

_TRY_COUNT_MAX = 10


def topic_dataset(db: "Database", topic: str, isolation_level: IsolationLevel) -> "pyarrow.dataset.Dataset":
    """See ``Database.topic_dataset``."""
    for left in reversed(range(_TRY_COUNT_MAX)):
        tiers = db.topic_tiers(topic, isolation_level=isolation_level)
        try:
            tables = [_table(db, topic, *stretch, isolation_level) for stretch in tiers.ranges]
        except OffsetOutOfRange:  # retention has moved the log start meanwhile
            if not left:
                raise
        else:
            return parquet.dataset([file.path for file in tiers.files], tables)
    raise AssertionError("the last try returns or raises")


def _table(
    db: "Database", topic: str, partition: int, start_offset: int, end_offset: int, isolation_level: IsolationLevel
) -> "pyarrow.Table":
    log = db.log(topic, partition)
    batches = log.read_arrow(start_offset, end_offset=end_offset, columns=parquet.LOG_COLUMNS, isolation_level=isolation_level)
    return parquet.spilled(batches, topic, partition)
