"""Leaders that give partitions away in order."""

from logdb_replication.controller.commands import AlterInSync, ResignLeader
from logdb_replication.replica.handover import Handovers

CHANGE = AlterInSync(1, 11, "t", "id", 0, 4, 5, ((1, 11),))
RESIGN = ResignLeader("t", 0, 4)


def asked(*commands):
    """What the controller is asked for a partition that is given away by several commands, before the thread takes the first."""
    handovers, led = Handovers(lambda led, command: True, lambda: 0), object()
    handovers.end()
    for command in commands:
        handovers.begin(led, command)
    return handovers._commands[led]


def test_a_change_of_the_in_sync_set_is_never_forgotten_for_another_command():
    assert asked(CHANGE, RESIGN) == CHANGE
    assert asked(RESIGN, CHANGE) == CHANGE
