"""``logdb acls``: which principals may do which operations on topics, groups and transactional ids.

Two forms: verbs (``acls add --allow-principal User:alice --operation Read --topic orders``), and the flags of
kafka-acls (``acls --add …``), which also print as that tool does.  Works on the directory, also beside a server, and through one.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby, product
from typing import Any, NamedTuple, get_args

import click

from logdb.cli.terminal import secured
from logdb.cli.terminal.output import counted, emit, line, say, table
from logdb.cli.terminal.params import TOPIC
from logdb.cli.terminal.session import Function, Session, common, pass_session
from logdb.cli.terminal.units import Kind
from logdb.client.security_admin import only
from logdb.mistakes import one_of
from logdb.requests.acls import ANY, Acl, AclFilter, PatternType, Permission, spelled
from logdb.requests.principals import Principal
from logdb.requests.resources import CLUSTER, Operation, ResourceType

ACTIONS = "logdb.actions"
_PATTERNS: dict[str, PatternType] = {"literal": "Literal", "prefixed": "Prefixed"}


class PrincipalName(Kind):
    """``User:alice``; a name alone means a user."""

    name = "principal"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Principal:
        text = str(value)
        try:
            return Principal.parse(text if ":" in text else f"User:{text}")
        except ValueError as error:
            self.fail(str(error), param, ctx)


class OperationName(Kind):
    """An operation in any spelling: Read, READ, describe-configs, DescribeConfigs."""

    name = "operation"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Operation:
        wanted = str(value).lower().replace("-", "").replace("_", "")
        of_name: dict[str, Operation] = {one.lower(): one for one in get_args(Operation)}
        if wanted not in of_name:
            self.fail(f"{value!r}: must be {one_of(of_name.values())}", param, ctx)
        return of_name[wanted]


PRINCIPAL, OPERATION = PrincipalName(), OperationName()


class Given(NamedTuple):
    """The options of one call."""

    allow_principals: Sequence[Principal]
    deny_principals: Sequence[Principal]
    principals: Sequence[Principal]
    allow_hosts: Sequence[str]
    deny_hosts: Sequence[str]
    operations: Sequence[Operation]
    topics: Sequence[str]
    groups: Sequence[str]
    transactional_ids: Sequence[str]
    cluster: bool
    pattern: str
    producer: bool
    consumer: bool
    idempotent: bool


def options(function: Function, *, finds: bool = True) -> Function:
    """The options of kafka-acls, for the group and for its verbs; ``finds``: they say which ACLs to find, not which to add."""
    by_default, patterns = ("any", "  any: of either kind; match: every ACL that applies to the name.") if finds else ("all", "")
    several = [
        ("--allow-principal", "allow_principals", PRINCIPAL, "The principal to allow, such as User:alice; User:* for all."),
        ("--deny-principal", "deny_principals", PRINCIPAL, "The principal to deny; a denial outweighs every permission."),
        ("--principal", "principals", PRINCIPAL, "The principal, allowed or denied."),
        ("--allow-host", "allow_hosts", str, f"The address that it is allowed from.  [default: {by_default}]"),
        ("--deny-host", "deny_hosts", str, f"The address that it is denied from.  [default: {by_default}]"),
        ("--operation", "operations", OPERATION, f"What: Read, Write, Describe, …  [default: {by_default if finds else 'All'}]"),
        ("--topic", "topics", TOPIC, "A topic; * for all."),
        ("--group", "groups", str, "A group; * for all."),
        ("--transactional-id", "transactional_ids", str, "A transactional id; * for all."),
    ]
    flags = [
        ("--cluster", "The cluster; its name is kafka-cluster."),
        ("--producer", "What a producer needs: Write, Describe, Create of topics; Write, Describe of transactional ids."),
        ("--consumer", "What a consumer needs: Read, Describe of topics; Read of groups."),
        ("--idempotent", "IdempotentWrite of the cluster."),
    ]
    for flag, text in reversed(flags):
        function = click.option(flag, is_flag=True, help=text)(function)
    function = click.option(
        "--resource-pattern-type",
        "pattern",
        type=click.Choice([*_PATTERNS, *(("any", "match") if finds else ())], case_sensitive=False),
        default="literal",
        show_default=True,
        help=f"literal: the name is complete; prefixed: it is a prefix.{patterns}",
    )(function)
    for flag, field, kind, text in reversed(several):
        function = click.option(flag, field, type=kind, multiple=True, help=text, hidden=not finds and field == "principals")(function)
    return function


# ---------------------------------------------------------------- what the options mean


def resources(given: Given) -> Iterator[tuple[ResourceType, str]]:
    """The resources that the options name."""
    yield from (("Topic", name) for name in given.topics)
    yield from (("Group", name) for name in given.groups)
    yield from (("TransactionalId", name) for name in given.transactional_ids)
    if given.cluster or given.idempotent:
        yield "Cluster", CLUSTER


def operations(given: Given, resource_type: ResourceType) -> Sequence[Operation]:
    """The operations to allow, or deny, on a type of resource."""
    if resource_type == "Cluster" and given.idempotent:
        return ("IdempotentWrite", *given.operations)
    found: list[Operation] = []
    if given.producer:
        found += {"Topic": ("Write", "Describe", "Create"), "TransactionalId": ("Write", "Describe")}.get(resource_type, ())  # type: ignore[arg-type]
    if given.consumer:
        found += {"Topic": ("Read", "Describe"), "Group": ("Read",)}.get(resource_type, ())  # type: ignore[arg-type]
    return found if given.producer or given.consumer else given.operations or ("All",)


def wanted(given: Given) -> list[Acl]:
    """The ACLs that the options describe.

    Raises:
        click.UsageError: A principal or a resource is missing, or an option is invalid.
    """
    if given.pattern not in _PATTERNS:  # of kafka-acls, whose verbs share their options
        raise click.UsageError(f"--resource-pattern-type {given.pattern} is for list and remove")
    if not (given.allow_principals or given.deny_principals):
        raise click.UsageError("name a principal: --allow-principal or --deny-principal")
    named = list(resources(given))
    if not named:
        raise click.UsageError("name a resource: --topic, --group, --transactional-id or --cluster")
    whom: list[tuple[Permission, Principal, str]] = [
        *(("Allow", *one) for one in product(given.allow_principals, given.allow_hosts or [ANY])),
        *(("Deny", *one) for one in product(given.deny_principals, given.deny_hosts or [ANY])),
    ]
    try:
        return [
            Acl(principal, host, operation, permission, kind, "Literal" if kind == "Cluster" else _PATTERNS[given.pattern], name).check()
            for kind, name in named
            for operation in operations(given, kind)
            for permission, principal, host in whom
        ]
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def matching(given: Given, acls: Sequence[Acl]) -> list[Acl]:
    """The ACLs that match the options; all without options."""
    whom = [
        *(AclFilter(principal=one) for one in given.principals),
        *(AclFilter(principal=one, permission="Allow") for one in given.allow_principals),
        *(AclFilter(principal=one, permission="Deny") for one in given.deny_principals),
    ]
    whence = [AclFilter(host=host) for host in (*given.allow_hosts, *given.deny_hosts)]
    parts = (whom or [AclFilter()], _what(given), whence or [AclFilter()])
    return [acl for acl in sorted(acls, key=_order) if all(any(one.finds(acl) for one in filters) for filters in parts)]


def _what(given: Given) -> list[AclFilter]:
    """The operations and resources in the options."""
    pattern, match = _PATTERNS.get(given.pattern), given.pattern == "match"
    bundles = given.producer or given.consumer or given.idempotent
    filters = [
        AclFilter(operation=operation, resource_type=kind, name=name, match=match, pattern_type=None if kind == "Cluster" else pattern)
        for kind, name in resources(given)
        for operation in (operations(given, kind) if bundles else given.operations or (None,))
    ]
    return filters or [AclFilter(operation=operation) for operation in given.operations or (None,)]


def _order(acl: Acl) -> tuple[str, ...]:
    return (acl.resource_type, acl.name, acl.pattern_type, acl.permission, str(acl.principal), acl.host, acl.operation)


# ---------------------------------------------------------------- how they are shown


def described(acl: Acl) -> dict[str, str]:
    """One ACL as JSON."""
    return {**acl._asdict(), "principal": str(acl.principal)}


def show(session: Session, acls: Sequence[Acl], principals: Sequence[Principal] = ()) -> None:
    """Show ACLs on stdout; ``principals``: those whose ACLs were asked for."""
    if session.as_json:
        emit([described(acl) for acl in acls])
    elif session.kafka:
        for principal in dict.fromkeys(principals):
            line(f"ACLs for principal `{principal}`")
            print_as_kafka("Current ACLs for resource", [acl for acl in acls if acl.principal == principal])
        if not principals:
            print_as_kafka("Current ACLs for resource", acls)
    elif acls:
        columns = ("RESOURCE", "NAME", "PATTERN", "PERMISSION", "PRINCIPAL", "HOST", "OPERATION")
        table(columns, [_order(acl) for acl in acls])
    else:
        say("no ACLs: once authentication is on, only super users may do anything")


def print_as_kafka(title: str, acls: Sequence[Acl]) -> None:
    """``kafka-acls``'s lines; it leaves a blank behind the title, and before the first line, of ACLs that are added."""
    blank = " " if title.startswith("Adding") else ""
    for (kind, name, pattern), together in groupby(acls, key=lambda acl: (acl.resource_type, acl.name, acl.pattern_type)):
        words = f"resourceType={spelled(kind)}, name={name}, patternType={spelled(pattern)}"
        line(f"{title} `ResourcePattern({words})`:{blank}")
        for number, acl in enumerate(together):
            who = f"principal={acl.principal}, host={acl.host}, operation={spelled(acl.operation)}"
            line(f"{blank if not number else ''}\t({who}, permissionType={spelled(acl.permission)})")
        line("")


