"""What a request is: fields, an answer, and the operations that its principal must be allowed.

A request is a dataclass (``value``).  Its class says everything that others need to know of it:

    field or method     read by
    method              the broker, which carries it out by its method of that name; counters; ``/logdb/v1/calls/METHOD``
    answer, waits       the encoder of answers; a request that waits is answered by a future
    needs, visible      authorization; a door's descriptions.  Every class has its own ``needs``
    each, without       the same, of a request that is made in part: the field of its partitions
    local               doors, which make it of the broker in their process; a session behind a URL has another way for it, or refuses it
    is_repeatable       a client that does not know whether its first try was carried out

What a request needs is asked in the order in which its class names it.  A topic that may not be described is refused whether it exists
or not; one that may be, and does not exist, is unknown, and the error names only others that may be described.

A request that names partitions is refused as a whole where one of their topics is, or made without those: ``without``.

Source: Kafka's ``KafkaApis``, which leaves out the partitions that are refused.
"""

import re
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import Field, dataclass, field, replace
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeAlias, TypeVar, dataclass_transform

from logdb.model import TopicPartition
from logdb.requests.resources import CLUSTER, Operation, ResourceType

A = TypeVar("A")

May: TypeAlias = Callable[[Operation, ResourceType, str], bool]
"""Whether a principal may do something with one resource."""


class Need(NamedTuple):
    """One operation on resources, all of which must be allowed.

    Attributes:
        names: The names of the resources, of a request; of what an answer lists, see ``Request.visible``.
        listed: It is asked for each item of the answer; what is refused is left out.
        each: The field with the partitions whose topics the resources are: the request may be made without some of them.
    """

    operation: Operation
    resource_type: ResourceType
    names: Callable[[Any], Iterable[str]]
    listed: bool = False
    each: str | None = None

    def __str__(self) -> str:
        return f"{self.operation} {self.resource_type}"


def named(operation: Operation, resource_type: ResourceType, field: str) -> Need:
    """On the resource that a field names; on none where it is None."""
    return Need(operation, resource_type, lambda request: () if (name := getattr(request, field)) is None else (name,))


def each_topic(operation: Operation, field: str) -> Need:
    """On each topic of partitions, which are a list, or the keys of a mapping; on none where they are None."""
    return Need(operation, "Topic", lambda request: {topic for topic, _ in getattr(request, field) or ()}, each=field)


def cluster(operation: Operation, *, unless: str | None = None) -> Need:
    """On the cluster; ``unless``: where that field is None alone."""
    return Need(operation, "Cluster", lambda request: (CLUSTER,) if unless is None or getattr(request, unless) is None else ())


def listed(operation: Operation, resource_type: ResourceType) -> Need:
    """On each item that the answer lists."""
    return Need(operation, resource_type, lambda _: (), listed=True)


REQUESTS: "dict[str, type[Request[Any]]]" = {}
"""All requests by their methods: those whose modules were imported."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(kind: Any = None, /, *, kw_only: bool = False) -> Any:
    """Make a class of requests a dataclass; type checkers refuse to assign to a field.

    Python does not: an ``__init__`` that goes around a refusal takes five times as long, and each Fetch and Produce makes requests.
    ``Request`` has the other methods: made for each class, they would take half of the import.
    """
    return dataclass(kind, slots=True, kw_only=kw_only, repr=False, eq=False)


class Request(Generic[A]):
    """The base of all requests; ``A`` is what ``submit`` returns: the answer, or a future of it."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # some have mappings

    needs: ClassVar[tuple[Need, ...]]
    local: ClassVar[bool] = False
    method: ClassVar[str]
    answer: ClassVar[Any]
    each: ClassVar[str | None]
    waits: ClassVar[bool]
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__doc__ = cls.__doc__ or cls.__name__  # else ``dataclass`` writes the signature there, which takes as long as all the rest
        if "needs" not in vars(cls):
            raise TypeError(f"{cls.__name__} does not say what it needs: an empty tuple where any principal may")
        ((answer,),) = (typing.get_args(base) for base in cls.__orig_bases__)  # type: ignore[attr-defined]  # of a generic class
        cls.waits = typing.get_origin(answer) is Future
        (cls.answer,) = typing.get_args(answer) if cls.waits else (answer,)
        cls.each = next((need.each for need in cls.needs if need.each is not None), None)
        cls.method = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        REQUESTS[cls.method] = cls

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={given!r}' for name, given in self.arguments().items())})"

    def __eq__(self, other: object) -> bool:
        return other.arguments() == self.arguments() if type(other) is type(self) else NotImplemented

    def arguments(self) -> dict[str, Any]:
        """The arguments of the broker's method."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @property
    def named_partitions(self) -> Collection[TopicPartition]:
        """The partitions whose topics are authorized one by one; of a mapping the keys."""
        return () if self.each is None else getattr(self, self.each) or ()

    def without(self, partitions: Collection[TopicPartition]) -> Self:
        """The request for all of its ``named_partitions`` but these."""
        if self.each is None or not partitions:
            return self
        given = self.named_partitions
        kept: Any = tuple(one for one in given if one not in partitions)
        if isinstance(given, Mapping):
            kept = {one: given[one] for one in kept}
        return replace(self, **{self.each: kept})

    def visible(self, answer: Any, may: May) -> Any:  # noqa: ARG002 -- most answers are visible as they are
        """What a principal is shown of an answer: items that it may not describe are left out."""
        return answer

    @property
    def is_repeatable(self) -> bool:
        """Whether being carried out twice does no harm."""
        return True
