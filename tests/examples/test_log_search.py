import logging
import sqlite3

import pytest

from examples import log_search
from examples.log_search import PARTITIONS, TOPIC, LogdbHandler, SearchIndex
from support.places import database


@pytest.fixture
def db(tmp_path):
    with database(tmp_path / "db") as opened:
        opened.create_topic(TOPIC, partitions=PARTITIONS)
        yield opened


@pytest.fixture
def logger(db):
    handler, made = LogdbHandler(db), logging.getLogger("example")
    made.addHandler(handler)
    made.setLevel(logging.DEBUG)
    made.propagate = False
    yield made
    made.removeHandler(handler)
    handler.close()


def test_lines_are_found_by_their_words(db, logger, tmp_path):
    index = SearchIndex(str(tmp_path / "index"))
    logger.warning("the disk %s is nearly full", "sda")
    logger.getChild("net").info("connected")
    logger.handlers[0].flush()
    assert index.follow(db) == 2
    assert index.search("disk full") == [("example", "WARNING", "the disk sda is nearly full")]
    assert index.search("logger:net") == [("example.net", "INFO", "connected")]
    assert index.search("nothing") == []
    assert index.follow(db) == 0
    index.close()


def test_an_indexer_that_fails_goes_on_where_it_was(db, logger, tmp_path, monkeypatch):
    for number in range(2_000):
        logger.info("line number%d", number)
    logger.handlers[0].flush()
    rows, row = [], SearchIndex._row

    def failing(record):
        rows.append(record)
        if len(rows) in (300, 900, 1_700):
            raise sqlite3.OperationalError("disk I/O error")
        return row(record)

    monkeypatch.setattr(SearchIndex, "_row", staticmethod(failing))
    for _ in range(3):
        index = SearchIndex(str(tmp_path / "index"))
        with pytest.raises(sqlite3.OperationalError):
            index.follow(db)
        index.close()
    index = SearchIndex(str(tmp_path / "index"))
    index.follow(db)
    assert len(rows) > 2_000
    assert len(index.search("line")) == 2_000
    assert all(len(index.search(f"number{number}")) == 1 for number in range(0, 2_000, 97))
    index.close()


def test_what_logdb_logs_is_left_out(db, logger, tmp_path):
    logger.handlers[0].handle(logging.makeLogRecord({"name": "logdb.store", "msg": "about itself"}))
    logger.handlers[0].flush()
    index = SearchIndex(str(tmp_path / "index"))
    assert index.follow(db) == 0
    index.close()


def test_the_program(capsys):
    log_search.main()
    printed = capsys.readouterr().out
    assert "505 lines indexed" in printed
    assert printed.count("card declined") == 5
