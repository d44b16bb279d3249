"""logdb for asyncio: the same classes, with coroutines for whatever may wait.

>>> import asyncio, logdb.aio
>>> async def main():
...     async with logdb.aio.open("events") as db:
...         await db.create_topic("clicks", if_not_exists=True)
...         log = await db.log("clicks")
...         offset = await log.append(b"value", b"key")
...         async for record in log.read(offset):
...             print(record.key, record.value)
>>> asyncio.run(main())
b'key' b'value'

Each method is the one of the same name in ``logdb``, called in a thread of the database's own pool, because it may wait
for a disk; its documentation is that one's.  What only looks at memory is called at once.  Iterators are asynchronous,
context managers too (``async with db.producer() as producer``; or ``await db.producer()``, and close it).  Where a log begins
and ends and how large it is, and a database's ``reports``, are awaited like calls (``await log.end_offset``): beside a writer they
look at its files, behind a URL they ask the server.

A call that is cancelled goes on in its thread, and its result is dropped; a consumer takes back the records that a
cancelled ``poll`` would have returned.

Threading: one event loop.
"""

from logdb.aio.consuming import Consumer
from logdb.aio.database import Database, open
from logdb.aio.log import Log
from logdb.aio.producing import Producer, SendFuture, Transaction, TransactionalProducer
from logdb.aio.tables import Table
from logdb.aio.watching import Watch

__all__ = ["Consumer", "Database", "Log", "Producer", "SendFuture", "Table", "Transaction", "TransactionalProducer", "Watch", "open"]
