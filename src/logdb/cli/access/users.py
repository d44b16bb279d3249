"""``logdb users``: users with their passwords, super users, and quotas.

Works on the directory, also beside a server, and through one.  A password is asked for, or read from stdin or a variable; it is
never an argument, which every process of the machine could see.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from logdb.access.credentials import ITERATION_COUNT, ITERATION_COUNT_MAX, ITERATION_COUNT_MIN
from logdb.cli.terminal import secured
from logdb.cli.terminal.output import asked, counted, emit, say, table
from logdb.cli.terminal.session import Function, Session, common, pass_session
from logdb.cli.terminal.units import Kind, WholeNumber
from logdb.client.security_admin import SecurityAdmin
from logdb.errors import CredentialExists
from logdb.requests.principals import Principal
from logdb.requests.users import Quota, UserInfo, Users


class UserName(Kind):
    """A user's name within the rules of HTTP Basic and SCRAM."""

    name = "user"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        name = str(value)
        if not name or not name.isprintable() or ":" in name or len(name) > 249 or name == "*":
            self.fail(f"{name!r}: must be 1 to 249 printable characters without a colon, and other than '*'", param, ctx)
        return name


_RATE_DIGITS = 19  # of 2^63 - 1; Python refuses to read a number of some thousand


class Rate(Kind):
    """A rate per second, or ``none``: 0."""

    name = "rate"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if text == "none":
            return 0
        if not text.isascii() or not text.isdigit() or len(text) > _RATE_DIGITS or not 1 <= int(text) < 1 << 63:
            self.fail(f"{text!r}: must be a whole number in [1, 2^63 - 1], or none", param, ctx)
        return int(text)


USER, RATE = UserName(), Rate()


# ---------------------------------------------------------------- passwords


def password_options(function: Function) -> Function:
    """The options for a password and its cost."""
    function = click.option(
        "--iterations",
        type=WholeNumber(ITERATION_COUNT_MIN, ITERATION_COUNT_MAX),
        default=ITERATION_COUNT,
        show_default=True,
        help="The cost of one password check, at a login and for an attacker.",
    )(function)
    function = click.option(
        "--insecure", is_flag=True, help="Send the password's hash to a server (-b) even over plain HTTP, where others can read it."
    )(function)
    function = click.option("--password-env", metavar="VARIABLE", help="Take the password from this environment variable.")(function)
    return click.option("--password-stdin", is_flag=True, help="Read the password from stdin: its first line.")(function)


def password_of(password_stdin: bool, password_env: str | None) -> str:
    """The password from the options; without options it is asked for twice."""
    if password_stdin and password_env is not None:
        raise click.UsageError("give --password-stdin or --password-env, not both")
    if password_env is not None:
        if password_env not in os.environ:
            raise click.UsageError(f"the variable {password_env} is not set")
        password = os.environ[password_env]
    elif password_stdin:
        password = sys.stdin.readline().removesuffix("\n")
    elif _at_terminal():
        password = asked("Password", confirmed=True)
    else:
        raise click.UsageError("no terminal to ask for the password: give --password-stdin or --password-env VARIABLE")
    if not password or "\0" in password:
        raise click.UsageError("the password is empty, or contains a NUL")
    return password


def _at_terminal() -> bool:
    return sys.stdin.isatty()


def known(users: Users, name: str) -> UserInfo:
    """The user of that name.

    Raises:
        click.UsageError: No user has that name.
    """
    of_name = {one.name: one for one in users.users}
    if name not in of_name:
        raise click.UsageError(f"unknown user {name!r}; there are {', '.join(map(repr, of_name)) or 'none'}")
    return of_name[name]


def password_missing(admin: SecurityAdmin, name: str | None) -> str:
    """What a message says behind a name without a password: it may be mistyped, or be that of a certificate's or a token's principal."""
    has_one = name is None or any(one.name == name and one.mechanisms for one in admin.users().users)
    return "" if has_one else ", who has no password"


# ---------------------------------------------------------------- verbs


@click.group(short_help="Add, list, alter, delete users; set passwords.", invoke_without_command=True)
@common
@click.pass_context
def users(context: click.Context) -> None:
    """Add, list, alter and delete users, and set their passwords."""
    if context.invoked_subcommand is None:
        context.invoke(list_users)


@users.command("list")
@common
@pass_session
def list_users(session: Session) -> None:
    """List users with their quotas."""
    with secured.opened(session) as admin:
        found = admin.users()
    rows, default = [_described(one) for one in found.users], found.default_quota
    if session.as_json:
        emit({"users": rows, "default_quota": None if default is None else default._asdict()})
        return
    if rows:
        columns = ("USER", "PASSWORD", "SUPER-USER", "PRODUCE-BYTES/S", "FETCH-BYTES/S", "REQUESTS/S")
        table(columns, [_row(row) for row in rows])
    else:
        say("no users yet: logdb users add NAME")
    if default is not None:
        say("all others: " + _quota_text(default))


def _described(user: UserInfo) -> dict[str, object]:
    """One user as JSON."""
    quota = None if user.quota is None else user.quota._asdict()
    return {"user": user.name, "mechanisms": list(user.mechanisms), "super_user": user.super_user, "quota": quota}


