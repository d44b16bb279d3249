"""``logdb cluster``, ``quorum`` and ``brokers``: make, and look at, the nodes of a cluster; entry points of ``logdb.cluster`` do it."""

from collections.abc import Mapping
from typing import Any

import click

from logdb.cli.terminal.addons import of_the_cluster
from logdb.cli.terminal.output import counted, emit, say, table
from logdb.cli.terminal.params import TARGET
from logdb.cli.terminal.session import Function, Session, here, pass_session
from logdb.cli.terminal.units import MILLISECONDS, Kind, WholeNumber


class Several(Kind):
    """Values with commas between them."""

    name = "list"

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> list[Any]:
        if isinstance(value, list):
            return value
        try:
            return [self._kind(text.strip()) for text in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r}: must be numbers separated by commas", param, ctx)


PORTS, TEXTS = Several(int), Several(str)


@click.group(short_help="Make a cluster of several nodes.")
@here
def cluster() -> None:
    """Make and change a cluster: three or five nodes that serve the same topics.  If one of them fails, the others continue."""


@cluster.command(short_help="Make the directories of a new cluster's nodes.")
@click.argument("directory", metavar="DIR", type=TARGET)
@click.option("--nodes", "count", metavar="N", type=int, default=3, show_default=True, help="Number of nodes: 1, 3 or 5.")
@click.option("--http-ports", metavar="A,B,C", type=PORTS, required=True, help="Port of each node's HTTP listener.")
@click.option("--kafka-ports", metavar="A,B,C", type=PORTS, default=[], help="Port of each node's Kafka listener.  [default: none]")
@click.option("--hosts", metavar="A,B,C", type=TEXTS, default=[], help="Host of each node.  [default: 127.0.0.1, all on this machine]")
@click.option("--racks", metavar="A,B,C", type=TEXTS, default=[], help="Rack of each node.  [default: none]")
@here
@pass_session
def init(
    session: Session, /, directory: str, count: int, http_ports: list[int], kafka_ports: list[int], hosts: list[str], racks: list[str]
) -> None:
    """Make DIR/node-1, DIR/node-2 and so on: each with its cluster.toml, the cluster's secret, and its data directory.

    For several machines, move each directory to its machine.  Existing directories stay as they are.
    """
    session.refuse_servers("cluster init makes directories")
    name, nodes = of_the_cluster("init")(directory, count, http_ports, kafka_ports, hosts, racks)
    if session.as_json:
        emit({"cluster": name, "nodes": [_document(node) for node in nodes]})
        return
    kafka = [("KAFKA", [_document(node)["kafka"] for node in nodes])] if kafka_ports else []
    columns = [("NODE", [node.addresses.number for node in nodes]), ("HTTP", [node.addresses.http for node in nodes]), *kafka]
    columns.append(("DIRECTORY", [node.directory for node in nodes]))
    table([name for name, _ in columns], list(zip(*(cells for _, cells in columns), strict=True)))
    say("start each node, on its machine: logdb serve NODE/data --cluster NODE/cluster.toml")


@cluster.command(short_help="Take a stopped node's directory out of its cluster.")
@click.argument("directory", metavar="DATA", type=click.Path(exists=True, file_okay=False))
@click.option("--yes", "--execute", "execute", is_flag=True, help="Do it; otherwise only show the changes.")
@here
@pass_session
def leave(session: Session, /, directory: str, execute: bool) -> None:
    """Turn DATA, the data directory of a stopped node, into a database of its own, which opens embedded to write.

    It keeps the records of this node, and the users, tokens and ACLs.  To come back to its cluster, the node needs an empty
    directory.
    """
    session.refuse_servers("cluster leave changes a directory")
    mark = of_the_cluster("leave")(directory, execute=execute)
    if session.as_json:
        emit({"directory": directory, "cluster": mark.cluster, "node": mark.node, "executed": execute})
    elif execute:
        say(f"{directory} is a database of its own; it was that of node {mark.node} of the cluster {mark.cluster}")
    else:
        say(f"nothing was done; --yes takes {directory} out of the cluster {mark.cluster}: node {mark.node} cannot come back with it")


