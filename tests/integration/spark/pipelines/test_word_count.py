from collections import Counter

import logdb
from examples.spark.word_count import COUNTS, LINES, count_words, create_topics
from support.serving import served

LINES_OF_EACH_RUN = (
    ["all streams lead to the log", "Hello, logdb streams!", ""],
    ["join the streams", "… and  the log"],
    [],
    ["logdb"] * 3,
)


def counts(db):
    return {key.decode(): int(value) for key, value in db.table(COUNTS).items()}


def expected(lines):
    cleaned = "".join(character if character.isascii() and character.isalnum() else " " for line in lines for character in [*line, " "])
    return Counter(cleaned.lower().split())


def test_each_run_counts_what_has_come_since_the_last_one(spark, tmp_path):
    seen = []
    for lines in LINES_OF_EACH_RUN:
        with logdb.open(tmp_path / "db") as db:
            create_topics(db)
            seen += lines
            db.append_many(LINES, [line.encode() for line in lines])
        count_words(spark, {"path": str(tmp_path / "db")}, str(tmp_path / "checkpoint")).awaitTermination()
        with logdb.open(tmp_path / "db", mode="r") as db:
            assert counts(db) == expected(seen)
            written = [record.key for record in db.log(COUNTS).read(0, isolation_level="read_committed")]
    assert Counter(written)[b"streams"] == 2  # one record a run for what it changed, and none for the rest
    assert Counter(written)[b"hello"] == 1


def test_over_a_url_beside_an_application_that_writes(spark, tmp_path):
    with served(tmp_path / "db") as server:
        db = server.database
        create_topics(db)
        db.append_many(LINES, [b"a b a", b"b a"])
        query = count_words(spark, {"url": server.url}, str(tmp_path / "checkpoint"), follow=True)
        try:
            table = db.table(COUNTS)
            first = db.log(COUNTS).end_offset
            db.append(LINES, b"c a")
            while counts(db) != {"a": 4, "b": 2, "c": 1}:
                assert query.isActive, query.exception()
                table.wait_for({logdb.TopicPartition(COUNTS, 0): db.log(COUNTS).end_offset + 1}, timeout_ms=1_000)
            assert db.log(COUNTS).end_offset > first
        finally:
            query.stop()
