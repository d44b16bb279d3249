import json
from collections import Counter

import pytest

from examples import activity_audit
from examples.activity_audit import FrontEnd, Lossy, audit, create_topics, made_up_views, window_of
from support.places import database


@pytest.fixture
def db(tmp_path):
    with database(tmp_path / "db") as opened:
        create_topics(opened)
        yield opened


def send(db, name, interceptors=(), count=1_500):
    front_end = FrontEnd(db, name, interceptors)
    for view in made_up_views(count):
        front_end.view(*view)
    front_end.close()


def test_nothing_lost_no_alert(db):
    send(db, "a")
    send(db, "b")
    assert audit(db) == []
    assert db.log("loss").end_offset == 0


def test_each_loss_is_told_with_its_window_and_its_number(db):
    send(db, "sound")
    send(db, "lossy", [Lossy(every=700)])
    lost = Counter(window_of(timestamp_ms) for number, (_, _, timestamp_ms) in enumerate(made_up_views(1_500), 1) if number % 700 == 0)
    alerts = audit(db)
    assert {alert["from"] for alert in alerts} == {"lossy"}
    assert {alert["window_ms"]: alert["count"] - alert["found"] for alert in alerts} == dict(lost)
    assert [json.loads(record.value) for record in db.log("loss").read(0)] == alerts
    assert audit(db) == [], "each window is told once"


def test_a_window_that_was_lost_as_a_whole(db):
    send(db, "dead", [Lossy(every=1)])
    assert {alert["found"] for alert in audit(db)} == {0}


def test_the_program(capsys):
    activity_audit.main()
    assert "web-2, minute" in capsys.readouterr().out