@cluster.command(short_help="Turn a database into the first node of a new cluster.")
@click.argument("directory", metavar="DATA", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--cluster",
    "config",
    metavar="FILE",
    required=True,
    type=click.Path(exists=True, dir_okay=False),
    help="The cluster.toml of the node that it becomes.",
)
@click.option("--yes", "--execute", "execute", is_flag=True, help="Do it; otherwise only show the changes.")
@here
@pass_session
def promote(session: Session, /, directory: str, config: str, execute: bool) -> None:
    """Make DATA, a database that no process has open, the data directory of a new cluster's first node.

    Run 'cluster init' before; the node must never have run.  When the node starts, the database's topics, groups,
    transactions, users, tokens and ACLs become the cluster's.  The other nodes must be empty; they copy them.  Until
    'cluster leave', DATA opens with mode="r" only.  After a crash, repeat the command.
    """
    session.refuse_servers("cluster promote changes a directory")
    mark = of_the_cluster("promote")(directory, config, execute=execute)
    if session.as_json:
        emit({"directory": directory, "cluster": mark.cluster, "node": mark.node, "executed": execute})
    elif execute:
        say(f"{directory} is that of node {mark.node} of the cluster {mark.cluster}: logdb serve {directory} --cluster {config}")
    else:
        say(f"nothing was done; --yes makes {directory} that of node {mark.node} of the cluster {mark.cluster}")


@cluster.command(short_help="Prepare a directory for a node of a running cluster.")
@click.argument("directory", metavar="DATA", type=TARGET)
@click.option("--cluster", "config", metavar="FILE", required=True, type=click.Path(exists=True), help="The node's own cluster.toml.")
@here
@pass_session
def join(session: Session, /, directory: str, config: str) -> None:
    """Prepare the empty directory DATA for a node: a new node, or one that has lost its disk.

    The node's controller becomes a voter of the quorum and replaces the lost one.  Then start the node: it fetches the
    records of its replicas, and is in sync when it has them.
    """
    session.refuse_servers("cluster join makes a directory")
    joined = of_the_cluster("membership").join(directory, config)
    if session.as_json:
        emit(joined)
    else:
        say(f"node {joined['node']} is a voter of the quorum; start it: logdb serve {directory} --cluster {config}")


@cluster.command(short_help="Take a node's controller out of the quorum.")
@click.argument("node", metavar="NODE", type=WholeNumber(1))
@click.option(
    "--cluster", "config", metavar="FILE", envvar="LOGDB_CLUSTER", default="cluster.toml", help="The cluster.toml of another node."
)
@here
@pass_session
def remove(session: Session, /, node: int, config: str) -> None:
    """Remove the voter of NODE, a stopped or lost node, from the quorum; refused if no majority would be left.

    Move its replicas to other nodes first: logdb partitions reassign.
    """
    session.refuse_servers("cluster remove asks the controllers, which cluster.toml names")
    left = of_the_cluster("membership").remove(config, node)
    if session.as_json:
        emit({"voters": left})
    else:
        say(f"the voters of the quorum are {', '.join(map(str, left))}")


def _document(node: Any) -> dict[str, Any]:
    return {
        "number": node.addresses.number,
        "directory": node.directory,
        "http": node.addresses.http,
        "kafka": None if node.kafka is None else ":".join(map(str, node.kafka)),
    }


# ---------------------------------------------------------------- a cluster that runs

CLUSTER_VARIABLE, CLUSTER_NAME = "LOGDB_CLUSTER", "cluster.toml"


def cluster_option(function: Function) -> Function:
    """The option that names a cluster."""
    return click.option(
        "--cluster",
        "config",
        metavar="FILE",
        envvar=CLUSTER_VARIABLE,
        default=CLUSTER_NAME,
        help=f"The cluster.toml of one of its nodes  [env: {CLUSTER_VARIABLE}; default: ./{CLUSTER_NAME}]",
    )(function)


