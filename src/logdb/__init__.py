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
from logdb.client.offline import repair, restore, verify
from logdb.client.opening import open
from logdb.codec import Record, RecordIterator
from logdb.errors import LogdbError
from logdb.io import IO
from logdb.log.protocols import PartitionLog as Log
from logdb.model import (
    AbortedTransaction,
    ClusterEvent,
    ExpiredRecords,
    OffsetAndMetadata,
    OpenTransaction,
    PartitionInfo,
    RecordMetadata,
    TopicEvent,
    TopicInfo,
    TopicPartition,
)
from logdb.requests.report import Checked, Copied, Problem, Report
from logdb.requests.session import Session

if TYPE_CHECKING:
    from logdb import aio, serde, testing
    from logdb.client.administration import GroupOffset
    from logdb.client.consumer.assignors import Assignor
    from logdb.client.consumer.config import ConsumerConfig
    from logdb.client.consumer.consumer import Consumer
    from logdb.client.consumer.membership import GroupMetadata
    from logdb.client.producer.interceptor import Interceptor, OutgoingRecord
    from logdb.client.producer.producer import Producer, ProducerOptions
    from logdb.client.producer.transaction import Transaction, TransactionalProducer
    from logdb.client.records import AnyRecord, ConsumedRecord
    from logdb.client.security_admin import SecurityAdmin
    from logdb.client.serving import serve
    from logdb.client.table.table import Table, TableEntry
    from logdb.client.watching import Watch
    from logdb.codec import SendFuture
    from logdb.requests.groups import GroupInfo, GroupSummary, MemberInfo
    from logdb.requests.transactions import TransactionInfo
    from logdb.requests.users import Users
    from logdb.serving.server import Server
    from logdb.store.sidecars import MadeSidecars
    from logdb.store.tables import UpdatedTable
    from logdb.store.tiers import LogRange, ParquetFile, TopicTiers

__version__ = "0.1.0"

__all__ = [
    "IO",
    "AbortedTransaction",
    "AnyRecord",
    "Assignor",
    "Checked",
    "ClusterEvent",
    "ConsumedRecord",
    "Consumer",
    "ConsumerConfig",
    "Copied",
    "Database",
    "ExpiredRecords",
    "GroupInfo",
    "GroupMetadata",
    "GroupOffset",
    "GroupSummary",
    "Interceptor",
    "Log",
    "LogRange",
    "LogdbError",
    "MadeSidecars",
    "MemberInfo",
    "OffsetAndMetadata",
    "OpenTransaction",
    "OutgoingRecord",
    "ParquetFile",
    "PartitionInfo",
    "Problem",
    "Producer",
    "ProducerOptions",
    "Record",
    "RecordIterator",
    "RecordMetadata",
    "Report",
    "SecurityAdmin",
    "SendFuture",
    "Server",
    "Session",
    "Table",
    "TableEntry",
    "TopicEvent",
    "TopicInfo",
    "TopicPartition",
    "TopicTiers",
    "Transaction",
    "TransactionInfo",
    "TransactionalProducer",
    "UpdatedTable",
    "Users",
    "Watch",
    "aio",
    "errors",
    "open",
    "repair",
    "restore",
    "serde",
    "serve",
    "testing",
    "verify",
]

_HOMES = {
    "AnyRecord": "client.records",
    "Assignor": "client.consumer.assignors",
    "ConsumedRecord": "client.records",
    "Consumer": "client.consumer.consumer",
    "ConsumerConfig": "client.consumer.config",
    "GroupInfo": "requests.groups",
    "GroupMetadata": "client.consumer.membership",
    "GroupOffset": "client.administration",
    "GroupSummary": "requests.groups",
    "Interceptor": "client.producer.interceptor",
    "LogRange": "store.tiers",
    "MadeSidecars": "store.sidecars",
    "MemberInfo": "requests.groups",
    "OutgoingRecord": "client.producer.interceptor",
    "ParquetFile": "store.tiers",
    "Producer": "client.producer.producer",
    "ProducerOptions": "client.producer.producer",
    "SecurityAdmin": "client.security_admin",
    "SendFuture": "codec",
    "Server": "serving.server",
    "Table": "client.table.table",
    "TableEntry": "client.table.table",
    "TopicTiers": "store.tiers",
    "Transaction": "client.producer.transaction",
    "TransactionInfo": "requests.transactions",
    "TransactionalProducer": "client.producer.transaction",
    "UpdatedTable": "store.tables",
    "Users": "access.security",
    "Watch": "client.watching",
    "serve": "client.serving",
}


def __getattr__(name: str) -> Any:
    """Import names that few programs use at their first use."""
    if name in ("aio", "serde", "testing"):
        return importlib.import_module(f"logdb.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"logdb.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'logdb' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
