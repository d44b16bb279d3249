"""What a session does for a request about users, tokens, ACLs and quotas: the rule of super users, the change, the audit log.

The session has authorized Alter on the cluster.  Only a super user changes or makes super users: another principal that may alter the
cluster may grant itself any ACL, but cannot become a super user, nor act as one.  Authentication is switched on only by adding a super
user with a password: after any other first change, only a process on the server's machine could change anything more.

Source: Kafka's ``KafkaApis`` for ACLs and SCRAM credentials; KIP-554.
"""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from logdb.access.security import DocumentCredentialStore
from logdb.access.security_document import Security
from logdb.errors import NotAuthorized, SecurityDisabled
from logdb.requests import security as requests
from logdb.requests.principals import Principal
from logdb.requests.request import Request
from logdb.requests.users import Users

if TYPE_CHECKING:
    from logdb.access.access_control import AccessControl
    from logdb.access.session import AuthorizedSession

A = TypeVar("A")


class SecurityChanges:
    """The credential store for one session."""

    def __init__(self, session: "AuthorizedSession", access: "AccessControl") -> None:
        self._session, self._access = session, access

    def carry_out(self, request: Request[A]) -> A:
        """Carry a request out; a change is in the audit log."""
        answer: Any = self._store(request).submit(request)
        if isinstance(answer, Users):
            return answer._replace(authentication=self._access.authentication)  # type: ignore[return-value]  # what the request is for
        change, concerned = _changes(request, answer)
        for one in concerned:
            self._access.changed(self._session.principal, self._session.host, change, str(one))
        return answer  # type: ignore[no-any-return]  # of the type that the request names

    def _store(self, request: Request[Any]) -> DocumentCredentialStore:
        """The store that carries a request out."""
        match request:
            case requests.Users() | requests.Tokens() | requests.Acls():
                return DocumentCredentialStore(self._access.security, self._session.io.clock_ms)
            case requests.AddUser():
                first = request.super_user and bool(request.credentials)
                return self._changing([request.name], super_user=request.super_user, first=first)
            case requests.SetPassword() | requests.AlterCredentials():
                return self._changing([request.name])
            case requests.AlterUser():
                return self._changing([] if request.name is None else [request.name], super_user=bool(request.super_user))
            case requests.DeleteUsers():
                return self._changing(request.names)
            case requests.AddToken():
                return self._changing([request.owner])
            case requests.RevokeTokens():
                return self._changing(tokens=request.names)
        return self._changing()

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


def _changes(request: Request[Any], answer: Any) -> tuple[str, Iterable[object]]:
    """The name of a change in the audit log, and what it has changed: a line for each."""
    match request:
        case requests.AddUser():
            return "add_super_user" if request.super_user else "add_user", [request.name]
        case requests.SetPassword() | requests.AlterCredentials():
            return request.method, [request.name]
        case requests.AlterUser():
            said = {"super_user": request.super_user, "quota": request.quota}
            return "alter_user", [{"user": request.name} | {key: value for key, value in said.items() if value is not None}]
        case requests.DeleteUsers():
            return "delete_user", request.names
        case requests.AddToken():
            return "add_token", [f"{request.name} of {answer.owner}"]
        case requests.RevokeTokens():
            return "revoke_token", request.names
        case requests.AddAcls():
            return "add_acl", request.acls
        case requests.DeleteAcls():
            return "delete_acl", answer
    return "", ()
