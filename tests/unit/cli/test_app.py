import json
import os
import re
import signal

import click
import pytest
from click.testing import CliRunner

from logdb import errors
from logdb.cli.app import VERBS, Terminated, arguments, cli
from logdb.cli.kafka.kafka_tools import KAFKA_TOOLS
from logdb.cli.terminal.session import FAILURES, Session, exit_code_of


@pytest.mark.parametrize("tool", KAFKA_TOOLS)
@pytest.mark.parametrize("suffix", ["", ".sh"])
def test_names_of_kafkas_tools(tool, suffix):
    assert arguments([f"/opt/bin/{tool}{suffix}", "--list"]) == ([KAFKA_TOOLS[tool], "--list"], True)


def test_kcats_modes():
    assert arguments(["logdb", "-C", "-t", "t"]) == (["consume", "--follow", "-t", "t"], False)
    assert arguments(["logdb", "-P", "-t", "t"]) == (["produce", "-t", "t"], False)
    assert arguments(["logdb", "-L"]) == (["topics", "describe"], False)
    assert arguments(["logdb", "-Q", "-t", "t:0:5"]) == (["offsets", "-t", "t:0:5"], False)
    assert arguments(["logdb"]) == ([], False)


def test_help_names_every_verb_and_how_to_begin():
    text = CliRunner().invoke(cli, ["--help"]).stdout
    for verb in VERBS:
        assert re.search(rf"^  {verb} +\S", text, re.MULTILINE), verb
    assert "logdb topics create" in text
    assert "Exit codes" in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "spark"])  # it runs programs, which have options of their own
def test_every_verb_has_help_and_the_common_options(verb):
    text = CliRunner().invoke(cli, [verb, "--help"]).stdout
    assert "--data-dir" in text
    assert "--json" in text


def test_every_option_has_words():
    context = click.Context(cli)
    stack = [cli.get_command(context, verb) for verb in VERBS]
    while stack:
        command = stack.pop()
        assert command.help, command.name
        stack += [*command.commands.values()] if isinstance(command, click.Group) else []
        for option in command.params:
            assert not isinstance(option, click.Option) or option.hidden or option.help, (command.name, option.name)


def test_no_line_of_a_list_of_commands_is_cut_off():
    context = click.Context(cli, terminal_width=80)
    groups = [[verb] for verb in VERBS if isinstance(cli.get_command(context, verb), click.Group)]
    assert groups
    cut = [
        line
        for words in groups
        for line in CliRunner().invoke(cli, [*words, "--help"]).stdout.splitlines()
        if line.endswith("...") and "Usage:" not in line
    ]
    assert cut == []


def test_without_arguments_the_help_is_shown_and_the_call_is_wrong():
    for words in ([], ["cluster"], ["partitions"]):
        said = CliRunner().invoke(cli, words)
        assert said.exit_code == 2
        assert said.output == CliRunner().invoke(cli, [*words, "--help"]).output


def test_unknown_verb_suggests_the_nearest():
    result = CliRunner().invoke(cli, ["topic"])
    assert result.exit_code == 2
    assert "did you mean 'topics'?" in result.stderr
    assert "logdb --help" in CliRunner().invoke(cli, ["xyzzy"]).stderr
    assert "Did you mean 'reset-offsets'?" in CliRunner().invoke(cli, ["groups", "reset"]).stderr
    assert "Commands are alter, create, delete, describe, list." in CliRunner().invoke(cli, ["topics", "xyzzy"]).stderr


def test_a_directory_after_the_verb_is_answered_with_the_option(filled, tmp_path):
    assert f"extra argument ({tmp_path}); to name a database: --data-dir {tmp_path}\n" in filled("verify", str(tmp_path), code=2).stderr
    assert "--data-dir" not in filled("verify", "nosuch", code=2).stderr


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        (["topics", "describe", "nosuch"], "UnknownTopic", "unknown topic 'nosuch'; there are 'one', 'three'"),
        (["topics", "list", "--nosuch"], "NoSuchOption", "No such option '--nosuch'."),
        (["consume", "one", "--max-messages", "many"], "BadParameter", "'many' is not a valid whole number"),
        (["xyzzy"], "UsageError", "No such command 'xyzzy'"),
    ],
)
def test_an_error_for_a_program_is_one_object(filled, args, error, message):
    told = filled(*args, "--json", code=2)
    said = json.loads(told.stderr)
    assert told.stdout == ""
    assert said.pop("error") == error
    assert message in said.pop("message")
    assert said == {"fields": {"topic": "nosuch"} if error == "UnknownTopic" else {}, "notes": []}
    assert not filled(*args, code=2).stderr.startswith("{")


def test_an_error_for_a_program_has_numbers_and_notes(monkeypatch):
    def fail(*_):
        error = errors.TransactionAborted("it was")
        error.offsets, error.reason = range(2), OSError(28, "full")
        error.add_note("and more")
        raise error

    monkeypatch.setattr(Session, "read", fail)
    told = CliRunner().invoke(cli, ["topics", "list", "--json", "--data-dir", "d"])
    fields = {"offsets": "range(0, 2)", "reason": "[Errno 28] full"}
    assert json.loads(told.stderr) == {"error": "TransactionAborted", "message": "it was", "fields": fields, "notes": ["and more"]}


