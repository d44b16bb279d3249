"""``logdb groups``: list, describe, reset and delete groups.

Two forms: verbs (``groups describe g``), and the flags of kafka-consumer-groups
(``groups --describe --group g``), which also print as that tool does.  Reading works beside a process
that writes; a change needs the directory for itself, because that process has the groups, or goes through
it if it is a server.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import IO

import click

import logdb
from logdb.cli.groups.reset import Target, parse_offsets, planned, written_offsets
from logdb.cli.kafka import groups_as_kafka
from logdb.cli.kafka.coordinators import coordinator_id
from logdb.cli.terminal.actions import ActionFlags, names
from logdb.cli.terminal.output import counted, emit, say, table, write_data
from logdb.cli.terminal.params import TIME, TOPIC, numbers
from logdb.cli.terminal.session import Function, Session, common, pass_session
from logdb.cli.terminal.units import DURATION, WholeNumber
from logdb.client.administration import GroupOffset
from logdb.errors import LogdbError, UnknownGroup, UnknownPartition, UnknownTopic
from logdb.model import INTERNAL_TOPICS, TopicPartition
from logdb.requests.groups import GroupInfo, MemberInfo

_TYPE = "Classic"  # of every group, as Kafka names it
_STATES = ("Assigning", "CompletingRebalance", "Dead", "Empty", "PreparingRebalance", "Reconciling", "Stable")  # Kafka's
_TYPES = ("Classic", "Consumer")
_FLAGS = ActionFlags(
    "kafka-consumer-groups",
    "list",
    "describe",
    "reset-offsets",
    "delete",
    "delete-offsets",
    describing=("names", "all_groups", "members", "states", "offsets", "verbose"),
)


# ---------------------------------------------------------------- what both ways do


def selected(
    db: "logdb.Database",
    group_id: str,
    patterns: Sequence[str],
    *,
    all_topics: bool,
    missing: dict[tuple[str, int | None], LogdbError] | None = None,
) -> list[TopicPartition]:
    """The partitions that ``--topic`` (a name, or name:0,2) and ``--all-topics`` (those with committed offsets) name.

    Args:
        missing: Gets the partitions, or topics, that do not exist; None: they are raised.

    Raises:
        click.UsageError: No topic is named.
        UnknownTopic, UnknownPartition, UnknownGroup: see ``logdb.errors``.
    """
    if bool(patterns) == all_topics:
        raise click.UsageError("name partitions: --topic NAME, --topic NAME:0,2, or --all-topics")
    if all_topics:
        return [row.partition for row in db.group_offsets(group_id)]
    found: list[TopicPartition] = []
    for pattern in patterns:
        topic, _, named = pattern.partition(":")
        try:
            wanted: Sequence[int | None] = sorted(numbers(named)) if named else [None]
        except ValueError:
            raise click.BadParameter(f"{named!r} are no partitions; write {topic}:0,2", param_hint="--topic") from None
        for partition in wanted:
            try:
                if partition is None:
                    found += [TopicPartition(topic, number) for number in range(db.describe_topic(topic).partition_count)]
                else:
                    db.log(topic, partition)  # check that it exists
                    found.append(TopicPartition(topic, partition))
            except (UnknownTopic, UnknownPartition) as error:
                if missing is None:
                    raise
                missing[topic, partition] = error
    return found


def named_groups(db: "logdb.Database", names: Sequence[str], *, every: bool = False) -> list[str]:
    """The named groups, or all.

    Raises:
        UnknownGroup: One of them does not exist.
    """
    known = [group.group_id for group in db.groups()]
    for name in names:
        if name not in known:
            error = UnknownGroup(name)
            error.add_note(f"there are {', '.join(map(repr, known))}" if known else "there are none")
            raise error
    return known if every else list(names)


def offset_row(row: GroupOffset) -> dict[str, object]:
    """One partition as JSON."""
    return {
        "topic": row.partition.topic,
        "partition": row.partition.partition,
        "committed_offset": None if row.committed is None else row.committed.offset,
        "metadata": None if row.committed is None else row.committed.metadata,
        "end_offset": row.end_offset,
        "lag": row.lag,
        "member_id": None if row.member is None else row.member.member_id,
        "client_id": None if row.member is None else row.member.client_id,
    }


def shown(value: object) -> object:
    return "-" if value in (None, "") else value


def show_offsets(group_id: str, rows: Sequence[GroupOffset]) -> None:
    """A group's progress, as kafka-consumer-groups shows it."""
    columns = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")
    cells = []
    for row in rows:
        fields = offset_row(row)
        names = ("topic", "partition", "committed_offset", "end_offset", "lag", "member_id")
        host = None if row.member is None else row.member.client_host or "embedded"
        cells.append([group_id, *(shown(fields[name]) for name in names), shown(host), shown(fields["client_id"])])
    table(columns, cells)


