"""What a session does for a request about users, tokens, ACLs and quotas: the rule of super users, the change, the audit log.

The session has authorized Alter on the cluster.  Only a super user changes or makes super users: another principal that may alter the
cluster may grant itself any ACL, but cannot become a super user, nor act as one.  Authentication is switched on only by adding a super
user with a password: after any other first change, only a process on the server's machine could change anything more.

Source: Kafka's ``KafkaApis`` for ACLs and SCRAM credentials; KIP-554.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from logdb.access.security import DocumentCredentialStore
from logdb.access.security_document import Security
from logdb.errors import NotAuthorized, SecurityDisabled
from logdb.requests.acls import Acl, AclFilter
from logdb.requests.principals import Principal
from logdb.requests.request import Request
from logdb.requests.users import Credentials, Mechanism, ScramCredential, TokenInfo, Users

if TYPE_CHECKING:
    from logdb.access.access_control import AccessControl
    from logdb.access.session import AuthorizedSession

A = TypeVar("A")


class SecurityChanges:
    """``requests.users.CredentialStore`` for one session."""

    def __init__(self, session: "AuthorizedSession", access: "AccessControl") -> None:
        self._session, self._access = session, access

    def carry_out(self, request: Request[A]) -> A:
        """Call the method of the request's name with its fields."""
        answer: A = getattr(self, request.method)(**request.arguments())
        return answer

    # ------------------------------------------------------------ what every change goes through

    def _reading(self) -> DocumentCredentialStore:
        return DocumentCredentialStore(self._access.security, self._session.io.clock_ms)

    def _changing(
        self, users: Iterable[str] = (), *, tokens: Collection[str] = (), super_user: bool = False, first: bool = False
    ) -> DocumentCredentialStore:
        """The store that makes a change.

        Args:
            users: The users that the change concerns.
            tokens: The tokens whose owners it concerns.
            super_user: The change makes a super user.
            first: The change may switch authentication on.
        """
        self._session.check_open(writable=True)
        if not (first or self._access.authentication):
            raise SecurityDisabled("authentication is off: it begins with a super user and a password (logdb users add NAME --super-user)")
        concerned = [Principal("User", name) for name in users]

        def vet(content: Security) -> None:
            if self._access.is_super_user(self._session.principal):
                return
            for one in (*concerned, *(token.owner for token in content.tokens if token.name in tokens)):
                if super_user or one in content.super_users or self._access.is_super_user(one):
                    self._refuse(one)

        return DocumentCredentialStore(self._access.security, self._session.io.clock_ms, vet)

    def _refuse(self, concerned: Principal) -> None:
        self._access.refused(self._session.principal, self._session.host, "Alter", "User", concerned.name)
        raise NotAuthorized(str(self._session.principal), "Alter", f"super user {concerned.name!r}")

    def _changed(self, change: str, of: Iterable[object]) -> None:
        for one in of:
            self._access.changed(self._session.principal, self._session.host, change, str(one))

    # ------------------------------------------------------------ users

    def users(self) -> Users:
        return self._reading().users()._replace(authentication=self._access.authentication)

    def add_user(self, name: str, credentials: Credentials, *, super_user: bool = False) -> None:
        store = self._changing([name], super_user=super_user, first=super_user and bool(credentials))
        store.add_user(name, credentials, super_user=super_user)
        self._changed("add_super_user" if super_user else "add_user", [name])

    def set_password(self, name: str, credentials: Credentials) -> None:
        self._changing([name]).set_password(name, credentials)
        self._changed("set_password", [name])

    def alter_credentials(self, name: str, credentials: Mapping[Mechanism, ScramCredential | None]) -> None:
        self._changing([name]).alter_credentials(name, credentials)
        self._changed("alter_credentials", [name])

    def alter_user(self, name: str | None, *, quota: Mapping[str, int | None] | None = None, super_user: bool | None = None) -> None:
        store = self._changing([] if name is None else [name], super_user=bool(super_user))
        store.alter_user(name, quota=quota, super_user=super_user)
        said = {"super_user": super_user, "quota": quota}
        self._changed("alter_user", [{"user": name} | {key: value for key, value in said.items() if value is not None}])

    def delete_users(self, names: Sequence[str]) -> None:
        self._changing(names).delete_users(names)
        self._changed("delete_user", names)

    # ------------------------------------------------------------ tokens

    def tokens(self) -> list[TokenInfo]:
        return self._reading().tokens()

    def add_token(self, name: str, owner: str, sha256: str, *, expires_in_ms: int | None = None) -> TokenInfo:
        added = self._changing([owner]).add_token(name, owner, sha256, expires_in_ms=expires_in_ms)
        self._changed("add_token", [f"{name} of {added.owner}"])
        return added

    def revoke_tokens(self, names: Sequence[str]) -> None:
        self._changing(tokens=names).revoke_tokens(names)
        self._changed("revoke_token", names)

    # ------------------------------------------------------------ ACLs

    def acls(self, filters: Sequence[AclFilter] = ()) -> list[Acl]:
        return self._reading().acls(filters)

    def add_acls(self, acls: Sequence[Acl]) -> None:
        self._changing().add_acls(acls)
        self._changed("add_acl", acls)

    def delete_acls(self, filters: Sequence[AclFilter]) -> list[Acl]:
        gone = self._changing().delete_acls(filters)
        self._changed("delete_acl", gone)
        return gone
