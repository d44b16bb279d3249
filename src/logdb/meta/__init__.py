"""The catalogue, and the views of tables: the data of a database beside its logs, kept in LMDB.

``store`` decides when an entry changes, and syncs the log files that it names.
"""

from logdb.meta.catalogue import Catalogue, ReadTransaction, WriteTransaction, check_file, file_checksum
from logdb.meta.entries import Intent, LogEntry, SegmentEntry, Sidecar, TopicEntry

__all__ = [
    "Catalogue",
    "Intent",
    "LogEntry",
    "ReadTransaction",
    "SegmentEntry",
    "Sidecar",
    "TopicEntry",
    "WriteTransaction",
    "check_file",
    "file_checksum",
]