def _coordinator(session: Session, db: "logdb.Database", group_id: str) -> tuple[str | None, int]:
    """Address and id; the id is -1 if no node of a cluster coordinates the group now, or none may be seen."""
    nodes = db._session.cluster_nodes()
    if not nodes.serving:
        return session.place.rpartition("://")[2], 0
    node_id = coordinator_id(nodes, INTERNAL_TOPICS[0], group_id)
    return dict(nodes.addresses).get(node_id), node_id


def describe_one(session: Session, db: "logdb.Database", group_id: str, what: str, *, verbose: bool) -> dict[str, object]:
    """Show one group, and return it for JSON."""
    info, rows = db.describe_group(group_id), db.group_offsets(group_id)
    partitions: dict[str, list[TopicPartition]] = {member.member_id: [] for member in info.members}
    for row in rows:
        if row.member is not None:
            partitions[row.member.member_id].append(row.partition)
    assigned = {member_id: [str(partition) for partition in found] for member_id, found in partitions.items()}
    if session.kafka and not session.as_json and what == "members":
        groups_as_kafka.show_members(info, partitions, verbose=verbose)
    elif session.kafka and not session.as_json and what == "state":
        groups_as_kafka.show_state(info, _coordinator(session, db, group_id), verbose=verbose)
    elif session.kafka and not session.as_json:
        groups_as_kafka.show_offsets(info, rows, verbose=verbose)
    elif not session.as_json and what == "offsets":
        if not info.members:
            say(f"group {group_id!r} has no active members")
        show_offsets(group_id, rows)
    elif not session.as_json and what == "state":
        table(
            ("GROUP", "ASSIGNMENT-STRATEGY", "STATE", "GENERATION", "#MEMBERS"),
            [[group_id, shown(info.protocol), info.state, info.generation, len(info.members)]],
        )
    elif not session.as_json:
        show_members(group_id, info.members, assigned)
    return group_fields(info, rows, assigned)


def show_members(group_id: str, members: Sequence[MemberInfo], assigned: Mapping[str, Sequence[str]]) -> None:
    """The members of a group and their partitions."""
    columns = ("GROUP", "CONSUMER-ID", "INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT")
    rows: list[list[object]] = [
        [
            group_id,
            member.member_id,
            shown(member.group_instance_id),
            member.client_host or "embedded",
            member.client_id,
            len(assigned[member.member_id]),
            shown(" ".join(assigned[member.member_id])),
        ]
        for member in members
    ]
    table(columns, rows)


def group_fields(info: GroupInfo, rows: Sequence[GroupOffset], assigned: Mapping[str, Sequence[str]]) -> dict[str, object]:
    """A group as JSON."""
    return {
        "group": info.group_id,
        "state": info.state,
        "protocol_type": info.protocol_type,
        "protocol": info.protocol,
        "generation": info.generation,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "leader": member.member_id == info.leader_id,
                "partitions": assigned[member.member_id],
            }
            for member in info.members
        ],
        "offsets": [offset_row(row) for row in rows],
    }


