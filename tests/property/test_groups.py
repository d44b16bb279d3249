"""Groups and their offsets against a model, without I/O: members that come, go, sleep and come too late, restarts as a rule."""

import os
from dataclasses import dataclass
from typing import Any, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from logdb.coordinator.consumer_protocol import Assignment, Subscription
from logdb.coordinator.groups import session_timer
from logdb.errors import (
    DiskFull,
    FencedInstance,
    GroupFull,
    GroupNotEmpty,
    IllegalGeneration,
    InconsistentProtocol,
    LogdbError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownGroup,
    UnknownMember,
)
from logdb.model import OffsetAndMetadata, ProducerIdAndEpoch, TopicPartition
from logdb.requests.groups import CommitOffsets, DeleteGroup, FetchOffsets, Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from logdb.requests.transactions import CommitTransactionOffsets
from support.coordination import group_runner

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
SESSION_MS, REBALANCE_MS = 10_000, 30_000
PARTITIONS = tuple(TopicPartition("t", number) for number in range(4))
PROTOCOLS = (("range",), ("range", "sticky"), ("sticky", "range"), ("sticky",))
REFUSED = (UnknownMember, FencedInstance, IllegalGeneration, RebalanceInProgress)


@dataclass
class Client:
    """A consumer: what it knows of the group."""

    instance: str | None
    protocols: tuple[str, ...]
    needs_id: bool
    member_id: str = ""
    generation: int = -1
    owned: tuple[TopicPartition, ...] = ()
    joining: int | None = None
    syncing: int | None = None
    joined: Any = None  # an answer that it did not act upon yet
    slow: bool = False

    def forget(self) -> None:
        self.generation, self.owned, self.joining, self.syncing, self.joined = -1, (), None, None, None


