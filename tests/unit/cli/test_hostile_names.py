"""No string of a client reaches a terminal as it is: names, ids, headers, keys and values show what a terminal would obey."""

import ast
import io
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import logdb
import logdb.cli
from logdb.cli import app
from logdb.cli.records import transfer
from logdb.cli.terminal import output
from logdb.cli.terminal.session import Session

pytestmark = pytest.mark.local

HOSTILE = "\x1b]0;owned\x07\r\nforged line\u2028\u202egnp\x9b31m[red][link=http://x]y[/link]"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def attacked(logdb_command):
    """A database whose clients have chosen names that a terminal obeys."""
    with logdb.open(logdb_command.data_dir) as db:
        db.create_topic("t")
        db.append("t", HOSTILE.encode(), key=HOSTILE.encode(), headers=[(HOSTILE, HOSTILE.encode())])
        with db.consumer("t", group_id=HOSTILE, client_id=HOSTILE, group_instance_id=HOSTILE) as consumer:
            consumer.poll(timeout_ms=2000)
            consumer.commit()
        with db.transaction(HOSTILE) as transaction:
            transaction.send("t", b"x")
    return logdb_command


COMMANDS = [
    ["topics"],
    ["topics", "describe", "t"],
    ["topics", "describe", HOSTILE],
    ["configs", "describe", "t"],
    ["offsets", "t"],
    ["groups"],
    ["groups", "describe", HOSTILE],
    ["groups", "describe", HOSTILE + "x"],
    ["groups", "describe", "--members", HOSTILE],
    ["groups", "reset-offsets", HOSTILE, "--to-earliest"],
    ["groups", "delete", HOSTILE],
    ["groups", "delete", HOSTILE, "--yes"],
    ["transactions"],
    ["transactions", "describe", HOSTILE],
    ["transactions", "describe", HOSTILE + "x"],
    ["transactions", "abort", HOSTILE],
    ["users", "add", HOSTILE, "--yes"],
    ["users"],
    ["acls", "add", "--principal", f"User:{HOSTILE}", "--operation", "read", "--topic", "t"],
    ["acls"],
    ["tokens"],
    ["log-dirs"],
    ["verify"],
    [HOSTILE],
    ["topics", "create", "u", "--config", f"{HOSTILE}={HOSTILE}"],
]
DUMPS = [
    ["--deep-iteration", "t-0"],
    ["--print-data-log", "t-0"],
    *(["--offsets-decoder", f"__consumer_offsets-{number}"] for number in range(4)),
    *(["--transaction-log-decoder", f"__transaction_state-{number}"] for number in range(4)),
]


def said(command, *args: str) -> str:
    """All that a call prints; a refused call prints its error."""
    words, kafka = app.arguments(["logdb", *args])
    result = CliRunner().invoke(app.cli, words, obj=Session(kafka=kafka), env={"LOGDB_DATA_DIR": command.data_dir}, catch_exceptions=False)
    return result.stdout + result.stderr


def test_no_command_prints_what_a_terminal_obeys(attacked):
    data_dir = Path(attacked.data_dir)
    dumps = [["dump", *options, str(data_dir / name)] for *options, name in DUMPS if (data_dir / name).is_dir()]
    shown = {}
    for args in [*COMMANDS, *dumps]:
        for more in ([], ["--json"]):
            text = said(attacked, *args, *more)
            assert OBEYED.search(text) is None, (args, more, text)
            assert "\nforged line" not in text, (args, more, text)
            shown[*args, *more] = text
    assert r"\x1b]0;owned\x07\r\nforged line\u2028\u202e" in shown["groups",]
    assert json.loads(shown["groups", "--json"])[0]["group"] == HOSTILE
    assert r"\x1b]0;owned" in shown["transactions",]
    assert any(r"\x1b]0;owned" in shown[*args,] for args in dumps)


def test_kafkas_tools_print_the_same(attacked):
    for args in (
        ["kafka-consumer-groups", "--list"],
        ["kafka-consumer-groups", "--describe", "--all-groups"],
        ["kafka-transactions", "list"],
    ):
        text = said(attacked, *args)
        assert OBEYED.search(text) is None, (args, text)
        assert r"\x1b]0;owned" in text


class Terminal(io.TextIOWrapper):
    def isatty(self):
        return True


def test_a_terminal_shows_records_and_a_pipe_gets_them(attacked, monkeypatch):
    assert HOSTILE.encode() in attacked("consume", "t").stdout_bytes
    for content in (HOSTILE.encode(), b"\xff\n"):
        terminal = Terminal(io.BytesIO(), encoding="utf-8")
        monkeypatch.setattr("sys.stdout", terminal)
        output.write_data(content)
        assert OBEYED.search(terminal.buffer.getvalue().decode()) is None


@pytest.mark.parametrize("text", [HOSTILE, "\ud800", "\u200b\ufeff\U000e0041", "a\tb"])
def test_visible(text):
    assert output.visible(text).isprintable()
    assert json.loads(output.json_text(text)) == text
    output.json_text(text).encode()
    assert output.visible("grün 木 🙂") == "grün 木 🙂"


def test_markup_of_names_is_text(monkeypatch):
    terminal = Terminal(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr("sys.stdout", terminal)
    output.table(["NAME"], [["[red]a[/red]"]], title="[bold]t[/bold]")
    terminal.flush()
    shown = re.sub("\x1b\\[[0-9;]*m", "", terminal.buffer.getvalue().decode())
    assert "[red]a[/red]" in shown and "[bold]t[/bold]" in shown


def test_an_export_to_a_terminal(monkeypatch):
    terminal = Terminal(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr("sys.stdout", terminal)
    with transfer._replacing("-") as out:
        out.write(HOSTILE.encode())
    assert "\x1b" not in terminal.buffer.getvalue().decode()
    assert "x1b" in terminal.buffer.getvalue().decode()


def test_only_output_prints():
    """A command that printed by itself could forget what a client may have written."""
    for path in Path(logdb.cli.__file__).parent.rglob("*.py"):
        if path.name in ("output.py", "__init__.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                assert name not in ("print", "click.echo", "click.secho", "click.prompt", "click.confirm"), (path.name, node.lineno)
                assert not re.match(r"sys\.std(out|err)(\.buffer)?\.write", name), (path.name, node.lineno)
