import resource

import pytest

from logdb.serving.connection_slots import EXTRA_COUNT_MAX, SHARE, ConnectionSlots
from logdb.serving.limits import Limits


def take(slots, host, count, **how):
    """Take so many slots; returns those that there were."""
    taken = (slots.take(host, **how) for _ in range(count))
    return [slot for slot in taken if slot is not None]


def test_one_address_leaves_slots_to_others():
    slots = ConnectionSlots(100)
    assert len(take(slots, "10.0.0.1", 100)) == 100 // SHARE
    assert len(take(slots, "10.0.0.2", 1)) == 1


def test_all_addresses_together_have_as_many_as_there_are():
    slots = ConnectionSlots(100)
    assert sum(len(take(slots, f"10.0.0.{at}", 25)) for at in range(5)) == 100
    assert slots.count == 100


def test_by_default_a_thousand_of_one_address_are_no_trouble(monkeypatch):
    monkeypatch.setattr("logdb.serving.connection_slots.connections_possible", lambda: 1 << 20)
    assert len(take(ConnectionSlots(Limits().connections_max), "127.0.0.1", 10_000)) == 2_500


@pytest.mark.parametrize("most", [1, 7, 100])
def test_a_setting_says_how_many_one_address_may_have(most):
    assert len(take(ConnectionSlots(100, most), "::1", 200)) == most


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
    slots = ConnectionSlots(10_000, 1)
    assert slots.take(one) is not None
    assert (slots.take(other) is None) is same


def test_what_is_given_back_is_free_again_once():
    slots = ConnectionSlots(4)
    (slot,) = take(slots, "10.0.0.1", 2)
    slot.give_back()
    slot.give_back()
    assert (slots.count, len(take(slots, "10.0.0.1", 2))) == (1 - 1, 1)
    assert not take(slots, "10.0.0.1", 1)


def test_some_more_shake_hands_so_that_they_can_be_told():
    slots = ConnectionSlots(2, EXTRA_COUNT_MAX * 2)
    assert len(take(slots, "10.0.0.1", 5)) == 2
    assert not slots.is_overfull
    assert take(slots, "10.0.0.1", EXTRA_COUNT_MAX * 2, extra=True)
    assert slots.is_overfull


def test_few_descriptors_are_few_slots(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (200, 200))
    assert len(take(ConnectionSlots(Limits().connections_max), "10.0.0.1", 100)) == 75 // SHARE
