import hashlib
from collections import Counter

import pytest

from logdb.access import authentication as module
from logdb.access.authentication import REMEMBERED_MS, Authentication, ClientCertificate
from logdb.access.credentials import MECHANISMS, is_proof, new_token, scram_credential, token_hash
from logdb.access.security_document import Security, Token
from logdb.errors import AuthenticationFailed
from logdb.requests.principals import Principal
from support.clock import StillIO
from support.security import credentials

ALICE, HOME = Principal("User", "alice"), "10.0.0.1"
USERS = {"alice": credentials("secret"), "bob": credentials("hidden")}


@pytest.fixture
def io():
    return StillIO()


@pytest.fixture
def who(io):
    authentication = Authentication(io)
    authentication.configure(Security(users=USERS))
    return authentication


@pytest.fixture
def hashed(monkeypatch):
    """The passwords that were hashed, as (mechanism, iterations)."""
    seen = []

    def is_password(mechanism, credential, password):
        seen.append((mechanism, credential.iterations))
        return real(mechanism, credential, password)

    real = module.is_password
    monkeypatch.setattr(module, "is_password", is_password)
    return seen


def test_who_has_the_password_is_who_they_say(who):
    assert who.password("alice", "secret", HOME).principal == ALICE
    assert who.password("bob", "hidden", HOME).principal == Principal("User", "bob")


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("alice", "hidden"), ("alice", ""), ("alice", "secret\0"), ("Alice", "secret"), ("", ""), ("nobody", "secret"),
        ("alice\0", "secret"), ("alice", "x" * 10_000), ("x" * 10_000, "secret"), ("\ud800", "secret"), ("alice", "\ud800"),
    ],
)  # fmt: skip
def test_all_others_are_refused_in_the_same_words(who, user, password):
    with pytest.raises(AuthenticationFailed, match=r"^unknown user, or wrong password$"):
        who.password(user, password, HOME)


def test_a_password_is_hashed_once_a_minute(who, io, hashed):
    for _ in range(10):
        who.password("alice", "secret", HOME)
    assert len(hashed) == 1
    io.now_ms += REMEMBERED_MS - 1
    who.password("alice", "secret", "10.0.0.2")
    assert len(hashed) == 1
    io.now_ms += 1
    who.password("alice", "secret", HOME)
    assert len(hashed) == 2


def test_a_wrong_password_is_not_remembered(who, hashed):
    for _ in range(2):
        with pytest.raises(AuthenticationFailed):
            who.password("alice", "wrong", HOME)
    assert len(hashed) == 2
    who.password("alice", "secret", HOME)


def test_what_is_remembered_counts_for_the_credential_that_it_was_of(who):
    who.password("alice", "secret", HOME)
    who.configure(Security(users={"alice": credentials("other")}))
    with pytest.raises(AuthenticationFailed):
        who.password("alice", "secret", HOME)
    who.password("alice", "other", HOME)
    who.configure(Security())
    with pytest.raises(AuthenticationFailed):
        who.password("alice", "other", HOME)


def test_a_change_of_others_forgets_nothing(who, hashed):
    who.password("alice", "secret", HOME)
    who.configure(Security(users={**USERS, "carol": credentials("x")}))
    who.password("alice", "secret", HOME)
    assert len(hashed) == 1


def test_what_is_remembered_holds_no_password(who):
    who.password("alice", "secret", HOME)
    assert b"secret" not in repr(who._remembered).encode()


def test_an_unknown_user_costs_what_a_wrong_password_does(who, hashed):
    who.configure(Security(users={"alice": {name: scram_credential(name, "secret", iterations=5000) for name in MECHANISMS}}))
    for user in ("alice", "nobody"):
        with pytest.raises(AuthenticationFailed):
            who.password(user, "wrong", HOME)
    assert hashed == [("SCRAM-SHA-512", 5000)] * 2


@pytest.fixture
def worked(monkeypatch):
    """Iterations by hash, since the last look."""
    counts = Counter()
    hashing = hashlib.pbkdf2_hmac

    def pbkdf2_hmac(name, password, salt, iterations):
        counts[name] += iterations
        return hashing(name, password, salt, iterations)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", pbkdf2_hmac)
    return counts


def kept(iterations, *mechanisms):
    return {name: scram_credential(name, "secret", iterations=iterations) for name in mechanisms or MECHANISMS}


