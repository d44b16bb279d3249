"""``logdb transactions``: list and describe transactional ids, abort open transactions.

Reading works beside a process that writes.  Aborting needs the directory for itself (opening it already aborts transactions whose
process is gone), or goes through its server.
"""

import contextlib
from collections.abc import Sequence

import click

from logdb.cli.terminal.actions import names
from logdb.cli.terminal.output import counted, emit, say, table, time_text
from logdb.cli.terminal.session import Session, common, pass_session
from logdb.errors import InvalidTransactionState
from logdb.requests.transactions import TransactionInfo


def described(info: TransactionInfo) -> dict[str, object]:
    """One transactional id as JSON."""
    return {
        "transactional_id": info.transactional_id,
        "state": info.state,
        "producer_id": info.producer.producer_id,
        "producer_epoch": info.producer.producer_epoch,
        "timeout_ms": info.timeout_ms,
        "start_ms": None if info.start_ms < 0 else info.start_ms,
        "partitions": [str(partition) for partition in info.partitions],
    }


@click.group(short_help="List, describe and abort transactions.", invoke_without_command=True)
@common
@click.pass_context
def transactions(context: click.Context) -> None:
    """List, describe and abort transactions."""
    if context.invoked_subcommand is None:
        context.invoke(list_transactions)


@transactions.command("list")
@common
@click.option("--open", "only_open", is_flag=True, help="Only those with an open transaction.")
@pass_session
def list_transactions(session: Session, only_open: bool = False) -> None:
    """List transactional ids with the state of their last transaction."""
    with session.read() as db:
        found = [info for info in db.transactions() if not only_open or info.partitions]
    if session.as_json:
        emit([described(info) for info in found])
    elif found:
        table(
            ("TRANSACTIONAL-ID", "STATE", "PRODUCER-ID", "EPOCH", "PARTITIONS"),
            [(info.transactional_id, info.state, *info.producer, len(info.partitions)) for info in found],
        )
    else:
        say("no transaction is open" if only_open else "no transactions yet")


@transactions.command(short_help="Show the partitions of open transactions.")
@common
@names("[ID]...", "--transactional-id")
@pass_session
def describe(session: Session, names: Sequence[str]) -> None:
    """Show transactional ids with the partitions of open transactions; without names, all."""
    with session.read() as db:
        wanted = names or [info.transactional_id for info in db.transactions()]
        found = [db.describe_transaction(name) for name in wanted]
    if session.as_json:
        emit([described(info) for info in found])
        return
    rows = []
    for info in found:
        partitions = " ".join(map(str, info.partitions)) or "-"
        rows.append((info.transactional_id, info.state, *info.producer, info.timeout_ms, time_text(info.start_ms), partitions))
    table(("TRANSACTIONAL-ID", "STATE", "PRODUCER-ID", "EPOCH", "TIMEOUT-MS", "START", "PARTITIONS"), rows)


@transactions.command(short_help="Abort open transactions; shows them first.")
@common
@names("ID...", "--transactional-id")
@click.option("--yes", "--execute", "execute", is_flag=True, help="Abort; otherwise only show them.")
@pass_session
def abort(session: Session, names: Sequence[str], execute: bool) -> None:
    """Abort the open transaction of transactional ids, and fence their producers; shows them first, aborts with --yes."""
    with session.read() as db:
        before = [db.describe_transaction(name) for name in names]
    for info in before:
        if not info.partitions:
            raise InvalidTransactionState(f"transactional id {info.transactional_id!r} is {info.state}: there is nothing to abort")
    after = before
    if execute:
        with session.write() as db:
            for name in names:
                with contextlib.suppress(InvalidTransactionState):  # opening the directory has already aborted it
                    db.abort_transaction(name)
            after = [db.describe_transaction(name) for name in names]
    if session.as_json:
        emit({"executed": execute, "transactions": [described(info) for info in after]})
        return
    for info, now in zip(before, after, strict=True):
        where = counted(len(info.partitions), "partition")
        words = f"is {now.state}" if execute else f"is {info.state} on {where}: would be aborted"
        say(f"transactional id {info.transactional_id!r} {words}")
    if not execute:
        say("nothing was done; --yes aborts")
