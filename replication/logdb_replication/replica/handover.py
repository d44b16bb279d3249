"""A leader that gives partitions away in order.

    appends are refused ──► what was appended before is committed, and so answered ──► the controller elects another leader
                                                                               └──► it does not: appends are taken again

So no producer has to send again what the next leader has already, and no record that only the leader has is cut off.  What is not
committed in time goes on as after a crash.

    the node ends                                ``ReplicaManager.hand_over``, all at once
    its first replica is to lead again           ``Handovers``, one partition after the other
    a reassignment ends, and takes the leader    ``Handovers``
    an operator drains the node                  ``Handovers``

Threading: any thread begins one; ``logdb-handovers`` does them.
"""

import logging
from collections.abc import Callable, Collection

from logdb.broker.waiting import commit
from logdb.errors import LogdbError
from logdb_replication.controller.commands import AlterInSync, ElectPreferred, ResignLeader
from logdb_replication.replica.led import LedPartition
from logdb_replication.replica.worker import Worker

logger = logging.getLogger(__name__)

TIMEOUT_S = 1.0
Command = AlterInSync | ElectPreferred | ResignLeader


class Handovers:
    """``_commands``: what to ask the controller for a partition; any thread adds one, its own takes it."""

    def __init__(self, ask: Callable[[LedPartition, Command], bool], now_ms: Callable[[], int]) -> None:
        """Start the thread; ``ask``: asks the controller, and returns whether another leader was elected."""
        self._ask, self._now_ms = ask, now_ms
        self._commands: dict[LedPartition, Command] = {}
        self._worker: Worker[LedPartition] = Worker("logdb-handovers", self._work)

    def begin(self, led: LedPartition, command: Command) -> None:
        """Give a partition away; waits for nothing."""
        if isinstance(command, AlterInSync):  # its leader asks nothing else before it has the answer
            self._commands[led] = command
        else:
            self._commands.setdefault(led, command)
        self._worker.add(led)

    def _work(self, partitions: Collection[LedPartition]) -> None:
        for led in partitions:
            command, is_elected = self._commands.pop(led, None), False
            if command is None or led.is_over:
                continue
            led.refuse_appends()
            try:
                commit_all([led], self._now_ms, TIMEOUT_S)
                is_elected = self._ask(led, command)
            finally:
                if not is_elected:
                    led.take_appends()

    def end(self) -> None:
        """End the thread behind its present partition, and wait for that."""
        self._worker.end()
        self._worker.join()


def commit_all(partitions: Collection[LedPartition], now_ms: Callable[[], int], timeout_s: float) -> None:
    """Return once all that these logs have is committed, or after a time; they take no appends."""
    until_ms = now_ms() + round(timeout_s * 1000)
    for led in partitions:
        try:
            commit(led, led.log.end_offset, max(0, until_ms - now_ms()) / 1000)
        except LogdbError as error:
            logger.info("%s is handed over before all its records are committed: %s", led.where, error)