@pytest.mark.parametrize(
    "users",
    [
        {"alice": kept(5000), "bob": kept(9000)},
        {"alice": kept(5000), "bob": kept(9000, "SCRAM-SHA-256"), "carol": kept(6000, "SCRAM-SHA-512")},
        {"alice": kept(9000, "SCRAM-SHA-256"), "bob": kept(5000, "SCRAM-SHA-256")},
        {"alice": kept(5000), "bob": {}},
        {},
    ],
)
def test_a_login_takes_the_same_work_for_each_user(who, users, worked):
    """Else its time tells names, where one user has more iterations than others, or other hashes."""
    who.configure(Security(users=users))
    costs = []
    for number, user in enumerate([*users, "nobody", "somebody"]):
        worked.clear()
        with pytest.raises(AuthenticationFailed):
            who.password(user, "wrong", f"10.0.1.{number}")
        costs.append(dict(worked))
    assert costs == [costs[0]] * len(costs)
    assert sum(costs[0].values()) >= 4096
    for number, user in enumerate(user for user in users if users[user]):
        worked.clear()
        assert who.password(user, "secret", f"10.0.2.{number}").principal.name == user
        assert worked == costs[0], "nor does a right one cost another"


def after_restart(io, content):
    """Another process reads the same document."""
    other = Authentication(io)
    other.configure(content)
    return other


@pytest.mark.parametrize("seed", [b"", b"s" * 32])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_restart_changes_nothing_that_is_shown_of_an_unknown_user(who, io, mechanism, seed):
    content = Security(users=USERS, seed=seed)
    who.configure(content)
    assert after_restart(io, content).credential("nobody", mechanism) == who.credential("nobody", mechanism)


def test_another_user_changes_nothing_that_is_shown_of_an_unknown_one(who):
    def shown():
        return [who.credential(f"nobody {number}", "SCRAM-SHA-512") for number in range(50)]

    who.configure(Security(users=USERS, seed=b"s" * 32))
    before = shown()
    who.configure(Security(users={**USERS, "carol": USERS["bob"]}, seed=b"s" * 32))
    assert shown() == before


def test_an_unknown_user_has_the_iterations_of_one_user_in_both_mechanisms(who):
    users = {"alice": kept(5000), "bob": kept(9000), "carol": {**kept(6000, "SCRAM-SHA-256"), **kept(7000, "SCRAM-SHA-512")}}
    who.configure(Security(users=users, seed=b"s" * 32))
    shown = {tuple(who.credential(f"nobody {number}", mechanism).iterations for mechanism in MECHANISMS) for number in range(200)}
    assert shown == {(5000, 5000), (9000, 9000), (6000, 7000)}


def test_a_mechanism_that_a_user_lacks_looks_like_the_one_that_it_has(who):
    who.configure(Security(users={"alice": kept(5000, "SCRAM-SHA-256"), "bob": kept(9000)}))
    assert who.credential("alice", "SCRAM-SHA-512").iterations == 5000


def test_a_salt_of_an_unknown_user_is_made_as_those_of_the_users_are(who):
    """Kafka's tools make salts of digits and letters."""
    salted = {name: scram_credential(name, "secret", salt=b"1n0ql5g3h2j9fkd8s7a6pw4xyz") for name in MECHANISMS}
    who.configure(Security(users={"alice": salted}))
    salts = {who.credential(f"nobody {number}", mechanism).salt for number in range(20) for mechanism in MECHANISMS}
    assert len(salts) == 40
    assert {len(salt) for salt in salts} == {26}
    assert all(salt.decode().isalnum() and salt.islower() for salt in salts)


def test_iterations_that_are_shown_do_not_tell_which_users_there_are(who):
    who.configure(Security(users={"alice": kept(5000), "bob": kept(9000)}))
    shown = Counter(who.credential(f"nobody {number}", "SCRAM-SHA-512").iterations for number in range(200))
    assert shown.keys() == {5000, 9000}
    assert min(shown.values()) > 50


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_user_that_there_is_not_has_a_credential_that_stays_the_same(who, mechanism):
    made_up, real = who.credential("nobody", mechanism), who.credential("alice", mechanism)
    assert made_up == who.credential("nobody", mechanism)
    assert made_up.salt != who.credential("somebody", mechanism).salt
    assert [(len(part) if isinstance(part, bytes) else part) for part in made_up] == [
        (len(part) if isinstance(part, bytes) else part) for part in real
    ]
    assert not is_proof(mechanism, made_up, b"message", b"\0" * len(made_up.stored_key))


