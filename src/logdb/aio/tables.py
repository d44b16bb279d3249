"""Tables, for asyncio."""

from collections.abc import AsyncIterator, Awaitable
from typing import Any

from logdb.aio.mirror import Mirror, in_thread, stream
from logdb.client.table import table as tables
from logdb.signatures import readable


@readable
class Table(Mirror[tables.Table]):
    """As ``logdb.client.table.table.Table``.  Made by ``Database.table``.

    ``await table[key]``, ``await table.get(key)``; ``contains`` and ``count`` are its ``in`` and ``len``; keys by ``async for``.
    """

    get = in_thread(tables.Table.get)
    get_many = in_thread(tables.Table.get_many)
    entry = in_thread(tables.Table.entry)
    contains = in_thread(tables.Table.__contains__)
    count = in_thread(tables.Table.__len__)
    refresh = in_thread(tables.Table.refresh)
    positions = in_thread(tables.Table.positions)
    wait_for = in_thread(tables.Table.wait_for)
    catch_up = in_thread(tables.Table.catch_up)

    @property
    def topic(self) -> str:
        return self._sync.topic

    def __getitem__(self, key: Any) -> Awaitable[Any]:
        return self._call(tables.Table.__getitem__, key)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self.keys()

    def keys(self) -> AsyncIterator[Any]:
        """All keys, as of one moment."""
        return stream(self._threads, lambda: iter(self._sync))

    def items(self) -> AsyncIterator[tuple[Any, Any]]:
        """Keys and values, as of one moment."""
        return stream(self._threads, lambda: iter(self._sync.items()))

    def values(self) -> AsyncIterator[Any]:
        """Values, as of one moment."""
        return stream(self._threads, lambda: iter(self._sync.values()))

    def entries(self) -> AsyncIterator[tables.TableEntry]:
        """All entries, as of one moment."""
        return stream(self._threads, self._sync.entries)