def list_all(session: Session, *, with_state: bool, with_type: bool = False, states: str = "", types: str = "") -> None:
    """List groups.

    Args:
        states, types: Only these, with commas between; empty: all.

    Raises:
        click.ClickException: There is no such state or type.
    """
    _check_list("state list", "states", states, _STATES)
    _check_list("types list", "types", types, _TYPES)
    with session.read() as db:
        found = [group for group in db.groups() if is_among(group.state, states) and is_among(_TYPE, types)]
    if session.as_json:
        emit([{"group": group.group_id, "state": group.state, "protocol_type": group.protocol_type} for group in found])
    elif session.kafka:
        columns = [name for name, is_wanted in (("TYPE", with_type), ("STATE", with_state)) if is_wanted]
        groups_as_kafka.show_list([{"GROUP": group.group_id, "TYPE": _TYPE, "STATE": group.state} for group in found], columns)
    elif found:
        table(("GROUP", "STATE", "TYPE"), [(group.group_id, group.state, shown(group.protocol_type)) for group in found])
    else:
        say("no groups yet")


def _check_list(what: str, which: str, wanted: str, valid: Sequence[str]) -> None:
    if not all(is_among(one, ",".join(valid)) for one in wanted.split(",") if one.strip()):
        raise click.ClickException(f"Invalid {what} {wanted!r}. Valid {which} are: {', '.join(valid)}")


def is_among(name: str, wanted: str) -> bool:
    """Whether a name is among those with commas between, in upper or lower case; all are among none."""
    return not wanted or name.strip().lower() in {one.strip().lower() for one in wanted.split(",")}


def describe_all(session: Session, names: Sequence[str], what: str, *, every: bool, verbose: bool = False) -> None:
    with session.read() as db:
        described = [describe_one(session, db, name, what, verbose=verbose) for name in named_groups(db, names, every=every)]
    if session.as_json:
        emit(described)


def reset(
    session: Session,
    names: Sequence[str],
    target: Target,
    patterns: Sequence[str],
    *,
    all_topics: bool,
    every: bool,
    execute: bool,
    export: bool,
) -> None:
    """Show the new offsets of groups, or set them."""
    with session.write() if execute else session.read() as db:
        ids = named_groups(db, (), every=True) if every else list(names)
        plans = {}
        for group_id in ids:
            partitions = () if target.kind == "from-file" else selected(db, group_id, patterns, all_topics=all_topics)
            plans[group_id] = planned(db, group_id, partitions, target)
        if execute:
            for group_id, plan in plans.items():
                db.reset_offsets(group_id, plan)
    rows = [(group_id, *partition, offset) for group_id, plan in plans.items() for partition, offset in plan.items()]
    if session.as_json:
        names_of = ("group", "topic", "partition", "new_offset")
        emit({"executed": execute, "offsets": [dict(zip(names_of, row, strict=True)) for row in rows]})
    elif export:
        write_data((written_offsets(plans) + ("\n" if session.kafka else "")).encode())  # kafka-consumer-groups ends it by an empty line
    elif session.kafka:
        groups_as_kafka.show_reset(rows)
    else:
        table(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows)
    if not session.as_json:
        say(f"reset {counted(len(rows), 'offset')}" if execute else "nothing was changed; --execute resets the offsets")


def delete_all(session: Session, names: Sequence[str], *, every: bool, execute: bool) -> None:
    with session.write() if execute else session.read() as db:
        doomed = named_groups(db, names, every=every)
        offset_counts = {name: len(db.group_offsets(name)) for name in doomed}
        for name in doomed if execute else ():
            db.delete_group(name)
    if session.as_json:
        emit({"executed": execute, "delete": [{"group": name, "offsets": offset_counts[name]} for name in doomed]})
        return
    if session.kafka:
        groups_as_kafka.show_deleted(doomed)
        return
    for name in doomed:
        verb = "deleted" if execute else "would delete"
        say(f"{verb} group {name}: {counted(offset_counts[name], 'committed offset')}")
    if not execute:
        say("nothing was done; --yes deletes")


def delete_some(session: Session, group_id: str, patterns: Sequence[str], *, execute: bool) -> None:
    missing: dict[tuple[str, int | None], LogdbError] | None = {} if session.kafka else None
    with session.write() if execute else session.read() as db:
        partitions = selected(db, group_id, patterns, all_topics=False, missing=missing)
        named_groups(db, [group_id])
        if execute and partitions:
            db.delete_group_offsets(group_id, partitions)
    session.exit_code = 1 if missing else 0
    if session.as_json:
        emit({"executed": execute, "group": group_id, "partitions": [str(partition) for partition in partitions]})
    elif session.kafka:
        groups_as_kafka.show_deleted_offsets(group_id, partitions, missing or {})
    else:
        verb = "deleted" if execute else "would delete"
        rest = "" if execute else "; --execute deletes them"
        say(f"{verb} the offsets of group {group_id} in {', '.join(map(str, partitions))}{rest}")


