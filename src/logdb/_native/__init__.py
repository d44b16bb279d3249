"""The C core (``lib``, ``ffi``: once a batch) and the hot path (``_hot``: once a record).

The core works on bytes in memory.  ``codec`` alone imports it, and ``io`` for ``sync.h``, the one part that makes system calls.
"""

from logdb._native._core import ffi, lib

__all__ = ["ffi", "lib"]
