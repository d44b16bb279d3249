"""Users, tokens and ACLs of a server that runs: by the command, by ``db.security``, and by REST v3."""

import json
import logging

import pytest
from click.testing import CliRunner

import logdb
from logdb.access.credentials import token_hash
from logdb.cli.app import cli
from logdb.cli.terminal.session import Session
from logdb.errors import (
    AuthenticationFailed,
    CredentialExists,
    InsecureConnection,
    InvalidSecurity,
    NotAuthorized,
    ReadOnly,
    SecurityDisabled,
    UnknownCredential,
)
from logdb.requests.acls import Acl, AclFilter
from logdb.requests.principals import Principal
from support.certificates import Authority
from support.proxy import proxied
from support.security import document, secure
from support.serving import served

PASSWORD, SECRET = "correct horse", "hunter2-hunter2"
READ_T = Acl(Principal("User", "alice"), "*", "Read", "Allow", "Topic", "Literal", "t")


@pytest.fixture
def server(tmp_path):
    """A server with a topic, of which root is super user and keeper may alter the cluster."""
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        db.log("t").append(b"1")
    everybody = dict.fromkeys(("root", "keeper", "alice"), PASSWORD)
    secure(tmp_path / "db", "Allow keeper@* Alter Cluster kafka-cluster", users=everybody, super_users=["root"])
    with served(tmp_path / "db") as server:
        yield server


def logdb_command(server, *args, user="root", stdin="", code=0):
    """The command through the server; what it prints, and what it says."""
    env = {"LOGDB_USER": user, "LOGDB_PASSWORD": PASSWORD, "LOGDB_BOOTSTRAP": server.url, "LOGDB_DATA_DIR": ""}
    result = CliRunner().invoke(cli, args, input=stdin, obj=Session(), env=env, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def opened(server, user, password=PASSWORD):
    return logdb.open(server.url, user=user, password=password)


# ---------------------------------------------------------------- by the command


def test_users_through_a_server(server):
    add = ("users", "add", "bob", "--password-stdin", "--super-user")
    assert "added user bob" in logdb_command(server, *add, stdin=f"{SECRET}\n").stderr
    with opened(server, "bob", SECRET) as db:
        assert db.describe_topic("t").partition_count == 1
    assert "already" in logdb_command(server, *add, stdin=f"{SECRET}\n", code=2).stderr
    assert "changed" in logdb_command(server, "users", "passwd", "bob", "--password-stdin", stdin="other\n").stderr
    with pytest.raises(AuthenticationFailed):
        opened(server, "bob", SECRET)
    logdb_command(server, "users", "alter", "bob", "--no-super-user", "--requests", "50")
    listed = json.loads(logdb_command(server, "users", "list", "--json").stdout)["users"]
    assert [one for one in listed if one["user"] == "bob"] == [
        {
            "user": "bob",
            "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"],
            "super_user": False,
            "quota": {"produce_bytes": None, "fetch_bytes": None, "requests": 50},
        }
    ]
    assert "would delete user bob" in logdb_command(server, "users", "delete", "bob").stderr
    assert "deleted user bob" in logdb_command(server, "users", "delete", "bob", "--yes").stderr
    assert "unknown user 'bob'" in logdb_command(server, "users", "delete", "bob", "--yes", code=2).stderr


def test_tokens_through_a_server(server):
    created = logdb_command(server, "tokens", "create", "ci", "--owner", "root", "--expires-in", "PT1H")
    token = created.stdout.strip()
    assert "not shown again" in created.stderr
    with logdb.open(server.url, token=token) as db:
        assert db.log("t").end_offset == 1
    assert token not in logdb_command(server, "tokens", "list").stdout
    assert [(one.name, one.sha256) for one in security(server).tokens] == [("ci", token_hash(token))]
    assert "already" in logdb_command(server, "tokens", "create", "ci", "--owner", "root", code=2).stderr
    assert "revoked token ci" in logdb_command(server, "tokens", "revoke", "ci", "--yes").stderr
    with pytest.raises(AuthenticationFailed):
        logdb.open(server.url, token=token)


def security(server):
    from logdb.access import security_document

    return security_document.load(document(server.database.path))


def test_acls_through_a_server(server):
    with opened(server, "alice") as db:
        with pytest.raises(NotAuthorized):
            db.log("t")
        logdb_command(server, "acls", "add", "--allow-principal", "alice", "--topic", "t", "--operation", "Read")
        assert [record.value for record in db.log("t").read(0)] == [b"1"]
        listed = json.loads(logdb_command(server, "acls", "list", "--principal", "alice", "--json").stdout)
        assert [(one["operation"], one["resource_type"], one["name"]) for one in listed] == [("Read", "Topic", "t")]
        assert "removed" in logdb_command(server, "acls", "remove", "--principal", "alice", "--yes").stderr
        with pytest.raises(NotAuthorized):
            db.log("t").read_batches(0)
    assert "no ACL matches" in logdb_command(server, "acls", "remove", "--principal", "alice", "--yes").stderr


