"""logdb: an embeddable log database.  SQLite's place, Kafka's shape.

>>> import logdb
>>> with logdb.open("events") as db:
...     _ = db.create_topic("trades", partitions=3, if_not_exists=True)
...     log = db.log("trades", partition=0)
...     offset = log.append(b"value", b"key")
...     log.flush()
...     for record in log.read(offset):
...         print(record.key, record.value)
b'key' b'value'
"""

import importlib
from typing import TYPE_CHECKING, Any

from logdb import errors
from logdb.client.database import Database
from logdb.client.database import open_database as open
from logdb.client.offline import repair, restore, verify
from logdb.codec import Record
from logdb.errors import LogdbError
from logdb.io import IO
from logdb.log.log import Log
from logdb.model import OffsetAndMetadata, PartitionInfo, RecordMetadata, TopicInfo, TopicPartition
from logdb.store.report import Copied, Problem, Report

if TYPE_CHECKING:
    from logdb import aio, serde
    from logdb.client.consumer import Consumer
    from logdb.client.interceptor import Interceptor, OutgoingRecord
    from logdb.client.producer import Producer
    from logdb.client.records import ConsumedRecord
    from logdb.client.transaction import Transaction

__version__ = "0.1.0"

__all__ = [
    "IO",
    "ConsumedRecord",
    "Consumer",
    "Copied",
    "Database",
    "Interceptor",
    "Log",
    "LogdbError",
    "OffsetAndMetadata",
    "OutgoingRecord",
    "PartitionInfo",
    "Problem",
    "Producer",
    "Record",
    "RecordMetadata",
    "Report",
    "TopicInfo",
    "TopicPartition",
    "Transaction",
    "aio",
    "errors",
    "open",
    "repair",
    "restore",
    "serde",
    "verify",
]

_HOMES = {
    "ConsumedRecord": "client.records",
    "Consumer": "client.consumer",
    "Interceptor": "client.interceptor",
    "OutgoingRecord": "client.interceptor",
    "Producer": "client.producer",
    "Transaction": "client.transaction",
}


def __getattr__(name: str) -> Any:
    """Names that few programs use are imported when they are looked up."""
    if name in ("aio", "serde"):
        return importlib.import_module(f"logdb.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"logdb.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'logdb' has no attribute {name!r}")
