"""kafka-transactions: its subcommands, their flags, and the tables that it prints.

``logdb transactions`` has verbs of its own.  A transaction hangs if no coordinator has it; one that a coordinator has is not aborted on one
partition alone.

Source: Kafka's TransactionsCommand, 4.3.
"""

import re
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

import click

from logdb.cli.kafka.coordinators import coordinator_id
from logdb.cli.terminal.output import emit, line, say
from logdb.cli.terminal.params import TOPIC
from logdb.cli.terminal.servers import REQUEST_TIMEOUT_MS
from logdb.cli.terminal.session import Session, common, pass_session
from logdb.model import INTERNAL_TOPICS, MIRROR_OF, TopicPartition

if TYPE_CHECKING:
    import logdb
    from logdb.log.producers import Producer
    from logdb.log.protocols import ReplicaLog
    from logdb.requests.transactions import TransactionInfo

_TOO_FEW = """\
usage: kafka-transactions.sh [-h] [-v] [--command-config FILE]
                             --bootstrap-server host:port COMMAND ...
kafka-transactions.sh: error: too few arguments"""
_OF_A_MIRROR = "the transaction of producer {id} on {where} ends by its source's marker, or once the topic is a mirror no more"
_HAS_COORDINATOR = (
    "the transaction of producer {id} on {where} does not hang: transactional id {owner!r} has it, and would not know that a part of it is "
    "aborted; 'forceTerminateTransaction --transactionalId {owner}' aborts all of it"
)


# ---------------------------------------------------------------- what several subcommands do


