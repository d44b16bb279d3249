"""Its tests.  ``logdb_database`` and ``logdb_clock`` are fixtures of logdb, which pytest finds by itself.

pip install pytest fastapi httpx2
pytest examples/fastapi_orders
"""

from datetime import timedelta

import pytest
from fastapi.testclient import TestClient

from .app import CONFIG, TOPIC, app, orders


@pytest.fixture
def client(logdb_database):
    logdb_database.create_topic(TOPIC, config=CONFIG)
    app.dependency_overrides[orders] = lambda: logdb_database.log(TOPIC)
    yield TestClient(app)
    app.dependency_overrides.clear()


def place(client, item="tea", count=1):
    return client.post("/orders", json={"item": item, "count": count})


def test_an_order_is_found_by_its_number(client):
    assert place(client, "tea").json() == {"number": 0}
    placed = place(client, "milk", 2)
    assert (placed.status_code, placed.json()) == (201, {"number": 1})
    order = client.get("/orders/1").json()
    assert (order["item"], order["count"]) == ("milk", 2)


def test_what_is_not_there(client):
    place(client)
    assert client.get("/orders/7").json() == {"detail": "there are orders 0 to 0"}
    assert client.get("/orders/7").status_code == 404
    assert place(client, count=0).status_code == 422


def test_pages(client):
    for number in range(5):
        place(client, f"item {number}")
    first = client.get("/orders", params={"limit": 3}).json()
    assert [order["number"] for order in first] == [0, 1, 2]
    rest = client.get("/orders", params={"after": first[-1]["number"]}).json()
    assert [order["item"] for order in rest] == ["item 3", "item 4"]
    assert client.get("/orders", params={"after": 4}).json() == []


def test_old_orders_are_deleted(logdb_clock, client, logdb_database):
    place(client, "old")
    logdb_clock.advance(timedelta(days=31))
    logdb_database.enforce_retention(TOPIC)
    place(client, "new")
    assert [order["item"] for order in client.get("/orders").json()] == ["new"]


def test_a_restart_keeps_the_orders(tmp_path, monkeypatch):
    monkeypatch.setenv("ORDERS", str(tmp_path / "orders.db"))
    with TestClient(app) as client:  # starts and stops the application
        place(client)
    with TestClient(app) as client:
        assert len(client.get("/orders").json()) == 1
        assert place(client).json() == {"number": 1}
