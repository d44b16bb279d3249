"""The part of a session that producers use, straight on a store: no transactions, no groups."""

import itertools

from logdb.model import ProducerIdAndEpoch
from logdb.requests.session import Session


class LocalSession:
    """Real topics and logs.  ``calls``: what was asked for; ``before``: called with the name of each call, and may raise."""

    def __init__(self, store):
        self.store, self.calls, self._ids = store, [], itertools.count(1000)
        self.topics, self.describe_topic = store.topics, store.describe_topic
        self.partition_count, self.log = store.partition_count, store.log
        self.before = lambda name: None

    def produce(self, topic, partition, batches, *, durability=None, transactional_id=None):
        self.calls.append(("produce", topic, partition, bytes(batches)))
        self.before("produce")
        return self.store.log(topic, partition).append_batches(batches, durability=durability)

    produce_many = Session.produce_many

    def init_producer_id(self, transactional_id=None, *, transaction_timeout_ms=60_000, producer=None):
        self.calls.append(("init_producer_id",))
        self.before("init_producer_id")
        return ProducerIdAndEpoch(next(self._ids), 0)

    def called(self, name):
        return [call[1:] for call in self.calls if call[0] == name]