def _show(session: Session, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns filled with spaces, a tab behind each; numbers and texts as JSON."""
    if session.as_json:
        emit([dict(zip(columns, row, strict=True)) for row in rows])
        return
    texts = [list(columns), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        line("".join(f"{text.ljust(width)}\t" for text, width in zip(row, widths, strict=True)))


def _now_ms() -> int:
    return round(time.time() * 1000)


def _coordinators(db: "logdb.Database", names: Iterable[str]) -> list[int]:
    nodes = db._session.cluster_nodes()
    return [coordinator_id(nodes, INTERNAL_TOPICS[1], name) for name in names]


def _producers(db: "logdb.Database", where: TopicPartition) -> "list[Producer]":
    """The producers of a partition, as its leader has them."""
    return cast("ReplicaLog", db._session.log(*where)).producers()  # a log behind a URL has this method, too


def _owner(infos: "Iterable[TransactionInfo]", producer_id: int, where: TopicPartition) -> str | None:
    """The transactional id whose transaction has the partition as a part; None: the transaction hangs."""
    return next((info.transactional_id for info in infos if info.producer.producer_id == producer_id and where in info.partitions), None)


# ---------------------------------------------------------------- the subcommands


@click.group("kafka-transactions", invoke_without_command=True)
@common
@click.version_option(None, "-v", "--version", package_name="logdb", message="logdb %(version)s")
@click.pass_context
def kafka_transactions(context: click.Context) -> None:
    """Analyze the transactional state of producers."""
    if context.invoked_subcommand is None:
        say(*_TOO_FEW.splitlines())
        context.exit(1)


@kafka_transactions.command("list")
@common
@click.option("--duration-filter", type=int, default=-1, help="Only transactions that run longer than N ms; below 0: all.")
@click.option("--transactional-id-pattern", default="", help="Only transactional ids that the regular expression matches.")
@pass_session
def list_transactions(session: Session, duration_filter: int, transactional_id_pattern: str) -> None:
    """List transactions."""
    try:
        pattern = re.compile(transactional_id_pattern or ".*", re.DOTALL)
    except re.error as error:
        raise click.ClickException(f"--transactional-id-pattern {transactional_id_pattern!r} is no regular expression: {error}") from None
    with session.read() as db:
        begun_ms = _now_ms() - duration_filter
        found = [
            info
            for info in db.transactions()
            if pattern.fullmatch(info.transactional_id) and (duration_filter < 0 or 0 <= info.start_ms < begun_ms)
        ]
        coordinators = _coordinators(db, (info.transactional_id for info in found))
    rows = [
        (info.transactional_id, coordinator, info.producer.producer_id, info.state)
        for info, coordinator in zip(found, coordinators, strict=True)
    ]
    _show(session, ("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), rows)


@kafka_transactions.command()
@common
@click.option("--transactional-id", required=True)
@pass_session
def describe(session: Session, transactional_id: str) -> None:
    """Describe the state of an active transactional-id."""
    with session.read() as db:
        info, (coordinator,) = db.describe_transaction(transactional_id), _coordinators(db, [transactional_id])
    columns = (
        *("CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs"),
        *("CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions"),
    )
    times = ("None", "None") if info.start_ms < 0 else (info.start_ms, _now_ms() - info.start_ms)
    partitions = ",".join(map(str, info.partitions))
    _show(session, columns, [(coordinator, transactional_id, *info.producer, info.state, info.timeout_ms, *times, partitions)])


@kafka_transactions.command("describe-producers")
@common
@click.option("--broker-id", type=int, help="The broker to ask: the partition's leader.")
@click.option("--topic", type=TOPIC, required=True)
@click.option("--partition", type=click.IntRange(min=0), required=True)
@pass_session
def describe_producers(session: Session, broker_id: int | None, topic: str, partition: int) -> None:
    """Describe the states of active producers for a topic partition."""
    where = TopicPartition(topic, partition)
    with session.read() as db:
        found = _producers(db, where)
        leader = db.describe_topic(topic).partitions[partition].leader
    if broker_id not in {None, leader}:
        raise click.ClickException(f"broker {broker_id} does not lead {where}: only its leader is asked; leave --broker-id out")
    columns = ("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp", "CurrentTransactionStartOffset")
    rows = [
        (
            *(one.producer_id, one.epoch, one.coordinator_epoch),
            one.batches[-1].last_sequence if one.batches else -1,
            one.timestamp_ms,
            "None" if one.first_offset < 0 else one.first_offset,
        )
        for one in found
    ]
    _show(session, columns, rows)


@kafka_transactions.command()
@common
@click.option("--topic", type=TOPIC, required=True)
@click.option("--partition", type=click.IntRange(min=0), required=True)
@click.option("--start-offset", type=int, help="The first offset of the transaction.")
@click.option("--producer-id", type=int, help="Or its producer, with the two epochs.")
@click.option("--producer-epoch", type=int)
@click.option("--coordinator-epoch", type=int)
@pass_session
def abort(
    session: Session,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> None:
    """Abort a hanging transaction; all of its topic are ended."""
    if start_offset is None and producer_id is None:
        raise click.ClickException(
            "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) or with "
            "--producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
        )
    for flag, value in (("--producer-epoch", producer_epoch), ("--coordinator-epoch", coordinator_epoch)):
        if start_offset is None and value is None:
            raise click.ClickException(f"Missing required argument {flag}")
    where = TopicPartition(topic, partition)
    with session.read() as db:
        opened = [one for one in _producers(db, where) if one.first_offset >= 0]
        infos = db.transactions()
    if start_offset is None:
        found, which = (
            [one for one in opened if (one.producer_id, one.epoch) == (producer_id, producer_epoch)],
            f"of producer {producer_id}",
        )
    else:
        found, which = [one for one in opened if one.first_offset == start_offset], f"starting at offset {start_offset}"
    if not found:
        raise click.ClickException(f"Could not find any open transactions {which} on partition {where}")
    if (owner := _owner(infos, found[0].producer_id, where)) is not None:
        raise click.ClickException(_HAS_COORDINATOR.format(id=found[0].producer_id, where=where, owner=owner))
    with session.write() as db:
        if db.describe_topic(topic).config.get(MIRROR_OF):
            raise click.ClickException(_OF_A_MIRROR.format(id=found[0].producer_id, where=where))
        db.alter_topic(topic, config={MIRROR_OF: None})  # as of one that was a mirror: leaders end the transactions that no coordinator has


@kafka_transactions.command("find-hanging")
@common
@click.option("--broker-id", type=int, help="Only partitions with a replica there.")
@click.option("--max-transaction-timeout", type=int, default=15, help="Only producers that have appended nothing for N minutes.")
@click.option("--topic", type=TOPIC)
@click.option("--partition", type=click.IntRange(min=0))
@pass_session
def find_hanging(session: Session, broker_id: int | None, max_transaction_timeout: int, topic: str | None, partition: int | None) -> None:
    """Find hanging transactions."""
    if topic is None and broker_id is None:
        raise click.ClickException("The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search")
    if topic is None and partition is not None:
        raise click.ClickException("The --partition argument requires --topic to be provided")
    with session.read() as db:
        candidates = [
            (where, one)
            for where in _searched(db, topic, partition, broker_id)
            for one in _producers(db, where)
            if one.first_offset >= 0 and _now_ms() - one.timestamp_ms > max_transaction_timeout * 60_000
        ]
        infos = db.transactions()  # behind the candidates: a coordinator has a transaction before a partition does
    columns = ("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp", "Duration(min)")
    rows = [
        (
            *(*where, one.producer_id, one.epoch, one.coordinator_epoch, one.first_offset, one.timestamp_ms),
            (_now_ms() - one.timestamp_ms) // 60_000,
        )
        for where, one in candidates
        if _owner(infos, one.producer_id, where) is None
    ]
    _show(session, columns, rows)


def _searched(db: "logdb.Database", topic: str | None, partition: int | None, broker_id: int | None) -> list[TopicPartition]:
    """The partitions that ``find-hanging`` looks at; one that is named is looked at wherever it is."""
    if topic is not None and partition is not None:
        return [TopicPartition(topic, partition)]
    topics = [topic] if topic is not None else [one.name for one in db.topics()]
    described = ((name, one) for name in topics for one in db.describe_topic(name).partitions)
    return [TopicPartition(name, one.partition) for name, one in described if broker_id is None or broker_id in one.replicas]


@kafka_transactions.command("forceTerminateTransaction")
@common
@click.option("--transactionalId", "transactional_id", required=True)
@pass_session
def force_terminate(session: Session, transactional_id: str) -> None:
    """Force abort an ongoing transaction on transactionalId."""
    with session.write() as db:
        # as Kafka's tool does it: what is open is aborted, and its producer fenced
        db._session.init_producer_id(transactional_id, transaction_timeout_ms=REQUEST_TIMEOUT_MS)
