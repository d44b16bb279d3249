"""What kafka-consumer-groups prints of groups, offsets, members, states, resets and deletions.

Source: Kafka's ConsumerGroupCommand and GroupOffsetsResetter, 4.3.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from logdb.cli.terminal.output import line, say
from logdb.client.administration import GroupOffset
from logdb.errors import LogdbError
from logdb.model import TopicPartition
from logdb.requests.groups import GroupInfo, MemberInfo

_MISSING = "-"
_WIDTH = 15  # of a column at least


def rows(columns: Mapping[str, int], cells: Sequence[Sequence[object]]) -> list[str]:
    """Lines of columns; each is as wide as it has to be, and at least as wide as ``columns`` says; one of 0 is not filled."""
    names = list(columns)
    texts = [[_MISSING if cell in {None, ""} else str(cell) for cell in row] for row in cells]
    widths = [columns[name] and max([columns[name], *(len(row[number]) for row in texts)]) for number, name in enumerate(names)]
    return [" ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in [names, *texts]]


def _print(lines: Iterable[str]) -> None:
    line("", *lines)


def show_list(groups: Sequence[Mapping[str, str]], columns: Sequence[str]) -> None:
    """``--list``: groups alone, or with ``TYPE`` and ``STATE``."""
    if not columns:
        line(*(group["GROUP"] for group in groups))
        return
    width = max([_WIDTH, *(len(group["GROUP"]) for group in groups)]) + 10
    line(*rows({"GROUP": width, **dict.fromkeys(columns, 20)}, [[group[name] for name in ("GROUP", *columns)] for group in groups]))


def say_state(info: GroupInfo) -> None:
    """The message about a group without members, or in a rebalance."""
    if info.state == "Empty":
        say("", f"Consumer group '{info.group_id}' has no active members.")
    elif info.state != "Stable":
        say("", f"Warning: Consumer group '{info.group_id}' is rebalancing.")


def _host(member: MemberInfo) -> str:
    """As Kafka writes an address; a member in the process of the database has none."""
    return f"/{member.client_host}" if member.client_host else _MISSING


def show_offsets(info: GroupInfo, offsets: Sequence[GroupOffset], *, verbose: bool) -> None:
    """``--describe``, ``--describe --offsets``."""
    say_state(info)
    columns = {"GROUP": _WIDTH, "TOPIC": _WIDTH, "PARTITION": 10, **({"LEADER-EPOCH": _WIDTH} if verbose else {})}
    columns |= {"CURRENT-OFFSET": _WIDTH, "LOG-END-OFFSET": _WIDTH, "LAG": _WIDTH, "CONSUMER-ID": _WIDTH, "HOST": _WIDTH, "CLIENT-ID": 0}
    cells = []
    for row in offsets:
        committed, member = row.committed, row.member
        epoch = committed.leader_epoch if committed is not None and committed.leader_epoch >= 0 else None
        who = (None, None, None) if member is None else (member.member_id, _host(member), member.client_id)
        progress = (None if committed is None else committed.offset, row.end_offset, row.lag)
        cells.append([info.group_id, *row.partition, *([epoch] if verbose else []), *progress, *who])
    if cells:
        _print(rows(columns, cells))


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
            "HOST": _host(member),
            "CLIENT-ID": member.client_id,
            "#PARTITIONS": len(assigned[member.member_id]),
            "CURRENT-ASSIGNMENT": _assignment(assigned[member.member_id]),
        }
        for member in info.members
    ]
    if not static:
        del columns["GROUP-INSTANCE-ID"]
    end = "" if verbose else " "  # where Kafka's tool leaves room for the columns of --verbose
    _print(line + end for line in rows(columns, [[row.get(name) for name in columns] for row in cells]))


def _assignment(partitions: Sequence[TopicPartition]) -> str:
    """``topic:0,1;other:0``."""
    topics = groupby(sorted(partitions), lambda one: one.topic)
    return ";".join(f"{topic}:{','.join(str(one.partition) for one in of_topic)}" for topic, of_topic in topics)


def show_state(info: GroupInfo, coordinator: tuple[str | None, int], *, verbose: bool) -> None:
    """``--describe --state``; ``coordinator``: its address, None: it is not known, and its id."""
    say_state(info)
    columns = {"GROUP": _WIDTH, "COORDINATOR (ID)": 25, "ASSIGNMENT-STRATEGY": 20, "STATE": 20}
    columns |= {"GROUP-EPOCH": _WIDTH, "TARGET-ASSIGNMENT-EPOCH": 25} if verbose else {}
    epochs = [None, None] if verbose else []  # groups are of Kafka's type classic, which has none
    address, node_id = coordinator
    cells = [info.group_id, f"{address or _MISSING}  ({node_id})", info.protocol, info.state, *epochs, len(info.members)]
    _print(rows({**columns, "#MEMBERS": 0}, [cells]))


def show_reset(offsets: Sequence[tuple[str, str, int, int]]) -> None:
    """``--reset-offsets``: group, topic, partition and new offset."""
    _print(rows({"GROUP": _WIDTH, "TOPIC": _WIDTH, "PARTITION": 10, "NEW-OFFSET": 0}, offsets))


def show_deleted(names: Sequence[str]) -> None:
    """``--delete``."""
    quoted = ", ".join(f"'{name}'" for name in names)
    line(f"Deletion of requested consumer groups ({quoted}) was successful.")


def show_deleted_offsets(group_id: str, partitions: Sequence[TopicPartition], missing: Mapping[tuple[str, int | None], LogdbError]) -> None:
    """``--delete-offsets``; ``missing``: partitions that do not exist, with None instead of a number where the topic does not."""
    if missing:
        line("", "Error: Encountered some partition-level error, see the follow-up details.")
    else:
        line(f"Request succeeded for deleting offsets from group {group_id}.")
    cells = [*((*one, "Successful") for one in partitions), *((*one, f"Error: {error}") for one, error in missing.items())]
    columns = {"TOPIC": _WIDTH, "PARTITION": 10, "STATUS": _WIDTH}
    _print(rows(columns, sorted(cells, key=lambda row: (row[0], -1 if row[1] is None else row[1]))))
