"""The checker of histories finds each anomaly, and none where there is none."""

import time

import pytest

from tests.support.history import History, check

P, Q = ("t", 0), ("t", 1)


def sent(history, value, offset, *, producer="p", partition=P, transaction=None, outcome="ok"):
    send = history.send(producer, partition, value, transaction)
    send.outcome, send.offset = outcome, offset


def committed(history, *values, producer="p", outcome="ok"):
    transaction = history.begin(producer)
    for offset, value in values:
        sent(history, value, offset, producer=producer, transaction=transaction)
    transaction.asked_ns, transaction.outcome = time.monotonic_ns(), outcome
    return transaction


def names(history, stored, **options):
    return sorted({anomaly.name for anomaly in check(history, stored, **options)})


def test_a_history_without_anomalies():
    history = History()
    sent(history, b"a", 0)
    sent(history, b"?", None, outcome="unknown")
    committed(history, (1, b"b"), (2, b"c"))
    committed(history, (4, b"x"), outcome="failed")
    committed(history, (6, b"u"), outcome="unknown")
    sent(history, b"d", 8)
    history.poll("c", 0, [(P, 0, b"a"), (P, 1, b"b")])
    history.poll("c", 0, [(P, 2, b"c"), (P, 8, b"d")])
    history.poll("c", 1, [(P, 2, b"c"), (P, 6, b"u"), (P, 8, b"d")])  # another assignment begins at what is committed
    assert check(history, {P: {0: b"a", 1: b"b", 2: b"c", 6: b"u", 8: b"d"}}, everything_polled=True) == []


def _lost_write(history):
    sent(history, b"a", 0)
    sent(history, b"b", 1)
    return {P: {1: b"b"}}


def _duplicate(history):
    sent(history, b"a", 0)
    return {P: {0: b"a", 1: b"a"}}


def _inconsistent_offsets(history):
    sent(history, b"a", 0)
    history.poll("c", 0, [(P, 0, b"b")])
    return {P: {0: b"a"}}


def _aborted_read(history):
    committed(history, (0, b"a"), outcome="failed")
    history.poll("c", 0, [(P, 0, b"a")])
    return {P: {}}


def _aborted_stored(history):
    committed(history, (0, b"a"), outcome="failed")
    return {P: {0: b"a"}}


def _circle(history):
    one, other = committed(history, (0, b"a")), committed(history, (2, b"b"), producer="q")
    one.read.append(b"b")
    other.read.append(b"a")
    return {P: {0: b"a", 2: b"b"}}


def _torn_transaction(history):
    committed(history, (0, b"a"), (1, b"b"), outcome="unknown")
    return {P: {0: b"a"}}


def _precommitted_read(history):
    transaction = history.begin("p")
    sent(history, b"a", 0, transaction=transaction)
    history.poll("c", 0, [(P, 0, b"a")])
    transaction.asked_ns, transaction.outcome = time.monotonic_ns(), "ok"
    return {P: {0: b"a"}}


def _poll_skip(history):
    for offset, value in enumerate((b"a", b"b", b"c")):
        sent(history, value, offset)
    history.poll("c", 0, [(P, 0, b"a")])
    history.poll("c", 0, [(P, 2, b"c")])
    return {P: {0: b"a", 1: b"b", 2: b"c"}}


def _skip_within_a_poll(history):
    _poll_skip(history)
    history.poll("d", 0, [(P, 0, b"a"), (P, 2, b"c")])
    history.polls[:2] = []
    return {P: {0: b"a", 1: b"b", 2: b"c"}}


def _poll_backwards(history):
    history.poll("c", 0, [(P, 1, b"b")])
    history.poll("c", 0, [(P, 0, b"a")])
    return {P: {0: b"a", 1: b"b"}}


def _backwards_within_a_poll(history):
    history.poll("c", 0, [(P, 1, b"b"), (P, 0, b"a")])
    return {P: {0: b"a", 1: b"b"}}


def _send_backwards(history):
    sent(history, b"b", 1)
    sent(history, b"a", 0)
    return {P: {0: b"a", 1: b"b"}}


def _send_backwards_within_a_transaction(history):
    committed(history, (1, b"b"), (0, b"a"))
    return {P: {0: b"a", 1: b"b"}}


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (_lost_write, "lost-write"),
        (_duplicate, "duplicate"),
        (_inconsistent_offsets, "inconsistent-offsets"),
        (_aborted_read, "G1a"),
        (_aborted_stored, "G1a"),
        (_circle, "G1c"),
        (_torn_transaction, "torn-transaction"),
        (_precommitted_read, "precommitted-read"),
        (_poll_skip, "poll-skip"),
        (_skip_within_a_poll, "int-poll-skip"),
        (_poll_backwards, "nonmonotonic-poll"),
        (_backwards_within_a_poll, "int-nonmonotonic-poll"),
        (_send_backwards, "nonmonotonic-send"),
        (_send_backwards_within_a_transaction, "int-nonmonotonic-send"),
    ],
)
def test_each_anomaly_is_found(make, name):
    history = History()
    stored = make(history)
    assert names(history, stored) == [name]


def test_what_no_consumer_has_read_is_unseen():
    history = History()
    sent(history, b"a", 0)
    history.poll("c", 0, [(Q, 0, b"z")])
    assert names(history, {P: {0: b"a"}, Q: {0: b"z"}}, everything_polled=True) == ["unseen"]
