"""Entries in memory: indexes without gaps, terms that never fall, and never none of them: the first is the base.

The base is the entry before the first that can be sent, or the snapshot's.  ``core`` decides on such a list, ``journal`` keeps one on disk.
"""

from typing import overload

from logdb_replication.raft.messages import NO_OP, Entry


class Entries:
    """A list of entries by their indexes; ``path``: of the file that they are from, for errors."""

    def __init__(self, entries: list[Entry], path: str) -> None:
        self._entries, self.path = entries, path

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, place: int) -> Entry: ...
    @overload
    def __getitem__(self, place: slice) -> list[Entry]: ...
    def __getitem__(self, place: int | slice) -> Entry | list[Entry]:
        return self._entries[place]

    @property
    def base(self) -> int:
        return self._entries[0][1]

    @property
    def last(self) -> int:
        return self._entries[-1][1]

    def entry(self, index: int) -> Entry:
        return self._entries[index - self.base]

    def term(self, index: int) -> int | None:
        """The term of the entry at ``index``; None: it is not in the list."""
        return self._entries[index - self.base][2] if self.base <= index <= self.last else None

    def entries(self, index: int, size_bytes_max: int) -> list[Entry]:
        """Entries from ``index`` on, of about so many bytes; one at least, where there is one."""
        found: list[Entry] = []
        for place in range(index - self.base, len(self._entries)):
            entry = self._entries[place]
            size_bytes_max -= len(entry[0])
            if size_bytes_max < 0 and found:
                break
            found.append(entry)
        return found

    def add(self, command: bytes, index: int, term: int) -> None:
        assert index == self.last + 1, (index, self.last)
        self._entries.append((command, index, term))

    def cut(self, index: int) -> None:
        """Forget the entries from ``index`` on."""
        assert index > self.base, (index, self.base)
        del self._entries[index - self.base :]

    def drop(self, index: int) -> None:
        """Forget the entries before ``index``, which becomes the base."""
        if index > self.base:
            self._entries = self._entries[index - self.base :]

    def reset(self, index: int, term: int) -> None:
        """Keep no entry: a snapshot up to ``index`` takes their place."""
        self._entries = [(NO_OP, index, term)]
