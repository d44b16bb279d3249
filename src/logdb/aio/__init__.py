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

Each method does what the method of the same name in ``logdb`` does, and has its documentation there.  It may wait for a disk, so it
runs in a thread of the database's own pool; a method that only looks at memory runs at once.  Iterators and context managers are
asynchronous: ``async with db.producer() as producer``, or ``await db.producer()``, and close it.  The offsets and the size of a log, and
``reports`` of a database, are awaited like calls: ``await log.end_offset``.  Beside a writer they look at its files, behind a URL they
ask the server.

A call that is cancelled continues in its thread, and its result is dropped.  A consumer takes back the records that a cancelled
``poll`` would have returned.

Threading: one event loop.
"""

from logdb.aio.consuming import Consumer
from logdb.aio.database import Database, open
from logdb.aio.log import Log
from logdb.aio.producing import Producer, SendFuture, Transaction, TransactionalProducer
from logdb.aio.tables import Table
from logdb.aio.watching import Watch

__all__ = ["Consumer", "Database", "Log", "Producer", "SendFuture", "Table", "Transaction", "TransactionalProducer", "Watch", "open"]
