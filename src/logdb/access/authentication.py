"""Authentication of principals, by a password or a token.

    a password that was right within the last minute    one HMAC            remembered under a key of this process, never as it is
    any other password                                  PBKDF2, bounded     ``attempts``
    an unknown user                                     PBKDF2, bounded     against a stand-in (``access.stand_ins``)
    a token                                             one SHA-256

A session keeps the credential that authenticated its principal, and checks it again: see ``Authentication.is_valid``.

All refusals have the same text, and all hashed passwords cost the same time: that of the user with the most iterations.
"""

import hmac
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from logdb.access.attempts import Attempts
from logdb.access.credentials import is_password, is_proof, salted_password, token_hash
from logdb.access.security_document import Security, Token
from logdb.access.stand_ins import StandIns
from logdb.errors import AuthenticationFailed
from logdb.io import IO
from logdb.requests.principals import CLUSTER_NODE, Principal
from logdb.requests.users import Mechanism, ScramCredential
from logdb.threads import renewed

REMEMBERED_MS = 60_000
_REMEMBERED_COUNT_MAX = 10_000
_PASSWORD_LENGTH_MAX = 1_024  # characters; a longer one would only cost time
_REFUSED = "unknown user, or wrong password"


class ClientCertificate(NamedTuple):
    """A certificate that a client has presented; it is valid until ``expires_ms``, in ms since 1970."""

    expires_ms: int


class AuthenticationOff(NamedTuple):
    """The credential of the anonymous principal: authentication is off."""


class ClusterToken(NamedTuple):
    """The credential of the other nodes of this cluster: the token that they make of the cluster's secret."""


Credential: TypeAlias = ScramCredential | Token | ClientCertificate | AuthenticationOff | ClusterToken
"""What authenticated a principal."""


class Identity(NamedTuple):
    """A principal, and the credential that authenticated it; None: it cannot become invalid."""

    principal: Principal
    credential: Credential | None


OF_THE_CLUSTER = Identity(CLUSTER_NODE, ClusterToken())


