"""Users, tokens and quotas as requests carry them, without secrets."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from logdb.requests.principals import Principal

Mechanism: TypeAlias = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]


class ScramCredential(NamedTuple):
    """What a server stores of one password for one mechanism."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


Credentials: TypeAlias = Mapping[Mechanism, ScramCredential]


class Quota(NamedTuple):
    """What one principal may do in a second; None: unlimited."""

    produce_bytes: int | None = None
    fetch_bytes: int | None = None
    requests: int | None = None

    def check(self) -> "Quota":
        """Return the quota if it is valid.

        Raises:
            ValueError: A rate is no whole number of 64 bits from 1 on.
        """
        for name, rate in zip(self._fields, self, strict=True):
            if rate is not None and (type(rate) is not int or not 1 <= rate < 1 << 63):
                raise ValueError(f"quota {name}={rate!r} a second: must be a whole number in [1, 2^63 - 1], or none")
        return self


class UserInfo(NamedTuple):
    """A user, or another principal that has a quota or is a super user; ``mechanisms`` are those of the password, if it has one."""

    name: str
    mechanisms: tuple[Mechanism, ...]
    super_user: bool
    quota: Quota | None
    iterations: tuple[int, ...] = ()
    """Of the password, by mechanism."""


class Users(NamedTuple):
    """All users by name; ``default_quota`` applies to users without one of their own."""

    authentication: bool
    users: tuple[UserInfo, ...]
    default_quota: Quota | None


class TokenInfo(NamedTuple):
    """One token, without its secret; times are ms since 1970, ``expires_ms`` None: never."""

    name: str
    owner: Principal
    created_ms: int
    expires_ms: int | None