@pytest.mark.parametrize(
    "args",
    [
        ("users", "list"),
        ("users", "add", "eve", "--no-password"),
        ("users", "delete", "root", "--yes"),
        ("tokens", "list"),
        ("tokens", "create", "mine", "--owner", "root"),
        ("acls", "list"),
        ("acls", "add", "--allow-principal", "alice", "--topic", "t"),
    ],
)
def test_who_may_not_alter_the_cluster_may_none_of_it(server, args):
    before = security(server)
    assert "User:alice is not allowed to" in logdb_command(server, *args, user="alice", code=2).stderr
    assert security(server) == before


# ---------------------------------------------------------------- who may what


def test_who_may_alter_the_cluster_is_no_super_user_by_that(server):
    with opened(server, "keeper") as db:
        db.security.add_user("bob", SECRET)
        db.security.set_password("bob", "other")
        db.security.alter_user("bob", quota={"requests": 5})
        db.security.add_acls(READ_T)
        assert db.security.delete_acls(AclFilter(name="t")) == [READ_T]
        with opened(server, "root") as root:
            for name, owner in (("roots", "root"), ("bobs", "bob"), ("bobs other", "bob")):
                root.security.create_token(name, owner)
        db.security.revoke_tokens("bobs")
        before = security(server)
        for refused in (
            lambda: db.security.add_user("eve", SECRET, super_user=True),
            lambda: db.security.alter_user("keeper", super_user=True),
            lambda: db.security.set_password("root", SECRET),
            lambda: db.security.alter_user("root", quota={"requests": 1}),
            lambda: db.security.create_token("mine", "root"),
            lambda: db.security.delete_users("bob", "root"),
            lambda: db.security.revoke_tokens("bobs other", "roots"),
        ):
            with pytest.raises(NotAuthorized, match="User:keeper is not allowed to Alter super user"):
                refused()
        assert security(server) == before


def test_nor_does_a_quota_for_all_hold_up_super_users(server):
    with opened(server, "keeper") as db:
        db.security.alter_user(None, quota={"requests": 1})
    access = server.server._doors[0].access
    assert access.authentication, "and what is in the file now was read"
    assert access.quotas.limits(Principal("User", "alice"))
    assert not access.quotas.limits(Principal("User", "root"))


def test_what_cannot_be_is_refused(server):
    with opened(server, "root") as db:
        before = security(server)
        for error, refused in (
            (CredentialExists, lambda: db.security.add_user("alice", SECRET)),
            (UnknownCredential, lambda: db.security.set_password("nobody", SECRET)),
            (UnknownCredential, lambda: db.security.delete_users("alice", "nobody")),
            (UnknownCredential, lambda: db.security.revoke_tokens("nothing")),
            (InvalidSecurity, lambda: db.security.add_user("a:b", SECRET)),
            (InvalidSecurity, lambda: db.security.add_user("bob", "")),
            (InvalidSecurity, lambda: db.security.add_user("bob", SECRET, iterations=7)),
            (InvalidSecurity, lambda: db.security.alter_user("alice", quota={"bytes": 1})),
            (InvalidSecurity, lambda: db.security.alter_user("alice", quota={"requests": 0})),
            (InvalidSecurity, lambda: db.security.create_token("ci", "alice", expires_in_ms=-1)),
            (InvalidSecurity, lambda: db.security.add_acls(READ_T, READ_T._replace(operation="ClusterAction"))),
        ):
            with pytest.raises(error):
                refused()
        assert security(server) == before


def test_a_password_stays_here_and_is_in_no_log(server, caplog, monkeypatch):
    """What goes to the server are salted keys; what is written of it are names."""
    sent = []
    monkeypatch.setattr("logdb_http_api.remote.connection.ServerConnection.send", spy(sent))
    with caplog.at_level(logging.DEBUG), opened(server, "root") as db:
        db.security.add_user("bob", SECRET)
        token, _ = db.security.create_token("ci", "bob")
        db.security.add_acls(READ_T)
        db.security.delete_acls(AclFilter(name="t"))
    assert len(sent) > 3
    for secret in (SECRET, token):
        assert not any(secret.encode() in body for body in sent)
        assert secret not in caplog.text
    stored = security(server).users["bob"]["SCRAM-SHA-512"].stored_key
    assert str(stored) not in caplog.text
    assert [record.getMessage() for record in caplog.records if record.name == "logdb.audit"] == [
        "principal=User:root host=127.0.0.1 change=add_user of='bob'",
        "principal=User:root host=127.0.0.1 change=add_token of='ci of User:bob'",
        "principal=User:root host=127.0.0.1 change=add_acl of=\"Allow User:alice@* Read Topic 't'\"",
        "principal=User:root host=127.0.0.1 change=delete_acl of=\"Allow User:alice@* Read Topic 't'\"",
    ]


