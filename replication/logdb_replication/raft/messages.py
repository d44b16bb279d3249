"""What voters say to each other, as bytes: one table of the messages, big-endian, without pickle.

    message   type u8 · numbers u64 … · flags u8 · tail
    tail      nothing
              ids:     u64 …, at most IDS_MAX - 1: the starts before the sender's own
              entries: count u32 · (term u64 · length u32 · command) …; their indexes follow ``prevLogIdx``
              data:    the rest of the message

A message is a dict; its ``type`` chooses the line of the table.  ``start_id`` is the sender's start (``starts``).  Ids of starts are any
u64; every other number is less than ``NUMBER_END``, so that the numbers after it fit, too.
"""

import struct
from typing import Any, NamedTuple, TypeAlias

from logdb.errors import InvalidMessage
from logdb_replication.raft.starts import IDS_MAX

Message: TypeAlias = dict[str, Any]
Entry: TypeAlias = tuple[bytes, int, int]
"""Command, index, term: in this order, pysyncobj looks at them (``pysyncobj_adapter``)."""

COMMAND, NO_OP, VOTERS = b"\0", b"\1", b"\2"
"""The first byte of an entry: a command, the first entry of a term, a change of the voters."""

NUMBER_END = 1 << 62
_IDS = {"start_id", "of"}
_ENTRY = struct.Struct(">QI")
_COUNT = struct.Struct(">I")


class _Layout(NamedTuple):
    name: str
    numbers: tuple[str, ...]
    flags: tuple[str, ...] = ()
    tail: str = ""


_LAYOUTS = (
    _Layout("append_entries", ("start_id", "term", "round", "commit_index", "prevLogIdx", "prevLogTerm"), tail="entries"),
    _Layout("next_node_idx", ("start_id", "term", "round", "next_node_idx"), ("reset", "success")),
    _Layout("pre_vote", ("start_id", "term", "last_log_index", "last_log_term")),
    _Layout("pre_vote_reply", ("start_id", "term"), ("granted",)),
    _Layout("request_vote", ("start_id", "term", "last_log_index", "last_log_term")),
    _Layout("response_vote", ("start_id", "term"), ("granted",)),
    _Layout("snapshot", ("start_id", "term", "round", "index", "offset", "size_bytes"), tail="data"),
    _Layout("snapshot_reply", ("start_id", "term", "round", "index", "offset")),
    _Layout("start", ("start_id", "number", "term", "durable"), ("voted",), tail="ids"),
    _Layout("start_reply", ("start_id", "of"), ("known",), tail="data"),
)
_BY_NAME = {layout.name: (number, layout, struct.Struct(f">B{len(layout.numbers)}QB")) for number, layout in enumerate(_LAYOUTS)}
_BY_NUMBER = {number: (layout, head) for number, layout, head in _BY_NAME.values()}


def encode(message: Message) -> bytes:
    number, layout, head = _BY_NAME[message["type"]]
    flags = sum(bool(message[name]) << bit for bit, name in enumerate(layout.flags))
    data = head.pack(number, *[message[name] for name in layout.numbers], flags)
    if layout.tail == "entries":
        entries: list[Entry] = message["entries"]
        parts = [data, _COUNT.pack(len(entries))]
        for command, _, term in entries:
            parts += (_ENTRY.pack(term, len(command)), command)
        return b"".join(parts)
    if layout.tail == "ids":
        return data + _pack_ids(message["ids"])
    return data + message["data"] if layout.tail else data


def decode(data: bytes) -> Message:
    """A message of exactly these bytes.

    Raises:
        InvalidMessage: They are none.
    """
    if not data or data[0] not in _BY_NUMBER:
        raise InvalidMessage(0, "an unknown type of message")
    layout, head = _BY_NUMBER[data[0]]
    try:
        _, *numbers, flags = head.unpack_from(data)
    except struct.error as error:
        raise InvalidMessage(len(data), str(error)) from None
    if flags >> len(layout.flags):
        raise InvalidMessage(head.size - 1, f"unknown flags {flags:#x}")
    message: Message = {"type": layout.name, **dict(zip(layout.numbers, numbers, strict=True))}
    for name in layout.numbers:
        if message[name] >= NUMBER_END and name not in _IDS:
            raise InvalidMessage(1, f"{name} is {message[name]}: must be less than {NUMBER_END}")
    for bit, name in enumerate(layout.flags):
        message[name] = bool(flags >> bit & 1)
    if layout.tail == "data":
        message["data"] = data[head.size :]
    elif layout.tail == "ids":
        message["ids"] = _unpack_ids(data, head.size)
    elif layout.tail == "entries":
        message["entries"] = _entries(data, head.size, message["prevLogIdx"])
    elif len(data) != head.size:
        raise InvalidMessage(head.size, f"{len(data) - head.size} bytes too many")
    return message


def _pack_ids(ids: tuple[int, ...]) -> bytes:
    return struct.pack(f">{len(ids)}Q", *ids)


def _unpack_ids(data: bytes, position: int) -> tuple[int, ...]:
    count, rest = divmod(len(data) - position, 8)
    if rest:
        raise InvalidMessage(len(data), "an id is cut off")
    if count >= IDS_MAX:
        raise InvalidMessage(position, f"{count} ids: at most {IDS_MAX - 1} are told")
    return struct.unpack_from(f">{count}Q", data, position)


def _entries(data: bytes, position: int, previous: int) -> list[Entry]:
    try:
        (count,) = _COUNT.unpack_from(data, position)
        position += _COUNT.size
        entries = []
        for index in range(previous + 1, previous + 1 + count):
            term, size_bytes = _ENTRY.unpack_from(data, position)
            if term >= NUMBER_END:
                raise InvalidMessage(position, f"the term at index {index} is {term}: must be less than {NUMBER_END}")
            position += _ENTRY.size + size_bytes
            if not size_bytes or position > len(data):
                raise InvalidMessage(position, f"the command at index {index} is empty, or longer than its message")
            entries.append((data[position - size_bytes : position], index, term))
    except struct.error as error:
        raise InvalidMessage(position, str(error)) from None
    if position != len(data):
        raise InvalidMessage(position, f"{len(data) - position} bytes too many")
    return entries
