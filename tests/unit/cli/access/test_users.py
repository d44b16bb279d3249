import os

import pytest
from click.testing import CliRunner

import logdb
from logdb.access import security_document
from logdb.access.access_control import AccessControl
from logdb.access.credentials import is_password
from logdb.cli.app import cli
from logdb.cli.terminal.session import Session
from logdb.errors import AuthenticationFailed
from logdb.io import IO
from logdb.requests.principals import Principal
from logdb.requests.users import Quota
from logdb.store.security_file import SecurityFile

pytestmark = pytest.mark.local


def kept(command):
    return security_document.load(SecurityFile(IO(), command.data_dir))


def add(command, name="alice", *args, password="secret", **options):
    return command("users", "add", name, "--password-stdin", *args, stdin=password + "\n", **options)


def test_the_first_user_makes_the_database_and_turns_authentication_on(logdb_command):
    result = add(logdb_command)
    assert "authentication is on from now on" in result.stderr
    assert "added user alice" in result.stderr
    assert "authentication" not in add(logdb_command, "bob").stderr
    assert logdb_command.json("topics", "list") == []
    for mechanism, credential in kept(logdb_command).users["alice"].items():
        assert is_password(mechanism, credential, "secret")
        assert credential.iterations == 8192


def test_no_password_is_ever_shown_or_kept(logdb_command):
    result = add(logdb_command, password="hunter2-hunter2")
    shown = result.stdout + result.stderr + logdb_command.out("users", "list") + logdb_command.out("users", "list", "--json")
    assert "hunter2" not in shown
    for directory, _, files in os.walk(logdb_command.data_dir):
        for file in files:
            with open(os.path.join(directory, file), "rb") as content:
                assert b"hunter2" not in content.read()


def test_a_password_may_come_from_a_variable(logdb_command, monkeypatch):
    monkeypatch.setenv("ALICES_PASSWORD", "from outside")
    logdb_command("users", "add", "alice", "--password-env", "ALICES_PASSWORD", "--iterations", "5000")
    credential = kept(logdb_command).users["alice"]["SCRAM-SHA-256"]
    assert is_password("SCRAM-SHA-256", credential, "from outside")
    assert credential.iterations == 5000


def test_a_password_is_asked_for_twice_at_a_terminal(logdb_command, monkeypatch):
    monkeypatch.setattr("logdb.cli.access.users._at_terminal", lambda: True)
    result = CliRunner().invoke(
        cli, ["--data-dir", logdb_command.data_dir, "users", "add", "alice"], input="one\ntwo\nthree\nthree\n", obj=Session()
    )
    assert result.exit_code == 0, result.output
    assert "three" not in result.output
    assert is_password("SCRAM-SHA-256", kept(logdb_command).users["alice"]["SCRAM-SHA-256"], "three")


def test_passwd_sets_another(logdb_command):
    add(logdb_command, "alice", "--super-user")
    assert "changed the password of alice" in logdb_command("users", "passwd", "alice", "--password-stdin", stdin="other").stderr
    content = kept(logdb_command)
    assert is_password("SCRAM-SHA-512", content.users["alice"]["SCRAM-SHA-512"], "other")
    assert content.super_users == {Principal("User", "alice")}


def test_adding_a_user_without_a_password_twice_says_what_happened(logdb_command):
    def again(*args, **options):
        return logdb_command("users", "add", "robot", "--no-password", *args, **options).stderr

    add(logdb_command)
    assert "added user robot" in again()
    assert "robot is there already, without a password: nothing was changed" in again()
    assert logdb_command.json("users", "add", "robot", "--no-password") == {"user": "robot", "added": False}
    assert "robot is there already, without a password: made a super user" in again("--super-user")
    assert kept(logdb_command).super_users == {Principal("User", "robot")}
    assert "nothing was changed" in again("--super-user")
    assert "nothing was changed" in again()  # a super user it stays
    assert logdb_command.json("users", "add", "android", "--no-password") == {"user": "android", "added": True}
    assert "logdb users passwd alice" in logdb_command("users", "add", "alice", "--no-password", code=2).stderr


def test_list(logdb_command):
    add(logdb_command, "alice", "--super-user")
    logdb_command("users", "add", "robot", "--no-password")
    logdb_command("users", "alter", "robot", "--produce-bytes", "1000", "--requests", "5")
    logdb_command("users", "alter", "--default", "--requests", "100")
    quota = {"produce_bytes": 1000, "fetch_bytes": None, "requests": 5}
    assert logdb_command.json("users", "list") == {
        "users": [
            {"user": "alice", "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"], "super_user": True, "quota": None},
            {"user": "robot", "mechanisms": [], "super_user": False, "quota": quota},
        ],
        "default_quota": {"produce_bytes": None, "fetch_bytes": None, "requests": 100},
    }
    result = logdb_command("users")
    assert [line.split() for line in result.stdout.splitlines()[1:]] == [
        ["alice", "yes", "yes", "-", "-", "-"],
        ["robot", "no", "no", "1000", "-", "5"],
    ]
    assert "all others: produce bytes as they like, fetch bytes as they like, requests 100 a second" in result.stderr