@pytest.mark.parametrize("error", [OSError(28, "full"), ModuleNotFoundError("none", name="aiohttp.web")])
def test_an_error_of_python_s_for_a_program(monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(Session, "read", fail)
    told = CliRunner().invoke(cli, ["topics", "list", "--json", "--data-dir", "d"])
    said = json.loads(told.stderr)
    assert told.exit_code == 1
    assert (said["error"], said["fields"]) == (type(error).__name__, {})
    wanted = "'aiohttp>=3.14' 'google-re2>=1.1' 'h11>=0.16' 'msgspec>=0.20'"
    hint = f"a server needs the package 'aiohttp' of the extra 'http': pip install {wanted}"
    assert said["message"] in ("[Errno 28] full", hint)


def test_no_database_named():
    result = CliRunner().invoke(cli, ["topics", "list"], env={"LOGDB_DATA_DIR": ""})
    assert result.exit_code == 2
    assert "--data-dir" in result.stderr
    assert "LOGDB_DATA_DIR" in result.stderr


@pytest.mark.parametrize("where", ["root", "group", "verb"])
def test_common_options_may_stand_anywhere(filled, where):
    options = ["--data-dir", filled.data_dir, "--json"]
    places = {"root": [*options, "topics", "list"], "group": ["topics", *options, "list"], "verb": ["topics", "list", *options]}
    result = CliRunner().invoke(cli, places[where], env={"LOGDB_DATA_DIR": "/nowhere"})
    assert result.stdout.startswith('[{"topic": "one"'), result.output


@pytest.mark.local
def test_nothing_there_is_refused_and_nothing_is_made(logdb_command):
    for verb in (["topics", "list"], ["consume", "t"], ["produce", "t"], ["topics", "delete", "t", "--yes"], ["offsets"]):
        result = logdb_command(*verb, code=2)
        assert logdb_command.data_dir in result.stderr
        assert not os.path.exists(logdb_command.data_dir)


def test_every_error_has_an_exit_code():
    failures = {error.__name__ for error in FAILURES}
    assert failures < set(vars(errors))
    assert exit_code_of(errors.CorruptionError("p", 0, "r")) == 1
    assert exit_code_of(errors.DiskFull("p", 1, "r")) == 1
    assert exit_code_of(errors.ReadFailed("p", 0, "r")) == 1
    assert exit_code_of(errors.UnknownTopic("t")) == 2
    assert exit_code_of(errors.DirectoryLocked("p", pid=1, host="h", since="s")) == 2


@pytest.mark.parametrize(
    ("error", "follows", "code", "words"),
    [
        (errors.SyncFailed("f", "EIO"), False, 1, "logdb: syncing f failed"),
        (errors.ReadOnly("why"), False, 2, "logdb: why"),
        (PermissionError(13, "Permission denied", "x"), False, 1, "logdb: Permission denied: x\n"),
        (OSError(28, "No space left on device"), False, 1, "logdb: No space left on device\n"),
        (OSError("as it is"), False, 1, "logdb: as it is\n"),
        (KeyboardInterrupt(), False, 128 + signal.SIGINT, ""),
        (Terminated(), False, 128 + signal.SIGTERM, ""),
        (KeyboardInterrupt(), True, 128 + signal.SIGINT, ""),
        (Terminated(), True, 0, ""),
    ],
)
def test_what_becomes_of_errors(monkeypatch, error, follows, code, words):
    session = Session(data_dir_given="/nowhere", follows=follows)

    def fail(self, **_):
        raise error

    monkeypatch.setattr(Session, "read", fail)
    result = CliRunner().invoke(cli, ["topics", "list"], obj=session)
    assert (result.exit_code, result.stdout) == (code, "")
    assert words in result.stderr
    assert "Traceback" not in result.output


def test_ctrl_c_before_a_verb_begins(monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("logdb.cli.terminal.session.checked_directory", fail)
    result = CliRunner().invoke(cli, ["--data-dir", "x", "topics"])
    assert (result.exit_code, result.output) == (128 + signal.SIGINT, "")


def test_notes_of_an_error_are_shown(monkeypatch):
    error = errors.ReadOnly("why")
    error.add_note("what to do")

    def fail(self):
        raise error

    monkeypatch.setattr(Session, "read", fail)
    result = CliRunner().invoke(cli, ["topics", "list"], obj=Session(data_dir_given="/nowhere"))
    assert result.stderr == "logdb: why; what to do\n"


@pytest.mark.local
def test_what_other_tools_call_it(filled):
    assert filled.out("version") == filled.out("--version")
    assert filled.out("list") == filled.out("ls") == filled.out("topics", "list")
    assert filled.out("help", "topics", "create") == filled.out("topics", "create", "--help")
    assert filled.out("help") == filled.out("--help")
    assert "no such command: cli nope" in filled("help", "nope", code=2).stderr
