import threading

import pytest

from examples import upgrade
from examples.upgrade import bill, bills, create_topics, differences, new_billing, old_billing, place, take_over
from support.places import database


@pytest.fixture
def db(tmp_path):
    with database(tmp_path / "db") as opened:
        create_topics(opened)
        yield opened


def test_old_and_new_read_the_same_orders_at_the_same_time(db):
    place(db, range(300))
    threads = [
        threading.Thread(target=bill, args=(db, billing), kwargs={"group_id": group_id, "to": to})
        for billing, group_id, to in ((old_billing, "billing", "bills"), (new_billing, "trial", "bills-trial"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bills(db, "bills") == bills(db, "bills-trial")
    assert len(bills(db, "bills")) == 300
    assert differences(db) == []


def test_a_fault_of_the_new_one_is_found_before_it_counts(db):
    place(db, range(50))
    bill(db, old_billing, group_id="billing", to="bills")
    bill(db, lambda order: old_billing(order) + (order["order"] == 13), group_id="trial", to="bills-trial")
    assert differences(db) == [13]


def test_the_switch_bills_no_order_twice_and_leaves_none_out(db):
    place(db, range(100))
    bill(db, old_billing, group_id="billing", to="bills")
    place(db, range(100, 200))  # nobody has billed these yet
    take_over(db, old="billing", new="billing-2")
    assert bill(db, new_billing, group_id="billing-2", to="bills") == 100
    assert sorted(bills(db, "bills")) == list(range(200))


def test_the_program(capsys):
    upgrade.main()
    printed = capsys.readouterr().out
    assert "0 differences" in printed
    assert "600 bills for 600 orders" in printed
