"""The bounds of a Kafka door: those of any door, and those of its frames."""

from dataclasses import dataclass

from logdb.serving.limits import Limits

SMALL_BYTES = 64 << 10
"""Up to here a frame, an answer, or the requests that wait for their turn take no share of the memory.

Before authentication no frame is longer.
"""

ROOM_BYTES = 272 << 10
"""A frame with a batch of 256 KiB, and what is around it: a door's buffers have so much.

What comes in one read is kept, however full the queue is.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class KafkaLimits(Limits):
    """Bounds of a Kafka door; a full door reads no further requests of a connection, or closes it.

    Attributes:
        body_bytes_max: The frame of a request with records; a longer one closes the connection.
        call_bytes_max: The frame of any other request.
        fetch_bytes_max: The records of an answer to Fetch.
        session_timeout_ms_min, session_timeout_ms_max: What a member of a group may ask for; a member whose client has gone stays so long.
        keep_alive_ms: Kafka's ten minutes: its clients keep idle connections.
    """

    body_bytes_max: int = 100 << 20
    call_bytes_max: int = 1 << 20
    fetch_bytes_max: int = 16 << 20
    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    keep_alive_ms: int = 600_000

    def __post_init__(self) -> None:
        Limits.__post_init__(self)
        most = max(1, self.memory_bytes_max // 2)  # a larger amount is taken only while nothing else is
        for name in ("body_bytes_max", "call_bytes_max", "fetch_bytes_max"):
            object.__setattr__(self, name, min(getattr(self, name), most))
