"""LMDB: the offset as key, record key and value as value.  No checksum; readers share its memory map."""

import itertools
import struct
import time
from typing import Any, NoReturn

from benches.peers import not_importable
from benches.peers._kill import open_after_kill, write_until_killed
from benches.workload import KEY_SIZE_BYTES, Keys, Measure, Values, Work, rate

_OFFSET = struct.Struct(">Q")
_ARROW_COUNT = 65_536


def missing() -> str | None:
    return not_importable("lmdb")


def _open(work: Work) -> Any:
    import lmdb

    return lmdb.open(str(work.directory), map_size=64 << 30, sync=False, metasync=False)


def _filled(work: Work) -> Any:
    env = _open(work)
    offset = itertools.count()
    for keys, values in work.batches():
        with env.begin(write=True) as txn:
            txn.cursor().putmulti([(_OFFSET.pack(next(offset)), k + v) for k, v in zip(keys, values, strict=True)], append=True)
    return env


def scan(work: Work) -> Measure:
    """A cursor over offsets and records."""
    env = _filled(work)

    def one() -> tuple[int, int]:
        count = size_bytes = 0
        with env.begin() as txn:
            for _, record in txn.cursor():
                size_bytes += len(record)
                count += 1
        return count, size_bytes - count * KEY_SIZE_BYTES

    return work.passes(one)


def scan_values(work: Work) -> Measure:
    """A cursor over records alone."""
    env = _filled(work)

    def one() -> tuple[int, int]:
        count = size_bytes = 0
        with env.begin() as txn:
            for record in txn.cursor().iternext(keys=False, values=True):
                size_bytes += len(record)
                count += 1
        return count, size_bytes - count * KEY_SIZE_BYTES

    return work.passes(one)


def arrow(work: Work) -> Measure:
    """Records gathered in a list and made into one binary array, 64 k at a time."""
    import pyarrow as pa
    import pyarrow.compute as pc

    env = _filled(work)

    def one() -> tuple[int, int]:
        count = size_bytes = 0
        with env.begin() as txn:
            records = txn.cursor().iternext(keys=False, values=True)
            while some := list(itertools.islice(records, _ARROW_COUNT)):
                column = pa.array(some, pa.binary())
                count += len(column)
                size_bytes += pc.sum(pc.binary_length(column)).as_py()
        return count, size_bytes - count * KEY_SIZE_BYTES

    return work.passes(one)


def _get(work: Work, offsets: list[int]) -> Measure:
    env = _filled(work)
    for _ in env.begin().cursor():  # the map's pages are there before anything is timed
        pass
    size_bytes = 0
    began = work.start()
    with env.begin() as txn:
        get, pack = txn.get, _OFFSET.pack
        for offset in offsets:
            size_bytes += len(get(pack(offset)))
    seconds = time.perf_counter() - began
    work.check((len(offsets), size_bytes - len(offsets) * KEY_SIZE_BYTES), len(offsets))
    return rate(len(offsets), seconds)


def get(work: Work) -> Measure:
    """Single records at random."""
    return _get(work, work.random_offsets())


def get_sparse(work: Work) -> Measure:
    """Single records, at random, none near another."""
    return _get(work, work.sparse_offsets())


def write(work: Work) -> NoReturn:
    """Commit batches until killed."""
    env = _open(work)
    offset = itertools.count()

    def batch(keys: Keys, values: Values) -> None:
        with env.begin(write=True) as txn:
            txn.cursor().putmulti([(_OFFSET.pack(next(offset)), k + v) for k, v in zip(keys, values, strict=True)], append=True)

    write_until_killed(work, batch)


def recover(work: Work) -> Measure:
    """Open after the writer's kill -9, and find where the log ends."""

    def end_offset() -> int:
        with _open(work).begin() as txn:
            cursor = txn.cursor()
            return _OFFSET.unpack(cursor.key())[0] + 1 if cursor.last() else 0

    import lmdb  # noqa: F401  # importing is not opening

    return open_after_kill(work, "lmdb", end_offset)


OPERATIONS = {operation.__name__: operation for operation in (scan, scan_values, arrow, get, get_sparse, write, recover)}