# ---------------------------------------------------------------- kafka-consumer-groups' flags


def target_of(
    *,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    to_datetime: int | None,
    shift_by: int | None,
    by_duration: int | None,
    from_file: IO[str] | None,
) -> Target:
    """The target of the options.

    Raises:
        click.UsageError: There is none, or there are several.
    """
    ways = {
        "--to-earliest": Target("earliest") if to_earliest else None,
        "--to-latest": Target("latest") if to_latest else None,
        "--to-current": Target("current") if to_current else None,
        "--to-offset": None if to_offset is None else Target("offset", to_offset),
        "--to-datetime": None if to_datetime is None else Target("time", to_datetime),
        "--shift-by": None if shift_by is None else Target("shift", shift_by),
        "--by-duration": None if by_duration is None else Target("duration", by_duration),
        "--from-file": None if from_file is None else Target("from-file", offsets=parse_offsets(from_file.read())),
    }
    given = {flag: target for flag, target in ways.items() if target is not None}
    if len(given) > 1:
        raise click.UsageError(f"give only one target, not {len(given)}: {' and '.join(given)}")
    if not given:
        raise click.UsageError(f"name a target: one of {', '.join(ways)}")
    (target,) = given.values()
    return target


def targets(*, hidden: bool = False) -> Callable[[Function], Function]:
    """The options for a target."""
    options = [
        click.option("--to-earliest", is_flag=True, hidden=hidden, help="To the beginning of each partition."),
        click.option("--to-latest", is_flag=True, hidden=hidden, help="To the end of each partition."),
        click.option(
            "--to-current", is_flag=True, hidden=hidden, help="To the current committed offset (to write it to a file with --export)."
        ),
        click.option("--to-offset", type=WholeNumber(min=0), hidden=hidden, help="To this offset, or the nearest one that exists."),
        click.option("--to-datetime", type=TIME, hidden=hidden, help="To the first record of that time: 2013-07-04T12:00:00, ms."),
        click.option("--shift-by", type=int, metavar="N", hidden=hidden, help="By N records; back if N is negative."),
        click.option("--by-duration", type=DURATION, hidden=hidden, help="To the first record of the last 1d, 90m, or PT1H30M."),
        click.option("--from-file", type=click.File(encoding="utf-8"), hidden=hidden, help="Lines of [group,]topic,partition,offset."),
    ]

    def decorate(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


@click.group(
    short_help="List, describe, reset and delete groups of consumers.",
    invoke_without_command=True,
    epilog="The flags of kafka-consumer-groups work too: --list, --describe, --reset-offsets, --delete, --delete-offsets with --group, "
    "--all-groups, --topic, --all-topics, --members, --state, --verbose, --dry-run, --execute, --export. "
    "The output is then that of kafka-consumer-groups.",
)
@common
@_FLAGS.options
@click.option("--group", "names", multiple=True, hidden=True)
@click.option("--all-groups", is_flag=True, hidden=True)
@click.option("--topic", "patterns", type=TOPIC, multiple=True, hidden=True)
@click.option("--all-topics", is_flag=True, hidden=True)
@click.option("--members", is_flag=True, hidden=True)
@click.option("--state", "states", is_flag=False, flag_value="", hidden=True)
@click.option("--type", "types", is_flag=False, flag_value="", hidden=True)
@click.option("--offsets", is_flag=True, hidden=True)
@click.option("--verbose", is_flag=True, hidden=True)
@click.option("--dry-run", is_flag=True, hidden=True)
@click.option("--execute", "--yes", "execute", is_flag=True, hidden=True)
@click.option("--export", is_flag=True, hidden=True)
@targets(hidden=True)
@pass_session
@click.pass_context
def groups(
    context: click.Context,
    session: Session,
    /,
    names: Sequence[str],
    all_groups: bool,
    patterns: Sequence[str],
    all_topics: bool,
    members: bool,
    states: str | None,
    types: str | None,
    offsets: bool,
    verbose: bool,
    dry_run: bool,
    execute: bool,
    export: bool,
    **where: object,
) -> None:
    """List, describe, reset and delete groups."""
    action = _FLAGS.given(context, required=session.kafka) or "list"
    if context.invoked_subcommand is not None:
        return
    if action != "list" and not names and not all_groups:
        raise click.UsageError(f"--{action} needs --group, or --all-groups")
    match action:
        case "list":
            list_all(session, with_state=states is not None, with_type=types is not None, states=states or "", types=types or "")
        case "describe":
            describe_all(
                session, names, "members" if members else "state" if states is not None else "offsets", every=all_groups, verbose=verbose
            )
        case "reset-offsets":
            target = target_of(**where)  # type: ignore[arg-type]  # click has made them what they are to be
            if execute and dry_run:
                raise click.UsageError("--reset-offsets takes only one of --execute and --dry-run")
            reset(session, names, target, patterns, all_topics=all_topics, every=all_groups, execute=execute, export=export)
        case "delete":
            delete_all(session, names, every=all_groups, execute=execute or session.kafka)
        case _:
            for name in names:
                delete_some(session, name, patterns, execute=execute or session.kafka)


# ---------------------------------------------------------------- verbs


@groups.command("list")
@common
@pass_session
def list_groups(session: Session) -> None:
    """List groups."""
    list_all(session, with_state=True)


@groups.command(short_help="Show the progress and the members of groups.")
@common
@names("[GROUP]...", "--group")
@click.option("--all-groups", is_flag=True, hidden=True)
@click.option("--members", "what", flag_value="members", help="Its members and their partitions.")
@click.option("--state", "what", flag_value="state", help="Its state and assignor.")
@click.option("--offsets", "what", flag_value="offsets", default=True, help="Its committed offset and lag in each partition (the default).")
@pass_session
def describe(session: Session, names: Sequence[str], all_groups: bool, what: str) -> None:
    """Show the progress and the members of groups; without names, of all groups."""
    describe_all(session, names, what, every=all_groups or not names)


@groups.command("reset-offsets", short_help="Set a group's committed offsets; shows them first.")
@common
@names("GROUP", "--group", one=True)
@click.option("-t", "--topic", "patterns", type=TOPIC, multiple=True, help="A topic, or some of its partitions: NAME:0,2.")
@click.option("--all-topics", is_flag=True, help="All partitions with committed offsets of the group.")
@targets()
@click.option("--execute", "--yes", "execute", is_flag=True, help="Set them; otherwise only show them.")
@click.option("--export", is_flag=True, help="Print lines for --from-file.")
@pass_session
def reset_offsets(
    session: Session, /, name: str, patterns: Sequence[str], all_topics: bool, execute: bool, export: bool, **where: object
) -> None:
    """Set a group's committed offsets; shows them first, and sets them with --execute.

    The group must have no members; it may be a new one.
    """
    target = target_of(**where)  # type: ignore[arg-type]  # click has made them what they are to be
    reset(session, [name], target, patterns, all_topics=all_topics, every=False, execute=execute, export=export)


@groups.command(short_help="Delete groups without members; shows them first.")
@common
@names("GROUP...", "--group")
@click.option("--yes", "--execute", "execute", is_flag=True, help="Delete; otherwise only show the groups.")
@pass_session
def delete(session: Session, names: Sequence[str], execute: bool) -> None:
    """Delete groups that have no members, with their offsets; shows them first, and deletes with --yes."""
    delete_all(session, names, every=False, execute=execute)


@groups.command("delete-offsets", short_help="Delete a group's offsets; shows them first.")
@common
@names("GROUP", "--group", one=True)
@click.option("-t", "--topic", "patterns", type=TOPIC, multiple=True, required=True, help="A topic, or some of its partitions: NAME:0,2.")
@click.option("--yes", "--execute", "execute", is_flag=True, help="Delete; otherwise only show them.")
@pass_session
def delete_offsets(session: Session, name: str, patterns: Sequence[str], execute: bool) -> None:
    """Delete a group's offsets of some partitions; shows them first, and deletes them with --yes."""
    delete_some(session, name, patterns, execute=execute)
