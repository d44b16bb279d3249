"""The note beside a sink's staged files: the last batch of a query that the sink has committed.

The offset in the database counts, which is committed with the records.  The note is compared with it to detect a database that has
lost it (another database, an older backup, a group that expired or was deleted).  The note is written after the commit, and not
synced: it may be older than the commit, never newer.

    <name>.last     {"batch": 7}
"""

import json
import os
import uuid
from urllib.parse import quote

from logdb_spark_source.staging import SUFFIX, make_directory, named_errors, remove

NOTHING = -1
"""As a batch id: none."""


def last(directory: str, name: str) -> int:
    """The last noted batch; an unreadable note counts as none."""
    try:
        with open(path(directory, name), "rb") as file:
            return int(json.load(file)["batch"])
    except (OSError, ValueError, KeyError, TypeError):
        return NOTHING


def note(directory: str, name: str, batch_id: int) -> None:
    """Note that ``batch_id`` is committed.

    Raises:
        DiskFull, WriteFailed: see ``logdb.errors``; the former note is unchanged.
    """
    where, unfinished = path(directory, name), os.path.join(directory, uuid.uuid4().hex + SUFFIX)
    with named_errors(where):
        make_directory(directory)
        try:
            with open(unfinished, "w", encoding="ascii") as file:
                json.dump({"batch": batch_id}, file)
            os.replace(unfinished, where)
        except OSError:
            remove(unfinished)
            raise


def path(directory: str, name: str) -> str:
    """The path of a query's note."""
    return os.path.join(directory, f"{quote(name, safe='')}.last")
