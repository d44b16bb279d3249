"""Users, tokens and quotas as requests carry them, without secrets; and who keeps them, with ACLs: ``CredentialStore``."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

from logdb.requests.acls import Acl, AclFilter
from logdb.requests.principals import Principal

Mechanism: TypeAlias = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]


class ScramCredential(NamedTuple):
    """What a server stores of one password for one mechanism."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


Credentials: TypeAlias = Mapping[Mechanism, ScramCredential]


class Quota(NamedTuple):
    """What one principal may do in a second; None: unlimited."""

    produce_bytes: int | None = None
    fetch_bytes: int | None = None
    requests: int | None = None

    def check(self) -> "Quota":
        """Return the quota if it is valid.

        Raises:
            ValueError: A rate is no whole number of 64 bits from 1 on.
        """
        for name, rate in zip(self._fields, self, strict=True):
            if rate is not None and (type(rate) is not int or not 1 <= rate < 1 << 63):
                raise ValueError(f"quota {name}={rate!r} a second: must be a whole number in [1, 2^63 - 1], or none")
        return self


class UserInfo(NamedTuple):
    """A user, or another principal that has a quota or is a super user; ``mechanisms`` are those of the password, if it has one."""

    name: str
    mechanisms: tuple[Mechanism, ...]
    super_user: bool
    quota: Quota | None
    iterations: tuple[int, ...] = ()
    """Of the password, by mechanism."""


class Users(NamedTuple):
    """All users by name; ``default_quota`` applies to users without one of their own."""

    authentication: bool
    users: tuple[UserInfo, ...]
    default_quota: Quota | None


class TokenInfo(NamedTuple):
    """One token, without its secret; times are ms since 1970, ``expires_ms`` None: never."""

    name: str
    owner: Principal
    created_ms: int
    expires_ms: int | None


class CredentialStore(Protocol):
    """Users, tokens, ACLs and quotas, in a file or behind a server.

    Behind a server, each call raises NotAuthorized or SecurityDisabled, too; each change raises what ``security_document.change`` does.
    """

    def users(self) -> Users:
        """All users, and the other principals that have a quota or are super users."""

    def add_user(self, name: str, credentials: Mapping[Mechanism, ScramCredential], *, super_user: bool = False) -> None:
        """Add a user.

        Args:
            name: 1 to 249 printable characters without a colon.
            credentials: Of the password; none: the user authenticates by a certificate or a token.
            super_user: ACLs do not bind it.

        Raises:
            CredentialExists, InvalidSecurity: Nothing was changed.
        """

    def set_password(self, name: str, credentials: Mapping[Mechanism, ScramCredential]) -> None:
        """Set another password; raises UnknownCredential, InvalidSecurity."""

    def alter_credentials(self, name: str, credentials: Mapping[Mechanism, ScramCredential | None]) -> None:
        """Set or delete credentials of single mechanisms; those of the others stay.  A user that does not exist is added.

        Args:
            credentials: None: it is deleted.

        Raises:
            UnknownCredential: There is no credential that could be deleted.
            InvalidSecurity: Nothing was changed.
        """

    def alter_user(self, name: str | None, *, quota: Mapping[str, int | None] | None = None, super_user: bool | None = None) -> None:
        """Change quotas, or who is a super user.

        Args:
            name: A user, or another principal; None: the default quota.
            quota: Rates by the names of ``Quota``, None: unlimited; a name that is absent keeps its rate.
            super_user: None: unchanged.

        Raises:
            InvalidSecurity: Nothing was changed.
        """

    def delete_users(self, names: Sequence[str]) -> None:
        """Delete users with their tokens and quotas; ACLs stay.  Raises UnknownCredential."""

    def tokens(self) -> list[TokenInfo]:
        """All tokens, by name."""

    def add_token(self, name: str, owner: str, sha256: str, *, expires_in_ms: int | None = None) -> TokenInfo:
        """Add a token.

        Args:
            owner: The user that it authenticates; a password is not needed.
            sha256: Of the token, hexadecimal; see ``credentials.token_hash``.
            expires_in_ms: 0 to a hundred years; None: until it is revoked.

        Raises:
            CredentialExists, InvalidSecurity: Nothing was changed.
        """

    def revoke_tokens(self, names: Sequence[str]) -> None:
        """Revoke tokens.  Raises UnknownCredential."""

    def acls(self, filters: Sequence[AclFilter] = ()) -> list[Acl]:
        """The ACLs that at least one filter selects; without filters, all."""

    def add_acls(self, acls: Sequence[Acl]) -> None:
        """Add ACLs.  Raises InvalidSecurity: none was added."""

    def delete_acls(self, filters: Sequence[AclFilter]) -> list[Acl]:
        """Delete the ACLs that at least one filter selects; returns them."""
