"""``logdb partitions``: which nodes of a cluster have a partition, and which one leads it."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from logdb.cli.clusters.cluster import Several, cluster_option
from logdb.cli.terminal.addons import of_the_cluster
from logdb.cli.terminal.output import counted, emit, json_text, say, size_text, table, warn
from logdb.cli.terminal.params import TOPIC
from logdb.cli.terminal.session import Session, here, pass_session
from logdb.cli.terminal.units import MILLISECONDS, SIZE, WholeNumber
from logdb.model import TopicPartition

_POLL_S = 0.5
_NODES = Several(int)
_COLUMNS = ("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "TO", "LOG ENDS", "LEFT")


@click.group(short_help="Show and change which nodes have and lead a partition.")
@here
def partitions() -> None:
    """Show and change which nodes of a cluster have each partition, and which node leads it."""


def _refuse(session: Session) -> Any:
    session.refuse_servers("partitions asks the controllers, which cluster.toml names")
    return of_the_cluster("reassignment")


@partitions.command("list", short_help="Show the replicas of each partition and their log ends.")
@click.argument("topics", metavar="[TOPIC]...", nargs=-1, type=TOPIC)
@click.option("--moving", is_flag=True, help="Only those that are being reassigned.")
@cluster_option
@here
@pass_session
def list_partitions(session: Session, /, topics: Sequence[str], moving: bool, config: str) -> None:
    """Show each partition's leader, replicas and in-sync replicas, and the log end of each replica."""
    found = _refuse(session).describe(config, topics or None, moving=moving)
    if session.as_json:
        emit({"partitions": found})
        return
    table(_COLUMNS, [_row(one) for one in found])


def _row(one: Mapping[str, Any]) -> list[object]:
    left = [f"{node}: {log['offsets_left']} ({size_text(log['bytes_left'])})" for node, log in one["logs"].items() if "offsets_left" in log]
    return [
        f"{one['topic']}-{one['partition']}",
        "none" if one["leader"] is None else one["leader"],
        *(",".join(map(str, one[name])) for name in ("replicas", "in_sync", "target")),
        " ".join(f"{node}: {log['end_offset']}" for node, log in one["logs"].items()),
        " ".join(left),
    ]


@partitions.command(short_help="Move partitions to other nodes.")
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, type=TOPIC, help="All partitions of a topic; repeatable.")
@click.option("--all", "every", is_flag=True, help="All partitions of all topics, also internal ones.")
@click.option("--to", metavar="1,2,3", type=_NODES, help="The nodes of each partition; they take turns as preferred leader.")
@click.option("--file", "file", metavar="FILE", type=click.File(), help="Partitions and replicas, JSON of kafka-reassign-partitions.")
@click.option("--cancel", is_flag=True, help="Stop a move in progress and return to the old replicas.")
@click.option("--verify", is_flag=True, help="Only show moves in progress; exit code 1 if there is one.")
@click.option("--throttle", metavar="SIZE", type=SIZE, help="Bytes a second that a broker fetches for new replicas.  [default: no limit]")
@click.option("--timeout", type=MILLISECONDS, metavar="TIME", default=0, help="How long to wait until all is done.  [default: no wait]")
@cluster_option
@here
@pass_session
def reassign(
    session: Session, /, topics: Sequence[str], every: bool, to: list[int] | None, file: Any, cancel: bool, verify: bool,
    throttle: int | None, timeout: int, config: str,
) -> None:  # fmt: skip
    """Move partitions to other nodes; clients keep writing and reading.

    New replicas first fetch all records.  Once all of them are in sync, the old replicas are removed and their logs deleted.
    The exit code is 1 while a move is in progress: repeat with --verify, or wait with --timeout.
    """
    module = _refuse(session)
    if sum(map(bool, (to, file, cancel, verify))) != 1 or bool(file) + every + bool(topics) != 1:
        raise click.UsageError("use --topic or --all with --to, --cancel or --verify; or use --file")
    if throttle == 0:
        raise click.UsageError("--throttle: must be 1 byte a second or more; leave it out for no limit")
    targets = _of_file(file.read()) if file else dict.fromkeys(module.assignments(config, None if every else topics), ())
    if not (cancel or verify or file):
        assert to is not None
        targets = {where: (*to[where.partition % len(to) :], *to[: where.partition % len(to)]) for where in targets}
    before = {} if verify else module.reassign(config, targets, bytes_per_s=throttle)
    left = _wait(module, config, targets, timeout / 1000)
    if session.as_json:
        emit({"before": _kafkas(before), "moving": left})
    else:
        if not verify and not cancel:
            say(f"to go back, with --file: {json_text(_kafkas(before))}")
        table(_COLUMNS, [_row(one) for one in left])
        say(f"{counted(len(left), 'partition')} of {len(targets)} under way" if left else f"{counted(len(targets), 'partition')} done")
    session.exit_code = 1 if left else 0


