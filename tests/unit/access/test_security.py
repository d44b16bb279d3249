"""What a directory keeps of users, tokens and ACLs, as it is administrated; who may, is shown in test_session."""

import pytest

import logdb
from logdb.access import security_document
from logdb.access.credentials import token_hash
from logdb.access.security import DocumentCredentialStore
from logdb.errors import CredentialExists, InvalidSecurity
from logdb.io import IO
from logdb.requests.acls import AclFilter
from logdb.store import security_file as store_security_file
from logdb.store.security_file import SecurityFile
from support.security import acl, credentials

READ = acl("Allow alice@* Read Topic orders")


@pytest.fixture
def directory(tmp_path):
    logdb.open(tmp_path / "db").close()
    return str(tmp_path / "db")


@pytest.fixture
def store(directory):
    return DocumentCredentialStore(SecurityFile(IO(), directory), IO().clock_ms)


def test_what_is_asked_for_twice_is_there_once(store):
    password = credentials("secret")
    for _ in range(2):
        store.add_user("alice", password)
        store.add_acls([READ])
        first = store.add_token("ci", "alice", token_hash("x"), expires_in_ms=1_000)
    assert [user.name for user in store.users().users] == ["alice"]
    assert (store.tokens(), store.acls()) == ([first], [READ])


@pytest.mark.parametrize(
    "again",
    [
        lambda store: store.add_user("alice", credentials("other")),
        lambda store: store.add_token("ci", "alice", token_hash("other")),
        lambda store: store.add_token("cd", "alice", token_hash("x")),
        lambda store: store.add_token("ci", "bob", token_hash("x")),
    ],
)
def test_another_of_the_same_name_or_hash_is_refused(store, directory, again):
    store.add_user("alice", credentials("secret"))
    store.add_token("ci", "alice", token_hash("x"))
    before = security_document.load(SecurityFile(IO(), directory))
    with pytest.raises(CredentialExists):
        again(store)
    assert security_document.load(SecurityFile(IO(), directory)) == before


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"iterations": 4_095}, "iterations=4095"),
        ({"iterations": 10**7}, "iterations=10000000"),
        ({"salt": b"short"}, "a salt of 5 bytes"),
        ({"salt": b"x" * 1_000}, "a salt of 1000 bytes"),
        ({"stored_key": b""}, "keys of 32 bytes"),
        ({"server_key": b"x" * 64}, "keys of 32 bytes"),
    ],
)
def test_credentials_by_which_no_user_could_log_in(store, changed, says):
    given = credentials("secret")
    given["SCRAM-SHA-256"] = given["SCRAM-SHA-256"]._replace(**changed)
    for refused in (lambda: store.add_user("alice", given), lambda: store.set_password("alice", given)):
        with pytest.raises(InvalidSecurity, match=says):
            refused()
    assert not store.users().authentication


@pytest.mark.parametrize("sha256", ["", "0" * 63, "0" * 65, "g" * 64, "A" * 64])
def test_a_hash_that_is_none(store, sha256):
    with pytest.raises(InvalidSecurity, match="64 hexadecimal digits"):
        store.add_token("ci", "alice", sha256)


def test_filters(store):
    write, prefix = acl("Allow bob@* Write Topic orders"), acl("Deny alice@* Read Topic ord…")
    store.add_acls([READ, write, prefix])
    assert store.acls([AclFilter(name="orders")]) == [READ, write]
    assert set(store.acls([AclFilter(name="orders", match=True)])) == {READ, write, prefix}
    assert set(store.acls([AclFilter(principal=write.principal), AclFilter(permission="Deny")])) == {write, prefix}
    assert store.delete_acls([]) == []
    assert store.delete_acls([AclFilter(operation="Read")]) == [READ, prefix]
    assert store.acls() == [write]


def test_what_is_vetted_and_found_wanting_changes_nothing(store, directory):
    store.add_acls([READ])

    def vet(content):
        assert content.acls == (READ,)
        raise PermissionError

    with pytest.raises(PermissionError):
        DocumentCredentialStore(SecurityFile(IO(), directory), IO().clock_ms, vet).delete_acls([AclFilter()])
    assert store.acls() == [READ]


def test_what_no_reader_would_take_is_not_written(store, monkeypatch):
    store.add_acls([READ])
    monkeypatch.setattr(store_security_file, "SECURITY_SIZE_BYTES_MAX", 2_000)
    with pytest.raises(InvalidSecurity, match="must be at most 2000"):
        store.add_acls([READ._replace(name=f"orders-{number}") for number in range(100)])
    assert store.acls() == [READ]
