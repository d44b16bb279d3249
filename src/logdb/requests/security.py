"""Requests about users, tokens, ACLs and quotas, and their methods on a session; ``CredentialStore`` says what each does."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from logdb.requests import users
from logdb.requests.acls import Acl, AclFilter
from logdb.requests.request import Request, cluster, value
from logdb.requests.users import CredentialStore, Mechanism, ScramCredential, TokenInfo

A = TypeVar("A")

_ALTER = (cluster("Alter"),)


@value
class Users(Request[users.Users]):
    needs = _ALTER


@value
class AddUser(Request[None]):
    needs = _ALTER
    name: str
    credentials: Mapping[Mechanism, ScramCredential]
    super_user: bool = False


@value
class SetPassword(Request[None]):
    needs = _ALTER
    name: str
    credentials: Mapping[Mechanism, ScramCredential]


@value
class AlterCredentials(Request[None]):
    needs = _ALTER
    name: str
    credentials: Mapping[Mechanism, ScramCredential | None]


@value
class AlterUser(Request[None]):
    needs = _ALTER
    name: str | None
    quota: Mapping[str, int | None] | None = None
    super_user: bool | None = None


@value
class DeleteUsers(Request[None]):
    needs = _ALTER
    names: Sequence[str]


@value
class Tokens(Request[list[TokenInfo]]):
    needs = _ALTER


@value
class AddToken(Request[TokenInfo]):
    needs = _ALTER
    name: str
    owner: str
    sha256: str
    expires_in_ms: int | None = None


@value
class RevokeTokens(Request[None]):
    needs = _ALTER
    names: Sequence[str]


@value
class Acls(Request[list[Acl]]):
    needs = (cluster("Describe"),)
    filters: Sequence[AclFilter] = ()


@value
class AddAcls(Request[None]):
    needs = _ALTER
    acls: Sequence[Acl]


@value
class DeleteAcls(Request[list[Acl]]):
    needs = _ALTER
    filters: Sequence[AclFilter]


SECURITY_REQUESTS: tuple[type[Request[Any]], ...] = (
    Users,
    AddUser,
    SetPassword,
    AlterCredentials,
    AlterUser,
    DeleteUsers,
    Tokens,
    AddToken,
    RevokeTokens,
    Acls,
    AddAcls,
    DeleteAcls,
)


class _Submits(Protocol):
    def submit(self, request: Request[A]) -> A: ...


class SubmittedCredentialStore(CredentialStore):
    """The credential store behind a session: each method is a request."""

    def __init__(self, session: _Submits) -> None:
        self._session = session

    def users(self) -> "users.Users":  # the module: unquoted, Python 3.14 would find this method
        return self._session.submit(Users())

    def add_user(self, name: str, credentials: Mapping[Mechanism, ScramCredential], *, super_user: bool = False) -> None:
        self._session.submit(AddUser(name, credentials, super_user))

    def set_password(self, name: str, credentials: Mapping[Mechanism, ScramCredential]) -> None:
        self._session.submit(SetPassword(name, credentials))

    def alter_credentials(self, name: str, credentials: Mapping[Mechanism, ScramCredential | None]) -> None:
        self._session.submit(AlterCredentials(name, credentials))

    def alter_user(self, name: str | None, *, quota: Mapping[str, int | None] | None = None, super_user: bool | None = None) -> None:
        self._session.submit(AlterUser(name, quota, super_user))

    def delete_users(self, names: Sequence[str]) -> None:
        self._session.submit(DeleteUsers(names))

    def tokens(self) -> list[TokenInfo]:
        return self._session.submit(Tokens())

    def add_token(self, name: str, owner: str, sha256: str, *, expires_in_ms: int | None = None) -> TokenInfo:
        return self._session.submit(AddToken(name, owner, sha256, expires_in_ms))

    def revoke_tokens(self, names: Sequence[str]) -> None:
        self._session.submit(RevokeTokens(names))

    def acls(self, filters: Sequence[AclFilter] = ()) -> list[Acl]:
        return self._session.submit(Acls(filters))

    def add_acls(self, acls: Sequence[Acl]) -> None:
        self._session.submit(AddAcls(acls))

    def delete_acls(self, filters: Sequence[AclFilter]) -> list[Acl]:
        return self._session.submit(DeleteAcls(filters))
