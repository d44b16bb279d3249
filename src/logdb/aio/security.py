"""Users, tokens and ACLs, for asyncio."""

from logdb.aio.mirror import Mirror, in_thread
from logdb.client import security_admin
from logdb.signatures import readable


@readable
class SecurityAdmin(Mirror[security_admin.SecurityAdmin]):
    """As ``db.security``.  Made by ``Database.security``."""

    users = in_thread(security_admin.SecurityAdmin.users)
    add_user = in_thread(security_admin.SecurityAdmin.add_user)
    set_password = in_thread(security_admin.SecurityAdmin.set_password)
    alter_credentials = in_thread(security_admin.SecurityAdmin.alter_credentials)
    alter_user = in_thread(security_admin.SecurityAdmin.alter_user)
    delete_users = in_thread(security_admin.SecurityAdmin.delete_users)
    tokens = in_thread(security_admin.SecurityAdmin.tokens)
    create_token = in_thread(security_admin.SecurityAdmin.create_token)
    revoke_tokens = in_thread(security_admin.SecurityAdmin.revoke_tokens)
    acls = in_thread(security_admin.SecurityAdmin.acls)
    add_acls = in_thread(security_admin.SecurityAdmin.add_acls)
    delete_acls = in_thread(security_admin.SecurityAdmin.delete_acls)