class Authentication:
    """Passwords and tokens of one access control.

    Threading: any number of threads.
    """

    def __init__(self, io: IO) -> None:
        """Without users and tokens: see ``configure``."""
        self._io = io
        self._attempts = Attempts(io.monotonic_ms)
        self._key = secrets.token_bytes(32)  # of this process: another process cannot use what is remembered
        self._lock = renewed(threading.Lock())
        self._remembered: OrderedDict[bytes, tuple[ScramCredential, int]] = OrderedDict()  # and until when
        self._trying: dict[bytes, threading.Lock] = {}
        self.configure(Security())

    def configure(self, content: Security) -> None:
        """Replace users and tokens."""
        self._users: Mapping[str, Mapping[Mechanism, ScramCredential]] = content.users
        self._tokens: Mapping[str, Token] = {token.sha256: token for token in content.tokens}
        self._stand_ins = StandIns(content, self._key)
        checked = {_preferred(known) for known in (*content.users.values(), {})}
        self._work = {mechanism: self._stand_ins.iterations_max(mechanism) for mechanism in checked}  # iterations of a login of any user

    # ------------------------------------------------------------ passwords

    def credential(self, user: str, mechanism: Mechanism) -> ScramCredential:
        """The stored credential of a user; without one, a stand-in that no password fits."""
        known = self._users.get(user, {})
        made = self._stand_ins.credential(user, mechanism, known)  # in any case: the time must not tell which users exist
        return known.get(mechanism, made)

    def password(self, user: str, password: str, host: str) -> Identity:
        """Authenticate a user by password.  May take as long as hashing takes, and wait for other logins.

        Args:
            host: The address of the client.

        Raises:
            AuthenticationFailed: No user has this name and password, or the address has to wait.
        """
        fingerprint = self._fingerprint(user, password)
        if fingerprint is None:
            raise AuthenticationFailed(_REFUSED)
        mechanism, credential = self._preferred(user)
        if not self._is_remembered(fingerprint, credential):
            self._try(fingerprint, mechanism, credential, password, host)
        return Identity(Principal("User", user), credential)

    def remembered(self, user: str, password: str) -> Identity | None:
        """As ``password``, without hashing or waiting; None unless the password was right a moment ago."""
        fingerprint = self._fingerprint(user, password)
        if fingerprint is None or not self._is_remembered(fingerprint, credential := self._preferred(user)[1]):
            return None
        return Identity(Principal("User", user), credential)

    def proof(self, user: str, mechanism: Mechanism, credential: ScramCredential, auth_message: bytes, proof: bytes, host: str) -> Identity:
        """Who proves by SCRAM that they have the password of a credential; raises as ``password``."""
        with self._attempts.trying(host) as note:
            good = is_proof(mechanism, credential, auth_message, proof) and self._users.get(user, {}).get(mechanism) == credential
            note(good)
        if not good:
            raise AuthenticationFailed(_REFUSED)
        return Identity(Principal("User", user), credential)

    def _fingerprint(self, user: str, password: str) -> bytes | None:
        """The key under which a name and a password are remembered; None if no user can have them."""
        if max(len(user), len(password)) > _PASSWORD_LENGTH_MAX or "\0" in user + password:
            return None
        try:
            return hmac.digest(self._key, f"{user}\0{password}".encode(), "sha256")
        except UnicodeEncodeError:
            return None

    def _preferred(self, user: str) -> tuple[Mechanism, ScramCredential]:
        mechanism = _preferred(self._users.get(user, {}))
        return mechanism, self.credential(user, mechanism)

    def _try(self, fingerprint: bytes, mechanism: Mechanism, credential: ScramCredential, password: str, host: str) -> None:
        """Hash, once for all threads that try the same name and password at the same time."""
        with self._lock:
            trying = self._trying.setdefault(fingerprint, threading.Lock())
        try:
            with trying:
                if self._is_remembered(fingerprint, credential):
                    return
                with self._attempts.trying(host) as note:
                    good = is_password(mechanism, credential, password)
                    self._work_on(mechanism, credential, password)
                    note(good)
                if not good:
                    raise AuthenticationFailed(_REFUSED)
                self._remember(fingerprint, credential)
        finally:
            with self._lock:
                self._trying.pop(fingerprint, None)

    def _work_on(self, mechanism: Mechanism, credential: ScramCredential, password: str) -> None:
        """Hash until a login has cost as much as any user's: its time must not tell which users exist."""
        for one, iterations in self._work.items():
            left = iterations - (credential.iterations if one == mechanism else 0)
            if left > 0:
                salted_password(one, password, credential.salt, left)

    def _is_remembered(self, fingerprint: bytes, credential: ScramCredential) -> bool:
        """Whether the password was right a moment ago, for the credential that the user has now."""
        with self._lock:
            known = self._remembered.get(fingerprint)
            return known is not None and known[0] == credential and known[1] > self._io.monotonic_ms()

    def _remember(self, fingerprint: bytes, credential: ScramCredential) -> None:
        with self._lock:
            self._remembered[fingerprint] = (credential, self._io.monotonic_ms() + REMEMBERED_MS)
            self._remembered.move_to_end(fingerprint)
            while len(self._remembered) > _REMEMBERED_COUNT_MAX:
                self._remembered.popitem(last=False)

    # ------------------------------------------------------------ tokens

    def token(self, token: str) -> Identity:
        """The owner of a token.

        Raises:
            AuthenticationFailed: The token is unknown, or has expired.
        """
        owner = self.owner(token)
        if owner is None:
            raise AuthenticationFailed("the token is unknown, was revoked, or has expired")
        return owner

    def owner(self, token: str) -> Identity | None:
        """The owner of a token; None: it is unknown, or has expired."""
        try:
            known = self._tokens.get(token_hash(token)) if len(token) <= _PASSWORD_LENGTH_MAX else None
        except UnicodeEncodeError:
            return None
        return None if known is None or self._has_expired(known) else Identity(known.owner, known)

    def _has_expired(self, token: Token) -> bool:
        return token.expires_ms is not None and token.expires_ms <= self._io.clock_ms()

    # ------------------------------------------------------------ afterwards

    def is_valid(self, principal: Principal, credential: ScramCredential | Token | ClientCertificate) -> bool:
        """Whether a credential still authenticates a principal: it was not revoked, changed or deleted, and has not expired."""
        if isinstance(credential, Token):
            return self._tokens.get(credential.sha256) == credential and not self._has_expired(credential)
        if isinstance(credential, ScramCredential):
            return credential in self._users.get(principal.name, {}).values()
        return credential.expires_ms > self._io.clock_ms()


def _preferred(known: Mapping[Mechanism, ScramCredential]) -> Mechanism:
    """The mechanism that checks a user's password."""
    return "SCRAM-SHA-512" if "SCRAM-SHA-512" in known or not known else "SCRAM-SHA-256"