@click.command(short_help="Show the quorum that decides on topics and leaders.")
@click.argument("verb", metavar="[describe]", required=False, type=click.Choice(["describe"]), expose_value=False)
@click.option("--status", "--replication", "_what", is_flag=True, expose_value=False, hidden=True)
@cluster_option
@here
@pass_session
def quorum(session: Session, /, config: str) -> None:
    """Show each voter of the quorum: who leads, in which term, and the last command that each has.

    'describe --status' and 'describe --replication', as kafka-metadata-quorum has them, print the same.
    """
    session.refuse_servers("quorum asks the controllers, which cluster.toml names")
    voters = of_the_cluster("quorum")(config)
    if session.as_json:
        emit({"voters": voters})
    else:
        columns = ("node", "state", "term", "leader", "committed", "applied", "snapshot")
        table(
            columns,
            [[voter.get(column, "") if "error" not in voter or column == "node" else "-" for column in columns] for voter in voters],
        )
        for voter in voters:
            if voter.get("starved"):
                say(f"node {voter['node']} at {voter['address']}: the machine is starved, its voter runs {voter['late_ms']} ms late")
            if reason := voter.get("error") or voter.get("failure"):
                say(f"node {voter['node']} at {voter['address']}: {reason}")
    session.exit_code = 0 if any(voter.get("state") == "leader" for voter in voters) else 1


@click.group(short_help="Show a cluster's brokers; move leadership away from one.")
@here
def brokers() -> None:
    """Show the brokers of a cluster and the partitions they lead; drain one before you stop it."""


@brokers.command("list", short_help="Show the brokers.")
@cluster_option
@here
@pass_session
def list_brokers(session: Session, /, config: str) -> None:
    """Show each broker: addresses, whether it may lead, and its numbers of partitions: led, hosted, in sync."""
    session.refuse_servers("brokers asks the controllers, which cluster.toml names")
    found = [{**one, "state": _state_of(one)} for one in of_the_cluster("brokers")(config)]
    if session.as_json:
        emit({"brokers": found})
        return
    columns = ("node", "http", "rack", "state", "leads", "replicas", "in sync")
    table(columns, [
        [one["node"], one["addresses"].get("http", ""), one["rack"], _shown_state(one), one["leads"], one["replicas"], one["in_sync"]]
        for one in found
    ])  # fmt: skip


def _state_of(broker: Mapping[str, Any]) -> str:
    return "fenced" if broker["fenced"] else "draining" if broker["draining"] else "active"


def _shown_state(broker: Mapping[str, Any]) -> str:
    """With what a fenced one waits for, as far as the controller that leads knows."""
    state, behind = _state_of(broker), broker.get("behind")
    if state != "fenced" or "behind" not in broker:
        return state
    return "fenced: it is not heard" if behind is None else f"fenced: {behind} changes behind"


@brokers.command(short_help="Move leadership away from a broker.")
@click.argument("node", metavar="NODE", type=WholeNumber(1))
@click.option("--cancel", is_flag=True, help="Let NODE lead again; a restart has the same effect.")
@click.option("--timeout", type=MILLISECONDS, default=60_000, metavar="TIME", help="How long to wait.  [default: 60s]")
@cluster_option
@here
@pass_session
def drain(session: Session, /, node: int, cancel: bool, timeout: int, config: str) -> None:
    """Move the leadership of all partitions from broker NODE to others.  NODE leads none until it is restarted, or until --cancel.

    Its replicas continue to follow.  The exit code is 1 while it leads partitions that have no other replica in sync.
    """
    session.refuse_servers("brokers asks the controllers, which cluster.toml names")
    left = of_the_cluster("drain")(
        config,
        node,
        draining=not cancel,
        timeout_s=timeout / 1000,
        progress=lambda count: say(f"broker {node} leads {counted(count, 'partition')} still"),
    )
    if session.as_json:
        emit({"node": node, "draining": not cancel, "leads": left})
    elif not cancel and not left:
        say(f"broker {node} leads nothing: it can be stopped")
    session.exit_code = 1 if left and not cancel else 0
