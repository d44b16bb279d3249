"""What a leader knows of the partitions that a follower fetches on one connection (KIP-227): a request names those that have changed.

Pure: no I/O, no clock, no thread.  One object for one connection; ``reset`` after an answer without a session, and the next request names
all partitions.

    wanted ──► named in the next request ──► known ──► changed, or answered otherwise than expected ──► named again
                                               └──► not wanted, or answered with an error ──► wanted again ──► named again
"""

from collections.abc import Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

K = TypeVar("K")

FIRST_EPOCH = 0
_HIGH_WATERMARK, _UNKNOWN = "high_watermark", -1


class Request(NamedTuple, Generic[K]):
    """What to ask: the partitions to name with their values, and those to forget."""

    epoch: int
    named: Mapping[K, Mapping[str, Any]]
    forgotten: Iterable[K]


class FetchSession(Generic[K]):
    """The partitions of one session, by a key.

    | field         | changed by                     | to be trusted                                                         |
    |---------------|--------------------------------|-----------------------------------------------------------------------|
    | ``_known``    | ``request``, ``told``, ``drop``| what the leader knows, once the request that is under way is answered |
    | ``_wanted``   | ``want``, ``unwant``; ``request`` | what differs from it: values, None for a partition to be forgotten |
    | ``_epoch``    | ``answered``, ``reset``        | of the next request                                                   |
    """

    def __init__(self) -> None:
        self._known: dict[K, Mapping[str, Any]] = {}
        self._wanted: dict[K, Mapping[str, Any] | None] = {}
        self._epoch = FIRST_EPOCH

    def __len__(self) -> int:
        """How many partitions the next request fetches."""
        gone = sum(key in self._known for key, values in self._wanted.items() if values is None)
        new = sum(key not in self._known for key, values in self._wanted.items() if values is not None)
        return len(self._known) - gone + new

    @property
    def is_new(self) -> bool:
        """Whether the next request has to name all partitions."""
        return self._epoch == FIRST_EPOCH

    def want(self, key: K, values: Mapping[str, Any]) -> None:
        """Fetch a partition, of which a request says ``values``."""
        if self._known.get(key) == values:
            self._wanted.pop(key, None)
        else:
            self._wanted[key] = values

    def unwant(self, key: K) -> None:
        """Do not fetch a partition."""
        if key in self._known:
            self._wanted[key] = None
        else:
            self._wanted.pop(key, None)

    def request(self) -> Request[K]:
        """The next request; ``answered``, or ``reset``, has to follow."""
        wanted, self._wanted = self._wanted, {}
        named = {key: values for key, values in wanted.items() if values is not None}
        forgotten = [key for key, values in wanted.items() if values is None]
        for key in forgotten:
            del self._known[key]
        self._known.update(named)
        return Request(self._epoch, named, forgotten)

    def answered(self, session_id: int) -> None:
        """The request was answered; 0: there is no session."""
        if session_id:
            self._epoch += 1
        else:
            self.reset()

    def told(self, key: K, high_watermark: int) -> None:
        """An answer has said this of a partition: the leader takes it for known from the next request on."""
        known = self._known.get(key)
        if known is not None and known[_HIGH_WATERMARK] != _UNKNOWN:
            self._known[key] = {**known, _HIGH_WATERMARK: max(known[_HIGH_WATERMARK], high_watermark)}

    def drop(self, key: K) -> None:
        """An answer had an error for a partition: the leader has it in the session no more."""
        self._known.pop(key, None)
        if self._wanted.get(key, ()) is None:
            del self._wanted[key]

    def reset(self) -> None:
        """Begin a session: the next request names what is wanted then."""
        self._known, self._wanted, self._epoch = {}, {}, FIRST_EPOCH
