"""Users, tokens and ACLs for tests of whatever stands before a broker."""

from logdb.access import security_document
from logdb.access.credentials import MECHANISMS, scram_credential
from logdb.access.security_document import Security
from logdb.io import IO
from logdb.requests.acls import Acl
from logdb.requests.principals import Principal
from logdb.store.protocols import SecurityDocument
from logdb.store.security_file import SecurityFile
from support import clustered


def acl(text: str) -> Acl:
    """``Allow alice@* Read Topic orders``; a name that ends in ``…`` is a prefix."""
    permission, who, operation, resource_type, name = text.split()
    user, _, host = who.partition("@")
    pattern_type = "Prefixed" if name.endswith("…") else "Literal"
    return Acl(Principal("User", user), host, operation, permission, resource_type, pattern_type, name.removesuffix("…")).check()


def credentials(password: str):
    """What is kept of a password; hashed as little as is allowed, since tests do it often."""
    return {mechanism: scram_credential(mechanism, password, iterations=4096) for mechanism in MECHANISMS}


def secure(directory, *acls: str, users=None, super_users=(), tokens=(), quotas=None) -> None:
    """Write the directory's ``security.json`` anew: authentication is on.

    Args:
        directory: Or the URL of a cluster's node.
        acls: As ``acl`` takes them.
        users: Password by name.
        super_users: Names.
    """
    content = Security(
        users={name: credentials(password) for name, password in (users or {}).items()},
        super_users=frozenset(Principal("User", name) for name in super_users),
        tokens=tuple(tokens),
        acls=tuple(map(acl, acls)),
        quotas=quotas or {},
    )
    security_document.change(document(directory), lambda _: (content, None))


def document(directory) -> SecurityDocument:
    """Of users, tokens, ACLs and quotas; ``directory``: or the URL of a cluster's node."""
    return clustered.documents.get(str(directory)) or SecurityFile(IO(), str(directory))
