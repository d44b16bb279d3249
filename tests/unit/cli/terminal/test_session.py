"""Which database is meant: what is mistyped is refused before anything is made or asked."""

import os

import pytest
from click.testing import CliRunner

from logdb.cli.app import cli


def call(*args, env=None):
    return CliRunner().invoke(cli, args, env={"LOGDB_DATA_DIR": "", "LOGDB_BOOTSTRAP": "", **(env or {})}, catch_exceptions=False)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "events").mkdir()
    (tmp_path / "file").touch()
    yield tmp_path
    assert sorted(os.listdir(tmp_path)) == ["events", "file"], "nothing is made"


DIRECTORIES = [
    ("localhost:8080", "-b http://localhost:8080"),
    (":8080", "-b http://localhost:8080"),
    ("http://localhost:8080", "-b http://localhost:8080"),
    ("https://localhost", "-b https://localhost"),
    ("http:/localhost", "http://localhost"),
    (":memory:", "no database is kept in memory"),
    ("events ", "begins or ends with a space"),
    ("file", "is a file"),
    ("file/x", "is a file"),
]


@pytest.mark.parametrize(("given", "said"), DIRECTORIES)
@pytest.mark.parametrize("verb", [("topics", "create", "t"), ("topics", "list"), ("produce", "t"), ("verify",), ("serve",)])
def test_a_directory_that_is_none(given, said, verb):
    for result in (call("--data-dir", given, *verb), call(*verb, env={"LOGDB_DATA_DIR": given})):
        assert (result.exit_code, result.stdout) == (2, ""), result.output
        assert said in result.stderr
        assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("given", "said"), DIRECTORIES)
def test_serve_takes_a_directory_as_its_argument(given, said):
    result = call("serve", given)
    assert result.exit_code == 2 and said in result.stderr, result.output


@pytest.mark.parametrize("given", ["events", "./events", "./nothing", "/nothing/there", "~/events", "../x"])
def test_servers_that_are_directories(given):
    for result in (call("-b", given, "topics"), call("topics", env={"LOGDB_BOOTSTRAP": given})):
        assert result.exit_code == 2
        assert f"{given!r} is a directory, or the path of one: --data-dir {given}" in result.stderr
        assert "names a server: http://HOST:PORT" in result.stderr


@pytest.mark.parametrize(
    ("given", "said"), [("http:/h", "'http://h'"), ("http:h", "'http://h'"), ("h:x", "h:x"), ("file:///events", "begins with")]
)
def test_servers_that_are_none(given, said):
    result = call("-b", given, "topics")
    assert result.exit_code == 2 and said in result.stderr, result.output


@pytest.mark.parametrize("verb", [("snapshot",), ("backup",), ("restore", "file")])
@pytest.mark.parametrize("given", ["http://localhost:8080", "localhost:8080"])
def test_copies_go_to_files(verb, given):
    result = call("--data-dir", "events", *verb, given)
    assert result.exit_code == 2 and "http://localhost:8080" in result.stderr, result.output
