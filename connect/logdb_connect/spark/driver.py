"""The driver of a connector on Spark: a process of its own, which the worker starts, in a process group of its own.

Standard input: a line of JSON, the job; later ``stop``.  Its end is the end of the worker: the driver then kills its group, with the
JVM, so that no query lives on beside the one of another worker.

Standard output: lines of JSON.  ``{"started": ID}``, ``{"batch": N, "rows": N, "offsets": TEXT}``, ``{"failed": TRACE}``.  Errors and
the log of Spark go to the standard error.

State: ``job`` and ``asked`` are set before the program of ``query`` runs.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping
from typing import Any

from logdb.announced import announced

job: dict[str, Any] = {}
"""The job of this process."""
asked = threading.Event()
"""The worker has said stop."""
HADOOP = "spark.hadoop."
"""Begin of properties of file systems, some of them secret: ``query`` sets them in the session."""
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_messages = 1
_private: str | None = None


def tell(**message: Any) -> None:
    """A message to the worker."""
    os.write(_messages, json.dumps(message).encode() + b"\n")


def main() -> None:
    """Run the query with a session of Spark."""
    global _messages  # noqa: PLW0603 -- prints of others must not come between messages
    _messages = os.dup(1)
    os.dup2(2, 1)
    job.update(json.loads(sys.stdin.readline()))
    threading.Thread(target=_listen, daemon=True).start()
    run = announced("logdb.spark")["run"].load()
    program = os.path.join(os.path.dirname(__file__), "query.py")
    given = {name: text for name, text in job["conf"].items() if not name.startswith(HADOOP)}
    keep_private({name: given.pop(name) for name in job["private"] if name in given}, job["directory"])
    try:
        failure = run(program, [], master=job["master"], config=given)
    finally:
        forget_private()
    if failure is not None:
        tell(failed=failure)


def keep_private(settings: Mapping[str, str], directory: str) -> None:
    """Have Spark read these from a file of this user alone, until ``forget_private``: anybody sees the arguments of a process.

    Args:
        directory: Of the file.  The worker made it, and deletes it if this process is killed.
    """
    global _private
    if not settings:
        return
    descriptor, _private = tempfile.mkstemp(suffix=".conf", dir=directory)  # with the mode 0600
    with open(descriptor, "w", encoding="ascii") as file:
        file.writelines(f"{_escaped(name)}={_escaped(text)}\n" for name, text in settings.items())
    others = os.environ.get(_ARGUMENTS, "pyspark-shell")
    os.environ[_ARGUMENTS] = f"--properties-file {shlex.quote(_private)} --load-spark-defaults {others}"


def forget_private() -> None:
    """The session has read the file."""
    if _private is not None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_private)


def _escaped(text: str) -> str:
    """As a Java property file has it."""
    units = text.encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(code) if chr(code).isalnum() and code < 128 else f"\\u{code:04x}" for code in codes)


def _listen() -> None:
    if sys.stdin.readline().strip() == "stop":
        asked.set()
        sys.stdin.readline()
    shutil.rmtree(job["directory"], ignore_errors=True)  # a worker that was killed leaves it
    os.killpg(0, signal.SIGKILL)
