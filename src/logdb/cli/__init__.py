"""The ``logdb`` command: a database from the shell.

Parses arguments, and prints tables, JSON and exit codes.  Verbs call the public API; only ``dump`` reads files by itself.

Exit codes: 0 done; 1 failed, or damage found; 2 a wrong or refused call; 130 Ctrl-C; 143 SIGTERM, but 0 from a call that
runs until it is stopped (``serve``, ``--follow``).
Data goes to stdout, messages to stderr.
"""

import gc
import signal
import sys

_GC_COUNT = 50_000  # imports and records make many objects and few cycles: Python's own 700 costs a twelfth of the time

# Called by the name of one of Kafka's tools (with or without .sh), or with it as the first argument,
# the command behaves as that tool does: the same flags, defaults and output.
KAFKA_TOOLS = {
    "kafka-topics": "topics",
    "kafka-console-producer": "produce",
    "kafka-console-consumer": "consume",
    "kafka-get-offsets": "offsets",
    "kafka-consumer-groups": "groups",
    "kafka-transactions": "kafka-transactions",
    "kafka-log-dirs": "log-dirs",
    "kafka-configs": "configs",
    "kafka-acls": "acls",
    "kafka-dump-log": "dump",
    "kafka-delete-records": "delete-records",
    "kafka-server-start": "serve",
    "connect-standalone": "connect-standalone",
    "connect-distributed": "connect-distributed",
    "kafka-storage": "kafka-storage",
    "zookeeper-server-start": "zookeeper-server-start",
}


def main() -> None:
    """Run the command of ``sys.argv``, and exit; the entry point of the script ``logdb``."""
    gc.set_threshold(_GC_COUNT)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is open yet: end at once, without a message (later ``app.run`` handles it)
    try:
        from logdb.cli import app
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        from logdb.errors import missing_package

        print(f"logdb: {missing_package('the command', error.name)}", file=sys.stderr)
        sys.exit(1)
    app.run(sys.argv)
