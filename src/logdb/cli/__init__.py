"""The ``logdb`` command: what a shell can do with a database.

Knows arguments, tables, JSON and exit codes.  Does not know file formats, but
for ``dump``, which reads files without opening a database.

Exit codes: 0 done; 1 failed, or damage found; 2 a wrong or refused call; 130 Ctrl-C; 143 SIGTERM, but 0 from what
runs until it is stopped (``serve``, ``--follow``).
Data goes to stdout, words to stderr.
"""

import gc
import signal
import sys

_GC_COUNT = 50_000  # imports and records make many objects and few cycles: Python's own 700 costs a twelfth of the time

# Called by the name of one of Kafka's tools (with or without .sh), the command
# behaves as that tool does: the same flags, defaults and output.
KAFKA_TOOLS = {
    "kafka-topics": "topics",
    "kafka-console-producer": "produce",
    "kafka-console-consumer": "consume",
    "kafka-get-offsets": "offsets",
    "kafka-consumer-groups": "groups",
    "kafka-transactions": "transactions",
    "kafka-log-dirs": "log-dirs",
    "kafka-configs": "configs",
    "kafka-acls": "acls",
    "kafka-dump-log": "dump",
    "kafka-delete-records": "delete-records",
}


def main() -> None:
    """Run the command of ``sys.argv``, and exit; what the script ``logdb`` calls."""
    gc.set_threshold(_GC_COUNT)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is open yet: end at once, without a word (``app.run`` takes over)
    try:
        from logdb.cli import app
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        from logdb.errors import missing_package

        print(f"logdb: {missing_package('the command', error.name)}", file=sys.stderr)
        sys.exit(1)
    app.run(sys.argv)