def test_a_flood_of_wrong_passwords_is_refused_without_hashing(who, hashed):
    for number in range(100):
        with pytest.raises(AuthenticationFailed):
            who.password("alice", f"wrong {number}", HOME)
    assert len(hashed) == 5
    with pytest.raises(AuthenticationFailed, match=r"5 logins from 10\.0\.0\.1 failed: try again in 100 ms"):
        who.password("alice", "secret", HOME)
    assert who.password("alice", "secret", "10.0.0.2").principal == ALICE


def test_who_is_remembered_is_not_held_up_by_a_flood(who):
    who.password("alice", "secret", HOME)
    for number in range(10):
        with pytest.raises(AuthenticationFailed):
            who.password("bob", f"wrong {number}", HOME)
    assert who.password("alice", "secret", HOME).principal == ALICE


def test_what_is_remembered_has_bounds(who, monkeypatch):
    monkeypatch.setattr(module, "is_password", lambda *_: True)
    for number in range(10_050):
        who.password("alice", f"{number}", HOME)
    assert len(who._remembered) == 10_000
    assert not who._trying


def test_a_user_with_one_mechanism_is_known_by_that(who):
    who.configure(Security(users={"alice": {"SCRAM-SHA-256": credentials("secret")["SCRAM-SHA-256"]}}))
    assert who.password("alice", "secret", HOME).principal == ALICE


# ---------------------------------------------------------------- tokens


def token_of(owner, expires_ms=None):
    token = new_token()
    return token, Token("ci", owner, token_hash(token), 0, expires_ms)


def test_a_token_is_its_owner_until_it_expires(who, io):
    token, kept = token_of(ALICE, io.now_ms + 1000)
    who.configure(Security(tokens=(kept,)))
    assert who.token(token).principal == ALICE
    io.now_ms += 999
    assert who.token(token).principal == ALICE
    io.now_ms += 1
    with pytest.raises(AuthenticationFailed, match=r"^the token is unknown, was revoked, or has expired$"):
        who.token(token)


def test_a_token_without_end_does_not_expire(who, io):
    token, kept = token_of(ALICE)
    who.configure(Security(tokens=(kept,)))
    io.now_ms += 10**12
    assert who.token(token).principal == ALICE


@pytest.mark.parametrize(
    "token",
    ["", "logdb_", "x" * 10_000, "\ud800", token_of(ALICE)[0], token_of(ALICE)[1].sha256],
    ids=["empty", "prefix", "long", "surrogate", "another", "hash of another"],
)
def test_what_is_no_token_is_refused(who, token):
    who.configure(Security(tokens=(token_of(ALICE)[1],)))
    with pytest.raises(AuthenticationFailed):
        who.token(token)


def test_the_hash_of_a_token_is_no_token(who):
    _, kept = token_of(ALICE)
    who.configure(Security(tokens=(kept,)))
    with pytest.raises(AuthenticationFailed):
        who.token(kept.sha256)


def test_a_revoked_token_is_refused(who):
    token, kept = token_of(ALICE)
    who.configure(Security(tokens=(kept,)))
    who.token(token)
    who.configure(Security())
    with pytest.raises(AuthenticationFailed):
        who.token(token)


# ---------------------------------------------------------------- afterwards


def test_what_was_shown_counts_until_it_is_another(who):
    shown = [who.password("alice", "secret", HOME), who.password("bob", "hidden", HOME)]
    who.configure(Security(users={**USERS, "carol": credentials("x")}))
    assert [who.is_valid(*one) for one in shown] == [True, True]
    who.configure(Security(users={"alice": credentials("secret"), "bob": USERS["bob"]}))
    assert [who.is_valid(*one) for one in shown] == [False, True], "the same password, set again"
    who.configure(Security(users={"carol": USERS["bob"]}))
    assert [who.is_valid(*one) for one in shown] == [False, False]


def test_a_token_that_was_shown_counts_until_it_is_revoked_or_expires(who, io):
    token, kept = token_of(ALICE, io.now_ms + 1000)
    who.configure(Security(tokens=(kept,)))
    identity = who.token(token)
    assert who.is_valid(*identity)
    for tokens in ((), (kept._replace(owner=Principal("User", "bob")),), (kept._replace(expires_ms=0),), (token_of(ALICE)[1],)):
        who.configure(Security(tokens=tokens))
        assert not who.is_valid(*identity)
    who.configure(Security(tokens=(kept,)))
    assert who.is_valid(*identity)
    io.now_ms += 1000
    assert not who.is_valid(*identity)


def test_a_certificate_that_was_shown_counts_until_it_expires(who, io):
    assert who.is_valid(ALICE, ClientCertificate(io.now_ms + 1))
    assert not who.is_valid(ALICE, ClientCertificate(io.now_ms))
