"""Who a client is behind a URL, and whom it trusts."""

import re
import sys
import time

import pytest

import logdb
from logdb.access.credentials import new_token, token_hash
from logdb.access.security_document import Token
from logdb.errors import AuthenticationFailed, InvalidCertificate, NotAuthorized, ServerUnavailable
from logdb.requests.principals import Principal
from support.certificates import Authority
from support.security import secure
from support.serving import served

PASSWORD = "correct horse"


@pytest.fixture
def token():
    return new_token()


@pytest.fixture
def server(tmp_path, token):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
    secure(
        tmp_path / "db",
        "Allow alice@* Read Topic t",
        "Allow alice@* Write Topic t",
        users={"alice": PASSWORD},
        tokens=[Token("n", Principal("User", "alice"), token_hash(token), 0, None)],
    )
    with served(tmp_path / "db") as server:
        yield server


def may_write(db):
    assert db.log("t").append(b"x") + 1 == db.log("t").end_offset
    with pytest.raises(NotAuthorized) as raised:
        db.create_topic("u")
    assert (raised.value.principal, raised.value.operation) == ("User:alice", "Create")


def test_a_password_and_a_token(server, token, monkeypatch):
    for options in ({"user": "alice", "password": PASSWORD}, {"token": token}):
        with logdb.open(server.url, **options) as db:
            may_write(db)
    with logdb.open(server.url.replace("://", "://alice:correct%20horse@")) as db:
        may_write(db)
    monkeypatch.setenv("LOGDB_USER", "alice")
    monkeypatch.setenv("LOGDB_PASSWORD", PASSWORD)
    with logdb.open(server.url) as db:
        may_write(db)
    monkeypatch.setenv("LOGDB_TOKEN", token)
    with logdb.open(server.url) as db:
        may_write(db)


@pytest.mark.parametrize("options", [{}, {"user": "alice", "password": "wrong"}, {"token": "wrong"}])
def test_somebody_else_is_told_so_when_the_database_is_opened(server, options):
    with pytest.raises(AuthenticationFailed):
        logdb.open(server.url, **options)


def test_a_password_of_nobody_is_refused(monkeypatch):
    monkeypatch.delenv("LOGDB_USER", raising=False)
    with pytest.raises(ValueError, match="a password is given without a user"):
        logdb.open("http://127.0.0.1:1", password=PASSWORD)


@pytest.mark.parametrize("option", ["ca_file", "cert_file"])
@pytest.mark.parametrize("text", [None, "", "no certificate"])
def test_a_file_that_is_no_certificate_is_named(tmp_path, option, text):
    path = tmp_path / "it.pem"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidCertificate, match=re.escape(str(path))):
        logdb.open("https://127.0.0.1:1", **{option: path})


def test_a_url_without_what_it_needs_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] in ("h11", "logdb_http_api")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "h11", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs the package 'h11' of the extra 'http': pip install .*'h11>="):
        logdb.open("http://127.0.0.1:1")


def test_a_server_with_a_certificate(tmp_path):
    authority, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
    certificate, key = authority.server()
    with served(tmp_path / "db", tls_cert=certificate, tls_key=key) as server:
        assert server.url.startswith("https://")
        with logdb.open(server.url, ca_file=authority.file) as db:
            db.create_topic("t")
            db.log("t").append_many([b"x" * 1000] * 5000)
            assert sum(1 for _ in db.log("t").read(0)) == 5000
        began = time.monotonic()
        for untrusting in ({}, {"ca_file": other.file}):
            with pytest.raises(ServerUnavailable, match="certificate"):
                logdb.open(server.url, **untrusting)
        assert time.monotonic() - began < 10
