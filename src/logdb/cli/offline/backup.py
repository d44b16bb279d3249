"""``logdb snapshot``, ``logdb backup`` and ``logdb restore``: copies of a database."""

import contextlib
from collections.abc import Callable, Sequence

import click

import logdb
from logdb.cli.terminal.descriptors import take_descriptors
from logdb.cli.terminal.output import counted, emit, progress, say, size_text
from logdb.cli.terminal.params import TARGET
from logdb.cli.terminal.session import Session, common, here, pass_session
from logdb.errors import CloseIncomplete, DirectoryLocked, DiskFull, ReadOnly


def made(session: Session, make: "Callable[[logdb.Database], logdb.Copied]", *, beside: bool = False) -> "logdb.Copied":
    """Call ``make`` with the database open for reading, so that a process may open it for writing meanwhile.

    If a crash left the database, it is opened for writing first, which recovers it.  On a full disk it may not be closed cleanly, and
    readers refuse it still: then it stays open for writing during ``make``.

    Args:
        beside: ``make`` works beside a writer.
    """
    for is_recovered in (False, True):
        try:
            with session.read() as db:
                return make(db)
        except ReadOnly as error:
            refusal = error
        if not is_recovered:
            try:
                with contextlib.suppress(CloseIncomplete, DirectoryLocked), session.write():  # another process has recovered it
                    pass
            except ReadOnly:  # a node's directory, a file system that takes no writes
                raise refusal from None
    try:
        return _made_by_writer(session, make, beside=beside)
    except DirectoryLocked:
        raise refusal from None


def _made_by_writer(session: Session, make: "Callable[[logdb.Database], logdb.Copied]", *, beside: bool) -> "logdb.Copied":
    with contextlib.ExitStack() as opened:
        opened.enter_context(contextlib.suppress(CloseIncomplete))  # nothing was appended
        db = opened.enter_context(session.write())
        if beside:  # it writes nothing; the writer would seal segments
            db = opened.enter_context(session.read())
        try:
            return make(db)
        except DiskFull as error:
            raise DiskFull(error.path, error.size_bytes, f"{error.reason}; nothing was copied") from error


def show(session: Session, what: str, done: "logdb.Copied", **more: object) -> None:
    if session.as_json:
        sizes = {"partitions": done.partition_count, "size_bytes": done.size_bytes, "written_bytes": done.written_bytes}
        emit({"path": done.path, "id": done.id, **sizes, **more})
    else:
        say(f"{what} {done.path}: {counted(done.partition_count, 'partition')}, {size_text(done.size_bytes)}")


@click.command(short_help="Make a frozen copy in a directory, by links.")
@common
@click.argument("directory", metavar="DIR", type=TARGET)
@pass_session
def snapshot(session: Session, directory: str) -> None:
    """Make a frozen copy of the database in DIR, which must be missing or empty.

    On the same disk sealed segments are linked: that takes a moment and hardly any space.  On another disk
    they are copied.  The copy is read-only: logdb --data-dir DIR consume ...  'logdb restore' makes a writable
    database from it.

    While a process has the database open for writing, only that process can make a snapshot: db.snapshot(DIR).
    'logdb backup' works beside it.  Through a server (-b URL) the files come over the network.
    """
    with progress("copying") as bar:
        done = made(session, lambda db: db.snapshot(directory, progress=bar))
    show(session, "snapshot", done)


@click.command(short_help="Write the database into one file.")
@common
@click.argument("file", type=TARGET)
@click.option(
    "--base", metavar="FILE", type=click.Path(exists=True, dir_okay=False), help="An earlier backup: write only the changes since."
)
@pass_session
def backup(session: Session, file: str, base: str | None) -> None:
    """Write the database, or a snapshot, into the new FILE: compressed, with checksums.

    With --base, FILE has only the changes since an earlier backup; a restore needs both.

    Another process may write to the database meanwhile.  The backup has the records that
    process has written to its files; records in its memory are missing.  Through a server (-b URL) the backup comes over the network.
    """
    take_descriptors()
    with progress("backing up") as bar:
        done = made(session, lambda db: db.backup(file, base=base, progress=bar), beside=True)
    show(session, "backup", done, base=base)
    if not session.as_json:
        say(f"{size_text(done.written_bytes)} written" + (f"; a restore needs {base}, too" if base else ""))


@click.command(short_help="Make a database from a backup or a snapshot.")
@here
@click.argument("sources", metavar="FILE...", nargs=-1, required=True, type=click.Path(exists=True))
@click.argument("directory", metavar="DIR", type=TARGET)
@pass_session
def restore(session: Session, sources: Sequence[str], directory: str) -> None:
    """Make a database in DIR, which must be missing or empty.

    FILE is a backup, or the directory of a snapshot.  For an incremental backup give all files of the chain,
    in any order.  Every byte is checked.  If a byte is damaged, DIR stays as it was.
    """
    session.refuse_servers("restore makes a directory; 'logdb serve' serves it")
    with progress("restoring") as bar:
        done = logdb.restore(sources, directory, progress=bar)
    show(session, "restored", done)
