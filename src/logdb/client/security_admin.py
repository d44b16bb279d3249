"""``db.security``: users, tokens, ACLs and quotas of a database that is served.

Passwords are hashed here, before they reach the store of credentials: a file, or a server.
"""

from collections.abc import Mapping, Sequence

from logdb.access.credentials import ITERATION_COUNT, MECHANISMS, new_token, scram_credential, token_hash
from logdb.errors import InsecureConnection, InvalidSecurity
from logdb.handles import Handle
from logdb.model import Duration, duration_ms
from logdb.requests.acls import Acl, AclFilter
from logdb.requests.security import CredentialStore
from logdb.requests.users import Credentials, Mechanism, ScramCredential, TokenInfo, Users
from logdb.signatures import readable

TOKEN_EXPIRES_IN_MS = 90 * 86_400_000


@readable
class SecurityAdmin(Handle):
    """Users, tokens, ACLs and quotas; made by ``Database.security``.

    This process hashes passwords and makes tokens; only their hashes are stored and sent to a server.  With a hash, an attacker can try
    passwords and pretend to be the server.  So hashes are sent over https or to this machine only, unless ``insecure``.

    Every call raises NotAuthorized if the server forbids it.  It raises SecurityDisabled if it would turn authentication on before a
    principal has credentials, and DiskFull, WriteFailed, SyncFailed or CorruptionError if the change of the file fails.
    """

    def __init__(self, store: CredentialStore, open_url: str | None = None) -> None:
        """``open_url``: the URL of ``store``, if others can read what is sent there."""
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
            name: 1 to 249 printable characters, except the colon.
            password: None: the user has a certificate or a token instead.
            super_user: The user may do everything, whatever the ACLs say.
            iterations: The cost of one password check, 4,096 to 1,000,000.
            insecure: Send the hash even if others can read it.

        Raises:
            CredentialExists: A user of that name already exists.
            InvalidSecurity: The name, the password or the iterations are invalid.
            InsecureConnection: Others could read the hash.
        """
        self._store.add_user(name, self._credentials(password, iterations, insecure), super_user=super_user)

    def set_password(self, name: str, password: str, *, iterations: int = ITERATION_COUNT, insecure: bool = False) -> None:
        """Replace the password.

        Raises:
            UnknownCredential: The name is unknown.
            InvalidSecurity, InsecureConnection: as ``add_user``.
        """
        self._store.set_password(name, self._credentials(password, iterations, insecure))

    def _credentials(self, password: str | None, iterations: int, insecure: bool) -> Credentials:
        if password is None:
            return {}
        return {mechanism: self._credential(mechanism, password, iterations, insecure) for mechanism in MECHANISMS}

    def _credential(self, mechanism: Mechanism, password: str, iterations: int, insecure: bool) -> ScramCredential:
        if self._open_url is not None and not insecure:
            raise InsecureConnection(self._open_url)
        try:
            return scram_credential(mechanism, password, iterations=iterations)
        except ValueError as error:
            raise InvalidSecurity(str(error)) from None

    def alter_credentials(self, name: str, passwords: Mapping[Mechanism, tuple[str, int] | None], *, insecure: bool = False) -> None:
        """Set the passwords of single mechanisms, with their iterations, or delete them; a new name adds a user.

        Args:
            passwords: The password and the iterations of each mechanism; None deletes them.
            insecure: as ``add_user``.

        Raises:
            UnknownCredential: A password to delete is missing.
            InvalidSecurity, InsecureConnection: as ``add_user``.
        """
        credentials = {one: given and self._credential(one, *given, insecure) for one, given in passwords.items()}
        self._store.alter_credentials(name, credentials)

    def alter_user(self, name: str | None, *, quota: Mapping[str, int | None] | None = None, super_user: bool | None = None) -> None:
        """Change a user's quotas, or whether it is a super user; the name may also be the principal of a certificate.

        Args:
            name: None: the quota of each principal that lacks its own.
            quota: ``produce_bytes``, ``fetch_bytes``, ``requests`` per second; None: unlimited.  Missing ones stay.
            super_user: None: unchanged.

        Raises:
            InvalidSecurity: A value is invalid; the user is as before.
        """
        self._store.alter_user(name, quota=quota, super_user=super_user)

    def delete_users(self, *names: str) -> None:
        """Delete users with their tokens and quotas; their ACLs stay.

        Raises:
            UnknownCredential: One is unknown; all users stay.
        """
        self._store.delete_users(names)

    # ------------------------------------------------------------ tokens

    def tokens(self) -> list[TokenInfo]:
        """All tokens, without their secrets."""
        return self._store.tokens()

    def create_token(self, name: str, owner: str, *, expires_in_ms: Duration | None = TOKEN_EXPIRES_IN_MS) -> tuple[str, TokenInfo]:
        """Make a token, which authenticates programs as ``owner``.

        Args:
            expires_in_ms: Milliseconds or a ``timedelta``; None: until it is revoked.

        Returns:
            The token, which is stored nowhere; and its stored entry.

        Raises:
            CredentialExists: A token of that name already exists.
            InvalidSecurity: The name, the owner or the time is invalid.
        """
        token = new_token()
        return token, self._store.add_token(name, owner, token_hash(token), expires_in_ms=duration_ms(expires_in_ms))

    def revoke_tokens(self, *names: str) -> None:
        """Revoke tokens.

        Raises:
            UnknownCredential: One is unknown; all tokens stay valid.
        """
        self._store.revoke_tokens(names)

    # ------------------------------------------------------------ ACLs

    def acls(self, *filters: AclFilter) -> list[Acl]:
        """The ACLs that match one of the filters; all ACLs if no filter is given."""
        return self._store.acls(filters)

    def add_acls(self, *acls: Acl) -> None:
        """Add ACLs; existing ones stay.

        Raises:
            InvalidSecurity: One is invalid; the ACLs are as before.
        """
        self._store.add_acls(acls)

    def delete_acls(self, *filters: AclFilter) -> list[Acl]:
        """Delete the ACLs that match one of the filters; returns them."""
        return self._store.delete_acls(filters)


def only(acls: Sequence[Acl]) -> list[AclFilter]:
    """Filters that match exactly these."""
    return [AclFilter(**acl._asdict()) for acl in acls]
