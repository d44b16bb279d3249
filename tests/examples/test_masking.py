import os

import pytest

from examples import masking
from examples.masking import HideNames, MaskCards, mask_cards
from logdb import serde
from support.places import database

CARD = "4111 1111 1111 1111"


@pytest.fixture
def db(tmp_path):
    with database(tmp_path / "db") as opened:
        opened.create_topic("t")
        yield opened


def sent(db, *values):
    with db.producer(key_serializer=serde.string, value_serializer=serde.json, interceptors=[MaskCards()]) as producer:
        for value in values:
            producer.send("t", value, key=value["customer"])


def test_no_card_number_reaches_the_disk(db):
    sent(db, {"customer": "Ada", "note": f"card {CARD}", "more": [{"also": "5500-0000-0000-0004"}], "count": 3})
    db.flush()
    for directory, _, names in os.walk(db.path):
        for name in names:
            with open(os.path.join(directory, name), "rb") as file:
                data = file.read()
            assert b"4111 1111" not in data
            assert b"5500-0000" not in data
    value = serde.json.deserialize(next(db.log("t").read(0)).value)
    assert value == {"customer": "Ada", "note": "card ************1111", "more": [{"also": "************0004"}], "count": 3}


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (CARD, "************1111"),
        ("4111111111111112", "4111111111111112"),
        ("378282246310005!", "***********0005!"),
        ("12345", "12345"),
        ("", ""),
    ],
)
def test_what_is_a_card_number(text, masked):
    assert mask_cards(text) == masked


def test_names_are_hidden_from_who_reads_so_and_from_nobody_else(db):
    sent(db, {"customer": "Ada", "n": 1}, {"customer": "Bob", "n": 2}, {"customer": "Ada", "n": 3})
    options = {"auto_offset_reset": "earliest", "key_deserializer": serde.string, "value_deserializer": serde.json}
    with db.consumer("t", **options) as clear, db.consumer("t", interceptors=[HideNames(b"secret")], **options) as hidden:
        names, aliases = ([record for records in each.poll(timeout_ms=1_000).values() for record in records] for each in (clear, hidden))
    assert [record.key for record in names] == ["Ada", "Bob", "Ada"]
    assert [record.value["n"] for record in aliases] == [1, 2, 3]
    first, second, third = ((record.key, record.value["customer"]) for record in aliases)
    assert first == third != second
    assert "Ada" not in str(aliases)


def test_the_program(capsys):
    masking.main()
    printed = capsys.readouterr().out
    assert "************1111" in printed
    assert "order 1234567890123456" in printed
    assert "'customer': 'customer-" in printed
