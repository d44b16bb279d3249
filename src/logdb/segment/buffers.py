"""Large read buffers, reused: the first touch of new memory is slower than the read that fills it.

A buffer is free again when its last memoryview is gone; the pool sees that by its reference count, so callers return nothing.
"""

import sys

READ_SIZE_BYTES, LARGE_READ_SIZE_BYTES = 1 << 20, 2 << 20
_POOL_COUNT_MAX = 4

_pools: dict[int, list[bytearray]] = {READ_SIZE_BYTES: [], LARGE_READ_SIZE_BYTES: []}  # by the size of their buffers


def _references(pool: list[bytearray], at: int) -> int:
    buffer = pool[at]
    return sys.getrefcount(buffer)


_UNUSED = _references([bytearray()], 0)  # the reference count of a buffer that only the pool holds


def take(size_bytes: int) -> bytearray:
    """A buffer of at least ``size_bytes``, with old content.

    The caller has it until its last reference or memoryview is gone.
    """
    if size_bytes > LARGE_READ_SIZE_BYTES:
        return bytearray(size_bytes)
    room_bytes = READ_SIZE_BYTES if size_bytes <= READ_SIZE_BYTES else LARGE_READ_SIZE_BYTES
    pool = _pools[room_bytes]
    for at in range(len(pool)):
        buffer = pool[at]
        # One reference more than unused: the name `buffer` in this function.  Two threads that check the
        # same buffer both see the other's reference, and both skip it.
        if _references(pool, at) == _UNUSED + 1:
            return buffer
    buffer = bytearray(room_bytes)
    if len(pool) < _POOL_COUNT_MAX:
        pool.append(buffer)
    return buffer