def test_alter_changes_what_it_names_and_takes_it_back(logdb_command):
    add(logdb_command)
    logdb_command("users", "alter", "alice", "--super-user", "--fetch-bytes", "7", "--requests", "8")
    content = kept(logdb_command)
    assert (content.super_users, content.quotas) == ({Principal("User", "alice")}, {Principal("User", "alice"): Quota(None, 7, 8)})
    logdb_command("users", "alter", "alice", "--no-super-user", "--fetch-bytes", "none")
    content = kept(logdb_command)
    assert (content.super_users, content.quotas) == (set(), {Principal("User", "alice"): Quota(None, None, 8)})


def test_alter_says_who_has_no_password(logdb_command):
    add(logdb_command)
    assert logdb_command("users", "alter", "alice", "--requests", "8").stderr == "altered alice\n"
    assert logdb_command("users", "alter", "alise", "--requests", "8").stderr == "altered alise, who has no password\n"
    assert logdb_command("users", "alter", "--default", "--requests", "8").stderr == "altered the quota of all others\n"


def test_delete_shows_first_and_takes_tokens_along(logdb_command):
    add(logdb_command, "alice", "--super-user")
    add(logdb_command, "bob")
    for name, owner in (("ci", "alice"), ("cd", "alice"), ("spark", "bob")):
        logdb_command("tokens", "create", name, "--owner", owner)
    logdb_command("acls", "add", "--allow-principal", "alice", "--topic", "t", "--operation", "Read")
    result = logdb_command("users", "delete", "alice")
    assert "would delete user alice, 2 tokens; 1 ACL would stay\nnothing was done; --yes deletes" in result.stderr
    assert set(kept(logdb_command).users) == {"alice", "bob"}
    assert logdb_command.json("users", "delete", "alice", "--yes")["executed"] is True
    content = kept(logdb_command)
    assert (set(content.users), content.super_users, [token.name for token in content.tokens]) == ({"bob"}, set(), ["spark"])
    assert len(content.acls) == 1


@pytest.mark.parametrize(
    ("args", "stdin", "words"),
    [
        (["add", "alice", "--password-stdin"], "x", "user 'alice' already exists: logdb users passwd alice"),
        (["add", "bob"], "", "no terminal to ask for the password"),
        (["add", "bob", "--password-stdin"], "\n", "the password is empty"),
        (["add", "bob", "--password-stdin"], "a\0b", "contains a NUL"),
        (["add", "bob", "--password-env", "LOGDB_NO_SUCH"], "", "the variable LOGDB_NO_SUCH is not set"),
        (["add", "bob", "--password-env", "HOME", "--password-stdin"], "", "not both"),
        (["add", "bob", "--no-password", "--password-stdin"], "x", "not both"),
        (["add", "bob", "--password-stdin", "--iterations", "100"], "x", "4096"),
        (["add", "b:b", "--password-stdin"], "x", "without a colon"),
        (["add", "*", "--password-stdin"], "x", "without a colon"),
        (["add", "", "--password-stdin"], "x", "1 to 249"),
        (["passwd", "bob", "--password-stdin"], "x", "unknown user 'bob'; there are 'alice'"),
        (["delete", "alice", "bob", "--yes"], "", "unknown user 'bob'"),
        (["alter", "alice"], "", "nothing to alter"),
        (["alter"], "", "give a NAME"),
        (["alter", "alice", "--default", "--requests", "1"], "", "give a NAME"),
        (["alter", "--default", "--super-user"], "", "needs a NAME"),
        (["alter", "alice", "--requests", "0"], "", "2^63 - 1], or none"),
        (["alter", "alice", "--requests", str(1 << 63)], "", "2^63 - 1], or none"),
        (["alter", "alice", "--requests", "9" * 5000], "", "2^63 - 1], or none"),
    ],
)
def test_refused(logdb_command, args, stdin, words):
    add(logdb_command)
    before = kept(logdb_command)
    assert words in logdb_command("users", *args, stdin=stdin, code=2).stderr
    assert kept(logdb_command) == before


def test_a_directory_of_something_else_is_refused(logdb_command, tmp_path):
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "letter.txt").write_text("dear …")
    assert "holds no logdb database" in add(logdb_command, code=2).stderr
    assert os.listdir(logdb_command.data_dir) == ["letter.txt"]


def test_a_damaged_file_is_said_and_left(logdb_command):
    add(logdb_command)
    path = os.path.join(logdb_command.data_dir, "security.json")
    with open(path, "r+b") as file:
        file.truncate(50)
    assert "security.json is corrupt" in logdb_command("users", "list", code=1).stderr
    assert "security.json is corrupt" in add(logdb_command, "bob", code=1).stderr
    assert os.path.getsize(path) == 50


def test_beside_a_server_that_runs(logdb_command):
    with logdb.open(logdb_command.data_dir) as db:
        access = AccessControl(db._session)
        add(logdb_command)
        assert access.authenticate_password("alice", "secret", "10.0.0.1").principal == Principal("User", "alice")
        token = logdb_command.out("tokens", "create", "ci", "--owner", "alice").strip()
        assert access.authenticate_token(token, "10.0.0.1").principal == Principal("User", "alice")
        logdb_command("acls", "add", "--allow-principal", "alice", "--topic", "t", "--operation", "Create")
        access.session(Principal("User", "alice"), "10.0.0.1").create_topic("t")
        logdb_command("users", "delete", "alice", "--yes")
        with pytest.raises(AuthenticationFailed):
            access.authenticate_password("alice", "secret", "10.0.0.1")
        with pytest.raises(AuthenticationFailed):
            access.authenticate_token(token, "10.0.0.1")
        access.close()
