"""The copy of the metadata: who is told of a state, and when."""

import threading

from logdb.errors import Closed
from logdb_replication.controller import commands
from logdb_replication.controller.messages import Watched
from logdb_replication.controller.state_copy import StateCopy
from support.faulty_io import WAIT_S


class Client:
    """Controllers whose commands a test gives; ``watch`` returns them at once."""

    cluster = "c"

    def __init__(self) -> None:
        self._commands: list[bytes] = []
        self._moved, self._closed = threading.Condition(), False

    def give(self, node: int) -> None:
        with self._moved:
            self._commands.append(commands.encode(commands.RegisterBroker(node, f"i{node}", {})))
            self._moved.notify_all()

    def watch(self, index: int, wait_ms: int) -> Watched:
        with self._moved:
            self._moved.wait_for(lambda: len(self._commands) > index or self._closed, WAIT_S)
            if self._closed:
                raise Closed("closed")
            found = list(enumerate(self._commands, 1))[index:]
            return Watched(len(self._commands), None, found)

    def close(self) -> None:
        with self._moved:
            self._closed = True
            self._moved.notify_all()


def test_a_state_is_foreseen_while_an_earlier_one_waits():
    client, heals, foreseen, changed = Client(), threading.Event(), [], []
    waits, seen = threading.Event(), threading.Semaphore(0)

    def change(state):
        waits.set()
        heals.wait(WAIT_S)
        changed.append(state.index)

    def foresee(state):
        foreseen.append(state.index)
        seen.release()

    copy = StateCopy(client, change, foresee)
    try:
        for node in (1, 2):
            client.give(node)
            assert seen.acquire(timeout=WAIT_S)
            assert waits.wait(WAIT_S)
        assert foreseen == [1, 2]
        assert changed == []
        heals.set()
        assert copy.wait_for(2, WAIT_S).index == 2
        assert changed == [1, 2]
    finally:
        heals.set()
        client.close()
        copy.close()


def test_an_error_of_one_state_keeps_no_later_one_away():
    client, changed = Client(), []

    def change(state):
        changed.append(state.index)
        raise ValueError("a fault")

    copy = StateCopy(client, change, change)
    try:
        for index in (1, 2):
            client.give(index)
            assert copy.wait_for(index, WAIT_S).index == index
        assert changed == [1, 1, 2, 2]
    finally:
        client.close()
        copy.close()
