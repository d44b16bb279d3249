"""A reader of an LMDB environment whose lock file this process may not write.

A reader beside a writer takes a slot in ``lock.mdb``, so that the writer does not reuse the pages of the reader's transaction.
A process that may only read the directory (another user, a read-only mount) cannot take one, and pages would change under it.
It reads a copy:

    1. note the number of the last committed transaction, N
    2. copy the pages of ``data.mdb`` in use
    3. read the number again: still N, or start over

Transaction N + 1 writes only to pages that N does not use, and writes its number last.  So the copy has all of N.

Threading: under the environment's map lock.
"""

import os

import lmdb

from logdb.errors import LogdbError

_TRY_COUNT_MAX = 1000
_PIECE_SIZE_BYTES = 1 << 20


def may_lock(path: str) -> bool:
    """Whether this process can take a reader's slot in the directory's ``lock.mdb``.

    A reader does not create a missing one: the file would belong to the reader's user, and might keep the writer out.
    """
    try:
        os.close(os.open(os.path.join(path, "lock.mdb"), os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True


class CopiedEnvironment:
    """The methods of ``lmdb.Environment`` that a reader needs, on a copy of the file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._live = lmdb.open(path, readonly=True, create=False, lock=False)  # only for its meta pages
        self.info, self.stat = self._live.info, self._live.stat
        self._copy: lmdb.Environment | None = None
        self._number = -1

    def is_stale(self) -> bool:
        """Whether the writer has committed since the copy was made."""
        return bool(self._live.info()["last_txnid"] != self._number)

    def refresh(self) -> None:
        """Make a new copy; no transaction may be open.

        Raises:
            LogdbError: The writer commits faster than the file can be copied, or there is no room for the copy.
        """
        import tempfile  # few programs need it

        self._close_copy()
        try:
            with tempfile.TemporaryDirectory(prefix="logdb-") as directory:  # the open map outlives it
                number, size_bytes = self._copy_pages(os.path.join(directory, "data.mdb"))
                self._copy = lmdb.open(directory, readonly=True, create=False, lock=False, map_size=size_bytes)
        except OSError as error:
            raise LogdbError(f"the catalogue {self._path} cannot be copied, and its lock.mdb may not be written: {error}") from error
        self._number = number

    def _copy_pages(self, target: str) -> tuple[int, int]:
        """Copy the pages in use, piece by piece; returns the number of the last transaction in them, and their bytes."""
        for _ in range(_TRY_COUNT_MAX):
            before = self._live.info()
            size_bytes = (before["last_pgno"] + 1) * self._live.stat()["psize"]
            with open(os.path.join(self._path, "data.mdb"), "rb") as source, open(target, "wb") as copy:
                rest = size_bytes
                while rest > 0 and (piece := source.read(min(rest, _PIECE_SIZE_BYTES))):
                    copy.write(piece)
                    rest -= len(piece)
            if self._live.info()["last_txnid"] == before["last_txnid"]:
                return before["last_txnid"], size_bytes
        raise LogdbError(f"the catalogue {self._path} changes too often to be copied, and its lock.mdb may not be written")

    def begin(self) -> "lmdb.Transaction[bytes]":
        assert self._copy is not None
        return self._copy.begin()

    def close(self) -> None:
        self._close_copy()
        self._live.close()

    def _close_copy(self) -> None:
        if self._copy is not None:
            self._copy.close()
            self._copy = None
