"""The two extension modules: what is called once a batch (cffi) and once a record (CPython)."""

import sys

from setuptools import Extension, setup

if sys.platform == "win32":
    raise SystemExit("logdb runs on Linux and macOS: Windows has neither fsync of directories nor flock")

NATIVE = "src/logdb/_native"
HOT_SOURCES = (
    "hot_module",
    "hot_record",
    "hot_arguments",
    "hot_buffer",
    "hot_builder",
    "hot_builder_type",
    "hot_append",
    "hot_withdraw",
    "hot_delivery",
    "hot_send",
    "hot_positions",
    "hot_iterator",
    "batch",
    "crc32c",
    "murmur2",
)

setup(
    cffi_modules=[f"{NATIVE}/build_core.py:ffibuilder"],
    ext_modules=[
        Extension(
            "logdb._native._hot",
            [f"{NATIVE}/{name}.c" for name in HOT_SOURCES],
            depends=[f"{NATIVE}/{name}.h" for name in ("hot", "bytes", "batch", "logdb_native", "crc32c", "murmur2")],
            include_dirs=[NATIVE],
            extra_compile_args=["-O2", "-std=c11", "-fvisibility=hidden"],
        )
    ],
)
