"""``logdb topics``: create, list, describe, alter, delete.

Two forms: verbs (``topics create t -p 3``), and the flags of
kafka-topics (``topics --create --topic t --partitions 3``), which also print
as kafka-topics does.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import click

import logdb
from logdb.cli.terminal.actions import ActionFlags, names
from logdb.cli.terminal.output import counted, emit, heading, line, say, size_text, table
from logdb.cli.terminal.params import CONFIG, CONFIG_KEY, PAIR, TOPIC, Pairs, matching_names
from logdb.cli.terminal.session import Session, common, pass_session
from logdb.cli.terminal.units import Kind, WholeNumber
from logdb.cli.topics.enforce_retention import EXECUTE, may_alter
from logdb.errors import UnknownTopic
from logdb.model import BY_DEFAULT, PartitionInfo, TopicInfo, colliding, in_kafkas_words, in_sync_count_min

Lines = Literal["all", "with overrides", "at min isr", "under min isr", "under replicated", "unavailable"]
"""What ``kafka-topics --describe`` prints: also the heads of topics, the heads of those with configs alone, or some partitions alone."""
_PARTITIONS: Mapping[str, Callable[[PartitionInfo, int], bool]] = {
    "at min isr": lambda partition, least: len(partition.in_sync) == least,
    "under min isr": lambda partition, least: len(partition.in_sync) < least,
    "under replicated": lambda partition, _: len(partition.in_sync) < len(partition.replicas),
    "unavailable": lambda partition, _: partition.leader is None,
}


# ---------------------------------------------------------------- what both ways do


def described(topic: TopicInfo) -> dict[str, object]:
    """One topic as JSON."""
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "partition_count": topic.partition_count,
        "internal": topic.internal,
        "config": dict(topic.config),
        "partitions": [
            {
                "partition": p.partition,
                "start_offset": p.start_offset,
                "end_offset": p.end_offset,
                "size_bytes": p.size_bytes,
                "disk_bytes": p.disk_bytes,
                "segment_count": p.segment_count,
                "leader_epoch": p.leader_epoch,
                "leader": p.leader,
                "replicas": p.replicas,
                "in_sync": p.in_sync,
                "read_only_reason": p.read_only_reason,
            }
            for p in topic.partitions
        ],
    }


class ReplicaAssignment(Kind):
    """The nodes of each partition as kafka-topics takes them: ``1:2,2:3``, the preferred leader first."""

    name = "replica assignment"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Sequence[Sequence[int]]:
        try:
            return [[int(node) for node in nodes.split(":")] for nodes in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r}: must be the nodes of each partition, such as 1:2,2:3", param, ctx)


def on_disk(partition: PartitionInfo) -> int:
    """What the disk holds of a partition; a server of an earlier version says only what its batches take."""
    return partition.size_bytes if partition.disk_bytes is None else partition.disk_bytes


def config_text(config: Mapping[str, object], separator: str = " ") -> str:
    return separator.join(f"{key}={_lower(value)}" for key, value in sorted(config.items()))


def _lower(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def changes(pairs: Pairs, dropped: Sequence[str] = ()) -> dict[str, str | None]:
    """The configs for ``alter_topic``: new values, and None for a key to reset."""
    return {**dict(pairs), **dict.fromkeys(dropped)}


def delete_all(session: Session, names: Sequence[str], *, execute: bool) -> None:
    """Delete topics, or say what would be deleted."""
    if execute:
        with session.write() as db:
            for name in names:
                db.delete_topic(name)
                if not session.kafka:
                    say(f"deleted topic {name}")
        if session.as_json:
            emit({"executed": True, "delete": [{"topic": name} for name in names]})
        return
    with session.read() as db:
        topics = [db.describe_topic(name) for name in names]
    if session.as_json:
        emit({"executed": False, "delete": [described(topic) for topic in topics]})
    for topic in topics:
        records = sum(p.end_offset - p.start_offset for p in topic.partitions)
        size = size_text(sum(p.size_bytes for p in topic.partitions))
        inside = f"{counted(topic.partition_count, 'partition')}, {counted(records, 'record')}, {size}"
        say(f"would delete topic {topic.name}: {inside}")
    say("nothing was done; --yes deletes")


# ---------------------------------------------------------------- kafka-topics' flags


def matching(db: "logdb.Database", pattern: str | None, *, internal: bool = True) -> list[str]:
    """The topics of a ``--topic`` of Kafka's tools: a name, or a regular expression.

    Raises:
        UnknownTopic: No topic matches.
    """
    names = [topic.name for topic in db.topics(internal=internal)]
    if pattern is None:
        return names
    if pattern in names:
        return [pattern]
    found = matching_names(pattern, names)
    if not found:
        raise UnknownTopic(pattern, known=tuple(names))
    return found


def kafka_id(topic: TopicInfo) -> str:
    """The topic's id as Kafka spells it."""
    return base64.urlsafe_b64encode(topic.uuid).decode().rstrip("=")


