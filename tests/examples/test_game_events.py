import pytest

from examples import game_events
from examples.game_events import Cheats, create_topics, detect, made_up_events, play
from support.places import database

CHEATS = {"user-3", "user-11"}


def alerts(db):
    return sorted((record.value or b"").decode() for record in db.log("alerts").read(0, isolation_level="read_committed"))


def expected():
    """What one detector that never stops finds."""
    cheats = Cheats()
    found = [(user, cheats.note(user, event)) for user, event in made_up_events(3_000, 20, CHEATS)]
    return sorted(f"{user}: {reason}" for user, reason in found if reason)


@pytest.fixture
def db(tmp_path):
    with database(tmp_path / "db") as opened:
        create_topics(opened)
        yield opened


def test_cheats_are_flagged_and_nobody_else(db):
    assert play(db, made_up_events(3_000, 20, CHEATS)) == 3_000
    assert detect(db) == len(expected())
    assert alerts(db) == expected()
    assert {alert.split(":")[0] for alert in alerts(db)} == CHEATS


def test_a_trade_far_above_the_usual_price(db):
    play(db, iter([("u", {"kind": "trade", "price": price}) for price in (10, 11, 9, 10, 10, 100, 101)]))
    detect(db)
    assert alerts(db) == ["u: sold for 101, usually 10"]


def test_detectors_that_die_flag_each_cheat_once(db, monkeypatch):
    play(db, made_up_events(3_000, 20, CHEATS))
    calls = []

    class Died(Exception):
        pass

    def dying(cheats, user, event, note=Cheats.note):
        calls.append(user)
        if len(calls) in (400, 1_300, 2_000, 2_600, 6_000):  # in the middle of a transaction, or while a cache is filled
            raise Died
        return note(cheats, user, event)

    monkeypatch.setattr(Cheats, "note", dying)
    deaths = 0
    while True:
        try:
            detect(db, polls=2)
        except Died:
            deaths += 1
        else:
            with db.consumer(group_id="detector") as consumer:
                consumer.assign([("events", partition) for partition in range(3)])
                if not any(consumer.lag(partition) for partition in consumer.assignment()):
                    break
    assert deaths == 5
    assert alerts(db) == expected()


def test_the_program(capsys):
    game_events.main()
    printed = capsys.readouterr().out
    assert "user-5: sold for 5000" in printed
    assert "user-3: logins from" in printed
