import resource

import pytest

from logdb_http_api.door.connection_slots import EXTRA_COUNT_MAX, SHARE, ConnectionSlots
from logdb_http_api.door.limits import Limits


def take(places, host, count, **how):
    """Take so many places; returns those that there were."""
    taken = (places.take(host, **how) for _ in range(count))
    return [place for place in taken if place is not None]


def test_one_address_leaves_places_to_others():
    places = ConnectionSlots(Limits(connections_max=100))
    assert len(take(places, "10.0.0.1", 100)) == 100 // SHARE
    assert len(take(places, "10.0.0.2", 1)) == 1


def test_all_addresses_together_have_as_many_as_there_are():
    places = ConnectionSlots(Limits(connections_max=100))
    assert sum(len(take(places, f"10.0.0.{at}", 25)) for at in range(5)) == 100
    assert places.count == 100


def test_by_default_a_thousand_of_one_address_are_no_trouble(monkeypatch):
    monkeypatch.setattr("logdb_http_api.door.connection_slots.connections_possible", lambda: 1 << 20)
    assert len(take(ConnectionSlots(Limits()), "127.0.0.1", 10_000)) == 2_500


@pytest.mark.parametrize("most", [1, 7, 100])
def test_a_setting_says_how_many_one_address_may_have(most):
    assert len(take(ConnectionSlots(Limits(connections_max=100, connections_per_address_max=most)), "::1", 200)) == most


@pytest.mark.parametrize("most", [0, -1, "7", 1.5])
def test_a_setting_that_is_none(most):
    with pytest.raises(ValueError, match="connections_per_address_max"):
        Limits(connections_per_address_max=most)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("127.0.0.1", "127.0.0.2", False),
        ("", "", True),
    ],
)
def test_what_is_one_address(one, other, same):
    places = ConnectionSlots(Limits(connections_per_address_max=1))
    assert places.take(one) is not None
    assert (places.take(other) is None) is same


def test_what_is_given_back_is_free_again_once():
    places = ConnectionSlots(Limits(connections_max=4))
    (place,) = take(places, "10.0.0.1", 2)
    place.give_back()
    place.give_back()
    assert (places.count, len(take(places, "10.0.0.1", 2))) == (1 - 1, 1)
    assert not take(places, "10.0.0.1", 1)


def test_some_more_shake_hands_so_that_they_can_be_told():
    places = ConnectionSlots(Limits(connections_max=2, connections_per_address_max=EXTRA_COUNT_MAX * 2))
    assert len(take(places, "10.0.0.1", 5)) == 2
    assert not places.is_overfull
    assert take(places, "10.0.0.1", EXTRA_COUNT_MAX * 2, extra=True)
    assert places.is_overfull


def test_few_descriptors_are_few_places(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (200, 200))
    assert len(take(ConnectionSlots(Limits()), "10.0.0.1", 100)) == 75 // SHARE
