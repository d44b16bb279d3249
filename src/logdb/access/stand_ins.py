"""Stand-ins for the credentials of unknown users: a server that speaks SCRAM shows salt and iterations before authentication.

They must not tell which users exist.  So a stand-in depends on the name and on a secret that outlives the process and is the same on
all nodes, and it looks like the credentials of one of the real users, its model:

    iterations of each mechanism    those of the model
    size and alphabet of the salt   those of the model (Kafka's tools make salts of digits and letters)

Each name takes its model by weighted rendezvous hashing: a new user changes the model of few names, and only where it looks new.
"""

import hashlib
import hmac
import math
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from logdb.access.credentials import ITERATION_COUNT, MECHANISMS, SALT_SIZE_BYTES
from logdb.access.security_document import Security
from logdb.requests.users import Mechanism, ScramCredential

_LETTERS = b"0123456789abcdefghijklmnopqrstuvwxyz"


class _Shown(NamedTuple):
    """What one credential shows of itself."""

    iterations: int
    salt_size_bytes: int
    salt_is_text: bool


_Look = tuple[_Shown, ...]
"""What a user's credentials show, by mechanism."""
_AT: Mapping[Mechanism, int] = {mechanism: at for at, mechanism in enumerate(MECHANISMS)}
_USUAL: _Look = (_Shown(ITERATION_COUNT, SALT_SIZE_BYTES, salt_is_text=False),) * len(MECHANISMS)


class StandIns:
    """Of one state of the users."""

    def __init__(self, content: Security, key: bytes) -> None:
        """``key``: a secret of this process, for a directory without any stored secret."""
        self._key = content.seed or _key_of_content(content) or key
        self._looks = Counter(_look(known) for known in content.users.values() if known) or Counter([_USUAL])

    def iterations_max(self, mechanism: Mechanism) -> int:
        """The most iterations that a credential has, of a user or a stand-in."""
        return max(look[_AT[mechanism]].iterations for look in self._looks)

    def credential(self, user: str, mechanism: Mechanism, known: Mapping[Mechanism, ScramCredential]) -> ScramCredential:
        """A credential that no password fits; the same at every call.

        Args:
            known: The user's credentials, if it has some of another mechanism: they are the model.
        """
        name = user.encode(errors="surrogatepass")
        model = self._model(name)  # also of a known user, for the same time
        if known:
            model = _look(known)
        shown = model[_AT[mechanism]]
        seed = hmac.digest(self._key, mechanism.encode() + b" " + name, "sha512")
        size_bytes = hashlib.new(MECHANISMS[mechanism]).digest_size
        made = hashlib.shake_256(seed).digest(2 * size_bytes + shown.salt_size_bytes)
        salt = made[2 * size_bytes :]
        if shown.salt_is_text:
            salt = bytes(_LETTERS[byte % len(_LETTERS)] for byte in salt)
        return ScramCredential(salt, shown.iterations, made[:size_bytes], made[size_bytes : 2 * size_bytes])

    def _model(self, name: bytes) -> _Look:
        return max(self._looks, key=lambda look: self._score(name, look))

    def _score(self, name: bytes, look: _Look) -> float:
        """Of weighted rendezvous hashing: -weight / ln(a random number in (0, 1))."""
        drawn = hmac.digest(self._key, repr(look).encode() + name, "sha256")
        return -self._looks[look] / math.log((int.from_bytes(drawn[:6]) + 0.5) / 2**48)


def _look(known: Mapping[Mechanism, ScramCredential]) -> _Look:
    """Of a user with a password; a mechanism without a credential looks like the other one."""
    (other, *_) = known.values()
    return tuple(
        _Shown(one.iterations, len(one.salt), salt_is_text=all(byte in _LETTERS for byte in one.salt))
        for one in (known.get(mechanism, other) for mechanism in MECHANISMS)
    )


def _key_of_content(content: Security) -> bytes:
    """A secret of a document without a seed, which stays until the next change; empty if it stores no secret."""
    kept = [one.stored_key + one.server_key for known in content.users.values() for one in known.values()]
    return hashlib.sha256(b"".join(sorted(kept))).digest() if kept else b""
