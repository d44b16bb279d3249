"""Topics by Kafka's ids: the name that an id stands for.

A client that sends an id means one topic, not any topic that has its name.  The name of an id is found here; where the request is carried
out, the id of the log is compared with ``logdb_topic_id``, so that a topic that was created again is another topic.

Threading: any number of threads; each field is set by one assignment.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from logdb.access.access_control import AccessControl
from logdb.errors import UnknownTopic
from logdb.model import TopicInfo

NO_ID = bytes(16)
_LOOK_AGAIN_S = 1.0  # a directory that another process writes to has no count of changes


class KnownTopic(NamedTuple):
    """The name of a topic, and logdb's own text of its id."""

    name: str
    topic_id: str


UNKNOWN = KnownTopic("", "")


class TopicIds:
    """The topics by id, as they were at the last look.

    ============= ========== ==============================================================================================
    field         changed by to be trusted
    ============= ========== ==============================================================================================
    ``_known``    ``look``   an id that is there had this name; its topic may be deleted since, and the name be another's
    ``_seen``     ``look``   the count of topics' changes before the look
    ``_looked_s`` ``look``   the time of the look
    ============= ========== ==============================================================================================
    """

    def __init__(self, access: AccessControl) -> None:
        self._access = access
        self._known: Mapping[bytes, KnownTopic] = {}
        self._seen, self._looked_s = -1, 0.0

    def look(self) -> None:
        """Look at all topics, unless that was done a moment ago; may wait for a disk."""
        if self._is_fresh():
            return
        seen, now_s = self._access.topic_change_count, time.monotonic()
        self._known = {info.uuid: KnownTopic(info.name, info.topic_id) for info in self._access.topics()}
        self._seen, self._looked_s = seen, now_s

    def _is_fresh(self) -> bool:
        return self._seen == self._access.topic_change_count and time.monotonic() < self._looked_s + _LOOK_AGAIN_S

    def name_at_once(self, topics: Iterable[dict[str, Any]], field: str = "name") -> bool:
        """Give each topic of a request its name and ``logdb_topic_id``; of an unknown id both are empty.

        Args:
            topics: Of a version of a request that names topics by ids.
            field: That of the name.

        Returns:
            False: ``look`` first, for an id that is not known yet.
        """
        known, is_complete = self._known, True
        for topic in topics:
            found = known.get(topic["topic_id"], UNKNOWN)
            topic[field], topic["logdb_topic_id"] = found
            if found is UNKNOWN and topic["topic_id"] != NO_ID and is_complete:
                is_complete = self._is_fresh()
        return is_complete

    def name(self, topics: Iterable[dict[str, Any]]) -> None:
        """As ``name_at_once``, of topics that there are now; may wait for a disk."""
        for topic in topics:
            topic["name"], topic["logdb_topic_id"] = self.current(topic["topic_id"])

    def current(self, topic_id: bytes) -> KnownTopic:
        """The topic with that id as it is now; ``UNKNOWN``: there is none.  May wait for a disk."""
        found = self._known.get(topic_id)
        if found is None and topic_id != NO_ID:
            self.look()
            found = self._known.get(topic_id)
        try:
            return found if found is not None and self._access.metadata.topic(found.name).topic_id == found.topic_id else UNKNOWN
        except UnknownTopic:
            return UNKNOWN

    def of(self, name: str) -> bytes:
        """The id of the topic that has that name now; ``NO_ID``: none has.  May wait for a disk."""
        try:
            return TopicInfo(name, self._access.metadata.topic(name).topic_id, 0, {}).uuid
        except UnknownTopic:
            return NO_ID
