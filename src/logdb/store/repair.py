"""``repair``: makes a damaged database whole again, and loses nothing that is good.

Knows what to do about what ``verify`` finds.  Needs the directory for itself.

    catalogue lost or damaged    made anew from what of it can be read, the directories and ``topic.json``; the old one stays as
                                 ``catalogue.damaged-<n>``
    damage in a segment          ``mend``: headers put right, the rest set aside, its offsets taken by an empty batch
    files that are missing       segments: an empty batch in their place; the others are made anew from what is left

The order of the steps, so that being killed between any two of them leaves a database that the
next repair makes whole: a damaged catalogue is replaced first, ``LOCK`` then says that a writer is
in there, segments are replaced one by one (their old bytes, where damaged, saved before), then the small
files, then the catalogue learns the result, and only where the last writer had closed cleanly does ``LOCK``
say so again; otherwise the next opening recovers, as it would have.
"""

import os
from collections.abc import Sequence

from logdb.errors import DirectoryLocked, UnsupportedFormat
from logdb.io import IO
from logdb.meta import Catalogue, file_checksum
from logdb.store import lock
from logdb.store.census import Census
from logdb.store.partition_repair import PartitionRepair
from logdb.store.report import Progress, Report
from logdb.store.verify import Verifier

_TMP = "catalogue.tmp"


def repair(path: str | os.PathLike[str], *, execute: bool = False, io: IO | None = None, progress: Progress | None = None) -> Report:
    """Find out what is wrong with a database, and put it right.

    Args:
        path: The database's directory; nobody may be writing to it.
        execute: Do it.  Otherwise nothing is changed, and the report says what would be done.
        io: What touches files; for tests.
        progress: Called now and then with bytes done, bytes in all, and what is being looked at.

    Returns:
        ``verify``'s report of what was found, and what was or would be done about it.

    Raises:
        NotADatabase: Nothing of a database is there.
        DirectoryLocked: Someone writes to it.
        UnsupportedFormat: A newer logdb wrote it; only that one may repair it.
        DiskFull, WriteFailed, SyncFailed: It could not be finished; run it again.
    """
