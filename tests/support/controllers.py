"""A state machine of controllers, and commands for it in short words."""

from logdb_replication.controller import commands
from logdb_replication.controller.commands import (
    AlterInSync,
    Answer,
    Command,
    CreateTopic,
    RegisterBroker,
    Registered,
    Replica,
    TopicIs,
    UnfenceBroker,
)
from logdb_replication.controller.machine import Machine
from logdb_replication.controller.state import TopicState

CLUSTER = "6c1f0c0e-7f0e-4d56-8a4f-0f6f0c9a3b11"


class Controllers:
    """One state machine; each command gets the next index."""

    def __init__(self, *, brokers: int = 0, racks: tuple[str, ...] = ()) -> None:
        self.machine = Machine(CLUSTER)
        self.epochs: dict[int, int] = {}
        for node in range(1, brokers + 1):
            self.register(node, rack=racks[node - 1] if racks else "")
            self.unfence(node)

    @property
    def state(self):
        return self.machine.state

    def apply(self, command: Command) -> Answer:
        """Its answer; a refusal is raised."""
        return commands.decode_answer(self.machine.apply(self.state.index + 1, commands.encode(command)))

    def register(
        self,
        node: int,
        incarnation: str = "a",
        *,
        rack: str = "",
        unclean: bool = False,
        directory_id: str = "",
        former: tuple[str, ...] | None = None,
    ) -> int:
        answer = self.apply(RegisterBroker(node, incarnation, {"http": (f"board{node}", 8080)}, rack, unclean, directory_id, former))
        assert isinstance(answer, Registered)
        self.epochs[node] = answer.broker_epoch
        return answer.broker_epoch

    def unfence(self, node: int) -> None:
        self.apply(UnfenceBroker(node, self.epochs[node]))

    def create(self, name: str = "t", *, partitions: int = 1, factor: int = 3, topic_id: str = "", **more) -> TopicState:
        answer = self.apply(
            CreateTopic(name, topic_id or f"id-of-{name}".replace("/", "-"), more.pop("config", {}), partitions, factor, **more)
        )
        assert isinstance(answer, TopicIs)
        return answer.topic

    def in_sync(self, *nodes: int, **changes) -> AlterInSync:
        """What the leader of t-0 proposes."""
        topic, partition = "t", 0
        known = self.state.partition(topic, partition)
        fields = {
            "node_id": known.leader or 1,
            "broker_epoch": self.epochs[known.leader or 1],
            "topic": topic,
            "topic_id": self.state.topics[topic].topic_id,
            "partition": partition,
            "leader_epoch": known.leader_epoch,
            "partition_epoch": known.partition_epoch,
            "in_sync": tuple(Replica(node, self.epochs.get(node, 0)) for node in nodes),
        }
        return AlterInSync(**{**fields, **changes})
