"""Transactions that an earlier process left open in a log: each is ended before anybody reads on.

Knows logs, and that a coordinator says whose transaction it will end by itself.  Does not know states.

A coordinator that is loaded completes what was prepared, and aborts what was not.  What it does not know of is aborted
here: at level ``interval`` a power cut may keep a transaction's records and lose the note that it had begun.

    opened ──► first use of a log: its open transactions ──► their coordinators are loaded ──► unknown to them: aborted
          └──► after an unclean stop: a thread uses every log once

Threading: any thread.
"""

import logging
import threading
from collections.abc import Callable

from logdb.broker.endings import Endings
from logdb.broker.shards import Shards
from logdb.coordinator.transaction_coordinator import TransactionCoordinator
from logdb.errors import LogdbError, UnknownPartition, UnknownTopic
from logdb.log.log import Log
from logdb.model import OpenTransaction, ProducerIdAndEpoch, TopicPartition
from logdb.store.store import Store

logger = logging.getLogger(__name__)


class Leftovers:
    """What is to be settled before a log is used."""

    def __init__(self, store: Store, transactions: Shards[TransactionCoordinator], endings: Endings) -> None:
        self._store, self._transactions, self._endings = store, transactions, endings
        self._settled: set[tuple[str, int]] = set()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

    def settle(self, log: Log) -> None:
        """End what is left open in ``log``; once."""
        name = (log.topic, log.partition)
        if name in self._settled:
            return
        with self._lock:
            if name in self._settled:
                return
            for left in log.open_transactions():
                self._end(TopicPartition(*name), log, left)
            self._settled.add(name)

    def _end(self, partition: TopicPartition, log: Log, left: OpenTransaction) -> None:
        producer = ProducerIdAndEpoch(left.producer_id, left.producer_epoch)
        coordinator_epoch = 0
        for shard in self._transactions.all():
            if shard.query(lambda coordinator: coordinator.is_open(producer, partition)):
                return  # it is being ended: loading the shard has begun that
            if shard.query(lambda coordinator: any(info.producer.producer_id == left.producer_id for info in coordinator.transactions())):
                coordinator_epoch = shard.log.leader_epoch
        if left not in log.open_transactions():
            return  # loading the shards has ended it
        logger.info("%s: aborting what producer %d left open at offset %d", partition, left.producer_id, left.first_offset)
        self._endings.end(partition, log, producer, commit=False, coordinator_epoch=coordinator_epoch)

    # ------------------------------------------------------------ after an unclean stop

    def start(self, use: Callable[[str, int], object]) -> None:
        """Use every log once, in a thread."""
        self._thread = threading.Thread(target=self._run, args=(use,), name="logdb-leftovers", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, use: Callable[[str, int], object]) -> None:
        try:
            topics = self._store.topics(internal=True)
        except LogdbError:
            return  # closed already
        for topic, partition in ((info.name, partition) for info in topics for partition in range(info.partition_count)):
            if self._stopped.is_set():
                return
            try:
                use(topic, partition)
            except (UnknownTopic, UnknownPartition):
                continue  # deleted meanwhile
            except (LogdbError, OSError) as error:  # one log does not keep the others waiting
                logger.error("what was left open in %s-%d: %s", topic, partition, error)
