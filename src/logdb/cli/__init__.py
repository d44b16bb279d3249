"""The ``logdb`` command: a database from the shell.

Parses arguments, and prints tables, JSON and exit codes.  Verbs call the public API; only ``dump`` reads files by itself.

Exit codes: 0 done; 1 failed, or damage found; 2 a wrong or refused call; 130 Ctrl-C; 143 SIGTERM, but 0 from a call that
runs until it is stopped (``serve``, ``--follow``).
Data goes to stdout, messages to stderr.

``app`` knows each command's module and imports it when the command is called.  The rooms:

- ``terminal``: what every command talks through: options, session, output; no command is here
- ``kafka``: what plays Kafka's tools and kcat: names, flags, formats, output
- ``records``: produce, consume, import, export, offsets
- ``topics``: topics, configs, sizes, retention, compaction, tables
- ``groups``: groups and transactions
- ``access``: users, ACLs, tokens
- ``offline``: check, repair, dump and copy the files of a directory
- ``serving``: serve and its settings
- ``clusters``: nodes, replicas, the mirror of a cluster
- ``tools``: bench, completion, help, and what starts Connect and Spark

A room imports ``kafka`` and ``terminal``, never another room of commands.
"""

import gc
import signal
import sys

_GC_COUNT = 50_000  # imports and records make many objects and few cycles: Python's own 700 costs a twelfth of the time


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
