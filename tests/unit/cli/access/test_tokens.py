import os

import pytest

from logdb.access import security_document
from logdb.access.authentication import Authentication
from logdb.errors import AuthenticationFailed
from logdb.io import IO
from logdb.requests.principals import Principal
from logdb.store.security_file import SecurityFile
from support.clock import StillIO

pytestmark = pytest.mark.local

DAY_MS = 86_400_000


def kept(command):
    return security_document.load(SecurityFile(IO(), command.data_dir))


def test_a_token_is_printed_once_and_is_its_owner(logdb_command):
    result = logdb_command("tokens", "create", "ci", "--owner", "alice")
    token = result.stdout.strip()
    assert "created token ci of User:alice" in result.stderr
    assert "it is not shown again" in result.stderr
    (one,) = kept(logdb_command).tokens
    assert one.expires_ms - one.created_ms == 90 * DAY_MS
    authentication = Authentication(StillIO(one.created_ms))
    authentication.configure(kept(logdb_command))
    assert authentication.token(token).principal == Principal("User", "alice")
    assert token not in logdb_command.out("tokens") + logdb_command.out("tokens", "--json")
    with open(os.path.join(logdb_command.data_dir, "security.json"), encoding="utf-8") as file:
        assert token not in file.read()


def test_an_owner_without_a_password_is_said(logdb_command):
    logdb_command("users", "add", "alice", "--password-stdin", stdin="secret")
    assert "created token a of User:alice; expires" in logdb_command("tokens", "create", "a", "--owner", "alice").stderr
    assert (
        "created token b of User:alise, who has no password; expires" in logdb_command("tokens", "create", "b", "--owner", "alise").stderr
    )


def test_as_json(logdb_command):
    made = logdb_command.json("tokens", "create", "ci", "--owner", "alice", "--expires-in", "PT1H")
    assert made["secret"].startswith("logdb_")
    assert made["expires_ms"] - made["created_ms"] == 3_600_000
    del made["secret"]
    assert logdb_command.json("tokens", "list") == [made]


def test_list(logdb_command):
    assert "created" in logdb_command("tokens", "create", "b", "--owner", "alice", "--never-expires").stderr
    logdb_command("tokens", "create", "a", "--owner", "bob", "--expires-in", "PT0S")
    rows = [line.split() for line in logdb_command.out("tokens").splitlines()[1:]]
    assert [(row[0], row[1], row[-1]) for row in rows] == [("a", "User:bob", "(expired)"), ("b", "User:alice", "never")]


def test_revoke_shows_first(logdb_command):
    token = logdb_command.out("tokens", "create", "ci", "--owner", "alice").strip()
    logdb_command("tokens", "create", "cd", "--owner", "alice")
    result = logdb_command("tokens", "revoke", "ci")
    assert "would revoke token ci of User:alice\nnothing was done; --yes revokes" in result.stderr
    assert logdb_command.json("tokens", "revoke", "ci", "--yes")["revoke"][0]["token"] == "ci"
    assert [one.name for one in kept(logdb_command).tokens] == ["cd"]
    authentication = Authentication(IO())
    authentication.configure(kept(logdb_command))
    with pytest.raises(AuthenticationFailed):
        authentication.token(token)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["create", "ci", "--owner", "bob"], "token 'ci' already exists"),
        (["create", "x"], "--owner"),
        (["create", "x", "--owner", "a:b"], "without a colon"),
        (["create", "x", "--owner", "bob", "--expires-in", "soon"], "not a duration like"),
        (["revoke", "ci", "cd", "--yes"], "unknown token 'cd'; there are 'ci'"),
    ],
)
def test_refused(logdb_command, args, words):
    logdb_command("tokens", "create", "ci", "--owner", "alice")
    before = kept(logdb_command)
    assert words in logdb_command("tokens", *args, code=2).stderr
    assert kept(logdb_command) == before