def spy(sent):
    from logdb_http_api.remote.connection import ServerConnection

    send = ServerConnection.send

    def sending(self, request, *rest):
        sent.append(bytes(request.http().body or b""))
        send(self, request, *rest)

    return sending


# ---------------------------------------------------------------- where others may read along


def test_no_password_goes_over_plain_http_to_another_machine(server, monkeypatch):
    """What is taken for another machine is this one, or the test would need a second."""
    monkeypatch.setattr("logdb_http_api.remote.connections.is_loopback", lambda host: False)
    with opened(server, "root") as db:
        for refused in (lambda: db.security.add_user("bob", SECRET), lambda: db.security.set_password("alice", SECRET)):
            with pytest.raises(InsecureConnection, match="others can read the connection"):
                refused()
        db.security.add_user("robot")
        db.security.add_user("bob", SECRET, insecure=True)
    add = ("users", "add", "carol", "--password-stdin")
    assert "--insecure" in logdb_command(server, *add, stdin=SECRET, code=2).stderr
    logdb_command(server, *add, "--insecure", stdin=SECRET)
    assert {"robot", "bob", "carol"} <= set(security(server).users)


def test_over_tls_it_goes_to_any(tmp_path, monkeypatch):
    monkeypatch.setattr("logdb_http_api.remote.connections.is_loopback", lambda host: False)
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.server()
    with served(tmp_path / "db", tls_cert=certificate, tls_key=key) as server, logdb.open(server.url, ca_file=authority.file) as db:
        db.security.add_user("root", SECRET, super_user=True)


# ---------------------------------------------------------------- how authentication begins


def test_authentication_begins_with_somebody_who_may_go_on(tmp_path):
    with served(tmp_path / "db") as server, logdb.open(server.url) as db:
        assert not db.security.users().authentication
        for refused in (
            lambda: db.security.add_user("alice", SECRET),
            lambda: db.security.add_user("root", super_user=True),
            lambda: db.security.create_token("ci", "root"),
            lambda: db.security.add_acls(READ_T),
        ):
            with pytest.raises(SecurityDisabled):
                refused()
        assert security(server) is None
        added = logdb_command(server, "users", "add", "root", "--super-user", "--password-stdin", stdin=PASSWORD)
        assert "authentication is on from now on" in added.stderr
        with pytest.raises(AuthenticationFailed):
            db.topics()
        with opened(server, "root") as again:
            assert again.security.users().authentication


def test_what_is_served_to_be_read_is_not_changed(tmp_path):
    with logdb.open(tmp_path / "db"):
        pass
    secure(tmp_path / "db", users={"root": PASSWORD}, super_users=["root"])
    with served(tmp_path / "db", opened={"mode": "r"}) as server, opened(server, "root") as db, pytest.raises(ReadOnly):
        db.security.add_user("bob")


def test_a_directory_is_administrated_in_the_same_way(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.security.add_user("root", PASSWORD, super_user=True)
        token, info = db.security.create_token("ci", "root")
        db.security.add_acls(READ_T)
        with logdb.serve(db, http="127.0.0.1:0") as server, logdb.open(server.addresses[0], token=token) as remote:
            for admin in (db.security, remote.security):
                assert (admin.users(), admin.tokens(), admin.acls()) == (db.security.users(), [info], [READ_T])


# ---------------------------------------------------------------- an answer that does not come


def test_what_was_done_is_done_once_where_the_answer_is_lost(server):
    with proxied(server.url) as proxy, logdb.open(proxy.url, user="root", password=PASSWORD) as db:
        for marked, change in (
            (b"add_user", lambda: db.security.add_user("bob", SECRET)),
            (b"add_token", lambda: db.security.create_token("ci", "bob")),
            (b"add_acls", lambda: db.security.add_acls(READ_T)),
            (b"set_password", lambda: db.security.set_password("bob", "other")),
            (b"revoke_tokens", lambda: db.security.revoke_tokens("ci")),
            (b"delete_users", lambda: db.security.delete_users("bob")),
        ):
            proxy.marked, proxy.cut_answers = marked, 1
            change()
        assert proxy.cut_count == 6
        assert ("bob" in security(server).users, security(server).tokens, READ_T in security(server).acls) == (False, (), True)