class GroupMachine(RuleBasedStateMachine):
    config: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.runner = group_runner(member_count_max=4, **self.config)
        self.clients: list[Client] = []
        self.identities: list[tuple[str, int]] = []  # (member id, generation) that a member ever had
        self.brought: dict[int, dict[str, bytes]] = {}  # what the leader of a generation brought, once it was taken
        self.committed: dict[TopicPartition, tuple[int, int]] = {}  # offset, and when
        self.pending: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
        self.commits = 0
        self.generation = 0

    @property
    def info(self) -> Any:
        try:
            return self.runner.coordinator.describe("g")
        except UnknownGroup:
            return None

    # ------------------------------------------------------------ members

    @precondition(lambda self: len(self.clients) < 6)
    @rule(instance=st.none() | st.sampled_from("ab"), protocols=st.sampled_from(PROTOCOLS), needs_id=st.booleans(), slow=st.booleans())
    def come(self, instance: str | None, protocols: tuple[str, ...], needs_id: bool, slow: bool) -> None:
        self.clients.append(Client(instance, protocols, needs_id, slow=slow))
        self.join_as(self.clients[-1])

    @precondition(lambda self: any(client.joined for client in self.clients))
    @rule()
    def sync(self) -> None:
        for client in self.clients:
            if client.joined:
                self.sync_as(client)
        self.look()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def join(self, data: Any) -> None:
        self.join_as(data.draw(st.sampled_from(self.clients)))

    def join_as(self, client: Client) -> None:
        protocols = tuple((name, Subscription(("t",), owned_partitions=client.owned).encode()) for name in client.protocols)
        client.joining = self.runner.start(
            JoinGroup,
            group_id="g",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocols=protocols,
            member_id=client.member_id,
            group_instance_id=client.instance,
            client_host="/h",
            require_member_id=client.needs_id,
        )
        self.look()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def poll(self, data: Any) -> None:
        """A sign of life; who is told of a rebalance joins."""
        client = data.draw(st.sampled_from(self.clients))
        if client.generation >= 0 and client.joining is None:
            try:
                self.runner.call(Heartbeat, group_id="g", **self.fields(client))
            except RebalanceInProgress:
                self.join_as(client)
            except REFUSED as error:
                self.lost(client, error)

    @rule()
    def poll_all(self) -> None:
        """All members take part, until the group is stable or one sleeps."""
        for _ in range(3):
            for client in self.clients:
                if client.generation < 0 and client.joining is None:
                    self.join_as(client)
                elif client.joining is None and client.syncing is None:
                    try:
                        self.runner.call(Heartbeat, group_id="g", **self.fields(client))
                    except RebalanceInProgress:
                        self.join_as(client)
                    except REFUSED as error:
                        self.lost(client, error)

    @precondition(lambda self: len(self.clients) > 2)
    @rule(data=st.data(), by_instance=st.booleans())
    def leave(self, data: Any, by_instance: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        who = {"member_id": "" if by_instance and client.instance else client.member_id, "group_instance_id": client.instance}
        try:
            self.runner.call(LeaveGroup, group_id="g", **who)
        except DiskFull:
            return
        except REFUSED:
            pass
        self.clients.remove(client)
        self.look()

    @precondition(lambda self: len(self.clients) > 2)
    @rule(data=st.data())
    def vanish(self, data: Any) -> None:
        self.clients.remove(data.draw(st.sampled_from(self.clients)))

    def fields(self, client: Client) -> dict[str, Any]:
        return {"member_id": client.member_id, "generation": client.generation, "group_instance_id": client.instance}

    def lost(self, client: Client, error: LogdbError) -> None:
        if not isinstance(error, RebalanceInProgress | DiskFull):
            client.member_id = ""
        client.forget()

    def look(self) -> None:
        """Clients take in their answers: who has joined syncs, who has synced owns."""
        progress = True
        while progress:
            progress = False
            for client in self.clients:
                for kind, ticket in (("joining", client.joining), ("syncing", client.syncing)):
                    if ticket is not None and not self.runner.waits(ticket):
                        setattr(client, kind, None)
                        self.take(client, kind, self.runner.replies[ticket])
                        progress = True

    def take(self, client: Client, kind: str, result: Any) -> None:
        if isinstance(result, MemberIdRequired):
            client.member_id = result.member_id
            self.join_as(client)
        elif isinstance(result, GroupFull | InconsistentProtocol):
            client.forget()
        elif isinstance(result, LogdbError):
            assert isinstance(result, (*REFUSED, DiskFull))
            self.lost(client, result)
        elif kind == "joining":
            client.member_id, client.generation, client.owned = result.member_id, result.generation, ()
            self.identities.append((result.member_id, result.generation))
            client.joined = result
            if not client.slow:
                self.sync_as(client)
        else:
            client.owned = Assignment.decode(result.assignment).partitions

    def sync_as(self, client: Client) -> None:
        joined, client.joined = client.joined, None
        assignments = {}
        if joined.members and not joined.skip_assignment:
            names = [member.member_id for member in joined.members]
            assignments = {name: Assignment(PARTITIONS[at :: len(names)]).encode() for at, name in enumerate(names)}
        before = self.info and self.info.state
        client.syncing = self.runner.start(SyncGroup, group_id="g", assignments=assignments, **self.fields(client))
        if before == "CompletingRebalance" and self.info and self.info.state == "Stable":
            assert joined.generation not in self.brought, "one leader decides a generation, once"
            self.brought[joined.generation] = assignments

    # ------------------------------------------------------------ offsets

    @rule(
        data=st.data(),
        partition=st.sampled_from(PARTITIONS),
        transaction=st.none() | st.integers(1, 2),
        who=st.sampled_from(["a member", "an old member", "nobody"]),
    )
    def commit(self, data: Any, partition: TopicPartition, transaction: int | None, who: str) -> None:
        """By a member of now, by any that there ever was, or without one."""
        member_id, generation, instance = "", -1, None
        if who == "an old member" and self.identities:
            member_id, generation = data.draw(st.sampled_from(self.identities))
        elif who == "a member" and self.clients:
            client = data.draw(st.sampled_from(self.clients))
            member_id, generation, instance = client.member_id, client.generation, client.instance
        info, self.commits = self.info, self.commits + 1
        offsets = {partition: OffsetAndMetadata(self.commits)}
        fields = {"group_id": "g", "offsets": offsets, "member_id": member_id, "generation": generation, "group_instance_id": instance}
        try:
            if transaction is None:
                self.runner.call(CommitOffsets, **fields)
            else:
                self.runner.call(CommitTransactionOffsets, transactional_id="x", producer=ProducerIdAndEpoch(transaction, 0), **fields)
        except (*REFUSED, DiskFull):
            return
        members = {member.member_id for member in info.members} if info else set()
        if members:
            nobody = transaction is not None and (member_id, generation, instance) == ("", -1, None)
            assert nobody or (member_id in members and generation == info.generation), "only members of the generation commit"
            assert transaction is not None or info.state != "CompletingRebalance"
        entry = (self.commits, self.commits)
        if transaction is None:
            self.committed[partition] = entry
        else:
            self.pending.setdefault(transaction, {})[partition] = entry

    @rule(transaction=st.integers(1, 2), commit=st.booleans())
    def end_transaction(self, transaction: int, commit: bool) -> None:
        self.runner.mark(transaction, commit=commit)
        for partition, entry in self.pending.pop(transaction, {}).items():
            if commit and entry[1] > self.committed.get(partition, (0, 0))[1]:
                self.committed[partition] = entry

    @rule()
    def delete(self) -> None:
        try:
            self.runner.call(DeleteGroup, group_id="g")
        except (GroupNotEmpty, UnknownGroup, DiskFull):
            return
        self.committed.clear()
        self.pending.clear()
        self.generation = 0
        self.brought.clear()

    # ------------------------------------------------------------ the world

    @rule(delay_ms=st.sampled_from([1, 5_000, SESSION_MS, REBALANCE_MS, 120_000]))
    def time(self, delay_ms: int) -> None:
        self.runner.advance(delay_ms)
        self.look()
        if self.info is None:  # swept
            self.generation = 0
            self.brought.clear()

    @rule(refuses=st.sampled_from([False, False, True]))
    def disk(self, refuses: bool) -> None:
        self.runner.refuses = refuses

    @rule()
    def restart(self) -> None:
        """Calls under way are lost; a rebalance that was under way, too."""
        self.runner.refuses = False
        for client in self.clients:
            if client.joining is not None or client.syncing is not None or client.joined:
                client.forget()
        self.runner.reopen()
        self.generation = self.info.generation if self.info else 0
        self.brought = {generation: brought for generation, brought in self.brought.items() if generation <= self.generation}

    # ------------------------------------------------------------ what always holds

    @invariant()
    def generations_grow(self) -> None:
        generation = self.info.generation if self.info else 0
        assert generation >= self.generation
        self.generation = generation

    @invariant()
    def one_owner_per_partition(self) -> None:
        if self.info is None or self.info.state != "Stable":
            return
        members = {member.member_id: member for member in self.info.members}
        owned = [partition for member in members.values() for partition in Assignment.decode(member.assignment).partitions]
        assert len(owned) == len(set(owned)), "a partition has one owner"
        for client in self.clients:
            if client.member_id in members and client.generation == self.info.generation and client.owned:
                assert Assignment.decode(members[client.member_id].assignment).partitions == client.owned
        for member_id, assignment in self.brought.get(self.info.generation, {}).items():
            assert member_id not in members or members[member_id].assignment == assignment

    @invariant()
    def offsets_are_the_models(self) -> None:
        found = self.runner.coordinator.fetch_offsets(FetchOffsets("g"))
        assert {partition: value.offset for partition, value in found.items()} == {p: entry[0] for p, entry in self.committed.items()}

    @invariant()
    def the_state_makes_sense(self) -> None:
        info = self.info
        if info is None:
            return
        assert not (info.members and info.state == "Empty")
        assert len(info.members) <= 4
        instances = [member.group_instance_id for member in info.members if member.group_instance_id]
        assert len(instances) == len(set(instances)), "an instance is one member"
        if info.state in ("Stable", "CompletingRebalance"):
            assert info.leader_id in {member.member_id for member in info.members}

    @invariant()
    def who_waits_for_nothing_has_a_session(self) -> None:
        for member in self.runner.coordinator._group("g").members.values():
            is_waiting = member.join_ticket is not None or member.sync_ticket is not None
            assert is_waiting or session_timer("g", member.member_id) in self.runner.timers

    @invariant()
    def replay_gives_the_same(self) -> None:
        shadow = group_runner(**self.config)
        shadow.log = list(self.runner.log)
        shadow.open()
        for stable in (False, True):
            assert fetched(shadow, stable) == fetched(self.runner, stable)
        if self.info is not None and self.info.state in ("Stable", "Empty") and self.info.protocol_type and not self.runner.refuses:
            assert shadow.coordinator.describe("g") == self.info

    def teardown(self) -> None:
        """In the end the members have all partitions."""
        self.runner.refuses = False
        self.clients = [client for client in self.clients if "range" in client.protocols and client.instance is None][:3]
        for _ in range(30):
            self.runner.advance(5_000)
            self.look()
            self.sync()
            self.poll_all()
        if self.clients:
            assert self.info.state == "Stable"
            owned = sorted(partition for client in self.clients for partition in client.owned)
            assert owned == sorted(PARTITIONS)


def fetched(runner: Any, stable: bool) -> Any:
    try:
        return runner.coordinator.fetch_offsets(FetchOffsets("g", require_stable=stable))
    except LogdbError as error:
        return str(error)


class DelayedGroupMachine(GroupMachine):
    config: ClassVar[dict[str, Any]] = {"initial_rebalance_delay_ms": 3_000}


TestGroups = GroupMachine.TestCase
TestDelayedGroups = DelayedGroupMachine.TestCase
for _case in (TestGroups, TestDelayedGroups):
    _case.settings = settings(max_examples=40 * SCALE, stateful_step_count=40)