# ---------------------------------------------------------------- what both ways do


def add_all(session: Session, given: Given) -> None:
    """Add the ACLs that the options describe."""
    added = wanted(given)

    with secured.first(session) as admin:
        admin.add_acls(*added)
    if session.as_json:
        emit([described(acl) for acl in added])
    elif session.kafka:
        print_as_kafka("Adding ACLs for resource", sorted(added, key=_order))
    else:
        for acl in added:
            say(f"added: {_sentence(acl)}")


def list_all(session: Session, given: Given) -> None:
    """Show the ACLs that match the options."""
    with secured.opened(session) as admin:
        found = admin.acls()
    show(session, matching(given, found), given.principals)


def remove_all(session: Session, given: Given, *, execute: bool) -> None:
    """Remove the ACLs that match the options, or say which would be removed."""
    with secured.opened(session) as admin:
        gone = matching(given, admin.acls())
        if execute and gone:
            admin.delete_acls(*only(gone))
    if session.as_json:
        emit({"executed": execute, "remove": [described(acl) for acl in gone]})
    for acl in () if session.kafka else gone:
        say(f"{'removed' if execute else 'would remove'}: {_sentence(acl)}")
    if not gone:
        say("no ACL matches the options")
    elif not execute:
        say(f"nothing was removed; --yes removes {counted(len(gone), 'ACL')}")


