"""Requests about users, tokens, ACLs and quotas; ``CredentialStore`` has their methods, and says what each does."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from logdb.requests import users
from logdb.requests.acls import Acl, AclFilter
from logdb.requests.request import Request, cluster, value
from logdb.requests.users import Mechanism, ScramCredential, TokenInfo

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


class CredentialStore(Protocol):
    """Users, tokens, ACLs and quotas, in a file or behind a server.

    A class that inherits from it carries requests out by ``submit``; the methods make them.  Behind a server, each call raises
    NotAuthorized or SecurityDisabled, too; each change raises what ``security_document.change`` does.
    """

    def submit(self, request: Request[A]) -> A:
        """Carry a request out."""

    def users(self) -> "users.Users":  # the module: unquoted, Python 3.14 would find this method
        """All users, and the other principals that have a quota or are super users."""
        return self.submit(Users())

    def add_user(self, name: str, credentials: Mapping[Mechanism, ScramCredential], *, super_user: bool = False) -> None:
        """Add a user.

        Args:
            name: 1 to 249 printable characters without a colon.
            credentials: Of the password; none: the user authenticates by a certificate or a token.
            super_user: ACLs do not bind it.

        Raises:
            CredentialExists, InvalidSecurity: Nothing was changed.
        """
        self.submit(AddUser(name, credentials, super_user))

    def set_password(self, name: str, credentials: Mapping[Mechanism, ScramCredential]) -> None:
        """Set another password; raises UnknownCredential, InvalidSecurity."""
        self.submit(SetPassword(name, credentials))

    def alter_credentials(self, name: str, credentials: Mapping[Mechanism, ScramCredential | None]) -> None:
        """Set or delete credentials of single mechanisms; those of the others stay.  A user that does not exist is added.

        Args:
            credentials: None: it is deleted.

        Raises:
            UnknownCredential: There is no credential that could be deleted.
            InvalidSecurity: Nothing was changed.
        """
        self.submit(AlterCredentials(name, credentials))

    def alter_user(self, name: str | None, *, quota: Mapping[str, int | None] | None = None, super_user: bool | None = None) -> None:
        """Change quotas, or who is a super user.

        Args:
            name: A user, or another principal; None: the default quota.
            quota: Rates by the names of ``Quota``, None: unlimited; a name that is absent keeps its rate.
            super_user: None: unchanged.

        Raises:
            InvalidSecurity: Nothing was changed.
        """
        self.submit(AlterUser(name, quota, super_user))

    def delete_users(self, names: Sequence[str]) -> None:
        """Delete users with their tokens and quotas; ACLs stay.  Raises UnknownCredential."""
        self.submit(DeleteUsers(names))

    def tokens(self) -> list[TokenInfo]:
        """All tokens, by name."""
        return self.submit(Tokens())

    def add_token(self, name: str, owner: str, sha256: str, *, expires_in_ms: int | None = None) -> TokenInfo:
        """Add a token.

        Args:
            owner: The user that it authenticates; a password is not needed.
            sha256: Of the token, hexadecimal; see ``credentials.token_hash``.
            expires_in_ms: 0 to a hundred years; None: until it is revoked.

        Raises:
            CredentialExists, InvalidSecurity: Nothing was changed.
        """
        return self.submit(AddToken(name, owner, sha256, expires_in_ms))

    def revoke_tokens(self, names: Sequence[str]) -> None:
        """Revoke tokens.  Raises UnknownCredential."""
        self.submit(RevokeTokens(names))

    def acls(self, filters: Sequence[AclFilter] = ()) -> list[Acl]:
        """The ACLs that at least one filter selects; without filters, all."""
        return self.submit(Acls(filters))

    def add_acls(self, acls: Sequence[Acl]) -> None:
        """Add ACLs.  Raises InvalidSecurity: none was added."""
        self.submit(AddAcls(acls))

    def delete_acls(self, filters: Sequence[AclFilter]) -> list[Acl]:
        """Delete the ACLs that at least one filter selects; returns them."""
        return self.submit(DeleteAcls(filters))


class SubmittedCredentialStore(CredentialStore):
    """The credential store behind a session."""

    def __init__(self, session: "_Submits") -> None:
        self._session = session

    def submit(self, request: Request[A]) -> A:
        return self._session.submit(request)


class _Submits(Protocol):
    def submit(self, request: Request[A]) -> A: ...
