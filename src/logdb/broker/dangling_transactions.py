"""Dangling transactions, which an earlier process left open in a log: each is ended before the log is read.

A coordinator that is loaded completes the prepared transactions and aborts the ongoing ones.  Transactions that no coordinator
knows are ended here: at level ``interval`` a power cut may keep a transaction's records and lose the record that it has begun,
or lose its marker and keep the record that it is complete.

    opened ──► first use of a log: its open transactions ──► their coordinators are loaded ──► unknown to them: ended as
          │                                                                                    decided, else aborted
          ├──► after an unclean stop: a thread does so with every log, and a close waits for it
          └──► a snapshot, a compaction of ``__transaction_state``: every log first

Threading: any thread.
"""

import contextlib
import logging
import threading

from logdb.broker.marker_writer import MarkerWriter
from logdb.broker.transaction_peers import TransactionPeers
from logdb.errors import LogdbError, ReadOnly, UnknownPartition, UnknownTopic
from logdb.model import OpenTransaction, ProducerIdAndEpoch, TopicPartition
from logdb.store.protocols import ReplicaLog, Storage
from logdb.threads import renewed, started

logger = logging.getLogger(__name__)


class DanglingTransactions:
    """Settles logs before their first use, before a snapshot, and before decisions are compacted.

    ================ =============== ========== ===========================================================
    field            changed by      under      to be trusted
    ================ =============== ========== ===========================================================
    ``_settled``     settle          ``_lock``  a log in it has no dangling transaction, and never will
    ``_all_settled`` settle_all      no lock    once True
    ================ =============== ========== ===========================================================
    """

    def __init__(self, storage: Storage, peers: TransactionPeers, markers: MarkerWriter) -> None:
        self._storage, self._peers, self._markers = storage, peers, markers
        self._settled: set[TopicPartition] = set()
        self._all_settled = False
        self._lock = renewed(threading.RLock())
        self._thread: threading.Thread | None = None

    def settle(self, log: ReplicaLog) -> None:
        """End the dangling transactions of ``log``, once; a damaged log stays as it is, and can be read."""
        name = TopicPartition(log.topic, log.partition)
        if name in self._settled or log.read_only_reason is not None:
            return
        with self._lock:
            if name in self._settled:
                return
            for left in log.open_transactions():
                self._end(name, log, left)
            self._settled.add(name)

    def _end(self, partition: TopicPartition, log: ReplicaLog, left: OpenTransaction) -> None:
        producer = ProducerIdAndEpoch(left.producer_id, left.producer_epoch)
        if not self._peers.will_end(producer, partition) and left in log.open_transactions():
            self._markers.end_as_decided(partition, log, producer)

    def settle_all(self) -> None:
        """The same for all logs; they are opened for that, the first time.

        Raises:
            LogdbError, OSError: What one of them failed with; the others were seen to.
            ReadOnly: One is damaged, and has a transaction open.
        """
        if self._all_settled:
            return
        failure: LogdbError | OSError | None = None
        for name in self._storage.logs_with_producers():
            try:
                self._settle_named(name)
            except (LogdbError, OSError) as error:  # one log does not keep the others waiting
                logger.error("what was left open in %s: %s", name, error)
                failure = failure or error
        if failure is not None:
            raise failure
        self._all_settled = True

    def _settle_named(self, name: TopicPartition) -> None:
        try:
            log = self._storage.log(*name)
            self.settle(log)
        except (UnknownTopic, UnknownPartition):
            return  # deleted meanwhile
        if name not in self._settled and log.open_transactions():
            raise ReadOnly(f"{name} has a transaction open that cannot be ended: {log.read_only_reason}; run logdb repair")

    # ------------------------------------------------------------ after an unclean stop

    def start(self) -> None:
        """Settle all logs, in a thread; raises ThreadUnavailable."""
        self._thread = started("logdb-leftovers", self._run)

    def stop(self) -> None:
        """Wait until they are: what is closed has nothing left."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(LogdbError, OSError):  # it was logged; whatever needs it settled tries again
            self.settle_all()
