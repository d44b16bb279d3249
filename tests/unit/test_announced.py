"""Entry points of installed packages."""

import importlib.metadata
import sys

import logdb
from logdb.announced import announced
from support.serving import served


def test_the_names_of_what_is_installed():
    assert set(announced("logdb.doors")) >= {"http", "kafka"}
    assert set(announced("logdb.sessions")) >= {"http", "https"}
    assert announced("logdb.no-such") == {}


def test_the_first_package_on_the_path_has_a_name_and_other_groups_are_left_out(tmp_path, monkeypatch):
    for place, module in (("near", "near_door"), ("far", "far_door")):
        package = tmp_path / place / f"{place}-1.0.dist-info"
        package.mkdir(parents=True)
        (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {place}\nVersion: 1.0\n")
        (package / "entry_points.txt").write_text(f"[console_scripts]\nrun = {module}:run\n\n[logdb.example]\nspoken = {module}:Door\n")
    bare = tmp_path / "near" / "bare-1.0.dist-info"
    bare.mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "near"), str(tmp_path / "far")])
    points = announced.__wrapped__("logdb.example")
    assert {name: (point.group, point.value) for name, point in points.items()} == {"spoken": ("logdb.example", "near_door:Door")}


def test_each_package_that_is_installed_is_found():
    for group in ("logdb.doors", "logdb.sessions", "logdb.cluster", "pytest11", "console_scripts"):
        assert set(announced.__wrapped__(group)) == set(importlib.metadata.entry_points(group=group).names)


def test_packages_are_looked_through_once(tmp_path, monkeypatch):
    """A look reads a file of each package: to open a URL would take 20 ms more."""

    def connect():
        with logdb.open(server.url) as db:
            return db.topics()

    with served(tmp_path / "db") as server:
        assert connect() == []
        monkeypatch.setattr(importlib.metadata, "distributions", list)
        assert connect() == []
