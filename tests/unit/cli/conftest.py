import json
import shutil
from typing import Any

import pytest
from click.testing import CliRunner, Result

from logdb.cli.app import cli
from logdb.cli.session import Session


class Command:
    """The command on one database directory, in this process."""

    def __init__(self, data_dir: str) -> None:
        self.data_dir = data_dir

    def __call__(self, *args: str, code: int = 0, kafka: bool = False, stdin: str | bytes = "") -> Result:
        env = {"LOGDB_DATA_DIR": self.data_dir}
        result = CliRunner().invoke(cli, args, input=stdin, obj=Session(kafka=kafka), env=env, catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result

    def out(self, *args: str, **options: Any) -> str:
        return self(*args, **options).stdout

    def json(self, *args: str, **options: Any) -> Any:
        return json.loads(self.out(*args, "--json", **options))

    def json_lines(self, *args: str, **options: Any) -> list[Any]:
        return [json.loads(line) for line in self.out(*args, "--json", **options).splitlines()]


@pytest.fixture
def logdb_command(tmp_path) -> Command:
    return Command(str(tmp_path / "db"))


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
def filled(logdb_command, template) -> Command:
    """The command on a copy of the template's database."""
    shutil.copytree(template, logdb_command.data_dir)
    return logdb_command
