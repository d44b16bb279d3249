"""kafka-configs of what is no topic: users, with quotas and SCRAM credentials, and brokers; clients and addresses have no quotas here.

Source: Kafka's ConfigCommand, 4.3.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, get_args

import click

from logdb.cli.terminal import secured
from logdb.cli.terminal.output import line
from logdb.cli.terminal.session import Session
from logdb.requests.users import Mechanism, Quota, UserInfo

TYPES = ("topics", "users", "clients", "brokers", "ips")
_ITERATIONS = 4_096  # Kafka's, for a password that comes without
_RATES = {"consumer_byte_rate": "fetch_bytes", "producer_byte_rate": "produce_bytes"}
_PASSWORD = re.compile(r"(?:iterations=(\d+),)?password=(.*)")


class Entity(NamedTuple):
    """What has configs; ``name``: empty for the default of all, None for each of them."""

    kind: str
    name: str | None

    @property
    def one(self) -> str:
        """``user`` of ``users``."""
        return self.kind[:-1]


def entity_of(kinds: Sequence[str], names: Sequence[str], flags: Mapping[str, str | None], *, default: bool) -> Entity | None:
    """The entity of the options: of a type and a name, or of a flag such as ``--broker``; None: no type was given.

    Raises:
        click.UsageError: There are several, or a name without a type.
    """
    given = [Entity(kind, name) for kind, name in flags.items() if name is not None]
    names = [*names, *([""] if default else [])]
    given += [Entity(kind, name) for kind, name in zip(kinds, [*names, None], strict=False)]
    if len(given) > 1 or len(names) > len(kinds):
        raise click.UsageError(
            "give one entity: an --entity-type with an --entity-name or --entity-default; or --topic, --user, --broker …"
        )
    return given[0] if given else None


# ---------------------------------------------------------------- describing


def describe(session: Session, entity: Entity, *, every: bool) -> None:
    if entity.kind == "brokers":
        with session.read() as db:
            brokers = list(map(str, sorted(db._session.cluster_nodes().serving) or [0]))
        _describe_brokers(brokers, entity.name, every=every)
    elif entity.kind == "users":
        with secured.opened(session) as admin:
            found = admin.users()
        _describe_users(found.users, found.default_quota, entity.name)


def _describe_brokers(brokers: Sequence[str], name: str | None, *, every: bool) -> None:
    """A broker's configs are its options at the start; none is dynamic here."""
    if name and name not in brokers:
        line(f"The broker '{name}' doesn't exist and doesn't have dynamic config.")
    for broker in brokers:
        if name in (None, broker):
            line(f"{'All' if every else 'Dynamic'} configs for broker {broker} are:")
    if not name:
        line("Default configs for brokers in the cluster are:")


def _describe_users(users: Sequence[UserInfo], default: Quota | None, name: str | None) -> None:
    """Quotas, then credentials; without a name also the default quota."""
    quotas = {f"user-principal '{user.name}'": user.quota for user in users if name in (None, user.name)}
    if not name:
        quotas["the default user-principal"] = default
    for whose, quota in quotas.items():
        if rates := _rates(quota):
            line(f"Quota configs for {whose} are {', '.join(f'{key}={float(rate)}' for key, rate in rates.items())}")
    for user in users:
        if user.mechanisms and name in (None, user.name):
            credentials = (f"{one}=iterations={count}" for one, count in zip(user.mechanisms, user.iterations, strict=True))
            line(f"SCRAM credential configs for user-principal '{user.name}' are {', '.join(credentials)}")


def _rates(quota: Quota | None) -> dict[str, int]:
    rates = {} if quota is None else {key: getattr(quota, field) for key, field in _RATES.items()}
    return {key: rate for key, rate in rates.items() if rate is not None}


# ---------------------------------------------------------------- changing


def alter(session: Session, entity: Entity, added: Mapping[str, str], dropped: Sequence[str]) -> None:
    """Change quotas or credentials of a user, or the default quota.

    Raises:
        click.UsageError: There are no such configs, or they cannot be changed.
    """
    if entity.kind == "brokers":
        raise click.UsageError(
            "the configs of a broker are its options at the start; to limit a reassignment: logdb partitions reassign --throttle"
        )
    if entity.kind != "users":
        raise click.UsageError(f"{entity.kind} have no quotas: only users have")
    if entity.name is None:
        raise click.UsageError("--alter needs --entity-name USER, or --entity-default")
    names = {*added, *dropped}
    if names <= _RATES.keys():
        _alter_quota(session, entity.name, added, dropped)
    elif entity.name and names <= {*get_args(Mechanism)}:
        _alter_credentials(session, entity.name, added, dropped)
    else:
        unknown = sorted(names - _RATES.keys() - {*get_args(Mechanism)} or names)
        raise click.UsageError(
            f"{', '.join(unknown)}: a user has either {', '.join(_RATES)} or, by its name, {', '.join(get_args(Mechanism))}"
        )
    if entity.name:
        line(f"Completed updating config for {entity.one} {entity.name}.")
    else:
        line(f"Completed updating default config for {entity.kind} in the cluster.")


def _alter_quota(session: Session, name: str, added: Mapping[str, str], dropped: Sequence[str]) -> None:
    with secured.opened(session) as admin:
        found = admin.users()
        of_name = {user.name: user.quota for user in found.users} | {"": found.default_quota}
        if missing := [key for key in dropped if key not in _rates(of_name.get(name))]:
            raise click.UsageError(f"Invalid config(s): {','.join(missing)}")
        rates: dict[str, int | None] = {_RATES[key]: _whole(key, text) for key, text in added.items()}
        admin.alter_user(name or None, quota=rates | dict.fromkeys(map(_RATES.__getitem__, dropped)))


def _whole(key: str, text: str) -> int:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 1 <= rate < 1 << 63 or rate != int(rate):
        raise click.UsageError(f"{key}={text}: must be a whole number in [1, 2^63 - 1]")
    return int(rate)


def _alter_credentials(session: Session, name: str, added: Mapping[str, str], dropped: Sequence[str]) -> None:
    passwords: dict[Mechanism, tuple[str, int] | None] = {}
    for mechanism in get_args(Mechanism):
        if mechanism in added:
            if (found := _PASSWORD.fullmatch(added[mechanism])) is None:
                raise click.UsageError(f"{mechanism}={added[mechanism]}: must be [password=…] or [iterations=N,password=…]")
            passwords[mechanism] = (found[2], int(found[1] or _ITERATIONS))
        elif mechanism in dropped:
            passwords[mechanism] = None
    with secured.opened(session) as admin:
        admin.alter_credentials(name, passwords)
