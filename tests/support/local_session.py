"""The part of a session that producers use, straight on a store: no transactions, no groups."""

import itertools

from logdb.model import ProducerIdAndEpoch
from logdb.requests.session import Session
from logdb.requests.topics import PartitionCount


class LocalSession(Session):
    """Real topics and logs.  ``calls``: what was asked for; ``before``: called with the name of each call, and may raise."""

    def __init__(self, store):
        self.store, self.calls, self._ids = store, [], itertools.count(1000)
        self.log, self.before = store.open_log, lambda name: None

    def submit(self, request):
        return self.store.topic(request.topic).partition_count if isinstance(request, PartitionCount) else self.store.submit(request)

    def submit_batches(self, request, batches):
        self.calls.append(("produce", request.topic, request.partition, bytes(batches)))
        self.before("produce")
        return self.store.open_log(request.topic, request.partition).append_batches(batches, durability=request.durability)

    def init_producer_id(self, transactional_id=None, *, transaction_timeout_ms=60_000, producer=None):
        self.calls.append(("init_producer_id",))
        self.before("init_producer_id")
        return ProducerIdAndEpoch(next(self._ids), 0)

    def called(self, name):
        return [call[1:] for call in self.calls if call[0] == name]
