"""What a notebook shows of a database."""

import logdb


def test_a_database_is_a_table_of_its_topics(tmp_path):
    with logdb.open(tmp_path / "a<b>") as db:
        db.create_topic("t", partitions=2, config={"retention.ms": "7d"})
        db.log("t").append_many([b"x"] * 1234)
        shown = db._repr_html_()
        assert '<td style="text-align:left">t</td>' in shown
        assert "1\u2009234</td>" in shown and "retention.ms=604800000" in shown
        assert "a&lt;b&gt;" in shown and "a<b>" not in shown
    assert "closed" in db._repr_html_()
