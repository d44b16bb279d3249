"""Entry points of installed packages."""

import importlib.metadata

import logdb
from logdb.announced import announced
from support.serving import served


def test_the_names_of_what_is_installed():
    assert set(announced("logdb.doors")) >= {"http", "kafka"}
    assert set(announced("logdb.sessions")) >= {"http", "https"}
    assert announced("logdb.no-such") == {}


def test_packages_are_looked_through_once(tmp_path, monkeypatch):
    """A look reads a file of each package: to open a URL would take 20 ms more."""

    def connect():
        with logdb.open(server.url) as db:
            return db.topics()

    with served(tmp_path / "db") as server:
        assert connect() == []
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [])
        assert connect() == []
