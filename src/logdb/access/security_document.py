"""The document of users, tokens, ACLs and quotas of a database: its content, and its bytes.

One line of compact JSON with its CRC (``store.json_line``; docs/inside/format.md has an example).  While there is a document,
authentication is on.  A damaged one is an error; it is never taken for an empty one.
The metadata keep it: ``store.protocols.SecurityDocument``.
"""

import base64
import secrets
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from logdb.access.credentials import ITERATION_COUNT_MAX, ITERATION_COUNT_MIN, MECHANISMS
from logdb.requests.acls import Acl
from logdb.requests.principals import Principal
from logdb.requests.users import Mechanism, Quota, ScramCredential
from logdb.store import json_line
from logdb.store.protocols import SecurityDocument

_DEFAULT = "default"  # the default quota's
_SEED_SIZE_BYTES = 32

T = TypeVar("T")


class Token(NamedTuple):
    """One token, without its secret: ``sha256`` is hexadecimal; times are ms since 1970, ``expires_ms`` None: never."""

    name: str
    owner: Principal
    sha256: str
    created_ms: int
    expires_ms: int | None


class Security(NamedTuple):
    """The content of one ``security.json``; the quota of None is the default quota.

    ``seed`` is secret: what a login shows of an unknown user is made of it.  ``change`` makes it; a file of an earlier version has none.
    """

    users: Mapping[str, Mapping[Mechanism, ScramCredential]] = {}
    super_users: frozenset[Principal] = frozenset()
    tokens: tuple[Token, ...] = ()
    acls: tuple[Acl, ...] = ()
    quotas: Mapping[Principal | None, Quota] = {}
    seed: bytes = b""


# ---------------------------------------------------------------- the format


def encode(content: Security) -> bytes:
    fields: dict[str, object] = {
        "users": {
            name: {mechanism: _encode_credential(credential) for mechanism, credential in sorted(credentials.items())}
            for name, credentials in sorted(content.users.items())
        },
        "super_users": sorted(map(str, content.super_users)),
        "tokens": [{**token._asdict(), "owner": str(token.owner)} for token in sorted(content.tokens)],
        "acls": [{**acl._asdict(), "principal": str(acl.principal)} for acl in sorted(set(content.acls))],
        "quotas": {
            _DEFAULT if principal is None else str(principal): quota._asdict()
            for principal, quota in sorted(content.quotas.items(), key=lambda item: (item[0] is not None, str(item[0])))
        },
    }
    if content.seed:
        fields["seed"] = base64.b64encode(content.seed).decode()
    return json_line.encode(fields, json_line.SECURITY_FORMAT)


def _encode_credential(credential: ScramCredential) -> dict[str, object]:
    return {name: part if isinstance(part, int) else base64.b64encode(part).decode() for name, part in credential._asdict().items()}


def decode(data: bytes, path: str) -> Security:
    """Parse a ``security.json``.

    Raises:
        CorruptionError: The bytes are not exactly those that ``encode`` writes.
        UnsupportedFormat: A newer logdb wrote it.
    """
    return json_line.decode(data, path, json_line.SECURITY_FORMAT, json_line.SECURITY_CONTENT, _security, encode)


def _security(fields: Mapping[str, Any]) -> Security:
    return Security(
        users={name: _credentials(given) for name, given in fields["users"].items()},
        super_users=frozenset(map(Principal.parse, fields["super_users"])),
        tokens=tuple(_token(given) for given in fields["tokens"]),
        acls=tuple(Acl(**{**given, "principal": Principal.parse(given["principal"])}).check() for given in fields["acls"]),
        quotas={None if name == _DEFAULT else Principal.parse(name): Quota(**given).check() for name, given in fields["quotas"].items()},
        seed=base64.b64decode(fields.get("seed", ""), validate=True),
    )


def _credentials(given: Mapping[str, Mapping[str, Any]]) -> dict[Mechanism, ScramCredential]:
    found: dict[Mechanism, ScramCredential] = {}
    for mechanism in MECHANISMS:
        if (fields := given.get(mechanism)) is not None:
            iterations = fields["iterations"]
            if not ITERATION_COUNT_MIN <= iterations <= ITERATION_COUNT_MAX:
                raise ValueError(f"iterations={iterations}")
            salt, stored_key, server_key = (base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key"))
            found[mechanism] = ScramCredential(salt, iterations, stored_key, server_key)
    return found


def _token(given: Mapping[str, Any]) -> Token:
    token = Token(**{**given, "owner": Principal.parse(given["owner"])})
    for time_ms in (token.created_ms, token.expires_ms or 0):
        if not isinstance(time_ms, int):
            raise TypeError(f"a token's time is {time_ms!r}")
    return token


# ---------------------------------------------------------------- the document


def load(document: SecurityDocument) -> Security | None:
    """The content of the document of a database; None where there is none.  Raises CorruptionError, UnsupportedFormat, ReadFailed."""
    data = document.read()
    return None if data is None else decode(data, document.name)


def change(document: SecurityDocument, edit: "Callable[[Security], tuple[Security, T]]") -> T:
    """Change the document, or create it; when this returns the change is durable, and in effect in every process.

    Args:
        edit: Takes the content; returns the new content, and what ``change`` returns.  If it raises, the document is unchanged.
            It may be called again, with the content that another change has left.

    Raises:
        CorruptionError, UnsupportedFormat: The document cannot be read; it is unchanged.
        LogdbError: as ``SecurityDocument.change``.
    """

    def edited(data: bytes | None) -> tuple[bytes, T]:
        content, result = edit(Security() if data is None else decode(data, document.name))
        return encode(content if content.seed else content._replace(seed=secrets.token_bytes(_SEED_SIZE_BYTES))), result

    return document.change(edited)
