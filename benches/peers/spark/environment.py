"""Python environments with the Sparks that others publish their jars for, beside whatever Spark is installed.

Knows venv and pip, which is that of this Python.  Does not know what runs in it, but that it may import logdb.
"""

import fcntl
import functools
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

from benches.peers import failure
from benches.workload import CACHE

KAFKA_SOURCE, ICEBERG = "4.2.0", "4.1.4"
"""Which Spark: Spark's Kafka source is published for the first, Iceberg's runtime for the second."""
_PACKAGES = (
    "pyarrow>=17",
    "pandas>=2.2,<3",
    "numpy",
    "cffi>=1.17",
    "lmdb>=1.6",
    "zstandard>=0.23",
    "aiohttp>=3.14",
    "h11>=0.16",
    "msgspec>=0.20",
)
_OF_WORKERS = "pyarrow, pyspark.sql.types, pyspark.daemon, pyspark.worker"
"""What Spark's Python processes import, which are given ten seconds to start."""
_SOURCES = ("logdb", "logdb_http_api", "logdb_spark_source")
_INSTALL_SECONDS_MAX = 600


class Failed(Exception):
    """A program ended with an error: the end of what it said is in the message."""


def _packages(spark: str) -> tuple[str, ...]:
    return (f"pyspark=={spark}", *_PACKAGES)


def _directory(spark: str) -> Path:
    """Other packages have another place."""
    return CACHE / f"spark-{hashlib.sha256(repr((_packages(spark), sys.version)).encode()).hexdigest()[:8]}"


def python(spark: str = KAFKA_SOURCE) -> str:
    """The interpreter of an environment."""
    return str(_directory(spark) / "bin" / "python")


@functools.cache
def missing(spark: str = KAFKA_SOURCE) -> str | None:
    """Why it is not there; None if it is.  Made at the first call, by one process at a time."""
    if shutil.which("java") is None:
        return "there is no java"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "spark.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return None if (_directory(spark) / "made").exists() else _make(spark)


def _make(spark: str) -> str | None:
    directory = _directory(spark)
    shutil.rmtree(directory, ignore_errors=True)
    venv.create(directory)
    # --no-compile: most of 5,000 modules are never imported; Python compiles the others once
    flags = ["--python", python(spark), "install", "-q", "--disable-pip-version-check", "--no-compile"]
    reason = failure([sys.executable, "-m", "pip", *flags, *_packages(spark)], _INSTALL_SECONDS_MAX)
    reason = reason or failure([python(spark), "-c", f"import {_OF_WORKERS}"], _INSTALL_SECONDS_MAX)
    if reason is None:
        (directory / "made").touch()
    return reason


def run(module: str, request: Any, *, seconds_max: float = 300) -> Any:
    """Run ``python -m module`` there, with ``request`` as JSON on its standard input; returns the JSON of its last line.

    Raises:
        Failed: It ended with an error.
        subprocess.TimeoutExpired: It did not end in time.
    """
    paths = [str(Path(__file__).parents[3]), *_source_paths()]
    done = subprocess.run(
        [python(), "-m", module],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds_max,
        env=os.environ | {"PYSPARK_PYTHON": python(), "PYTHONPATH": ":".join(paths), "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    if done.returncode:
        raise Failed(f"{module}: {done.stderr.strip()[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def _source_paths() -> list[str]:
    """Where the project's packages are imported from here: there it is the same."""
    specs = [importlib.util.find_spec(name) for name in _SOURCES]
    return [str(Path(spec.origin).parents[1]) for spec in specs if spec is not None and spec.origin is not None]
