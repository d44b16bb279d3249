import pytest

import logdb
from examples import retail_orders
from examples.retail_orders import STOCK, create_topics, made_up_orders, place, run
from support.places import database


def expected(count, retailers):
    """Orders handled one after the other by one worker."""
    left, filled = {}, {}
    for retailer, order in made_up_orders(count, retailers):
        before = left.get(retailer, STOCK)
        filled[retailer, order["number"]] = order["count"] <= before
        left[retailer] = before - order["count"] * filled[retailer, order["number"]]
    return left, filled


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_each_retailers_orders_are_handled_in_order_and_once(tmp_path, workers):
    with database(tmp_path / "db") as db:
        create_topics(db)
        place(db, made_up_orders(600, 12))
        handled = run(db, workers)
        left, filled = expected(600, 12)
        assert {(retailer, number): enough for _, retailer, number, enough in handled} == filled
        assert len(handled) == 600
        for name in left:
            numbers = [number for _, retailer, number, _ in handled if retailer == name]
            assert numbers == sorted(numbers)
        assert dict(db.table("stock").items()) == {name.encode(): b"%d" % count for name, count in left.items()}


class Shifted(logdb.IO):
    """The real machine, whose monotonic clock a test moves on."""

    shift_ms = 0

    def monotonic_ms(self):
        return super().monotonic_ms() + self.shift_ms


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_was_stopped_within_a_transaction(tmp_path, monkeypatch, when):
    """For longer than any timeout: its member is removed, and its transaction aborted."""
    io, send_offsets = Shifted(), logdb.Transaction.send_offsets
    with logdb.open(tmp_path / "db", io=io) as db:

        def stop():
            if not io.shift_ms:
                io.shift_ms = 3_600_000
                db._session._timers.fire_due()

        def call(transaction, consumer):
            if when == "before":
                stop()
            send_offsets(transaction, consumer)
            if when == "after":
                stop()

        monkeypatch.setattr(logdb.Transaction, "send_offsets", call)
        create_topics(db)
        place(db, made_up_orders(200, 12))
        handled = run(db, 1)
        left, filled = expected(200, 12)
        assert io.shift_ms
        assert {(retailer, number): enough for _, retailer, number, enough in handled} == filled
        assert len(handled) == 200
        assert dict(db.table("stock").items()) == {name.encode(): b"%d" % count for name, count in left.items()}


def test_the_program(capsys):
    retail_orders.main()
    assert "1,000 orders by" in capsys.readouterr().out
