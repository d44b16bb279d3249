"""The driver of a connector on Spark: a process of its own, which the worker starts, in a process group of its own.

Standard input: a line of JSON, the job; later ``stop``.  Its end is the end of the worker: the driver then kills its group, with the
JVM, so that no query lives on beside the one of another worker.

Standard output: lines of JSON.  ``{"started": ID}``, ``{"batch": N, "rows": N, "offsets": TEXT}``, ``{"failed": TRACE}``.  Errors and
the log of Spark go to the standard error.

State: ``job`` and ``asked`` are set before the program of ``query`` runs.
"""

import json
import os
import signal
import sys
import threading
from typing import Any

from logdb.announced import announced

job: dict[str, Any] = {}
"""The job of this process."""
asked = threading.Event()
"""The worker has said stop."""
HADOOP = "spark.hadoop."
"""Begin of properties of file systems, some of them secret: ``query`` sets them in the session."""
_messages = 1


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
    config = {name: text for name, text in job["conf"].items() if not name.startswith(HADOOP)}  # others see the arguments of a process
    failure = run(program, [], master=job["master"], config=config)
    if failure is not None:
        tell(failed=failure)


def _listen() -> None:
    if sys.stdin.readline().strip() == "stop":
        asked.set()
        sys.stdin.readline()
    os.killpg(0, signal.SIGKILL)