def print_as_kafka(topic: TopicInfo, *, lines: Lines) -> None:
    """The lines of ``kafka-topics --describe``."""
    configs = config_text({name: in_kafkas_words(name, value) for name, value in topic.config.items()}, ",")
    if lines not in _PARTITIONS:
        head = (topic.name, kafka_id(topic), topic.partition_count, len(topic.partitions[0].replicas), configs)
        names = ("Topic", "TopicId", "PartitionCount", "ReplicationFactor", "Configs")
        line("\t".join(f"{name}: {value}" for name, value in zip(names, head, strict=True)))
    for p in topic.partitions if lines != "with overrides" else ():
        replicas, in_sync = (",".join(map(str, nodes)) for nodes in (p.replicas, p.in_sync))
        leader = "none" if p.leader is None else p.leader
        place = f"Leader: {leader}\tReplicas: {replicas}\tIsr: {in_sync}\tElr: \tLastKnownElr: "
        line(f"\tTopic: {topic.name}\tPartition: {p.partition}\t{place}")


def _chosen(topic: TopicInfo, lines: Lines) -> TopicInfo:
    """A topic with the partitions that are to be described."""
    chosen = _PARTITIONS.get(lines)
    if chosen is None:
        return topic
    least = in_sync_count_min(topic.config)
    return topic._replace(partitions=tuple(one for one in topic.partitions if chosen(one, least)))


def by_flags(
    session: Session,
    action: str,
    topic: str | None,
    *,
    lines: Lines,
    partitions: int | None,
    replication_factor: int | None,
    placed: Sequence[Sequence[int]] | None,
    config: Pairs,
    dropped: Sequence[str],
    quiet: bool,
    internal: bool,
    execute: bool,
) -> None:
    """Run the flags of kafka-topics, and print as it does.

    Args:
        lines: What is printed of a topic that is described.
        placed: The nodes of each partition; with alter also of those that are there already, as kafka-topics has it.
        quiet: A topic that exists (create) or does not exist (the others) is no error.
    """
    if action in ("list", "describe"):
        _show(session, action, topic, lines=lines, quiet=quiet, internal=internal)
        return
    if topic is None:
        raise click.UsageError(f"--{action} needs --topic")
    if placed is not None and action != "create" and (action != "alter" or partitions is None):
        raise click.UsageError("--replica-assignment goes with --create, or with --alter and --partitions")
    if action == "create":
        _create(session, topic, partitions, replication_factor, placed, config, quiet=quiet)
    elif action == "alter":
        with session.write() as db:
            names = _named(db, topic, quiet=quiet)
            if not may_alter(session, db, names, changes(config, dropped), execute=execute):
                return
            for name in names:
                count = db.describe_topic(name).partition_count
                if session.kafka and partitions == count:
                    raise click.ClickException(f"Topic {name} already has {count} partition(s).")
                added = None if placed is None else placed[count:]
                db.alter_topic(name, partitions=partitions, assignments=added, config=changes(config, dropped))
    else:
        with session.read() as db:
            names = _named(db, topic, quiet=quiet)
        delete_all(session, names, execute=execute or session.kafka)


def _show(session: Session, action: str, topic: str | None, *, lines: Lines, quiet: bool, internal: bool) -> None:
    """``list`` and ``describe`` of ``by_flags``."""
    with session.read() as db:
        names = _named(db, topic, quiet=quiet or (session.kafka and action == "list"), internal=internal)
        topics = [_chosen(db.describe_topic(name), lines) for name in names] if action == "describe" else []
    topics = [info for info in topics if info.partitions and (info.config or lines != "with overrides")]
    if session.as_json:
        emit([described(info) for info in topics] if action == "describe" else names)
    elif action == "list":
        line(*(names or ([""] if session.kafka else [])))  # kafka-topics ends no names by a line end, too
    else:
        for info in topics:
            print_as_kafka(info, lines=lines)


def _create(
    session: Session,
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    placed: Sequence[Sequence[int]] | None,
    config: Pairs,
    *,
    quiet: bool,
) -> None:
    """``create`` of ``by_flags``."""
    if placed is not None and (partitions, replication_factor) != (None, None):
        raise click.UsageError("--replica-assignment names all replicas of a new topic: without --partitions and --replication-factor")
    with session.write(create=True) as db:
        known = [one.name for one in db.topics(internal=True)] if session.kafka else []
        is_there = quiet and topic in known
        if topic not in known and (other := colliding(topic, known)):
            raise click.ClickException(f"Topic '{topic}' collides with existing topic: {other}")
        info = db.create_topic(
            topic,
            partitions=partitions or BY_DEFAULT,
            replication_factor=replication_factor,
            config=dict(config),
            if_not_exists=quiet,
            assignments=placed,
        )
    if session.kafka and not is_there and {".", "_"} & set(topic):
        line(_COLLIDING)
    if not is_there:
        say_created(session, info, config)


