"""Producers and transactions of a log against a list of what was accepted, with checkpoint, kill, power cut and reopening as rules."""

import os
import random
import shutil
import tempfile
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import logdb
from logdb.errors import InvalidTransactionState, OutOfOrderSequence, ProducerFenced
from logdb.model import ProducerIdAndEpoch
from support.power_cut import PowerCutIO, commits_noted, die, quiet
from support.produced import batch, committed, open_bare, values

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
WRAP = 2**31


class Sent(NamedTuple):
    """One batch of the log, as the model has it; ``producer`` -1: none, ``commit`` None: no marker."""

    offset: int
    count: int
    producer: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    commit: bool | None = None


class Known:
    """A producer, as the batches of a log tell it."""

    def __init__(self) -> None:
        self.epoch, self.next, self.first, self.batches = -1, 0, -1, list[Sent]()

    def take(self, sent: Sent) -> None:
        if sent.epoch != self.epoch:
            self.epoch, self.next, self.batches = sent.epoch, 0, []
        if sent.commit is not None:
            self.first = -1
            return
        self.next = (sent.sequence + sent.count) % WRAP
        self.batches = [*self.batches, sent][-5:]
        if sent.transactional and self.first < 0:
            self.first = sent.offset


producers, epochs, counts = st.integers(0, 2), st.integers(0, 2), st.integers(1, 3)


class ProducersModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.base = tempfile.mkdtemp(prefix="logdb-producers-")
        self.count = 0
        self.path = os.path.join(self.base, "0")
        os.makedirs(self.path)
        self.sent: list[Sent] = []
        self.durable = 0
        self.open()
        with commits_noted(self.io):
            self.db.create_topic("t", config={"segment.bytes": 1024})
            self.log = self.db.log("t")

    def open(self) -> None:
        self.io = PowerCutIO(self.path, boot=f"boot {self.count}")
        with commits_noted(self.io):
            self.db = quiet(open_bare(self.path, io=self.io))
            if self.db.topics():
                self.log = self.db.log("t")
        self.io.note_commit()

    # ------------------------------------------------------------ what the model says

    def end(self) -> int:
        return self.sent[-1].offset + self.sent[-1].count if self.sent else 0

    def known(self, producer: int) -> Known:
        found = Known()
        for sent in self.sent:
            if sent.producer == producer:
                found.take(sent)
        return found

    def value(self, sent: Sent, number: int) -> bytes:
        return b"%d: %d of %d" % (sent.offset, number, sent.producer)

    def visible(self) -> tuple[int, list[bytes]]:
        """The last stable offset, and the values that are committed below it."""
        firsts = [known.first for producer in range(3) if (known := self.known(producer)).first >= 0]
        stable, open_ones, hidden = min([self.end(), *firsts]), dict[int, list[Sent]](), set[Sent]()
        for sent in self.sent:
            if sent.commit is None and sent.transactional:
                open_ones.setdefault(sent.producer, []).append(sent)
            elif sent.commit is not None:
                gone = open_ones.pop(sent.producer, [])
                hidden |= set() if sent.commit else set(gone)
        shown = (sent for sent in self.sent if sent.commit is None and sent not in hidden and sent.offset < stable)
        return stable, [self.value(sent, number) for sent in shown for number in range(sent.count)]

    # ------------------------------------------------------------ rules

    def image(self, sent: Sent) -> bytes:
        rows = [self.value(sent, number) for number in range(sent.count)]
        return batch(rows, sent.producer, sent.epoch, sent.sequence, transactional=sent.transactional)

    def accepted(self, sent: Sent) -> None:
        self.sent.append(sent)

    @rule(producer=producers, count=counts, transactional=st.booleans(), newer=st.booleans(), far=st.booleans())
    def send(self, producer, count, transactional, newer, far):
        known = self.known(producer)
        epoch = max(known.epoch, 0) + (newer and known.first < 0)
        unknown = known.epoch < 0
        sequence = WRAP - 2 if unknown and far else known.next if epoch == known.epoch else 0
        sent = Sent(self.end(), count, producer, epoch, sequence, transactional or known.first >= 0)
        with commits_noted(self.io):
            assert self.log.append_batches(self.image(sent)) == range(sent.offset, sent.offset + count)
        self.accepted(sent)

    @precondition(lambda self: self.sent)
    @rule(back=st.integers(1, 8))
    def send_again(self, back):
        sent = self.sent[-min(back, len(self.sent))]
        if sent.producer < 0 or sent.commit is not None:
            return
        known = self.known(sent.producer)
        try:
            offsets = self.log.append_batches(self.image(sent))
        except ProducerFenced:
            assert sent.epoch < known.epoch
        except OutOfOrderSequence:
            assert sent.epoch == known.epoch and sent not in known.batches
        else:
            assert sent in known.batches
            assert offsets == range(sent.offset, sent.offset + sent.count)

    @rule(producer=producers, gap=st.integers(1, 3))
    def leave_a_gap(self, producer, gap):
        known = self.known(producer)
        if known.epoch < 0:
            return
        with pytest.raises(OutOfOrderSequence) as caught:
            self.log.append_batches(batch([b"x"], producer, known.epoch, (known.next + gap) % WRAP, transactional=True))
        assert caught.value.expected_sequence == known.next

    @rule(producer=producers)
    def come_as_a_zombie(self, producer):
        known = self.known(producer)
        if known.epoch > 0:
            with pytest.raises(ProducerFenced):
                self.log.append_batches(batch([b"x"], producer, known.epoch - 1, 0))

    @rule(producer=producers)
    def leave_the_transaction(self, producer):
        known = self.known(producer)
        if known.first >= 0:
            with pytest.raises(InvalidTransactionState):
                self.log.append_batches(batch([b"x"], producer, known.epoch, known.next))

    @rule(producer=producers, commit=st.booleans(), newer=st.booleans())
    def end_the_transaction(self, producer, commit, newer):
        known = self.known(producer)
        sent = Sent(self.end(), 1, producer, max(known.epoch, 0) + newer, commit=commit)
        with commits_noted(self.io):
            name = ProducerIdAndEpoch(producer, sent.epoch)
            assert self.log.append_marker(name, commit=commit, coordinator_epoch=0) == sent.offset
        self.accepted(sent)

    @rule(count=counts)
    def append_plain(self, count):
        sent = Sent(self.end(), count)
        self.log.append_many([self.value(sent, number) for number in range(count)])
        self.accepted(sent)

    @rule()
    def flush(self):
        self.log.flush()
        self.durable = len(self.sent)

    @rule()
    def checkpoint(self):
        with commits_noted(self.io):
            self.db._store.checkpoint([self.log])

    # ------------------------------------------------------------ stops

    def reopened(self, least: int) -> None:
        self.open()
        end = self.log.end_offset
        kept = [sent for sent in self.sent if sent.offset + sent.count <= end]
        assert len(kept) >= least
        assert end == (kept[-1].offset + kept[-1].count if kept else 0)
        self.sent, self.durable = kept, min(self.durable, len(kept))

    @rule()
    def close_and_open(self):
        with commits_noted(self.io):
            self.db.close()
        report = logdb.verify(self.path)
        left = ("set aside", "the catalogue's point counts")  # by a power cut and the recovery from it
        strange = [note for note in report.notes if not note.endswith(left)]
        assert (report.problems, strange) == ([], [])
        self.durable = len(self.sent)
        self.reopened(len(self.sent))

    @rule()
    def kill(self):
        die(self.db)
        report = logdb.verify(self.path)
        assert report.problems == []
        self.reopened(len(self.sent))

    @rule(seed=st.integers(0, 2**32))
    def cut_power(self, seed):
        self.count += 1
        path = os.path.join(self.base, str(self.count))
        self.io.cut(path, random.Random(seed))
        die(self.db)
        shutil.rmtree(self.path)
        self.path = path
        report = logdb.verify(self.path)
        assert report.problems == []
        self.reopened(self.durable)

    # ------------------------------------------------------------ what must hold

    @invariant()
    def all_agree(self):
        stable, shown = self.visible()
        assert (self.log.end_offset, self.log.last_stable_offset) == (self.end(), stable)
        assert committed(self.log) == shown
        everything = [self.value(sent, number) for sent in self.sent if sent.commit is None for number in range(sent.count)]
        assert values(self.log) == everything

    @rule()
    def look_beside(self):
        stable, shown = self.visible()
        self.log.flush(sync=False)
        with open_bare(self.path, mode="r") as reader:
            log = reader.log("t")
            assert (log.last_stable_offset, committed(log)) == (stable, shown)
            assert log.aborted_transactions(0, stable) == self.log.aborted_transactions(0, stable)

    def teardown(self) -> None:
        die(self.db)
        shutil.rmtree(self.base)


CHECKS = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
TestProducers = ProducersModel.TestCase
TestProducers.settings = settings(max_examples=12 * SCALE, stateful_step_count=25, deadline=None, suppress_health_check=CHECKS)
