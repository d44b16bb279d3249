"""``logdb verify`` and ``logdb repair``: check every byte, and repair damage."""

import click

import logdb
from logdb.cli.terminal.output import counted, emit, line, progress, say, size_text, table
from logdb.cli.terminal.session import Session, common, here, pass_session
from logdb.requests.report import Progress


def problems_of(report: "logdb.Report") -> list[dict[str, object]]:
    return [{"path": p.path, "position": p.position, "kind": p.kind, "reason": p.reason} for p in report.problems]


def show_problems(report: "logdb.Report") -> None:
    if report.problems:
        rows = [(p.path, "-" if p.position < 0 else p.position, p.kind, p.reason) for p in report.problems]
        table(("FILE", "BYTE", "KIND", "REASON"), rows)
    for note in report.notes:
        say(note)


def checked_text(report: "logdb.Report") -> str:
    return (
        f"checked {counted(report.file_count, 'file')}, {size_text(report.size_bytes)}, "
        f"{counted(report.batch_count, 'batch')}, {counted(report.record_count, 'record')}"
    )


def checked_document(report: "logdb.Report") -> dict[str, int]:
    return {
        "files": report.file_count,
        "size_bytes": report.size_bytes,
        "batches": report.batch_count,
        "records": report.record_count,
    }


def verified(session: Session, bar: Progress | None) -> "logdb.Report":
    """Check the files; a server checks its own."""
    if session.bootstrap is None:
        return logdb.verify(session.place, progress=bar)
    with session.read() as db:
        return db.verify(progress=bar)


@click.command(short_help="Check every byte of a database.")
@common
@pass_session
def verify(session: Session) -> None:
    """Check every batch, index and file of the database; exits with 1 after finding damage.

    It only reads, and works while another process writes.
    """
    with progress("verifying") as bar:
        report = verified(session, bar)
    session.exit_code = 0 if report.ok else 1
    if session.as_json:
        emit({"ok": report.ok, "checked": checked_document(report), "problems": problems_of(report), "notes": report.notes})
        return
    show_problems(report)
    found = "no damage" if report.ok else f"{counted(len(report.problems), 'problem')} found; see 'logdb repair'"
    say(f"{checked_text(report)}: {found}")


@click.command(short_help="Repair damage that verify finds; shows it first.")
@here
@click.option("--execute", "--yes", "execute", is_flag=True, help="Repair; otherwise only show the actions.")
@pass_session
def repair(session: Session, execute: bool) -> None:
    """Rebuild a lost or damaged catalogue and move damaged bytes aside; shows the actions first, takes them with --execute.

    Nothing is deleted: damaged bytes are kept beside the log.  Exits with
    1 if there is something to repair and --execute was not given.
    """
    path = session.directory("repair needs the files of a database that no process has open")
    with progress("repairing" if execute else "looking") as bar:
        report = logdb.repair(path, execute=execute, progress=bar)
    session.exit_code = 1 if report.actions and not execute else 0
    if session.as_json:
        emit({"executed": execute, "actions": list(report.actions), "problems": problems_of(report), "notes": report.notes})
        return
    show_problems(report)
    for action in report.actions:
        line(f"{'did' if execute else 'would'}: {action}")
    if not report.actions:
        say(f"{checked_text(report)}: nothing to repair")
    elif not execute:
        say("nothing was repaired; --execute takes these actions")