def _sentence(acl: Acl) -> str:
    """``User:alice from * may Read topics that begin with 'orders'``."""
    resource = f"{acl.resource_type} {acl.name!r}" + (" and names that begin so" if acl.pattern_type == "Prefixed" else "")
    return f"{acl.principal} from {acl.host} {'may' if acl.permission == 'Allow' else 'may not'} {acl.operation} {resource}"


# ---------------------------------------------------------------- kafka-acls' flags


def _note_action(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    if given:
        context.meta.setdefault(ACTIONS, []).append(parameter.name)


def _hidden(function: Callable[..., Any]) -> Callable[..., Any]:
    """Hide the options of a command in its help."""
    for parameter in getattr(function, "__click_params__", []):
        parameter.hidden = True
    return function


@click.group(
    short_help="Add, list, remove ACLs.",
    invoke_without_command=True,
    epilog="The flags of kafka-acls work too: --add, --list, --remove with the options of the verbs, and --force. "
    "The output is then that of kafka-acls.",
)
@common
@_hidden
@options
@click.option("--add", is_flag=True, expose_value=False, callback=_note_action)
@click.option("--list", is_flag=True, expose_value=False, callback=_note_action)
@click.option("--remove", is_flag=True, expose_value=False, callback=_note_action)
@click.option("--force", "--yes", "execute", is_flag=True)
@pass_session
@click.pass_context
def acls(context: click.Context, session: Session, /, execute: bool, **given: Any) -> None:
    """Add, list and remove ACLs: permissions of principals.

    If authentication is on, a principal needs an ACL for each operation.  An ACL that denies beats all that allow.
    """
    actions: list[str] = context.meta.get(ACTIONS, [])
    if context.invoked_subcommand is not None:
        if actions:
            raise click.UsageError("give either a verb or a flag of kafka-acls, not both")
        return
    if len(actions) > 1 or (session.kafka and not actions):
        raise click.UsageError("give exactly one of --add, --list, --remove")
    if actions == ["add"]:
        add_all(session, Given(**given))
    elif actions == ["remove"]:
        remove_all(session, Given(**given), execute=execute or session.kafka)
    else:
        list_all(session, Given(**given))


# ---------------------------------------------------------------- verbs


@acls.command()
@common
@partial(options, finds=False)
@pass_session
def add(session: Session, /, **given: Any) -> None:
    """Allow or deny operations to a principal."""
    add_all(session, Given(**given))


@acls.command("list")
@common
@options
@pass_session
def list_acls(session: Session, /, **given: Any) -> None:
    """List ACLs that match the options; without options, all."""
    list_all(session, Given(**given))


@acls.command()
@common
@options
@click.option("--yes", "--execute", "execute", is_flag=True, help="Remove; otherwise only show the ACLs.")
@pass_session
def remove(session: Session, /, execute: bool, **given: Any) -> None:
    """Remove ACLs; shows them first, and removes with --yes."""
    remove_all(session, Given(**given), execute=execute)
