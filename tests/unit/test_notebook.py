"""What a notebook shows of a database, and of what is in it; names, keys and values are hostile."""

import re

import pytest

import logdb
from logdb.notebook import html_table
from support.serving import served

MARKUP = b"<img src=x onerror=alert(1)>"
BIDI = "user\u202egnp.exe"


@pytest.fixture(params=["path", "url"])
def db(request, tmp_path):
    """A topic of two partitions: 1,234 records, and three hostile ones."""
    with logdb.open(tmp_path / "db") as local:
        local.create_topic("t", partitions=2, config={"retention.ms": "7d"})
        local.log("t", 0).append_many([b"x"] * 1234, timestamps_ms=[0] * 1234)
        local.log("t", 1).append_many([MARKUP, bytes(range(256)) * 400, BIDI.encode()], keys=[MARKUP, b"\xff", BIDI.encode()])
        local.log("t", 1).append(None, b"gone", timestamp_ms=-1)
    if request.param == "path":
        with logdb.open(tmp_path / "db") as db:
            yield db
    else:
        with served(tmp_path / "db") as server, logdb.open(server.url) as db:
            yield db


def cells(html):
    """The text of each cell, by rows; a table, and nothing else that a browser would act on."""
    tags = {"div", "code", "table", "thead", "tbody", "tr", "th", "td"}
    assert set(re.findall(r"</?(\w+)", html)) <= tags
    assert "\u202e" not in html
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(<td.*?)</tr>", html)]


def test_a_database_is_a_table_of_its_topics(db):
    ((name, partitions, records, _, configs),) = cells(db._repr_html_())
    assert (name, partitions, records, configs) == ("t", "2", "1\u2009238", "retention.ms=604800000")


def test_a_name_of_a_directory_is_escaped(tmp_path):
    with logdb.open(tmp_path / "a<b>") as db:
        shown = db._repr_html_()
        assert "a&lt;b&gt;" in shown and "a<b>" not in shown
    assert "closed" in db._repr_html_()


def test_a_log_shows_its_last_records(db):
    shown = db.log("t", 0)._repr_html_()
    assert "t-0: offsets 0 to 1,234" in shown
    assert cells(shown)[-1] == ["1\u2009233", "1970-01-01 00:00:00+00:00", "", "b&#x27;x&#x27;"]
    assert len(cells(shown)) == 5
    hostile = cells(db.log("t", 1)._repr_html_())
    assert hostile[0][2] == hostile[0][3] == "b&#x27;&lt;img src=x onerror=alert(1)&gt;&#x27;"
    assert hostile[1][3].endswith("…") and len(hostile[1][3]) < 2_000
    assert hostile[3] == ["3", "", "b&#x27;gone&#x27;", ""]


def test_a_table_shows_its_first_keys(db):
    shown = db.table("t")._repr_html_()
    assert "3 keys" in shown
    (key, value, partition, offset, _), *_ = cells(shown)
    assert (key, value, partition, offset) == ("b&#x27;&lt;img src=x onerror=alert(1)&gt;&#x27;", key, "1", "0")
    words = db.table("t", key_deserializer=lambda key: key.decode(errors="replace"), value_deserializer=lambda value: {"n": [value[:9]]})
    shown = cells(words._repr_html_())
    assert [row[0] for row in shown] == ["&lt;img src=x onerror=alert(1)&gt;", "&#x27;user\\u202egnp.exe&#x27;", "\ufffd"]
    assert shown[0][1] == "{&#x27;n&#x27;: [b&#x27;&lt;img src=&#x27;]}"
    broken = db.table("t", value_deserializer="json")
    assert cells(broken._repr_html_()) == []  # what has no values for it has a title


def test_a_consumer_shows_its_positions(db):
    consumer = db.consumer(auto_offset_reset="earliest")
    assert cells(consumer._repr_html_()) == []
    consumer.assign([("t", 0), ("t", 1)])
    consumer.seek(("t", 1), 2)
    shown = cells(consumer._repr_html_())
    assert shown[1] == ["t", "1", "2"] and shown[0][:2] == ["t", "0"]
    consumer.close()
    assert "Consumer" in consumer._repr_html_()


def test_a_topic_shows_its_partitions(db):
    described = db.describe_topic("t")
    shown = described._repr_html_()
    assert "retention.ms=604800000" in shown and described.topic_id in shown
    first = described.partitions[0]
    assert cells(shown)[0] == ["0", "0", "1\u2009234", f"{first.size_bytes:,}".replace(",", "\u2009"), "0", "0"]
    (listed,) = db.topics()
    assert cells(listed._repr_html_()) == [] and "2 partitions" in listed._repr_html_()


def test_a_time_that_no_calendar_has():
    assert cells(html_table("", ("a",), [[logdb.notebook.moment(2**62)], [True]])) == [[str(2**62)], ["True"]]


def test_hostile_cells_and_titles():
    huge = 10**5_000
    shown = html_table("\u202etitle" * 100, ("a", "b", "c"), [(huge, {"n": huge}, 7)])
    assert "\u202e" not in shown and len(shown) < 2_000
    assert cells(shown)[0][2] == "7"  # newer reprlibs show the others
