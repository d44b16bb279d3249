"""Its tests: pytest finds the fixtures of logdb by itself, and each test has a database of its own.

pip install pytest '.[http]'
pytest examples/testing
"""

from datetime import timedelta

import pytest

import logdb

from .orders import send_invoices


@pytest.fixture
def db(logdb_database):
    logdb_database.create_topic("orders")
    logdb_database.create_topic("invoices", config={"retention.ms": "30d"})
    return logdb_database


def order(number, *, paid=True):
    return b'{"id": %d, "cents": 250, "paid": %s}' % (number, b"true" if paid else b"false")


def test_a_paid_order_gets_one_invoice(db):
    db.log("orders").append_many([order(1), order(2, paid=False), order(3)])
    assert send_invoices(db) == 2
    assert send_invoices(db) == 0
    assert [record.key for record in db.read("invoices", isolation_level="read_committed")] == [b"1", b"3"]


def test_an_old_invoice_is_deleted(db, logdb_clock):
    db.append("orders", order(1))
    send_invoices(db)
    logdb_clock.advance(timedelta(days=31))
    db.enforce_retention()
    assert list(db.read("invoices")) == []


def test_over_http(logdb_server):
    with logdb.open(logdb_server.url) as db:
        for topic in ("orders", "invoices"):
            db.create_topic(topic)
        db.append("orders", order(1))
        assert send_invoices(db) == 1