def _name_of(session: Session, topic_id: str) -> str:
    with session.read() as db:
        for topic in db.topics(internal=True):
            if topic_id in (topic.topic_id, kafka_id(topic)):
                return topic.name
    raise click.UsageError(f"no topic has the id {topic_id}")


def _named(db: "logdb.Database", topic: str | None, *, quiet: bool, internal: bool = True) -> list[str]:
    try:
        return matching(db, topic, internal=internal)
    except UnknownTopic:
        if quiet:
            return []
        raise


def say_created(session: Session, topic: TopicInfo, given: Pairs) -> None:
    """``given``: the configs asked for; others come from the server, or an existing topic has them."""
    if session.as_json:
        emit({"topic": topic.name, "config": dict(topic.config)})
    elif session.kafka:
        line(f"Created topic {topic.name}.")
    else:
        more = config_text({key: value for key, value in topic.config.items() if key not in dict(given)}, ", ")
        say(f"created topic {topic.name}" + (f", with other configs: {more}" if more else ""))


_COLLIDING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)
_FLAGS = ActionFlags("kafka-topics", "list", "create", "describe", "alter", "delete", describing=("topic", "exclude_internal"))


@click.group(
    short_help="Create, list, describe, alter, delete topics.",
    invoke_without_command=True,
    epilog="The flags of kafka-topics work too: --list, --create, --describe, --alter, --delete with --topic, --partitions, "
    "--replication-factor, --replica-assignment, --config, --delete-config, --if-exists, --if-not-exists, "
    "--exclude-internal. The output is then that of kafka-topics.",
)
@common
@_FLAGS.options
@click.option("--topic", type=TOPIC, hidden=True)
@click.option("--partitions", type=WholeNumber(min=1), hidden=True)
@click.option("--replication-factor", type=int, hidden=True)
@click.option("--replica-assignment", "placed", type=ReplicaAssignment(), hidden=True)
@click.option("--config", type=PAIR, multiple=True, hidden=True)
@click.option("--delete-config", "dropped", type=CONFIG_KEY, multiple=True, hidden=True)
@click.option("--if-exists", is_flag=True, hidden=True)
@click.option("--if-not-exists", is_flag=True, hidden=True)
@click.option("--exclude-internal", is_flag=True, hidden=True)
@click.option("--topic-id", hidden=True)
@click.option("--topics-with-overrides", "lines", flag_value="with overrides", hidden=True)
@click.option("--at-min-isr-partitions", "lines", flag_value="at min isr", hidden=True)
@click.option("--under-min-isr-partitions", "lines", flag_value="under min isr", hidden=True)
@click.option("--under-replicated-partitions", "lines", flag_value="under replicated", hidden=True)
@click.option("--unavailable-partitions", "lines", flag_value="unavailable", hidden=True)
@click.option("--yes", "--execute", "yes", is_flag=True, hidden=True)
@pass_session
@click.pass_context
def topics(
    context: click.Context,
    session: Session,
    topic: str | None,
    partitions: int | None,
    replication_factor: int | None,
    placed: Sequence[Sequence[int]] | None,
    config: Pairs,
    dropped: Sequence[str],
    if_exists: bool,
    if_not_exists: bool,
    exclude_internal: bool,
    topic_id: str | None,
    lines: Lines | None,
    yes: bool,
) -> None:
    """Create, list, describe, alter and delete topics."""
    action = _FLAGS.given(context, required=session.kafka)
    if context.invoked_subcommand is not None:
        return
    if action is None:
        context.invoke(list_topics)
    else:
        by_flags(
            session,
            action,
            topic if topic_id is None else _name_of(session, topic_id),
            lines=lines or "all",
            partitions=partitions,
            replication_factor=replication_factor,
            placed=placed,
            config=config,
            dropped=dropped,
            quiet=if_exists or if_not_exists,
            internal=not exclude_internal,
            execute=yes,
        )


# ---------------------------------------------------------------- verbs


