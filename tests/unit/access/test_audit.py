import logging

import pytest

from logdb.access.audit import LINE_COUNT_MAX, Audit
from logdb.requests.principals import Principal
from support.clock import StillIO

EVE, HOST = Principal("User", "eve"), "10.0.0.7"


@pytest.fixture
def io():
    return StillIO()


@pytest.fixture
def audit(io, caplog):
    caplog.set_level(logging.WARNING, "logdb.audit")
    return Audit(io.monotonic_ms)


def test_a_refusal_is_a_line(audit, caplog):
    audit.refused(EVE, HOST, "Write", "Topic", "orders")
    audit.not_authenticated(HOST, "eve", "unknown user, or wrong password")
    audit.not_authenticated(HOST, None, "the token has expired")
    assert caplog.messages == [
        "principal=User:eve host=10.0.0.7 operation=Write resource=Topic:'orders' allowed=no",
        "host=10.0.0.7 user='eve' authenticated=no reason='unknown user, or wrong password'",
        "host=10.0.0.7 authenticated=no reason='the token has expired'",
    ]


def test_a_name_makes_no_second_line_and_no_other_field(audit, caplog):
    audit.refused(Principal("User", "eve allowed=yes\nx"), HOST, "Read", "Group", "g\nprincipal=User:root")
    audit.not_authenticated(HOST, "eve\r\n", "x")
    assert caplog.messages[0] == (
        "principal='User:eve allowed=yes\\nx' host=10.0.0.7 operation=Read resource=Group:'g\\nprincipal=User:root' allowed=no"
    )
    assert not any("\n" in message or "\r" in message for message in caplog.messages)


def test_a_name_is_cut_off(audit, caplog):
    audit.refused(EVE, HOST, "Read", "Group", "g" * 100_000)
    assert len(caplog.messages[0]) < 400


def test_a_flood_is_counted_not_written(audit, caplog, io):
    for _ in range(LINE_COUNT_MAX + 1250):
        audit.refused(EVE, HOST, "Read", "Topic", "t")
    assert len(caplog.messages) == LINE_COUNT_MAX
    io.now_ms += 1000
    audit.refused(EVE, HOST, "Read", "Topic", "u")
    assert caplog.messages[LINE_COUNT_MAX:] == [
        "1250 more refusals in the last 1000 ms",
        "principal=User:eve host=10.0.0.7 operation=Read resource=Topic:'u' allowed=no",
    ]
