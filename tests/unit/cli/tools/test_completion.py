import pytest
from click.shell_completion import ShellComplete

from logdb.cli.app import cli


def complete(command, args, incomplete=""):
    found = ShellComplete(cli, {}, "logdb", "_LOGDB_COMPLETE").get_completions(["--data-dir", command.data_dir, *args], incomplete)
    return [item.value for item in found]


def test_verbs_and_options(filled):
    assert complete(filled, [], "con") == ["consume", "configs", "connect"]
    assert complete(filled, ["topics"], "d") == ["delete", "describe"]
    assert "--from-beginning" in complete(filled, ["consume"], "--f")


@pytest.mark.parametrize("args", [["consume"], ["consume", "-t"], ["produce"], ["offsets"], ["topics", "delete"], ["configs", "alter"]])
def test_topics_complete_from_the_database(filled, args):
    assert complete(filled, args, "o") == ["one"]


def test_config_keys(filled):
    assert complete(filled, ["topics", "create", "x", "-c"], "retention.m") == ["retention.ms"]


def test_no_database_completes_to_nothing(logdb_command):
    assert complete(logdb_command, ["consume"], "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(logdb_command, shell):
    assert "_LOGDB_COMPLETE" in logdb_command.out("completion", shell)
    assert "bash" in logdb_command("completion", "powershell", code=2).stderr
