"""The driver of a connector on Spark: a process of its own, which the worker starts.

Standard input: a line of JSON, the job; later ``stop``.  Its end is the end of the worker: the driver ends at once.  Standard output: lines
of JSON.  ``{"started": ID}``, ``{"batch": N, "rows": N, "offsets": TEXT}``, ``{"failed": TRACE, "retriable": BOOL}``.  Errors and the
log of Spark go to the standard error.
"""

import json
import os
import sys
from typing import Any

from logdb.announced import announced

job: dict[str, Any] = {}
"""The job of this process."""


def tell(**message: Any) -> None:
    """A message to the worker."""
    os.write(_to_worker, json.dumps(message).encode() + b"\n")


_to_worker = 1


def main() -> None:
    """Run the query with a session of Spark."""
    global _to_worker  # noqa: PLW0603 -- prints of others must not come between messages
    _to_worker = os.dup(1)
    os.dup2(2, 1)
    job.update(json.loads(sys.stdin.readline()))
    run = announced("logdb.spark")["run"].load()
    program = os.path.join(os.path.dirname(__file__), "query.py")
    failure = run(program, [], master=job["master"], config=job["conf"])
    if failure is not None:
        tell(failed=failure, retriable=False)
