"""Large read buffers, reused: the first touch of new memory is slower than the read that fills it.

A buffer is free again when its last memoryview is gone; the pool sees that by its reference count, so callers return nothing.
"""

import sys

READ_SIZE_BYTES = 1 << 20
_POOL_COUNT_MAX = 4

_pool: list[bytearray] = []


def _references(pool: list[bytearray], at: int) -> int:
    buffer = pool[at]
    return sys.getrefcount(buffer)


_UNUSED = _references([bytearray()], 0)  # the reference count of a buffer that only the pool holds


def take(size_bytes: int) -> bytearray:
    """A buffer of at least ``size_bytes``, with old content.

    The caller has it until its last reference or memoryview is gone.
    """
    if size_bytes > READ_SIZE_BYTES:
        return bytearray(size_bytes)
    for at in range(len(_pool)):
        buffer = _pool[at]
        # One reference more than unused: the name `buffer` in this function.  Two threads that check the
        # same buffer both see the other's reference, and both skip it.
        if _references(_pool, at) == _UNUSED + 1:
            return buffer
    buffer = bytearray(READ_SIZE_BYTES)
    if len(_pool) < _POOL_COUNT_MAX:
        _pool.append(buffer)
    return buffer
