import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import logdb
from logdb.cli.app import cli
from logdb.cli.terminal.session import Session
from support.serving import served


class Command:
    """The command on one database, in this process; ``url``: of the server that has the directory open, if one has."""

    def __init__(self, data_dir: str, url: str | None = None) -> None:
        self.data_dir, self.url = data_dir, url

    @property
    def place(self) -> str:
        return self.url or self.data_dir

    def open(self) -> logdb.Database:
        return logdb.open(self.place)

    def __call__(self, *args: str, code: int = 0, kafka: bool = False, stdin: str | bytes = "") -> Result:
        env = {"LOGDB_DATA_DIR": "" if self.url else self.data_dir, "LOGDB_BOOTSTRAP": self.url or ""}
        result = CliRunner().invoke(cli, args, input=stdin, obj=Session(kafka=kafka), env=env, catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result

    def out(self, *args: str, **options: Any) -> str:
        return self(*args, **options).stdout

    def json(self, *args: str, **options: Any) -> Any:
        return json.loads(self.out(*args, "--json", **options))

    def json_lines(self, *args: str, **options: Any) -> list[Any]:
        return [json.loads(line) for line in self.out(*args, "--json", **options).splitlines()]


@contextlib.contextmanager
def command_on(place: str, path: Path) -> Iterator[Command]:
    """The command on the directory ``path``, or on a server that has it open."""
    if place == "path":
        yield Command(str(path))
        return
    with served(path) as server:
        yield Command(str(path), server.url)


@pytest.fixture
def logdb_command(tmp_path, place) -> Iterator[Command]:
    """The command on a database that is not there yet, or behind a URL is empty."""
    with command_on(place, tmp_path / "db") as command:
        yield command


@pytest.fixture(scope="session")
def template(tmp_path_factory) -> str:
    """Topics ``one`` (1 partition: values 0 to 99) and ``three`` (3 partitions: k0 to k29)."""
    command = Command(str(tmp_path_factory.mktemp("template") / "db"))
    command("topics", "create", "one")
    command("topics", "create", "three", "-p", "3", "-c", "segment.bytes=4096")
    command("produce", "one", stdin="".join(f"{n}\n" for n in range(100)))
    command("produce", "three", "-K", ":", stdin="".join(f"k{n}:v{n}\n" for n in range(30)))
    return command.data_dir


@pytest.fixture
def filled(tmp_path, place, template) -> Iterator[Command]:
    """The command on a copy of the template's database."""
    shutil.copytree(template, tmp_path / "db")
    with command_on(place, tmp_path / "db") as command:
        yield command


@pytest.fixture
def transacted(filled: Command) -> Command:
    """A transaction of ``done`` that was committed, one of ``left`` that a closed process left open."""
    with filled.open() as db:
        with db.transaction("done") as tx:
            tx.send("one", b"x")
        left = db.producer(transactional_id="left")
        left.begin_transaction()
        left.send("three", b"y", partition=1)
        left.flush()
        left._on_close = None
        db._producers.discard(left)  # as if the process had died
    return filled
