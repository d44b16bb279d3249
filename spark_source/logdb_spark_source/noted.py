"""What a sink notes beside its staged files: the last batch of a query that it has committed.

Knows a small file for each query.  Does not know databases.

What counts is the offset that the database holds, which is committed with the records.  The note is compared with it, so
that a database that has forgotten it (another one in its place, an older backup, a group that expired or was deleted) is
noticed.  It is written after the commit, and not synced: it may lag behind, and is never ahead.

    <name>.last     {"batch": 7}
"""

import json
import os
import uuid
from urllib.parse import quote

from logdb_spark_source.staging import SUFFIX, make_directory, named_errors, remove

NOTHING = -1
"""As a batch id: none is known."""


def last(directory: str, name: str) -> int:
    """The last batch that is noted; a note that cannot be read is none."""
    try:
        with open(path(directory, name), "rb") as file:
            return int(json.load(file)["batch"])
    except (OSError, ValueError, KeyError, TypeError):
        return NOTHING


def note(directory: str, name: str, batch_id: int) -> None:
    """Note that ``batch_id`` is committed.

    Raises:
        DiskFull, WriteFailed: as they say; the note before is still there.
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
    """The file of a query's note."""
    return os.path.join(directory, f"{quote(name, safe='')}.last")
