"""``db.security``: who may log in to a database that is served, and what they may do there.

Knows how a password becomes what is kept of it, and where no password is to be sent.  Does not know where that is kept: in a file
here, or at a server.
"""

from collections.abc import Mapping, Sequence

from logdb.access.acls import Acl, AclFilter
from logdb.access.credentials import ITERATION_COUNT, MECHANISMS, new_token, scram_credential, token_hash
from logdb.access.security import Credentials, CredentialStore, TokenInfo, Users
from logdb.errors import InsecureConnection, InvalidSecurity

TOKEN_EXPIRES_IN_MS = 90 * 86_400_000


class SecurityAdmin:
    """Users, tokens, ACLs and quotas; made by ``Database.security``.

    A password is hashed here, and a token made here: neither is kept, nor sent to a server.  What is sent of a password lets whoever
    reads along try passwords, and pretend to be the server, so it goes over https or to this machine only, unless ``insecure``.

    Every call raises NotAuthorized where it is a server that does not allow it, SecurityDisabled where that would turn authentication
    on while nobody could log in, and DiskFull, WriteFailed, SyncFailed or CorruptionError where the file can't be changed.
    """

    def __init__(self, store: CredentialStore, open_url: str | None = None) -> None:
        """Of a credential store; ``open_url`` is the URL of it over which others may read along, if it has one."""
        self._store, self._open_url = store, open_url

    # ------------------------------------------------------------ users

    def users(self) -> Users:
        """All users, whether they have a password, and their quotas."""
        return self._store.users()

    def add_user(
        self,
        name: str,
        password: str | None = None,
        *,
        super_user: bool = False,
        iterations: int = ITERATION_COUNT,
        insecure: bool = False,
    ) -> None:
        """Add a user; authentication is on from then on.

        Args:
            name: 1 to 249 printable characters without a colon.
            password: None: somebody who shows a certificate or a token instead.
            super_user: May do anything, whatever the ACLs say.
            iterations: What one try of a password costs, 4,096 to 1,000,000.
            insecure: Send it where others may read along, too.

        Raises:
            CredentialExists: There is one of that name.
            InvalidSecurity: The name, the password or the iterations cannot be.
            InsecureConnection: Others may read along.
        """
        self._store.add_user(name, self._credentials(password, iterations, insecure), super_user=super_user)

    def set_password(self, name: str, password: str, *, iterations: int = ITERATION_COUNT, insecure: bool = False) -> None:
        """Set another password; the old one is of no use any more.

        Raises:
            UnknownCredential: There is no such user.
            InvalidSecurity, InsecureConnection: as ``add_user``.
        """
        self._store.set_password(name, self._credentials(password, iterations, insecure))

    def _credentials(self, password: str | None, iterations: int, insecure: bool) -> Credentials:
        if password is None:
            return {}
        if self._open_url is not None and not insecure:
            raise InsecureConnection(self._open_url)
        try:
            return {mechanism: scram_credential(mechanism, password, iterations=iterations) for mechanism in MECHANISMS}
        except ValueError as error:
            raise InvalidSecurity(str(error)) from None

    def alter_user(self, name: str | None, *, quota: Mapping[str, int | None] | None = None, super_user: bool | None = None) -> None:
        """Change a user's quotas, or whether it is a super user; the name may also be one that a certificate gives.

        Args:
            name: None: the quota of all without one of their own.
            quota: ``produce_bytes``, ``fetch_bytes``, ``requests`` a second; None: as much as they like.  What is not named stays.
            super_user: None: as it is.

        Raises:
            InvalidSecurity: Nothing was changed.
        """
        self._store.alter_user(name, quota=quota, super_user=super_user)

    def delete_users(self, *names: str) -> None:
        """Delete users with their tokens and quotas; their ACLs stay.

        Raises:
            UnknownCredential: One is not there; none was deleted.
        """
        self._store.delete_users(names)

    # ------------------------------------------------------------ tokens

    def tokens(self) -> list[TokenInfo]:
        """All tokens, without what they are."""
        return self._store.tokens()

    def create_token(self, name: str, owner: str, *, expires_in_ms: int | None = TOKEN_EXPIRES_IN_MS) -> tuple[str, TokenInfo]:
        """Make a token, with which programs act as ``owner``.

        Args:
            expires_in_ms: None: until it is revoked.

        Returns:
            The token, which is kept nowhere; what is kept.

        Raises:
            CredentialExists, InvalidSecurity: There is none.
        """
        token = new_token()
        return token, self._store.add_token(name, owner, token_hash(token), expires_in_ms=expires_in_ms)

    def revoke_tokens(self, *names: str) -> None:
        """Let tokens be of no use any more.

        Raises:
            UnknownCredential: One is not there; none was revoked.
        """
        self._store.revoke_tokens(names)

    # ------------------------------------------------------------ ACLs

    def acls(self, *filters: AclFilter) -> list[Acl]:
        """The ACLs that one of the filters finds; without filters, all."""
        return self._store.acls(filters)

    def add_acls(self, *acls: Acl) -> None:
        """Add ACLs; what is there already stays.

        Raises:
            InvalidSecurity: One cannot be; none was added.
        """
        self._store.add_acls(acls)

    def delete_acls(self, *filters: AclFilter) -> list[Acl]:
        """Delete the ACLs that one of the filters finds; returns them."""
        return self._store.delete_acls(filters)


def only(acls: Sequence[Acl]) -> list[AclFilter]:
    """Filters that find just these."""
    return [AclFilter(**acl._asdict()) for acl in acls]
