"""Which brokers live, as the controller that leads hears them.  No clock and no thread: times are given, in ms.

                  heard                           heard
    unknown ──────────────► alive ──────────────────────┐
                              ▲                          │ not heard for a session
                              └──────────────────────────┴─► lapsed

Only what a controller hears while it leads counts: when it begins, each broker has a whole session.  A time in which the controller itself
did not run counts as one interval: it could not hear anyone.  The session of a broker whose heartbeats came late is longer.

Source: Kafka's ``BrokerHeartbeatManager``.
"""

from collections.abc import Iterable

from logdb_replication.lateness import Lateness

LATE_HALF_LIFE_MS = 10_000
LATE_MAX, LATE_TIMES = 2, 2  # in sessions; how many times a delay lengthens one


class Sessions:
    """The sessions of one leadership.

    Field            Changed by           Trusted
    ``_now_ms``      passed               time that this controller has run
    ``_passed_ms``   passed               when it was called last, on the clock of the caller
    ``_heard``       heard, passed        by broker: when, in ``_now_ms``
    ``_awaited``     caught_up, unfenced  by broker that is fenced: the index that it must know before it leads again
    ``_late``        heard                by broker: how late its heartbeats come
    ``_known``       knows                by broker: the index that it knew last; a broker that begins again may know less
    """

    def __init__(self, session_ms: int, interval_ms: int, heartbeat_ms: int) -> None:
        """``interval_ms``: between two calls of ``passed``, if the controller runs well; ``heartbeat_ms``: of a broker that runs well."""
        self._session_ms, self._interval_ms, self._heartbeat_ms = session_ms, interval_ms, heartbeat_ms
        self._now_ms = self._passed_ms = 0
        self._heard: dict[int, int] = {}
        self._awaited: dict[int, tuple[int, int]] = {}
        self._known: dict[int, int] = {}
        self._late: dict[int, Lateness] = {}

    def begin(self, clock_ms: int) -> None:
        """This controller begins to lead."""
        self._passed_ms = clock_ms
        self._heard.clear()
        self._awaited.clear()
        self._known.clear()

    def passed(self, clock_ms: int, unfenced: Iterable[int]) -> None:
        """Time passes; a broker that is not fenced has a session from now on, if it has none."""
        self._now_ms += min(max(clock_ms - self._passed_ms, 0), 2 * self._interval_ms)
        self._passed_ms = clock_ms
        for node in unfenced:
            self._heard.setdefault(node, self._now_ms)

    def heard(self, node: int) -> None:
        if node in self._heard:
            late = self._late.setdefault(node, Lateness(LATE_HALF_LIFE_MS, LATE_MAX * self._session_ms))
            late.note(self._now_ms - self._heard[node] - self._heartbeat_ms, self._now_ms)
        self._heard[node] = self._now_ms

    def knows(self, node: int, index: int) -> None:
        self._known[node] = index

    def all_know(self, index: int, nodes: Iterable[int]) -> bool:
        """Whether each of these brokers knows an index."""
        return all(self._known.get(node, 0) >= index for node in nodes)

    def is_alive(self, node: int) -> bool:
        """Whether it was heard within its session."""
        return node in self._heard and self._now_ms - self._heard[node] < self._session_of(node)

    def _session_of(self, node: int) -> float:
        """How long a broker may be silent: as late as it was when it was heard last."""
        late = self._late.get(node)
        return self._session_ms if late is None else self._session_ms + LATE_TIMES * late.at(self._heard[node])

    def lapsed(self) -> list[int]:
        """The brokers that were not."""
        return [node for node in self._heard if not self.is_alive(node)]

    def ages_ms(self) -> dict[int, int]:
        """How long ago each broker was heard; as far as it has a session."""
        return {node: self._now_ms - heard_ms for node, heard_ms in self._heard.items()}

    def forget(self, node: int) -> None:
        """It is fenced: it has a session again when it is heard."""
        self._heard.pop(node, None)
        self._awaited.pop(node, None)

    def unfenced(self, node: int) -> None:
        """It may lead: should it be fenced again, it has to know what happened until then."""
        self._awaited.pop(node, None)

    def behind(self, node: int) -> int | None:
        """How many changes of the metadata a fenced broker has yet to know before it may lead; None: it was not heard."""
        awaited = self._awaited.get(node)
        return None if awaited is None else max(0, awaited[1] - self._known.get(node, 0))

    def caught_up(self, node: int, epoch: int, index: int, applied: int) -> bool:
        """Whether a fenced broker knows as much as this controller did when it was first heard in this epoch.

        It stays so until it is ``unfenced``.  If that fails, the next heartbeat tries again: a broker that takes long for each state would
        otherwise never know the newest one.
        """
        known_epoch, awaited = self._awaited.get(node, (-1, 0))
        if known_epoch != epoch:
            _, awaited = self._awaited[node] = epoch, applied
        return index >= awaited
