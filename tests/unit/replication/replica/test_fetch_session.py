"""What a follower's request names, by what the leader knows."""

import pytest

from logdb_replication.replica.fetch_session import FetchSession, Request


@pytest.fixture
def session():
    session = FetchSession()
    for key in "ab":
        session.want(key, asked())
    assert session.request() == Request(0, {"a": asked(), "b": asked()}, [])
    session.answered(1)
    return session


def asked(offset=0, high_watermark=0):
    return {"fetch_offset": offset, "high_watermark": high_watermark}


def test_what_has_changed_is_named_once(session):
    session.want("a", asked())
    session.want("b", asked(5))
    assert session.request() == Request(1, {"b": asked(5)}, [])
    session.answered(1)
    session.want("b", asked(5))
    assert session.request() == Request(2, {}, [])
    assert len(session) == 2


def test_a_high_watermark_that_was_told_is_known(session):
    session.told("a", 7)
    session.want("a", asked(high_watermark=7))
    session.told("b", 7)
    session.want("b", asked(high_watermark=3))  # its log is shorter
    assert session.request() == Request(1, {"b": asked(high_watermark=3)}, [])


def test_a_partition_that_wants_to_hear_each_time_is_not_taken_for_told(session):
    session.want("a", asked(high_watermark=-1))
    session.request()
    session.answered(1)
    session.told("a", 7)
    session.want("a", asked(high_watermark=7))
    assert session.request().named == {"a": asked(high_watermark=7)}


def test_what_is_not_wanted_is_forgotten_and_named_when_it_is_wanted_again(session):
    session.unwant("a")
    session.unwant("c")
    assert len(session) == 1
    assert session.request() == Request(1, {}, ["a"])
    session.answered(1)
    session.unwant("a")
    assert session.request() == Request(2, {}, [])
    session.answered(1)
    session.want("a", asked())
    assert len(session) == 2
    assert session.request() == Request(3, {"a": asked()}, [])


def test_what_is_wanted_again_before_the_request_stays(session):
    session.unwant("a")
    session.want("a", asked())
    assert session.request() == Request(1, {}, [])


def test_a_partition_with_an_error_is_named_again(session):
    session.unwant("a")
    session.drop("a")
    session.drop("b")
    assert session.request() == Request(1, {}, [])
    session.answered(1)
    session.want("b", asked())
    assert session.request() == Request(2, {"b": asked()}, [])


@pytest.mark.parametrize("end", [lambda session: session.reset(), lambda session: session.answered(0)])
def test_without_a_session_all_are_named(session, end):
    session.request()
    end(session)
    assert session.is_new
    for key in "ab":
        session.want(key, asked())
    assert session.request() == Request(0, {"a": asked(), "b": asked()}, [])
