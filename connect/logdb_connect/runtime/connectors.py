"""A connector in its thread: it makes the configs of its tasks, also later when it asks for that.

A connector may block in ``start`` or ``task_configs``: that holds up nothing but itself.
"""

import logging
import queue
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from logdb_connect.errors import ConnectError
from logdb_connect.plugin import Connector, Properties
from logdb_connect.runtime.tasks import Report, State, Target, TooManyTasks, quietly

logger = logging.getLogger(__name__)

OnTasks = Callable[[Sequence[Properties]], None]
_RETRY_S = 1.0


class ConnectorRunner:
    """Runs one connector.  Threading: any thread; the connector's methods are called in its own."""

    def __init__(
        self,
        name: str,
        *,
        make: Callable[[], Connector],
        properties: Properties,
        max_tasks: int,
        target: Target,
        report: Report,
        on_tasks: OnTasks,
    ) -> None:
        self.name, self._make, self._properties, self._max_tasks = name, make, properties, max_tasks
        self._report, self._on_tasks = report, on_tasks
        self.state: State = "UNASSIGNED"
        self.trace: str | None = None
        self._connector: Connector | None = None
        self._abandoned = False
        self._orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._main, name=f"connect-{name}", daemon=True)
        self._orders.put(target)

    def start(self) -> None:
        self._thread.start()

    def transition(self, target: Target) -> None:
        self._orders.put(target)

    def request_stop(self) -> None:
        self._orders.put(None)

    def join(self, timeout_s: float) -> bool:
        return self._ended.wait(timeout_s)

    def abandon(self) -> None:
        logger.error("connector %s does not stop; its thread is abandoned", self.name)
        self._abandoned = True

    # ------------------------------------------------------------ what the connector sees

    def request_task_reconfiguration(self) -> None:
        self._orders.put("tasks")

    def raise_error(self, error: Exception) -> None:
        self._orders.put(error)

    # ------------------------------------------------------------ the thread

    def _main(self) -> None:
        try:
            while (order := self._orders.get()) is not None:
                try:
                    if isinstance(order, Exception):
                        raise order
                    self._obey(order)
                except Exception as error:  # noqa: BLE001 -- whatever a plugin raises makes its connector FAILED
                    logger.error("connector %s failed: %s: %s", self.name, type(error).__name__, error)
                    self._say("FAILED", "".join(traceback.format_exception(error)))
        finally:
            self._stop_connector()
            self._say("UNASSIGNED")
            self._ended.set()

    def _obey(self, order: str) -> None:
        if order == "tasks":
            if self._connector is not None:
                self._make_tasks()
        elif order != "STARTED":
            self._stop_connector()
            self._say("PAUSED" if order == "PAUSED" else "STOPPED")
        elif self._connector is None:
            connector = self._make()
            self._connector = connector
            connector.context = self
            connector.start(self._properties)
            self._make_tasks()
            self._say("RUNNING")

    def _make_tasks(self) -> None:
        assert self._connector is not None
        configs = list(self._connector.task_configs(self._max_tasks))
        if len(configs) > self._max_tasks and self._properties.get("tasks.max.enforce", "true").lower() != "false":
            raise TooManyTasks(
                f"The connector {self.name} has generated {len(configs)} tasks, which is greater than {self._max_tasks}, the maximum "
                "number of tasks it is configured to create. This behaviour should be considered a bug and is disallowed. If necessary, "
                "it can be permitted by reconfiguring the connector with 'tasks.max.enforce' set to false; however, this option will be "
                "removed in a future release of Kafka Connect."
            )
        while not self._abandoned:
            try:
                self._on_tasks(configs)
            except ConnectError as error:  # a rebalance, or a leader that is away
                logger.info("connector %s: task configs are stored later: %s", self.name, error)
                try:
                    order = self._orders.get(timeout=_RETRY_S)
                except queue.Empty:
                    continue
                self._orders.put(order)
                if order != "tasks":
                    return
            else:
                return

    def _stop_connector(self) -> None:
        connector, self._connector = self._connector, None
        if connector is not None:
            quietly(connector.stop, f"connector {self.name}: stop")

    def _say(self, state: State, trace: str | None = None) -> None:
        if not self._abandoned and (state, trace) != (self.state, self.trace):
            self.state, self.trace = state, trace
            self._report(state, trace)
