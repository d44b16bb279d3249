"""Dangling transactions, which an earlier process, or a mirror, left open in a log: each is ended before the log is read.

A coordinator that is loaded completes the prepared transactions and aborts the ongoing ones.  Transactions that no coordinator
has are ended here: at level ``interval`` a power cut may keep a transaction's records and lose the record that it has begun,
or lose its marker and keep the record that it is complete.

    opened ──► first use of a log: its open transactions ──► their coordinators are loaded ──► not in them:     ended as
          │                                                                                    decided, else aborted
          ├──► after an unclean stop: a thread does so with every log, and a close waits for it
          ├──► a snapshot, a compaction of ``__transaction_state``: every log first
          └──► a topic is a mirror no more: its logs, at their leaders

Threading: any thread.
"""

import contextlib
import logging
import threading

from logdb.broker.marker_writer import MarkerWriter
from logdb.broker.transaction_peers import TransactionPeers
from logdb.errors import LogdbError, ReadOnly, UnknownPartition, UnknownTopic
from logdb.log.protocols import ReplicaLog
from logdb.model import ClusterEvent, OpenTransaction, ProducerIdAndEpoch, TopicEvent, TopicPartition
from logdb.store.protocols import Storage
from logdb.threads import renewed, started

logger = logging.getLogger(__name__)


class DanglingTransactions:
    """Ends the dangling transactions of a log before its first use, before a snapshot, and before decisions are compacted.

    ================ =============== ========== ===========================================================
    field            changed by      under      to be trusted
    ================ =============== ========== ===========================================================
    ``ended``        end, ``copied`` no lock    a log in it has no dangling transaction; only a mirror's gets others
    ``_ending``      end             ``_lock``  the markers of a log in it are on their way
    ``_all_ended``   end_all,        no lock    True: as of ``ended``, of all logs
                     ``copied``
    ================ =============== ========== ===========================================================
    """

    def __init__(self, storage: Storage, peers: TransactionPeers, markers: MarkerWriter) -> None:
        self._storage, self._peers, self._markers = storage, peers, markers
        self.ended: set[TopicPartition] = set()
        self._ending: set[TopicPartition] = set()
        self._all_ended = False
        self._lock = renewed(threading.RLock())
        self._thread: threading.Thread | None = None

    def end(self, log: ReplicaLog) -> None:
        """End the dangling transactions of ``log``, once; a damaged log, and a mirror's, stays as it is, and can be read.

        A log that has none waits for no other log's markers.
        """
        if (log.topic, log.partition) in self.ended or log.read_only_reason is not None:
            return
        name = TopicPartition(log.topic, log.partition)
        if log.is_mirror:  # the markers come from the source, until it is one no more
            return
        if not log.open_transactions() and name not in self._ending:  # in this order: its markers may be written, and not durable
            self.ended.add(name)
            return
        with self._lock:
            if name in self.ended:
                return
            self._ending.add(name)
            try:
                self.end_now(log)
                self.ended.add(name)
            finally:
                self._ending.discard(name)

    def copied(self, partition: TopicPartition) -> None:
        """Batches of a mirror's source were appended: what they leave open is dangling once the topic is a mirror no more."""
        self.ended.discard(partition)
        self._all_ended = False

    def forget(self, event: TopicEvent | ClusterEvent) -> None:
        """A topic was changed: a deleted one needs no memory here."""
        if isinstance(event, TopicEvent) and event.kind == "topic_deleted":
            self.ended -= {TopicPartition(event.topic.name, number) for number in range(event.topic.partition_count)}

    def end_now(self, log: ReplicaLog) -> None:
        """End the transactions of ``log`` that no coordinator has."""
        for left in log.open_transactions():
            self._end_transaction(TopicPartition(log.topic, log.partition), log, left)

    def _end_transaction(self, partition: TopicPartition, log: ReplicaLog, left: OpenTransaction) -> None:
        producer = ProducerIdAndEpoch(left.producer_id, left.producer_epoch)
        if not self._peers.will_end(producer, partition) and left in log.open_transactions():
            self._markers.end_as_decided(partition, log, self._peers.decision(producer, partition))

    def end_all(self) -> None:
        """End the dangling transactions of all logs; the first call opens the logs.

        Raises:
            LogdbError, OSError: What one of them failed with; those of the other logs are ended.
            ReadOnly: One is damaged, and has a transaction open.
        """
        if self._all_ended:
            return
        failure: LogdbError | OSError | None = None
        for name in self._storage.logs_with_producers():
            try:
                self._end_named(name)
            except (LogdbError, OSError) as error:  # one log does not keep the others waiting
                logger.error("the transactions that a crash left open in %s: %s", name, error)
                failure = failure or error
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # its traceback has this frame
        self._all_ended = True

    def _end_named(self, name: TopicPartition) -> None:
        try:
            log = self._storage.open_log(*name)
            self.end(log)
        except (UnknownTopic, UnknownPartition):
            return  # deleted meanwhile
        if name not in self.ended and not log.is_mirror and log.open_transactions():
            raise ReadOnly(f"{name} has a transaction open that cannot be ended: {log.read_only_reason}; run logdb repair")

    # ------------------------------------------------------------ after an unclean stop

    def start(self) -> None:
        """End them in all logs, in a thread; raises ThreadUnavailable."""
        self._thread = started("logdb-dangling", self._run)

    def stop(self) -> None:
        """Wait until they are ended."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(LogdbError, OSError):  # it was logged; the first use of the log tries again
            self.end_all()
