import logging
import os

import pytest

import logdb
from logdb.access.access_control import AccessControl
from logdb.access.credentials import MECHANISMS
from logdb.access.principals import ANONYMOUS, Principal
from logdb.access.quotas import Quota
from logdb.access.security_file import LOOK_MS
from logdb.errors import AuthenticationFailed, CorruptionError, NotAuthorized
from support.security import secure

ALICE, HOME = Principal("User", "alice"), "10.0.0.1"


@pytest.fixture
def db(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        yield db


@pytest.fixture
def gate(db):
    gate = AccessControl(db._session)
    yield gate
    gate.close()


def later(gate):
    """It is time for another look at the file."""
    gate._file._looked_ms -= LOOK_MS


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


def test_the_first_user_turns_authentication_on(gate, db):
    assert not gate.authentication
    assert gate.allows(ANONYMOUS, HOME, "Alter", "Cluster", "kafka-cluster")
    secure(db.path, users={"alice": "secret"})
    assert gate.authentication
    assert not gate.allows(ANONYMOUS, HOME, "Describe", "Topic", "t")
    assert gate.authenticate_password("alice", "secret", HOME).principal == ALICE


def test_the_last_user_that_goes_does_not_turn_it_off(gate, db):
    secure(db.path, users={"alice": "secret"}, super_users=["alice"])
    assert gate.allows(ALICE, HOME, "Read", "Topic", "t")
    secure(db.path)
    assert gate.authentication
    assert not gate.allows(ALICE, HOME, "Read", "Topic", "t")
    with pytest.raises(AuthenticationFailed):
        gate.authenticate_password("alice", "secret", HOME)


def test_a_damaged_file_keeps_the_gate_shut(db):
    secure(db.path, "Allow alice@* All Topic *")
    damage(db)
    with pytest.raises(CorruptionError, match=r"security\.json is corrupt"):
        AccessControl(db._session)


@pytest.mark.parametrize("harm", [damage, lambda db: os.unlink(os.path.join(db.path, "security.json"))])
def test_what_was_read_before_counts_while_the_file_is_damaged_or_gone(gate, db, harm, caplog):
    secure(db.path, "Allow alice@* Read Topic t")
    assert gate.allows(ALICE, HOME, "Read", "Topic", "t")
    harm(db)
    with caplog.at_level(logging.ERROR, "logdb.access.access_control"):
        for _ in range(3):
            later(gate)
            assert gate.allows(ALICE, HOME, "Read", "Topic", "t")
            assert not gate.allows(ANONYMOUS, HOME, "Read", "Topic", "t")
    (message,) = caplog.messages
    assert message.endswith("what was read before still counts")


def test_a_file_that_comes_damaged_allows_nobody_anything(gate, db, caplog):
    assert gate.allows(ANONYMOUS, HOME, "Read", "Topic", "t")
    secure(db.path, "Allow alice@* Read Topic t")
    damage(db)
    later(gate)
    with caplog.at_level(logging.ERROR, "logdb.access.access_control"):
        assert gate.authentication
        assert not gate.allows(ANONYMOUS, HOME, "Read", "Topic", "t")
        assert not gate.allows(ALICE, HOME, "Read", "Topic", "t")
    assert caplog.messages[0].endswith("nobody may do anything")
    secure_again(db)
    assert gate.allows(ALICE, HOME, "Read", "Topic", "t")


def test_authentication_may_be_required_without_a_file(db):
    gate = AccessControl(db._session, authentication=True, super_users=[ALICE])
    assert gate.authentication
    assert gate.allows(ALICE, HOME, "Alter", "Cluster", "kafka-cluster")
    assert not gate.allows(ANONYMOUS, HOME, "Describe", "Topic", "t")


def test_refusals_are_written_down(gate, db, caplog):
    secure(db.path, users={"alice": "secret"})
    with caplog.at_level(logging.WARNING, "logdb.audit"):
        with pytest.raises(NotAuthorized):
            gate.session(ALICE, HOME).log("t")
        with pytest.raises(AuthenticationFailed):
            gate.authenticate_password("alice", "s3cret", HOME)
        with pytest.raises(AuthenticationFailed):
            gate.authenticate_token("logdb_stolen", HOME)
    assert [line.split("=")[0] for line in caplog.messages] == ["principal", "host", "host"]
    assert "s3cret" not in caplog.text
    assert "stolen" not in caplog.text
    counts = gate.metrics.counts()
    assert (counts.refusals, counts.failed_authentications) == (1, 2)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_door_that_speaks_scram_gets_the_credential(gate, db, mechanism):
    secure(db.path, users={"alice": "secret"})
    assert gate.scram_credential("alice", mechanism).iterations == 4096
    assert gate.scram_credential("nobody", mechanism).iterations == 4096


def test_requests_are_under_a_quota(gate, db):
    secure(db.path, "Allow alice@* Read Topic t", quotas={None: Quota(requests=2)})
    delays = [gate.session(ALICE, HOME).take_throttle_ms() for _ in range(4)]
    assert delays[:2] == [0, 0]
    assert 0 < delays[2] <= 501 < delays[3] <= 1001
    assert gate.session(Principal("User", "bob"), HOME).take_throttle_ms() == 0
    assert gate.metrics.counts().requests == 5
    assert gate.metrics.counts().throttled_ms == sum(delays)
