"""Users, tokens, ACLs and quotas as an administrator sees and changes them, without secrets.

Who may make a change is the rule of ``security_changes``.

No password and no token reaches this module: the caller derives SCRAM credentials of a password, and the hash of a token.  An
addition of what exists already, exactly so, succeeds: it is a repeated request.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from logdb.access import security_document
from logdb.access.credentials import ITERATION_COUNT_MAX, ITERATION_COUNT_MIN, MECHANISMS
from logdb.access.security_document import Security, Token
from logdb.errors import CredentialExists, InvalidSecurity, UnknownCredential
from logdb.mistakes import must_be
from logdb.requests import security as requests
from logdb.requests.acls import Acl, AclFilter
from logdb.requests.principals import Principal
from logdb.requests.request import Request
from logdb.requests.security import CredentialStore
from logdb.requests.users import Credentials, Quota, TokenInfo, UserInfo, Users
from logdb.store.protocols import SecurityDocument

A = TypeVar("A")
R = TypeVar("R")

_NAME_LENGTH_MAX = 249
_EXPIRES_IN_MS_MAX = 100 * 365 * 86_400_000
_SALT_SIZE_BYTES_MIN, _SALT_SIZE_BYTES_MAX = 8, 64


class DocumentCredentialStore(CredentialStore):
    """The credential store of a database's document; a server may run on it meanwhile.

    Threading: any number of threads, and of processes.
    """

    def __init__(self, document: SecurityDocument, clock_ms: Callable[[], int], vet: Callable[[Security], object] = lambda _: None) -> None:
        """``vet`` gets the content before each change, and may raise."""
        self._document, self._clock_ms, self._vet = document, clock_ms, vet

    def _content(self) -> Security:
        return security_document.load(self._document) or Security()

    def _change(self, change: "Callable[[Security], tuple[Security, R]]") -> R:
        def vetted(content: Security) -> tuple[Security, R]:
            self._vet(content)
            return change(content)

        return security_document.change(self._document, vetted)

    def submit(self, request: Request[A]) -> A:
        answer: A = _STEPS[type(request)](self, request)
        return answer

    # ------------------------------------------------------------ users

    def _users(self, _: requests.Users) -> Users:
        found = security_document.load(self._document)
        content = found or Security()
        others = (one.name for one in (*content.super_users, *content.quotas) if one is not None)
        names = sorted({*content.users, *others})
        return Users(found is not None, tuple(_described(content, name) for name in names), content.quotas.get(None))

    def _add_user(self, request: requests.AddUser) -> None:
        name, credentials = request.name, request.credentials
        _check_name("user", name)
        _check_credentials(credentials)

        def change(content: Security) -> tuple[Security, None]:
            if content.users.get(name, credentials) != credentials:
                raise CredentialExists("user", name)
            supers = content.super_users | ({Principal("User", name)} if request.super_user else set())
            return content._replace(users={**content.users, name: credentials}, super_users=supers), None

        self._change(change)

    def _set_password(self, request: requests.SetPassword) -> None:
        name, credentials = request.name, request.credentials
        _check_credentials(credentials)

        def change(content: Security) -> tuple[Security, None]:
            _check_known("user", [name], content.users)
            return content._replace(users={**content.users, name: credentials}), None

        self._change(change)

    def _alter_credentials(self, request: requests.AlterCredentials) -> None:
        name, credentials = request.name, request.credentials
        _check_name("user", name)
        given = {mechanism: one for mechanism, one in credentials.items() if one is not None}
        _check_credentials(given)

        def change(content: Security) -> tuple[Security, None]:
            known = content.users.get(name, {})
            _check_known(f"credential of {name!r},", (one for one in credentials if one not in given), known)
            kept = {mechanism: one for mechanism, one in known.items() if mechanism not in credentials}
            return content._replace(users={**content.users, name: {**kept, **given}}), None

        self._change(change)

    def _alter_user(self, request: requests.AlterUser) -> None:
        name, quota, super_user = request.name, request.quota, request.super_user
        if name is not None:
            _check_name("user", name)
        if not (quota or {}).keys() <= set(Quota._fields) or (name is None and super_user is not None):
            raise InvalidSecurity(f"quotas are {', '.join(Quota._fields)}; a super user has a name")
        principal = None if name is None else Principal("User", name)

        def change(content: Security) -> tuple[Security, None]:
            if quota:
                try:
                    altered = content.quotas.get(principal, Quota())._replace(**quota).check()
                except ValueError as error:
                    raise InvalidSecurity(str(error)) from None
                content = content._replace(quotas={**content.quotas, principal: altered})
            if super_user is not None and principal is not None:
                supers = content.super_users - {principal} | ({principal} if super_user else set())
                content = content._replace(super_users=supers)
            return content, None

        self._change(change)

    def _delete_users(self, request: requests.DeleteUsers) -> None:
        names = request.names
        principals = {Principal("User", name) for name in names}

        def change(content: Security) -> tuple[Security, None]:
            _check_known("user", names, content.users)
            left = content._replace(
                users={name: credentials for name, credentials in content.users.items() if name not in names},
                super_users=content.super_users - principals,
                tokens=tuple(token for token in content.tokens if token.owner not in principals),
                quotas={principal: quota for principal, quota in content.quotas.items() if principal not in principals},
            )
            return left, None

        self._change(change)

    # ------------------------------------------------------------ tokens

    def _tokens(self, _: requests.Tokens) -> list[TokenInfo]:
        return [_told(token) for token in self._content().tokens]

    def _add_token(self, request: requests.AddToken) -> TokenInfo:
        name, owner, sha256, expires_in_ms = request.name, request.owner, request.sha256, request.expires_in_ms
        _check_name("token", name)
        _check_name("user", owner)
        if len(sha256) != hashlib.sha256().digest_size * 2 or not set(sha256) <= set("0123456789abcdef"):
            raise InvalidSecurity("the token must be given as its SHA-256, 64 hexadecimal digits")
        if expires_in_ms is not None and not 0 <= expires_in_ms <= _EXPIRES_IN_MS_MAX:
            raise InvalidSecurity(f"a token that expires in {expires_in_ms} ms: must be at most a hundred years, or never")
        now_ms = self._clock_ms()
        wanted = Token(name, Principal("User", owner), sha256, now_ms, None if expires_in_ms is None else now_ms + expires_in_ms)

        def change(content: Security) -> tuple[Security, TokenInfo]:
            for token in content.tokens:
                if token[:3] == wanted[:3]:
                    return content, _told(token)
                if name == token.name or sha256 == token.sha256:
                    raise CredentialExists("token", token.name)
            return content._replace(tokens=(*content.tokens, wanted)), _told(wanted)

        return self._change(change)

    def _revoke_tokens(self, request: requests.RevokeTokens) -> None:
        names = request.names

        def change(content: Security) -> tuple[Security, None]:
            _check_known("token", names, [token.name for token in content.tokens])
            return content._replace(tokens=tuple(token for token in content.tokens if token.name not in names)), None

        self._change(change)

    # ------------------------------------------------------------ ACLs

    def _acls(self, request: requests.Acls) -> list[Acl]:
        return list(_found(self._content().acls, request.filters or (AclFilter(),)))

    def _add_acls(self, request: requests.AddAcls) -> None:
        try:
            wanted = [acl.check() for acl in request.acls]
        except ValueError as error:
            raise InvalidSecurity(str(error)) from None

        def change(content: Security) -> tuple[Security, None]:
            there = set(content.acls)
            return content._replace(acls=(*content.acls, *(acl for acl in wanted if acl not in there))), None

        self._change(change)

    def _delete_acls(self, request: requests.DeleteAcls) -> list[Acl]:
        def change(content: Security) -> tuple[Security, list[Acl]]:
            gone = list(_found(content.acls, request.filters))
            left = set(content.acls) - set(gone)
            return content._replace(acls=tuple(acl for acl in content.acls if acl in left)), gone

        return self._change(change)


_STEPS: Mapping[type[Request[Any]], Callable[[DocumentCredentialStore, Any], Any]] = {
    requests.Users: DocumentCredentialStore._users,
    requests.AddUser: DocumentCredentialStore._add_user,
    requests.SetPassword: DocumentCredentialStore._set_password,
    requests.AlterCredentials: DocumentCredentialStore._alter_credentials,
    requests.AlterUser: DocumentCredentialStore._alter_user,
    requests.DeleteUsers: DocumentCredentialStore._delete_users,
    requests.Tokens: DocumentCredentialStore._tokens,
    requests.AddToken: DocumentCredentialStore._add_token,
    requests.RevokeTokens: DocumentCredentialStore._revoke_tokens,
    requests.Acls: DocumentCredentialStore._acls,
    requests.AddAcls: DocumentCredentialStore._add_acls,
    requests.DeleteAcls: DocumentCredentialStore._delete_acls,
}
"""What carries a request out."""


def _told(token: Token) -> TokenInfo:
    return TokenInfo(token.name, token.owner, token.created_ms, token.expires_ms)


def _described(content: Security, name: str) -> UserInfo:
    principal = Principal("User", name)
    credentials = dict(sorted(content.users.get(name, {}).items()))
    iterations = tuple(one.iterations for one in credentials.values())
    return UserInfo(name, tuple(credentials), principal in content.super_users, content.quotas.get(principal), iterations)


def _found(acls: Iterable[Acl], filters: Sequence[AclFilter]) -> Iterable[Acl]:
    return (acl for acl in acls if any(one.finds(acl) for one in filters))


# ---------------------------------------------------------------- checks


def _check_name(kind: str, name: str) -> None:
    """Raise unless a login can carry the name: a colon separates it from the password, and `*` means every user."""
    if not name or not name.isprintable() or ":" in name or len(name) > _NAME_LENGTH_MAX or name == "*":
        raise InvalidSecurity(
            f"the name of a {kind} is {name[:_NAME_LENGTH_MAX]!r}: must be 1 to {_NAME_LENGTH_MAX} printable characters"
            " without a colon, but not '*'"
        )


def _check_known(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    there = sorted(known)
    for name in names:
        if name not in there:
            raise UnknownCredential(kind, name, tuple(there))


def _check_credentials(credentials: Credentials) -> None:
    """Raise unless a login by them can succeed; they may come from a client."""
    for mechanism, one in credentials.items():
        size_bytes = hashlib.new(MECHANISMS[mechanism]).digest_size
        if not ITERATION_COUNT_MIN <= one.iterations <= ITERATION_COUNT_MAX:
            raise InvalidSecurity(must_be("iterations", one.iterations, f"{ITERATION_COUNT_MIN:,} to {ITERATION_COUNT_MAX:,}"))
        if not _SALT_SIZE_BYTES_MIN <= len(one.salt) <= _SALT_SIZE_BYTES_MAX:
            raise InvalidSecurity(f"a salt of {len(one.salt)} bytes: must be {_SALT_SIZE_BYTES_MIN} to {_SALT_SIZE_BYTES_MAX}")
        if {len(one.stored_key), len(one.server_key)} != {size_bytes}:
            raise InvalidSecurity(f"{mechanism} has keys of {size_bytes} bytes, not {len(one.stored_key)} and {len(one.server_key)}")
