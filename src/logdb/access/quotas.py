"""Quotas: how much a principal may do in a second, and how long its answers are delayed when it did more.

The default quota does not apply to super users: a principal that may set it need not be a super user.

A quota refuses no request: a request is charged, its bucket may go below zero, and its answer is delayed until the bucket is at
zero again.  A bucket holds the burst of one second.

Source: Kafka's client quotas (KIP-13, KIP-124), which throttle in the same way.
"""

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Literal, TypeAlias

from logdb.requests.principals import Principal
from logdb.requests.users import Quota
from logdb.threads import renewed

Resource: TypeAlias = Literal["produce", "fetch", "request"]

DELAY_MS_MAX = 30_000
_PRINCIPAL_COUNT_MAX = 10_000


_NO_QUOTA = Quota()
_PLACES: Mapping[Resource, int] = {"produce": 0, "fetch": 1, "request": 2}


class TokenBucket:
    """A rate, and the tokens that are left."""

    def __init__(self, rate: int, now_ms: int) -> None:
        self._rate, self._tokens, self._then_ms = rate, float(rate), now_ms

    def charge(self, amount: int, now_ms: int) -> int:
        """Take ``amount`` out, or give it back if it is negative; returns for how many ms to wait, 0 to ``DELAY_MS_MAX``."""
        grown = self._tokens + self._rate * max(0, now_ms - self._then_ms) / 1000
        self._tokens, self._then_ms = min(max(float(self._rate), self._tokens), grown) - amount, now_ms
        return 0 if self._tokens >= 0 else min(DELAY_MS_MAX, int(-self._tokens * 1000 / self._rate) + 1)


class Quotas:
    """The buckets of all principals.

    Attributes:
        are_set: Whether anyone has a quota.

    Threading: any number of threads.
    """

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._lock = renewed(threading.Lock())
        self._quotas: Mapping[Principal | None, Quota] = {}
        self._super_users: Collection[Principal] = ()
        self._buckets: dict[tuple[Principal, Resource], TokenBucket] = {}
        self.are_set = False

    def configure(self, quotas: Mapping[Principal | None, Quota], super_users: Collection[Principal] = ()) -> None:
        """Set the quotas; None is the default quota, which super users lack.  A changed quota begins with full buckets."""
        with self._lock:
            self._super_users = super_users
            if quotas != self._quotas:
                self._quotas, self._buckets, self.are_set = quotas, {}, bool(quotas)

    def limits(self, principal: Principal) -> bool:
        """Whether a principal has a quota."""
        return bool(self._quotas) and self._of(principal) != _NO_QUOTA

    def charge(self, principal: Principal, resource: Resource, amount: int) -> int:
        """Charge a principal; returns the delay of its answer in ms."""
        if not self._quotas:
            return 0
        with self._lock:
            rate = self._of(principal)[_PLACES[resource]]
            if rate is None:
                return 0
            now_ms = self._monotonic_ms()
            bucket = self._buckets.get((principal, resource))
            if bucket is None:
                if len(self._buckets) >= _PRINCIPAL_COUNT_MAX:
                    self._buckets.pop(next(iter(self._buckets)))
                bucket = self._buckets[principal, resource] = TokenBucket(rate, now_ms)
            return bucket.charge(amount, now_ms)

    def _of(self, principal: Principal) -> Quota:
        own = self._quotas.get(principal)
        return own or (None if principal in self._super_users else self._quotas.get(None)) or _NO_QUOTA
