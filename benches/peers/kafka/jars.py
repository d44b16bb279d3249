"""Kafka's jars, fetched from Maven Central once, for the benches and for tests/compat.

Knows java, javac, mvn and the pom.xml beside it.  Does not know what the jars are for.
"""

import fcntl
import functools
import hashlib
import shutil
import subprocess
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "kafka"
_POM = Path(__file__).parent / "pom.xml"
JARS = CACHE / f"jars-{hashlib.sha256(_POM.read_bytes()).hexdigest()[:8]}"  # another pom, another directory


@functools.cache
def missing() -> str | None:
    """Why Kafka cannot run here; None if it can.  Fetches the jars at the first call, one process at a time."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            return f"there is no {tool}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return None if JARS.exists() else _fetch()


def _fetch() -> str | None:
    """What went wrong; the jars get their name when all of them are there."""
    part = CACHE / "jars.part"
    shutil.rmtree(part, ignore_errors=True)
    command = ["mvn", "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies", f"-DoutputDirectory={part}"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=200)
    except subprocess.TimeoutExpired as error:
        return f"mvn took more than {error.timeout:.0f} s"
    except subprocess.CalledProcessError as error:
        return f"mvn failed: {(error.stderr or error.stdout).strip()[:200]}"
    part.rename(JARS)
    return None
