"""SASL's exchanges: PLAIN (RFC 4616), SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677); no I/O but a login's.

    PLAIN    client: [authorization id] NUL user NUL password                                          server: nothing
    SCRAM    client: n,,n=USER,r=NONCE                                                                  server: r=NONCE+,s=SALT,i=ITERATIONS
             client: c=biws,r=NONCE+,p=PROOF                                                            server: v=SIGNATURE

An exchange is of one connection, and of one try.  Every refusal says the same, whether the user exists or not.
"""

import base64
import binascii
import re
import secrets
from typing import Protocol

from logdb.access.access_control import AccessControl
from logdb.access.authentication import Identity
from logdb.access.credentials import MECHANISMS as SCRAM_MECHANISMS
from logdb.access.credentials import server_signature
from logdb.errors import AuthenticationFailed
from logdb.requests.users import Mechanism, ScramCredential
from logdb.serving.logins import Logins

MECHANISMS = ("PLAIN", *SCRAM_MECHANISMS)
_FIRST = re.compile(
    r"(?P<channel>[ny],(a=(?P<authorization>[^,]*))?,)"
    r"(?P<bare>n=(?P<user>[^,]{1,1024}),r=(?P<nonce>[!-+\--~]{1,1024})(,[a-z]+=[^,]*)*)"
)
_FINAL = re.compile(r"(?P<without_proof>c=(?P<channel>[A-Za-z0-9+/=]+),r=(?P<nonce>[!-+\--~]+)),p=(?P<proof>[A-Za-z0-9+/=]+)")
_NONCE_BYTES = 18
_ESCAPES = re.compile("=(2C|3D)?")


class Exchange(Protocol):
    """One try of a client to authenticate."""

    async def reply(self, token: bytes) -> tuple[bytes, Identity | None]:
        """The server's answer to the client's next message, and who the client is once that is known.

        Raises:
            AuthenticationFailed: The try is over.
            NoRoom: Too many logins wait.
        """


def begin(mechanism: str, access: AccessControl, logins: Logins, host: str) -> Exchange | None:
    """An exchange of that mechanism; None: there is no such mechanism."""
    if mechanism == "PLAIN":
        return Plain(logins, host)
    found = next((known for known in SCRAM_MECHANISMS if known == mechanism), None)
    return None if found is None else Scram(found, access, logins, host)


class Plain:
    """A user and a password, as they are."""

    def __init__(self, logins: Logins, host: str) -> None:
        self._logins, self._host = logins, host

    async def reply(self, token: bytes) -> tuple[bytes, Identity | None]:
        parts = _text(token).split("\0")
        if len(parts) != 3 or not parts[1] or parts[0] not in ("", parts[1]):
            raise AuthenticationFailed("PLAIN: the message must be NUL user NUL password")
        return b"", await self._logins.by_password(parts[1], parts[2], self._host)


class Scram:
    """A proof that the client has the password.

    field         meaning                                       changed by
    _user         who the client says that it is                the first message
    _credential   what the server keeps of the password         the first message
    _messages     both first messages, for the proof            the first message; empty before it
    """

    def __init__(self, mechanism: Mechanism, access: AccessControl, logins: Logins, host: str) -> None:
        self._mechanism, self._access, self._logins, self._host = mechanism, access, logins, host
        self._messages = self._user = self._channel = self._nonce = ""
        self._credential: ScramCredential | None = None

    async def reply(self, token: bytes) -> tuple[bytes, Identity | None]:
        if self._credential is None:
            return self._first(_text(token)), None
        return await self._final(_text(token), self._credential)

    def _first(self, message: str) -> bytes:
        found = _FIRST.fullmatch(message)
        if found is None:
            raise AuthenticationFailed(f"{self._mechanism}: not a client's first message")
        self._user = _ESCAPES.sub(_unescaped, found["user"])
        if found["authorization"] not in (None, "", found["user"]):
            raise AuthenticationFailed(f"{self._mechanism}: a client can act for no other user")
        credential = self._access.scram_credential(self._user, self._mechanism)
        self._channel, self._nonce = found["channel"], found["nonce"] + secrets.token_urlsafe(_NONCE_BYTES)
        answer = f"r={self._nonce},s={base64.b64encode(credential.salt).decode()},i={credential.iterations}"
        self._credential, self._messages = credential, f"{found['bare']},{answer}"
        return answer.encode()

    async def _final(self, message: str, credential: ScramCredential) -> tuple[bytes, Identity | None]:
        found = _FINAL.fullmatch(message)
        # librdkafka before 2.6.1 repeats its own part of the nonce in front, and Kafka lets it; the proof is of the message as it came
        if found is None or not found["nonce"].endswith(self._nonce) or _decoded(found["channel"]) != self._channel.encode():
            raise AuthenticationFailed(f"{self._mechanism}: not the client's final message")
        auth_message = f"{self._messages},{found['without_proof']}".encode()
        identity = await self._logins.by_proof(self._user, self._mechanism, credential, auth_message, _decoded(found["proof"]), self._host)
        return b"v=" + base64.b64encode(server_signature(self._mechanism, credential, auth_message)), identity


def _text(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("the message is not UTF-8") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""


def _unescaped(escape: "re.Match[str]") -> str:
    try:
        return {"2C": ",", "3D": "="}[escape[1]]
    except KeyError:
        raise AuthenticationFailed("a user's name has a comma as =2C, and = as =3D") from None
