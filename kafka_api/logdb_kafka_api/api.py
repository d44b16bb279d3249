"""An API of Kafka's protocol as data: its key, its messages and their versions, and how it is answered.

A module in ``handlers`` declares what it answers::

    @answers(71, GET_TELEMETRY_SUBSCRIPTIONS_REQUEST, GET_TELEMETRY_SUBSCRIPTIONS_RESPONSE, is_advertised=False)
    async def get_telemetry_subscriptions(call: Call) -> Values: ...

``apis`` finds it; the header of a frame, ApiVersions, the dispatcher and the tests of the documentation read it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from logdb.codec.schema import Message

if TYPE_CHECKING:
    from logdb_kafka_api.call import AtOnce, Handler

API_VERSIONS = 18
"""The key of the API whose answer says which versions there are; the header of that answer is the same in each."""


class Api(NamedTuple):
    """A request and its response; both have the same versions.

    Attributes:
        run: Answers a request, which may wait.
        at_once: Answers a request on the loop, if it waits for nothing; None: none does.
        is_advertised: ApiVersions names it.
        before_authentication: A client may ask it before it has authenticated.
    """

    key: int
    request: Message
    response: Message
    run: "Handler"
    at_once: "AtOnce | None" = None
    is_advertised: bool = True
    before_authentication: bool = False

    @property
    def name(self) -> str:
        """As Kafka names it."""
        return self.request.name.removesuffix("Request")


DECLARED: dict[int, Api] = {}
"""By key, of the modules that were imported; ``apis.APIS`` has all."""


def answers(
    key: int,
    request: Message,
    response: Message,
    *,
    at_once: "AtOnce | None" = None,
    is_advertised: bool = True,
    before_authentication: bool = False,
) -> "Callable[[Handler], Handler]":
    """Declare what a function answers; see ``Api``."""

    def declare(run: "Handler") -> "Handler":
        if key in DECLARED:
            raise ValueError(f"the API {key} is declared twice: {DECLARED[key].name}, {request.name}")
        DECLARED[key] = Api(key, request, response, run, at_once, is_advertised, before_authentication)
        return run

    return declare
