import pytest

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


def test_the_program(capsys):
    retail_orders.main()
    assert "1,000 orders by" in capsys.readouterr().out
