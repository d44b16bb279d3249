"""The part of a session that producers use, straight on a store."""

import itertools

from logdb.model import ProducerIdAndEpoch


class LocalSession:
    """Real topics and logs; every ``init_producer_id`` is a new one."""

    def __init__(self, store):
        self.store, self._ids = store, itertools.count(1000)
        self.topics, self.describe_topic, self.partition_count, self.log = (
            store.topics,
            store.describe_topic,
            store.partition_count,
            store.log,
        )

    def produce(self, topic, partition, batches, *, durability=None, transactional_id=None):
        return self.store.log(topic, partition).append_batches(batches, durability=durability)

    def init_producer_id(self, transactional_id=None, *, transaction_timeout_ms=60_000, producer=None):
        return ProducerIdAndEpoch(next(self._ids), 0)
