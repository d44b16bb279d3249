"""The bounds of any door: memory, counts and times.  A door adds those of its protocol in a class of its own.

The modules that take a resource keep to its bound.
"""

from dataclasses import dataclass, fields

from logdb.mistakes import must_be


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Bounds of a listener; those of memory and requests hold for all listeners of a server together.

    Each is an option of ``logdb.serve``: a whole number, 1 or more.

    Attributes:
        memory_bytes_max: All requests and answers in progress together; a principal, or an address where authentication is off, takes at
            most as much as it leaves free for others.  A request waits for room, then it is refused.
        connections_max: Connections; further ones are refused.
        connections_per_address_max: Those of one IPv4 address, or of one IPv6 /64; None: a quarter of all.
        requests_max: Requests in progress, shared as memory is; a request does not count while its body arrives, while it waits for records
            or for other members of a group, and while its answer is sent.
        header_timeout_ms: From a request's first byte to the end of its header.  For the first request it counts from the connection's
            begin, or from the end of the TLS handshake, which may take as long itself.
        body_timeout_ms: For each 64 KiB of a request, on the way in.
        write_timeout_ms: For each 256 KiB of an answer, on the way out.
        keep_alive_ms: How long a connection may be idle.
        wait_ms_max: How long a request may wait for records.
    """

    memory_bytes_max: int = 256 << 20
    connections_max: int = 10_000
    connections_per_address_max: int | None = None
    requests_max: int = 1_024
    header_timeout_ms: int = 10_000
    body_timeout_ms: int = 30_000
    write_timeout_ms: int = 30_000
    keep_alive_ms: int = 75_000
    wait_ms_max: int = 300_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            if not isinstance(value, int) or value < 1:
                raise ValueError(must_be(field.name, value, "a whole number, 1 or more"))

    @classmethod
    def names(cls) -> frozenset[str]:
        """The options that they are."""
        return frozenset(field.name for field in fields(cls))
