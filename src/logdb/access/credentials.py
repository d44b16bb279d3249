"""Credentials: what is stored of a password (SCRAM-SHA-256, SCRAM-SHA-512) or a token, and how a client's proof is checked.

Neither a password nor a token is stored: of a password, salted and iterated keys, from which it cannot be computed; of a token,
which has 256 random bits, the SHA-256.

    SaltedPassword = PBKDF2-HMAC(password, salt, iterations)      ClientKey = HMAC(SaltedPassword, "Client Key")
    StoredKey      = H(ClientKey)                                 ServerKey = HMAC(SaltedPassword, "Server Key")
    ClientProof    = ClientKey XOR HMAC(StoredKey, AuthMessage)   ServerSignature = HMAC(ServerKey, AuthMessage)

Passwords are taken as UTF-8, without SASLprep, as Kafka takes them.

Source: RFC 5802 §3, RFC 7677; Kafka's ``ScramFormatter``.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping

from logdb.mistakes import must_be
from logdb.requests.users import Mechanism, ScramCredential

MECHANISMS: Mapping[Mechanism, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash of each mechanism."""
ITERATION_COUNT, ITERATION_COUNT_MIN, ITERATION_COUNT_MAX = 8_192, 4_096, 1_000_000
TOKEN_PREFIX = "logdb_"  # noqa: S105 -- scanners for leaked secrets find tokens by it
SALT_SIZE_BYTES, _TOKEN_SIZE_BYTES = 24, 32


def salted_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """The slow part; it runs without the interpreter's lock."""
    return hashlib.pbkdf2_hmac(MECHANISMS[mechanism], password.encode(), salt, iterations)


def stored_key(mechanism: Mechanism, salted: bytes) -> bytes:
    """H(ClientKey)."""
    hash_name = MECHANISMS[mechanism]
    return hashlib.new(hash_name, hmac.digest(salted, b"Client Key", hash_name)).digest()


def scram_credential(
    mechanism: Mechanism, password: str, *, iterations: int = ITERATION_COUNT, salt: bytes | None = None
) -> ScramCredential:
    """The credential to store of a password.

    Args:
        iterations: 4,096 to 1,000,000: the cost of one try, for an attacker and for each login.
        salt: None: a random one.

    Raises:
        ValueError: An empty password, one with a NUL (HMAC pads keys with zeroes: a trailing NUL would change nothing), or
            ``iterations`` out of range.
    """
    if not password or "\0" in password:
        raise ValueError("the password is empty, or holds a NUL")
    if not ITERATION_COUNT_MIN <= iterations <= ITERATION_COUNT_MAX:
        raise ValueError(must_be("iterations", iterations, f"{ITERATION_COUNT_MIN:,} to {ITERATION_COUNT_MAX:,}"))
    salt = secrets.token_bytes(SALT_SIZE_BYTES) if salt is None else salt
    return credential_of_salted(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def credential_of_salted(mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential to store of a password that a client has salted and iterated."""
    server_key = hmac.digest(salted, b"Server Key", MECHANISMS[mechanism])
    return ScramCredential(salt, iterations, stored_key(mechanism, salted), server_key)


def is_password(mechanism: Mechanism, credential: ScramCredential, password: str) -> bool:
    """Whether it is the password, in constant time."""
    salted = salted_password(mechanism, password, credential.salt, credential.iterations)
    return hmac.compare_digest(stored_key(mechanism, salted), credential.stored_key)


def is_proof(mechanism: Mechanism, credential: ScramCredential, auth_message: bytes, proof: bytes) -> bool:
    """Whether a client's proof shows that it has the password (RFC 5802 §3), in constant time."""
    hash_name = MECHANISMS[mechanism]
    signature = hmac.digest(credential.stored_key, auth_message, hash_name)
    if len(proof) != len(signature):
        return False
    client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
    return hmac.compare_digest(hashlib.new(hash_name, client_key).digest(), credential.stored_key)


def server_signature(mechanism: Mechanism, credential: ScramCredential, auth_message: bytes) -> bytes:
    """The proof to the client that the server has its credential."""
    return hmac.digest(credential.server_key, auth_message, MECHANISMS[mechanism])


# ---------------------------------------------------------------- tokens


def new_token() -> str:
    """A token of 256 random bits."""
    return TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_SIZE_BYTES)


def token_hash(token: str) -> str:
    """What is stored of a token: SHA-256, hexadecimal.  Tokens are random, so the hash needs no salt."""
    return hashlib.sha256(token.encode()).hexdigest()
