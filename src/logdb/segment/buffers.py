"""Large read buffers, reused: the first touch of new memory is slower than the read that fills it.

Knows which buffers nobody looks at any more.  Does not know what is in them.
A buffer is free again once its last memoryview is gone; its reference count says
so, hence nobody has to give it back.
"""

import sys

READ_SIZE_BYTES = 1 << 20
_POOL_COUNT_MAX = 4

_pool: list[bytearray] = []


def _references(pool: list[bytearray], at: int) -> int:
    buffer = pool[at]
    return sys.getrefcount(buffer)


_UNUSED = _references([bytearray()], 0)  # what the count is when only the pool knows the buffer


def take(size_bytes: int) -> bytearray:
    """A buffer of at least ``size_bytes``; its content is whatever the last reader left.

    It is the caller's until the caller's last reference or memoryview is gone.
    """
    if size_bytes > READ_SIZE_BYTES:
        return bytearray(size_bytes)
    for at in range(len(_pool)):
        buffer = _pool[at]
        # One reference more than unused: the name `buffer` in this function.  Two threads that look at the
        # same buffer both see the other's, and both go on.
        if _references(_pool, at) == _UNUSED + 1:
            return buffer
    buffer = bytearray(READ_SIZE_BYTES)
    if len(_pool) < _POOL_COUNT_MAX:
        _pool.append(buffer)
    return buffer