def _row(user: dict[str, object]) -> list[object]:
    quota = user["quota"]
    rates = list(quota.values()) if isinstance(quota, dict) else [None] * 3
    return [
        user["user"],
        "yes" if user["mechanisms"] else "no",
        "yes" if user["super_user"] else "no",
        *("-" if rate is None else rate for rate in rates),
    ]


def _quota_text(quota: Quota) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {'as they like' if rate is None else f'{rate:,} a second'}" for name, rate in quota._asdict().items()
    )


@users.command()
@common
@click.argument("name", type=USER)
@password_options
@click.option("--no-password", is_flag=True, help="The user has a certificate or a token instead.")
@click.option("--super-user", is_flag=True, help="The user may do everything; ACLs do not apply.")
@pass_session
def add(session: Session, /, name: str, no_password: bool, super_user: bool, **given: Any) -> None:
    """Add a user, and the database if it is missing.

    Asks for the password if no option gives it.  Once a database has a user, its server refuses clients without credentials.
    """
    if no_password and (given["password_stdin"] or given["password_env"] is not None):
        raise click.UsageError("give a password or --no-password, not both")
    password = None if no_password else password_of(given["password_stdin"], given["password_env"])
    with secured.first(session) as admin:
        there = {one.name: one for one in admin.users().users if no_password}.get(name)
        try:
            admin.add_user(name, password, super_user=super_user, iterations=given["iterations"], insecure=given["insecure"])
        except CredentialExists as error:
            raise click.UsageError(f"{error}: logdb users passwd {name}") from None
    if session.as_json:
        emit({"user": name, "added": there is None})
    elif there is None:
        say(f"added user {name}")
    else:
        changed = "made a super user" if super_user and not there.super_user else "nothing was changed"
        say(f"{name} is there already, without a password: {changed}")


@users.command()
@common
@click.argument("name", type=USER)
@password_options
@pass_session
def passwd(session: Session, /, name: str, **given: Any) -> None:
    """Replace the password."""
    with secured.opened(session) as admin:
        known(admin.users(), name)
        password = password_of(given["password_stdin"], given["password_env"])
        admin.set_password(name, password, iterations=given["iterations"], insecure=given["insecure"])
    _say(session, f"changed the password of {name}", name)


@users.command()
@common
@click.argument("name", type=USER, required=False)
@click.option("--default", "for_all", is_flag=True, help="Set the quota of all principals without their own.")
@click.option("--super-user/--no-super-user", default=None, help="Whether the user may do everything; ACLs do not apply.")
@click.option("--produce-bytes", type=RATE, help="Bytes to append per second, or none: unlimited.")
@click.option("--fetch-bytes", type=RATE, help="Bytes to read per second, or none.")
@click.option("--requests", type=RATE, help="Requests per second, or none.")
@pass_session
def alter(session: Session, /, name: str | None, for_all: bool, super_user: bool | None, **rates: int | None) -> None:
    """Change quotas, and who is a super user.

    The name may also be the principal of a certificate or a token.
    """
    if (name is None) != for_all:
        raise click.UsageError("give a NAME or --default")
    given = {field: rate or None for field, rate in rates.items() if rate is not None}
    if not given and super_user is None:
        raise click.UsageError("nothing to alter: give --super-user, --produce-bytes, --fetch-bytes or --requests")
    if super_user is not None and name is None:
        raise click.UsageError("--super-user needs a NAME")
    with secured.opened(session) as admin:
        admin.alter_user(name, quota=given, super_user=super_user)
        missing = password_missing(admin, name)
    _say(session, f"altered {name or 'the quota of all others'}{missing}", name)


@users.command(short_help="Delete users with their tokens; shows them first.")
@common
@click.argument("names", metavar="NAME...", nargs=-1, type=USER, required=True)
@click.option("--yes", "--execute", "execute", is_flag=True, help="Delete; otherwise only show the users.")
@pass_session
def delete(session: Session, names: Sequence[str], execute: bool) -> None:
    """Delete users with their tokens and quotas; shows them first, and deletes with --yes.

    ACLs stay, and would apply to a new user of the same name. Remove them: logdb acls remove --principal User:NAME.
    """
    with secured.opened(session) as admin:
        before = admin.users()
        found = [known(before, name) for name in names]
        tokens, acls = admin.tokens(), admin.acls()
        if execute:
            admin.delete_users(*names)
    if session.as_json:
        emit({"executed": execute, "delete": [_described(one) for one in found]})
    for name in names:
        principal = Principal("User", name)
        token_count = sum(token.owner == principal for token in tokens)
        acl_count = sum(acl.principal == principal for acl in acls)
        done, left = ("deleted", "stay") if execute else ("would delete", "would stay")
        say(f"{done} user {name}, {counted(token_count, 'token')}; {counted(acl_count, 'ACL')} {left}")
    if not execute:
        say("nothing was done; --yes deletes")


def _say(session: Session, text: str, name: str | None) -> None:
    if session.as_json:
        emit({"user": name})
    else:
        say(text)
