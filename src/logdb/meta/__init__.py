"""What a database knows beside its logs: the catalogue, kept in LMDB.

Knows entries, transactions and LMDB.  Does not know the files of a log, nor
when an entry has to change: that is the store's business.
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