def _wait(module: Any, config: str, targets: Mapping[TopicPartition, object], timeout_s: float) -> list[dict[str, Any]]:
    """Those of the targets that are under way, at the end of the time."""
    end, names = time.monotonic() + timeout_s, sorted({where.topic for where in targets})
    while True:
        found = module.describe(config, names, moving=True)
        left = [one for one in found if TopicPartition(one["topic"], one["partition"]) in targets]
        if not left or time.monotonic() >= end:
            return left
        say(f"{counted(len(left), 'partition')} under way, {sum(map(_offsets_left, left))} offsets left")
        time.sleep(_POLL_S)


def _offsets_left(one: Mapping[str, Any]) -> int:
    return sum(log.get("offsets_left", 0) for log in one["logs"].values())


def _of_file(text: str) -> dict[TopicPartition, tuple[int, ...]]:
    """The targets of a file of kafka-reassign-partitions."""
    try:
        listed = json.loads(text)["partitions"]
        targets = {TopicPartition(str(one["topic"]), int(one["partition"])): tuple(map(int, one["replicas"])) for one in listed}
        if len(targets) < len(listed) or not all(targets.values()):
            raise ValueError("a partition twice, or without replicas")
        return targets
    except (ValueError, KeyError, TypeError) as error:
        form = '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}'
        raise click.UsageError(f"--file: must be JSON like {form}; found: {error!r}") from None


def _kafkas(targets: Mapping[TopicPartition, Sequence[int]]) -> dict[str, Any]:
    listed = [{"topic": where.topic, "partition": where.partition, "replicas": list(nodes)} for where, nodes in targets.items()]
    return {"version": 1, "partitions": listed}


@partitions.command(short_help="Choose the leader of a partition.")
@click.option(
    "--unclean",
    "node",
    metavar="NODE",
    type=WholeNumber(1),
    help="Make this replica lead a partition without a leader; LOSES the records it lacks.",
)
@click.option("--topic", metavar="TOPIC", type=TOPIC, help="Only the partitions of a topic.  [default: all topics]")
@click.option("--partition", metavar="N", type=WholeNumber(0), help="Only this partition of the topic.  [default: all; with --unclean 0]")
@click.option("--yes", "--execute", "execute", is_flag=True, help="With --unclean: do it; otherwise only show which records would be lost.")
@cluster_option
@here
@pass_session
def elect(session: Session, /, node: int | None, topic: str | None, partition: int | None, execute: bool, config: str) -> None:
    """Make the first replica of each partition the leader, if it is in sync.  The exit code is 1 if a partition has no leader.

    --unclean LOSES acknowledged records: NODE becomes the leader of a partition without any replica in sync.  Records that NODE
    lacks are deleted from the other replicas when they come back.
    """
    module = _refuse(session)
    if topic is None and (node is not None or partition is not None):
        raise click.UsageError(f"--{'partition' if node is None else 'unclean'} needs --topic")
    if node is None:
        _prefer(session, module.prefer_leaders(config, topic, partition))
        return
    partition = partition or 0
    (found,) = [one for one in module.describe(config, [topic]) if one["partition"] == partition] or [None]
    if found is None:
        raise click.UsageError(f"{topic} has no partition {partition}")
    if found["leader"] is not None:
        raise click.UsageError(f"{topic}-{partition} is led by node {found['leader']}: no election is needed")
    assert topic is not None
    module.elect_unclean(config, TopicPartition(topic, partition), node, execute=execute)
    if session.as_json:
        emit({"partition": found, "node": node, "executed": execute})
        return
    table(_COLUMNS, [_row(found)])
    say(f"node {node} leads" if execute else f"nothing was done; --yes lets node {node} lead with the records that it has")


def _prefer(session: Session, leaderless: Mapping[TopicPartition, Sequence[int]]) -> None:
    """Say what an election of preferred leaders has done, and which partitions have none."""
    session.exit_code = 1 if leaderless else 0
    if session.as_json:
        listed = [{"topic": where.topic, "partition": where.partition, "in_sync": list(nodes)} for where, nodes in leaderless.items()]
        emit({"elected": "preferred", "without_leader": listed})
        return
    for where, nodes in leaderless.items():
        warn(f"{where.topic}-{where.partition} has no leader: none of its replicas in sync runs: node {', '.join(map(str, nodes))}")
    if leaderless:
        say("start one of the nodes; if they are lost: logdb partitions elect --unclean NODE --topic TOPIC --partition N")
    say(f"each {'other ' if leaderless else ''}partition is led by its first replica, where that is in sync")
