import logging
import os

import pytest

import logdb
from logdb.access.access_control import AccessControl
from logdb.access.authentication import OF_THE_CLUSTER
from logdb.access.credentials import MECHANISMS
from logdb.access.security import DocumentCredentialStore
from logdb.errors import AuthenticationFailed, CorruptionError, NotAuthorized
from logdb.requests.principals import ANONYMOUS, CLUSTER_NODE, Principal
from logdb.requests.users import Quota
from logdb.store.security_file import LOOK_MS
from logdb.store.store import Store
from support.security import secure

ALICE, HOME = Principal("User", "alice"), "10.0.0.1"


@pytest.fixture
def db(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        yield db


@pytest.fixture
def access(db):
    access = AccessControl(db._session)
    yield access
    access.close()


def later(access):
    """It is time for another look at the file."""
    access._file._looked_ms -= LOOK_MS


def damage(db):
    """Replace the file by one that is not whole."""
    path = os.path.join(db.path, "security.json")
    with open(path, "rb") as file, open(path + ".new", "wb") as new:
        new.write(file.read()[:-10])
    os.rename(path + ".new", path)


def secure_again(db):
    """Put a whole file where the damaged one was."""
    os.unlink(os.path.join(db.path, "security.json"))
    secure(db.path, "Allow alice@* Read Topic t")


def test_the_first_user_turns_authentication_on(access, db):
    assert not access.authentication
    assert access.allows(ANONYMOUS, HOME, "Alter", "Cluster", "kafka-cluster")
    secure(db.path, users={"alice": "secret"})
    assert access.authentication
    assert not access.allows(ANONYMOUS, HOME, "Describe", "Topic", "t")
    assert access.authenticate_password("alice", "secret", HOME).principal == ALICE


def test_the_last_user_that_goes_does_not_turn_it_off(access, db):
    secure(db.path, users={"alice": "secret"}, super_users=["alice"])
    assert access.allows(ALICE, HOME, "Read", "Topic", "t")
    secure(db.path)
    assert access.authentication
    assert not access.allows(ALICE, HOME, "Read", "Topic", "t")
    with pytest.raises(AuthenticationFailed):
        access.authenticate_password("alice", "secret", HOME)


def test_a_damaged_file_keeps_the_gate_shut(db):
    secure(db.path, "Allow alice@* All Topic *")
    damage(db)
    with pytest.raises(CorruptionError, match=r"security\.json is corrupt"):
        AccessControl(db._session)


@pytest.mark.parametrize("harm", [damage, lambda db: os.unlink(os.path.join(db.path, "security.json"))])
def test_what_was_read_before_counts_while_the_file_is_damaged_or_gone(access, db, harm, caplog):
    secure(db.path, "Allow alice@* Read Topic t")
    assert access.allows(ALICE, HOME, "Read", "Topic", "t")
    harm(db)
    with caplog.at_level(logging.ERROR, "logdb.access.access_control"):
        for _ in range(3):
            later(access)
            assert access.allows(ALICE, HOME, "Read", "Topic", "t")
            assert not access.allows(ANONYMOUS, HOME, "Read", "Topic", "t")
    (message,) = caplog.messages
    assert message.endswith("the users and ACLs that were read before stay in force")


def test_a_file_that_comes_damaged_allows_no_principal_anything(access, db, caplog):
    assert access.allows(ANONYMOUS, HOME, "Read", "Topic", "t")
    secure(db.path, "Allow alice@* Read Topic t")
    damage(db)
    later(access)
    with caplog.at_level(logging.ERROR, "logdb.access.access_control"):
        assert access.authentication
        assert not access.allows(ANONYMOUS, HOME, "Read", "Topic", "t")
        assert not access.allows(ALICE, HOME, "Read", "Topic", "t")
    assert caplog.messages[0].endswith("every request is denied")
    secure_again(db)
    assert access.allows(ALICE, HOME, "Read", "Topic", "t")


def test_authentication_may_be_required_without_a_file(db):
    access = AccessControl(db._session, authentication=True, super_users=[ALICE])
    assert access.authentication
    assert access.allows(ALICE, HOME, "Alter", "Cluster", "kafka-cluster")
    assert not access.allows(ANONYMOUS, HOME, "Describe", "Topic", "t")


def test_refusals_are_written_down(access, db, caplog):
    secure(db.path, users={"alice": "secret"})
    with caplog.at_level(logging.WARNING, "logdb.audit"):
        with pytest.raises(NotAuthorized):
            access.session(ALICE, HOME).log("t")
        with pytest.raises(AuthenticationFailed):
            access.authenticate_password("alice", "s3cret", HOME)
        with pytest.raises(AuthenticationFailed):
            access.authenticate_token("logdb_stolen", HOME)
    assert [line.split("=")[0] for line in caplog.messages] == ["principal", "host", "host"]
    assert "s3cret" not in caplog.text
    assert "stolen" not in caplog.text
    counts = access.metrics.counts()
    assert (counts.refusals, counts.failed_authentications) == (1, 2)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_door_that_speaks_scram_gets_the_credential(access, db, mechanism):
    secure(db.path, users={"alice": "secret"})
    assert access.scram_credential("alice", mechanism).iterations == 4096
    assert access.scram_credential("nobody", mechanism).iterations == 4096


def test_requests_are_under_a_quota(access, db):
    secure(db.path, "Allow alice@* Read Topic t", quotas={None: Quota(requests=2)})
    delays = [access.session(ALICE, HOME).take_throttle_ms() for _ in range(4)]
    assert delays[:2] == [0, 0]
    assert 0 < delays[2] <= 501 < delays[3] <= 1001
    assert access.session(Principal("User", "bob"), HOME).take_throttle_ms() == 0
    assert access.metrics.counts().requests == 5
    assert access.metrics.counts().throttled_ms == sum(delays)


class Document:
    """The document of metadata that are in no file, as a controller has them."""

    def __init__(self):
        self.name, self.data, self.is_there = "the controller's", None, False

    def read(self):
        return self.data

    def change(self, edit):
        self.data, result = edit(self.data)
        return result

    def follow(self, take):
        self._take, self._taken = take, ()
        return self

    def refresh(self):
        if self._taken != (self.data,):
            self._taken, self.is_there = (self.data,), self.data is not None
            self._take(self.data)

    def close(self):
        pass


def test_metadata_that_are_in_no_file_say_who_may_what(tmp_path, monkeypatch):
    document = Document()
    monkeypatch.setattr(Store, "security", document)
    with logdb.open(tmp_path / "db") as db:
        access = AccessControl(db._session)
        assert not access.authentication
        store = DocumentCredentialStore(document, lambda: 0)
        store.add_user("alice", {}, super_user=True)
        assert access.authentication and access.change_count == 1
        db.security.add_user("bob", "secret")
        assert [user.name for user in store.users().users] == ["alice", "bob"]
        document.data = b"damaged"
        assert access.authentication and access.change_count == 1  # what was read before still counts
        assert not (tmp_path / "db" / "security.json").exists()
        access.close()


# ---------------------------------------------------------------- the nodes of a cluster


@pytest.mark.parametrize("authentication", [False, True])
def test_the_cluster_s_token_gives_the_identity_of_its_nodes(db, authentication):
    access = AccessControl(db._session, authentication=authentication, cluster_token="of the cluster")
    identity = access.cluster_node("of the cluster")
    assert identity == OF_THE_CLUSTER
    session = access.session(identity.principal, HOME, identity.credential)
    session.check()
    assert access.is_super_user(session.principal)
    assert [topic.name for topic in session.topics()] == ["t"]
    access.close()


def test_no_other_token_does(db, access):
    clustered = AccessControl(db._session, cluster_token="of the cluster")
    for token in ("", "of the cluste", "of the cluster ", "\udcff"):
        assert clustered.cluster_node(token) is None
        assert access.cluster_node(token) is None
    assert access.cluster_node("of the cluster") is None
    clustered.close()


def test_a_user_with_the_name_of_the_nodes_cannot_act(db, access):
    secure(db.path, users={CLUSTER_NODE.name: "secret"})
    later(access)
    identity = access.authenticate_password(CLUSTER_NODE.name, "secret", HOME)
    assert identity.credential != OF_THE_CLUSTER.credential
    with pytest.raises(AuthenticationFailed, match="cannot log in"):
        access.session(identity.principal, HOME, identity.credential)
