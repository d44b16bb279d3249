"""What one door takes at most: sizes, counts and times.

The modules that take something keep to them.
"""

from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Bounds of an HTTP door; each is an option of ``logdb.serve``.

    Attributes:
        body_bytes_max: A request's body, also once it is decompressed; more is refused (413).
        call_bytes_max: A JSON body that has no records.
        json_bytes_max: One that has, and takes many times its size in memory.
        memory_bytes_max: All bodies and answers under way together; a principal, or an address where there is no authentication, takes no
            more than it leaves free for others.  A request waits for room, then is refused (503).  A body is at most half of it.
        connections_max: Connections; further ones are told so (503) and closed.
        connections_per_address_max: Those of one IPv4 address, or of one IPv6 /64; None: a quarter of all.
        requests_max: Requests that are worked on (503), shared as memory is; not those whose body comes, that wait for records or for other
            members of a group, or whose answer goes.
        header_timeout_ms: From a request's first byte to the end of its headers; the first one's count from the connection's begin,
            or from the end of the TLS handshake, which has as long.
        body_timeout_ms: For each 64 KiB of a body, on the way in.
        write_timeout_ms: For each 256 KiB of an answer, on the way out.
        keep_alive_ms: How long a connection may be idle.
        wait_ms_max: How long a request may wait for records.
        read_bytes_max: Keys and values that a read answers as JSON.
        instances_max: Consumer instances of REST v2; further ones are refused (503).
        instances_per_principal_max: Those of one principal.
        instance_idle_ms: How long one may be left alone.
    """

    body_bytes_max: int = 64 << 20
    call_bytes_max: int = 1 << 20
    json_bytes_max: int = 8 << 20
    memory_bytes_max: int = 256 << 20
    connections_max: int = 10_000
    connections_per_address_max: int | None = None
    requests_max: int = 1_024
    header_timeout_ms: int = 10_000
    body_timeout_ms: int = 30_000
    write_timeout_ms: int = 30_000
    keep_alive_ms: int = 75_000
    wait_ms_max: int = 300_000
    read_bytes_max: int = 16 << 20
    instances_max: int = 2_000
    instances_per_principal_max: int = 500
    instance_idle_ms: int = 300_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{field.name}={value!r}: wanted is a whole number from 1 on")
        most = max(1, self.memory_bytes_max // 2)  # of a body that is larger, what has come would wait for room that is only its own
        for name in ("body_bytes_max", "json_bytes_max", "call_bytes_max"):
            object.__setattr__(self, name, min(getattr(self, name), most))
