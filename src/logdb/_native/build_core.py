"""Builds ``logdb._native._core``: the C core behind cffi, in API mode.

The headers are the definition: what cffi cannot parse of them (the preprocessor's
lines) is left out, nothing is written twice.  setup.py names ``ffibuilder``.
"""

import os

from cffi import FFI

HEADERS = ("crc32c.h", "murmur2.h", "logdb_native.h", "compact.h", "sync.h")
SOURCES = ("crc32c.c", "murmur2.c", "batch.c", "scan.c", "columns.c", "compact.c", "sync.c")
FLAGS = ("-O2", "-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow")


def definition(folder: str) -> str:
    """The text of the headers, without the preprocessor's lines."""
    lines: list[str] = []
    for name in HEADERS:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            lines += (line for line in file if not line.startswith("#"))
    return "".join(lines)


def builder(folder: str) -> FFI:
    """The definition, and how to compile the sources in ``folder``."""
    ffi = FFI()
    ffi.cdef(definition(folder))
    ffi.set_source(
        "logdb._native._core",
        '#include "compact.h"\n#include "sync.h"',
        sources=[os.path.join(folder, name) for name in SOURCES],
        depends=[os.path.join(folder, name) for name in (*HEADERS, "batch.h", "bytes.h")],
        include_dirs=[folder],
        extra_compile_args=list(FLAGS),
    )
    return ffi


ffibuilder = builder(os.path.relpath(os.path.dirname(os.path.abspath(__file__))))  # setuptools wants relative paths