@topics.command("list")
@common
@click.option("--internal", is_flag=True, help="Also logdb's internal topics.")
@pass_session
def list_topics(session: Session, internal: bool = False) -> None:
    """List topics."""
    with session.read() as db:
        found = db.topics(internal=internal)
    if session.as_json:
        emit([{"topic": t.name, "partition_count": t.partition_count, "config": dict(t.config)} for t in found])
    elif found:
        table(("TOPIC", "PARTITIONS", "CONFIG"), [(t.name, t.partition_count, config_text(t.config)) for t in found])
    else:
        say("no topics yet: logdb topics create NAME")


@topics.command(short_help="Create topics, and the database if it is missing.")
@common
@names("TOPIC...", "--topic")
@click.option(
    "-p", "--partitions", type=WholeNumber(min=1), help="Number of partitions of each topic.  [default: 1; in a cluster 2 for each broker]"
)
@click.option("-r", "--replication-factor", type=int, help="Number of nodes of a cluster that have each partition.")
@click.option("-c", "--config", type=CONFIG, multiple=True, help="A config of the topics, such as -c retention.ms=1d.")
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic exists.")
@pass_session
def create(
    session: Session,
    names: Sequence[str],
    partitions: int | None,
    replication_factor: int | None,
    config: Pairs,
    if_not_exists: bool,
) -> None:
    """Create topics, and the database if it is missing."""
    with session.write(create=True) as db:
        for name in names:
            info = db.create_topic(
                name,
                partitions=partitions or BY_DEFAULT,
                replication_factor=replication_factor,
                config=dict(config),
                if_not_exists=if_not_exists,
            )
            say_created(session, info, config)


@topics.command(short_help="Show partitions, offsets, sizes and configs.")
@common
@names("[TOPIC]...", "--topic", kind=TOPIC)
@pass_session
def describe(session: Session, names: Sequence[str]) -> None:
    """Show partitions, offsets, sizes and configs; without names, of all topics."""
    with session.read() as db:
        found = [db.describe_topic(name) for name in names or [topic.name for topic in db.topics()]]
    if session.as_json:
        emit([described(topic) for topic in found])
        return
    for number, topic in enumerate(found):
        line(*([""] if number else []))
        heading(topic.name, f"  id {topic.topic_id}")
        if topic.config:
            line(f"  {config_text(topic.config)}")
        columns = ["PARTITION", "START", "END", "SIZE", "ON DISK", "SEGMENTS", "EPOCH"]
        rows: list[list[object]] = [
            [p.partition, p.start_offset, p.end_offset, size_text(p.size_bytes), size_text(on_disk(p)), p.segment_count, p.leader_epoch]
            for p in topic.partitions
        ]
        if any(p.replicas != (0,) for p in topic.partitions):
            columns += ["LEADER", "REPLICAS", "IN SYNC"]
            for row, p in zip(rows, topic.partitions, strict=True):
                row += ["none" if p.leader is None else p.leader, *(",".join(map(str, nodes)) for nodes in (p.replicas, p.in_sync))]
        if any(p.read_only_reason for p in topic.partitions):
            columns.append("READ-ONLY")
            for row, p in zip(rows, topic.partitions, strict=True):
                row.append(p.read_only_reason or "")
        table(columns, rows)


@topics.command(short_help="Add partitions, change configs.")
@common
@names("TOPIC", "--topic", kind=TOPIC, one=True)
@click.option("-p", "--partitions", type=WholeNumber(min=1), help="The new number of partitions; it can only increase.")
@click.option("-c", "--config", type=CONFIG, multiple=True, help="Set a config.")
@click.option("-d", "--delete-config", "dropped", type=CONFIG_KEY, multiple=True, help="Restore the default of a config.")
@EXECUTE
@pass_session
def alter(session: Session, name: str, partitions: int | None, config: Pairs, dropped: Sequence[str], execute: bool) -> None:
    """Add partitions, change configs; shows the records that new limits delete, and deletes them with --execute."""
    if partitions is None and not config and not dropped:
        raise click.UsageError("nothing to alter: give --partitions, --config or --delete-config")
    with session.write() as db:
        if not may_alter(session, db, [name], changes(config, dropped), execute=execute):
            return
        db.alter_topic(name, partitions=partitions, config=changes(config, dropped))
        altered = db.describe_topic(name)
    if session.as_json:
        emit(described(altered))
    else:
        say(f"altered topic {name}: {counted(altered.partition_count, 'partition')} {config_text(altered.config)}".rstrip())


@topics.command(short_help="Delete topics with all their records; shows them first.")
@common
@names("TOPIC...", "--topic", kind=TOPIC)
@click.option("--yes", "--execute", "execute", is_flag=True, help="Delete; otherwise only show the topics.")
@pass_session
def delete(session: Session, names: Sequence[str], execute: bool) -> None:
    """Delete topics with all their records; shows them first, and deletes with --yes."""
    delete_all(session, names, execute=execute)
