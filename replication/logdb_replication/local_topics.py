"""The topics of a node's own store: those of the cluster, each with all of its partitions.

A log without a replica here is never opened, and stays empty.

Threading: ``bring`` from one thread at a time, ``drop`` too.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial

from logdb.errors import LogdbError
from logdb.store.store import Store
from logdb_replication.controller.state import ClusterState, TopicState
from logdb_replication.logged_once import LoggedOnce

logger = logging.getLogger(__name__)


class LocalTopics:
    """Creates, alters and deletes topics of the store, as a state says.

    What fails here (a codec is not installed, the disk is full) is tried again with the next call, and logged once.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._logged = LoggedOnce[str]()  # the kind of a topic's error
        self._brought: Mapping[str, TopicState] = {}  # these are in the store
        self._dropped: Mapping[str, TopicState] | None = None  # all others are not

    def bring(self, state: ClusterState) -> None:
        """Create what the store lacks, and alter what differs; a topic of the same name and another id is deleted first."""
        if state.topics is self._brought:
            return
        new = [topic for name, topic in state.topics.items() if self._brought.get(name) is not topic]
        failed = {topic.name for topic in new if not self._done(topic.name, partial(self._bring, topic))}
        self._brought = {name: topic for name, topic in state.topics.items() if name not in failed} if failed else state.topics

    def _bring(self, topic: TopicState) -> None:
        store, count = self._store, len(topic.partitions)
        known = store.catalogue.topic(topic.name)
        if known is not None and known.topic_id != topic.topic_id:
            store.writer.delete(topic.name)
            known = None
        if known is None:
            store.writer.create(topic.name, count, topic.config, topic_id=topic.topic_id)
        elif known.partition_count != count or known.config != topic.config:
            store.writer.alter(topic.name, topic.config, count, replace=True)

    def drop(self, state: ClusterState) -> None:
        """Delete the topics that the state does not have; it is one that knows all that was ever created here."""
        if state.topics is self._dropped:
            return
        gone = set(self._store.topic_names()) - state.topics.keys()
        done = [self._done(name, partial(self._store.writer.delete, name)) for name in gone]
        self._dropped = state.topics if all(done) else None

    def _done(self, name: str, change: Callable[[], object]) -> bool:
        try:
            change()
        except LogdbError as error:
            if self._logged.is_news(name, type(error)):
                logger.error("topic %s of this node is not as the cluster has it: %s", name, error)
            return False
        self._logged.forget(name)
        return True
