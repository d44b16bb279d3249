"""One Spark session for all tests of a worker: ``support.order`` gives all of ``integration/spark`` to one."""

import contextlib
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyspark.errors import StreamingQueryException

from benches.peers import SHORT_LIVED
from logdb_spark_source import session
from support.serving import Where, served

T = TypeVar("T")

JAVA_OPTIONS = " ".join(SHORT_LIVED)

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.log.level": "ERROR",
    "spark.python.authenticate.socketTimeout": "300s",  # a slow machine is no failure
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session; two tasks at a time: here, or with ``--spark-machines`` on two machines that share nothing with this one."""
    with contextlib.ExitStack() as around:
        around.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # PySpark's own: pandas is too new for it, sockets it leaves to the collector
        master, config = "local[2]", SETTINGS
        if request.config.getoption("--spark-machines"):
            from support.spark_cluster import machines

            cluster = around.enter_context(machines(tmp_path_factory.mktemp("machines") / "cluster"))
            around.enter_context(pytest.MonkeyPatch.context()).setattr(Where, "host", cluster.driver)
            master, config = cluster.address, SETTINGS | cluster.settings
        started = session(master, config=config)
        yield started
        started.stop()


SLOW = "Python worker failed to connect back"
"""What Spark says where a Python process takes more than the ten seconds to start that it is given: the machine is busy."""


def until_started(run: Callable[[], T]) -> T:
    """Run a query, again where Spark gave up on a Python process before it had started; nothing was done then."""
    while True:
        try:
            return run()
        except StreamingQueryException as error:
            if SLOW not in str(error):
                raise


@contextlib.contextmanager
def options_of(place: str, path: Path) -> Iterator[dict[str, str]]:
    """How a database is named to Spark: as a directory, as a snapshot of it, or as a URL where this process serves it.

    The database is to be closed.
    """
    if place == "url":
        with served(path) as server:
            yield {"url": server.url}
    elif place == "snapshot":
        import logdb

        with logdb.open(path) as database:
            database.snapshot(path.with_name("snapshot"))
        yield {"path": str(path.with_name("snapshot"))}
    else:
        yield {"path": str(path)}


def batch_count(checkpoint: Path) -> int:
    """How many batches Spark knows to be done: it keeps the commits of the last hundred only."""
    commits = checkpoint / "commits"
    return 1 + max((int(one.name) for one in commits.iterdir() if one.name.isdecimal()), default=-1) if commits.is_dir() else 0


def program(source: str, *arguments: object, **options: Any) -> "subprocess.Popen[str]":
    """A Python program of its own, in a process group of its own."""
    command: Sequence[str] = [sys.executable, "-c", source, *map(str, arguments)]
    return subprocess.Popen(command, start_new_session=True, text=True, **options)
