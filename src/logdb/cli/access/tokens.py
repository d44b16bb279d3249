"""``logdb tokens``: bearer tokens for programs, each with an owner and an expiry.

Works on the directory, also beside a server, and through one.  A token is printed once, when it is made; only its hash is stored.
"""

from collections.abc import Sequence

import click

from logdb.cli.access.users import USER, password_missing
from logdb.cli.terminal import secured
from logdb.cli.terminal.output import emit, line, say, table, time_text
from logdb.cli.terminal.session import Session, common, pass_session
from logdb.cli.terminal.units import DURATION
from logdb.errors import CredentialExists
from logdb.io import IO
from logdb.requests.users import TokenInfo

_EXPIRY = "90d"


@click.group(short_help="Create, list, revoke bearer tokens.", invoke_without_command=True)
@common
@click.pass_context
def tokens(context: click.Context) -> None:
    """Create, list and revoke bearer tokens."""
    if context.invoked_subcommand is None:
        context.invoke(list_tokens)


def described(token: TokenInfo) -> dict[str, object]:
    """One token as JSON, without the secret."""
    return {"token": token.name, "owner": str(token.owner), "created_ms": token.created_ms, "expires_ms": token.expires_ms}


@tokens.command("list")
@common
@pass_session
def list_tokens(session: Session) -> None:
    """List tokens with their owners and expiries."""
    with secured.opened(session) as admin:
        found = admin.tokens()
    if session.as_json:
        emit([described(token) for token in found])
        return
    now_ms = IO().clock_ms()
    rows = [(token.name, token.owner, time_text(token.created_ms), _until(token, now_ms)) for token in found]
    if rows:
        table(("TOKEN", "OWNER", "CREATED", "EXPIRES"), rows)
    else:
        say("no tokens yet: logdb tokens create NAME --owner USER")


def _until(token: TokenInfo, now_ms: int) -> str:
    if token.expires_ms is None:
        return "never"
    return time_text(token.expires_ms) + (" (expired)" if token.expires_ms <= now_ms else "")


@tokens.command()
@common
@click.argument("name", type=USER)
@click.option("--owner", type=USER, required=True, help="The user that the token authenticates; the user may have no password.")
@click.option("--expires-in", type=DURATION, default=_EXPIRY, show_default=True, help="How long it is valid: 30d, 12h, or P30D.")
@click.option("--never-expires", is_flag=True, help="Valid until it is revoked.")
@pass_session
def create(session: Session, name: str, owner: str, expires_in: int, never_expires: bool) -> None:
    """Create a token, and print it; it is not shown again."""
    with secured.first(session) as admin:
        try:
            token, kept = admin.create_token(name, owner, expires_in_ms=None if never_expires else expires_in)
        except CredentialExists as error:
            raise click.UsageError(f"{error}: logdb tokens revoke {name}") from None
        missing = password_missing(admin, owner)
    if session.as_json:
        emit({**described(kept), "secret": token})
    else:
        line(token)
        say(f"created token {name} of {kept.owner}{missing}; expires: {_until(kept, kept.created_ms)}; it is not shown again")


@tokens.command()
@common
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--yes", "--execute", "execute", is_flag=True, help="Revoke; otherwise only show the tokens.")
@pass_session
def revoke(session: Session, names: Sequence[str], execute: bool) -> None:
    """Revoke tokens; shows them first, and revokes with --yes."""
    with secured.opened(session) as admin:
        of_name = {token.name: token for token in admin.tokens()}
        for name in names:
            if name not in of_name:
                raise click.UsageError(f"unknown token {name!r}; there are {', '.join(map(repr, sorted(of_name))) or 'none'}")
        if execute:
            admin.revoke_tokens(*names)
    gone = [of_name[name] for name in names]
    if session.as_json:
        emit({"executed": execute, "revoke": [described(token) for token in gone]})
    for token in gone:
        say(f"{'revoked' if execute else 'would revoke'} token {token.name} of {token.owner}")
    if not execute:
        say("nothing was done; --yes revokes")
