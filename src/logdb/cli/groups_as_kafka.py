"""What kafka-consumer-groups prints of members, states, resets and deletions.

Source: Kafka's ConsumerGroupCommand and GroupOffsetsResetter, 4.3.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

import click

from logdb.cli.output import say
from logdb.coordinator.events import GroupInfo
from logdb.model import TopicPartition

_MISSING = "-"
_WIDTH = 15  # of a column at least


def rows(columns: Mapping[str, int], cells: Sequence[Sequence[object]]) -> list[str]:
    """Lines of columns; each but the last is as wide as it has to be, and at least as wide as ``columns`` says."""
    names = list(columns)
    texts = [[_MISSING if cell in {None, ""} else str(cell) for cell in row] for row in cells]
    widths = [max(columns[name], *(len(row[number]) for row in texts), 0) for number, name in enumerate(names)]
    return [" ".join(text.ljust(width) for text, width in zip(row[:-1], widths, strict=False)) + f" {row[-1]}" for row in [names, *texts]]


def _print(lines: Iterable[str]) -> None:
    click.echo("\n" + "\n".join(lines))


def show_types(groups: Sequence[tuple[str, str, str]], *, with_state: bool) -> None:
    """``--list --type``: group, type and state."""
    width = max([_WIDTH, *(len(name) for name, _, _ in groups)]) + 10
    columns = {"GROUP": width, "TYPE": 20, **({"STATE": 20} if with_state else {})}
    click.echo("\n".join(rows(columns, [row[: len(columns)] for row in groups])))


def say_state(info: GroupInfo) -> None:
    """The message about a group without members, or in a rebalance."""
    if info.state == "Empty":
        say(f"\nConsumer group '{info.group_id}' has no active members.")
    elif info.state != "Stable":
        say(f"\nWarning: Consumer group '{info.group_id}' is rebalancing.")


def show_members(info: GroupInfo, assigned: Mapping[str, Sequence[TopicPartition]], *, verbose: bool) -> None:
    """``--describe --members``; groups are of Kafka's type classic, which have neither epochs nor targets."""
    say_state(info)
    static = any(member.group_instance_id for member in info.members)
    columns = {"GROUP": _WIDTH, "CONSUMER-ID": _WIDTH, "GROUP-INSTANCE-ID": 17, "HOST": _WIDTH, "CLIENT-ID": _WIDTH, "#PARTITIONS": _WIDTH}
    columns |= {"CURRENT-EPOCH": _WIDTH, "CURRENT-ASSIGNMENT": 20, "TARGET-EPOCH": _WIDTH, "TARGET-ASSIGNMENT": 20} if verbose else {}
    cells = [
        {
            "GROUP": info.group_id,
            "CONSUMER-ID": member.member_id,
            "GROUP-INSTANCE-ID": member.group_instance_id,
            "HOST": member.client_host,
            "CLIENT-ID": member.client_id,
            "#PARTITIONS": len(assigned[member.member_id]),
            "CURRENT-ASSIGNMENT": _assignment(assigned[member.member_id]),
        }
        for member in info.members
    ]
    if not static:
        del columns["GROUP-INSTANCE-ID"]
    _print(rows(columns, [[row.get(name) for name in columns] for row in cells]))


def _assignment(partitions: Sequence[TopicPartition]) -> str:
    """``topic:0,1;other:0``."""
    topics = groupby(sorted(partitions), lambda one: one.topic)
    return ";".join(f"{topic}:{','.join(str(one.partition) for one in of_topic)}" for topic, of_topic in topics)


def show_state(info: GroupInfo, coordinator: str, *, verbose: bool) -> None:
    """``--describe --state``; ``coordinator``: the address of the server."""
    say_state(info)
    columns = {"GROUP": _WIDTH, "COORDINATOR (ID)": 25, "ASSIGNMENT-STRATEGY": 20, "STATE": 20}
    columns |= {"GROUP-EPOCH": _WIDTH, "TARGET-ASSIGNMENT-EPOCH": 25} if verbose else {}
    epochs = [info.generation, info.generation] if verbose else []
    cells = [info.group_id, f"{coordinator}  (0)", info.protocol, info.state, *epochs, len(info.members)]
    _print(rows({**columns, "#MEMBERS": 0}, [cells]))


def show_reset(offsets: Sequence[tuple[str, str, int, int]]) -> None:
    """``--reset-offsets``: group, topic, partition and new offset."""
    _print(rows({"GROUP": _WIDTH, "TOPIC": _WIDTH, "PARTITION": 10, "NEW-OFFSET": 0}, offsets))


def show_deleted(names: Sequence[str]) -> None:
    """``--delete``."""
    quoted = ", ".join(f"'{name}'" for name in names)
    click.echo(f"Deletion of requested consumer groups ({quoted}) was successful.")


def show_deleted_offsets(group_id: str, partitions: Sequence[TopicPartition]) -> None:
    """``--delete-offsets``."""
    click.echo(f"Request succeeded for deleting offsets from group {group_id}.")
    _print(rows({"TOPIC": _WIDTH, "PARTITION": 10, "STATUS": 0}, [(*one, "Successful") for one in partitions]))
