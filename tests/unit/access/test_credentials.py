import base64
import uuid

import pytest

from logdb.access import credentials
from logdb.access.credentials import MECHANISMS, is_password, is_proof, scram_credential, server_signature
from logdb.requests.users import ScramCredential
from support.security import credentials as kept

MECHANISM = pytest.mark.parametrize("mechanism", MECHANISMS)
# The exchange of RFC 7677 §3: user "user", password "pencil"
SALT, NONCE = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
AUTH_MESSAGE = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={NONCE}".encode()
PROOF = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
SIGNATURE = base64.b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_the_exchange_of_the_rfc():
    credential = scram_credential("SCRAM-SHA-256", "pencil", iterations=4096, salt=SALT)
    assert is_proof("SCRAM-SHA-256", credential, AUTH_MESSAGE, PROOF)
    assert server_signature("SCRAM-SHA-256", credential, AUTH_MESSAGE) == SIGNATURE


@pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")
@MECHANISM
def test_a_foreign_client_is_believed_and_believes(mechanism):
    from kafka.net.sasl.scram import ScramClient  # an implementation that is not ours

    credential = kept("pässword")[mechanism]
    for password, good in (("pässword", True), ("passwort", False)):
        client = ScramClient("user", password, mechanism)
        client.first_message()
        salt = base64.b64encode(credential.salt).decode()
        client.process_server_first_message(f"r={client.nonce.decode()}{uuid.uuid4()},s={salt},i={credential.iterations}".encode())
        assert is_proof(mechanism, credential, client.auth_message, client.client_proof) is good
        assert (server_signature(mechanism, credential, client.auth_message) == client.server_signature) is good


@MECHANISM
@pytest.mark.parametrize("proof", [b"", b"\0", b"\0" * 32, b"\0" * 64, PROOF[:-1], PROOF + b"\0"])
def test_what_is_no_proof_is_none(mechanism, proof):
    credential = scram_credential(mechanism, "pencil", iterations=4096, salt=SALT)
    assert not is_proof(mechanism, credential, AUTH_MESSAGE + b"x", proof)


@MECHANISM
def test_a_password_is_known_by_what_is_kept_and_is_not_in_it(mechanism):
    credential = kept("correct horse")[mechanism]
    assert is_password(mechanism, credential, "correct horse")
    assert not is_password(mechanism, credential, "correct horse ")
    assert not is_password(mechanism, credential, "")
    assert not any(b"correct" in part for part in credential if isinstance(part, bytes))


@MECHANISM
def test_the_same_password_is_kept_differently_each_time(mechanism):
    one, other = (kept("same")[mechanism] for _ in range(2))
    assert not {one.salt, one.stored_key, one.server_key} & {other.salt, other.stored_key, other.server_key}


@pytest.mark.parametrize("iterations", [0, 4095, 1_000_001])
def test_iterations_have_bounds(iterations):
    with pytest.raises(ValueError, match=rf"iterations={iterations}: must be 4,096 to 1,000,000"):
        scram_credential("SCRAM-SHA-256", "x", iterations=iterations)


@pytest.mark.parametrize("password", ["", "secret\0"])
def test_what_can_be_no_password_is_refused(password):
    with pytest.raises(ValueError, match="the password is empty, or holds a NUL"):
        scram_credential("SCRAM-SHA-256", password)


def test_what_is_kept_of_keys_has_the_size_of_its_hash():
    sizes = {mechanism: [len(part) for part in credential if isinstance(part, bytes)] for mechanism, credential in kept("x").items()}
    assert sizes == {"SCRAM-SHA-256": [24, 32, 32], "SCRAM-SHA-512": [24, 64, 64]}
    assert ScramCredential._fields == ("salt", "iterations", "stored_key", "server_key")


def test_a_token_has_256_random_bits_and_only_its_hash_is_kept():
    tokens = {credentials.new_token() for _ in range(100)}
    assert len(tokens) == 100
    for token in tokens:
        assert token.startswith("logdb_")
        assert len(base64.urlsafe_b64decode(token.removeprefix("logdb_") + "=")) == 32
        assert token not in credentials.token_hash(token)
