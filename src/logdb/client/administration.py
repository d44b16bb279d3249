"""Administration of groups and transactions: a part of ``Database``."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from logdb.errors import GroupNotEmpty, InvalidGroup, InvalidMessage, OffsetOutOfRange, UnknownGroup, UnknownPartition, UnknownTopic
from logdb.handles import Handle
from logdb.mistakes import checked_call
from logdb.model import OffsetAndMetadata, Partition, TopicPartition, partition_of, positions_of
from logdb.signatures import readable

if TYPE_CHECKING:
    from logdb.requests.groups import GroupInfo, GroupSummary, MemberInfo
    from logdb.requests.session import Session
    from logdb.requests.transactions import TransactionInfo


class GroupOffset(NamedTuple):
    """The progress of a group in one partition.

    ``committed`` is None without a committed offset, ``member`` if no member reads the partition, ``end_offset`` if the partition was
    deleted; ``lag`` (records behind the committed offset) if the first or the last is None.
    """

    partition: TopicPartition
    committed: OffsetAndMetadata | None
    end_offset: int | None
    lag: int | None
    member: "MemberInfo | None"


@readable
class Administration(Handle, ABC):
    """The methods of ``Database`` for groups and transactions."""

    @property
    @abstractmethod
    def _session(self) -> "Session": ...

    # ------------------------------------------------------------ groups

    def groups(self) -> "list[GroupSummary]":
        """All groups that have members or offsets, by name, with their state."""
        return self._session.groups()

    @checked_call
    def describe_group(self, group_id: str) -> "GroupInfo":
        """State, protocol and members of a group; metadata and assignments in the protocol's bytes.

        Raises:
            UnknownGroup: No group of that name has members or offsets.
        """
        return self._session.describe_group(group_id)

    @checked_call
    def group_offsets(self, group_id: str) -> list[GroupOffset]:
        """The progress of a group in each partition with a committed offset or a member, sorted.

        Raises:
            UnknownGroup: No group of that name has members or offsets.
        """
        info = self.describe_group(group_id)
        committed, readers = positions_of(self._session.fetch_offsets(group_id)), _readers(info)
        return [
            self._group_offset(partition, committed.get(partition), readers.get(partition))
            for partition in sorted(committed.keys() | readers.keys())
        ]

    def _group_offset(self, partition: TopicPartition, committed: OffsetAndMetadata | None, member: "MemberInfo | None") -> GroupOffset:
        try:
            end_offset = self._session.log(*partition).end_offset
        except (UnknownTopic, UnknownPartition):
            return GroupOffset(partition, committed, None, None, member)
        return GroupOffset(partition, committed, end_offset, None if committed is None else max(0, end_offset - committed.offset), member)

    @checked_call
    def reset_offsets(self, group_id: str, offsets: Mapping[Partition, int]) -> None:
        """Set a group's committed offsets; durable at the level of ``__consumer_offsets``.

        The group may be a new one.

        Args:
            offsets: Each in [start_offset, end_offset] of its partition.

        Raises:
            GroupNotEmpty: Its members would continue from their own positions; nothing was changed, also with the next errors.
            OffsetOutOfRange, UnknownTopic, UnknownPartition, InvalidGroup: see ``logdb.errors``.
        """
        if not group_id:
            raise InvalidGroup("a group needs a name")
        try:
            info = self.describe_group(group_id)
        except UnknownGroup:
            info = None
        if info is not None and info.members:
            raise GroupNotEmpty(group_id, len(info.members))
        wanted = {partition_of(partition): OffsetAndMetadata(_offset(offset)) for partition, offset in offsets.items()}
        for partition, (offset, *_) in wanted.items():
            log = self._session.log(*partition)
            start, end = log.start_offset, log.end_offset
            if not start <= offset <= end:
                raise OffsetOutOfRange(*partition, offset, start, end)
        self._session.commit_offsets(group_id, wanted).result()

    @checked_call
    def delete_group(self, group_id: str) -> None:
        """Delete a group and its offsets.

        Raises:
            UnknownGroup, GroupNotEmpty: Nothing was changed.
        """
        self._session.delete_group(group_id)

    @checked_call
    def delete_group_offsets(self, group_id: str, partitions: Iterable[tuple[str, int]]) -> None:
        """Delete a group's offsets of some partitions.

        Raises:
            UnknownGroup: Nothing was changed.
            GroupNotEmpty: A member subscribes to one of the topics; the offsets of the others were deleted.
        """
        self._session.delete_offsets(group_id, list(map(partition_of, partitions)))

    # ------------------------------------------------------------ transactions

    def transactions(self) -> "list[TransactionInfo]":
        """All transactional ids, sorted, with the state of their last transaction."""
        return self._session.transactions()

    @checked_call
    def describe_transaction(self, transactional_id: str) -> "TransactionInfo":
        """A transactional id and its last transaction.

        Raises:
            InvalidProducer: No producer has used the id.
        """
        return self._session.describe_transaction(transactional_id)

    @checked_call
    def abort_transaction(self, transactional_id: str) -> None:
        """Abort the open transaction, and fence its producer.

        Raises:
            InvalidTransactionState: No transaction is open.
            InvalidProducer: No producer has used the id.
        """
        self._session.abort_transaction(transactional_id)


def _readers(info: "GroupInfo") -> "dict[TopicPartition, MemberInfo]":
    """The member of each assigned partition; empty if the group does not use the consumers' protocol."""
    from logdb.coordinator.consumer_protocol import PROTOCOL_TYPE, Assignment

    readers: dict[TopicPartition, MemberInfo] = {}
    for member in info.members if info.protocol_type == PROTOCOL_TYPE else ():
        with contextlib.suppress(InvalidMessage):  # the leader is another program with its own format
            readers |= dict.fromkeys(Assignment.decode(member.assignment).partitions, member)
    return readers


def _offset(given: object) -> int:
    if not isinstance(given, int):
        raise TypeError(f"an offset is a whole number, not {given!r}")
    return given
