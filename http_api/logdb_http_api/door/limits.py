"""The bounds of an HTTP door: those of any door, and those of bodies, JSON and consumer instances."""

from dataclasses import dataclass

from logdb.serving.limits import Limits


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpLimits(Limits):
    """Bounds of an HTTP door; a full door answers 503.

    Attributes:
        body_bytes_max: A request's body, also once it is decompressed; more is refused (413).  A body is at most half of
            ``memory_bytes_max``.
        call_bytes_max: A JSON body that has no records.
        json_bytes_max: One that has, and takes many times its size in memory.
        read_bytes_max: Keys and values that a read answers as JSON.
        instances_max: Consumer instances of REST v2; further ones are refused (503).
        instances_per_principal_max: Those of one principal.
        instance_idle_ms: How long one may be left alone.
        uploads_bytes_max: Batches that are kept outside the logs, of all principals; more are refused (507).
        uploads_per_principal_bytes_max: Those of one principal.
        upload_idle_ms: How long they are kept.
    """

    body_bytes_max: int = 64 << 20
    call_bytes_max: int = 1 << 20
    json_bytes_max: int = 8 << 20
    read_bytes_max: int = 16 << 20
    instances_max: int = 2_000
    instances_per_principal_max: int = 500
    instance_idle_ms: int = 300_000
    uploads_bytes_max: int = 16 << 30
    uploads_per_principal_bytes_max: int = 8 << 30
    upload_idle_ms: int = 86_400_000

    def __post_init__(self) -> None:
        Limits.__post_init__(self)
        most = max(1, self.memory_bytes_max // 2)  # the received part of a larger body would wait for room that only itself takes
        for name in ("body_bytes_max", "json_bytes_max", "call_bytes_max"):
            object.__setattr__(self, name, min(getattr(self, name), most))
