"""A line of JSON for each request: who, what, how long, how much.

Knows which facts may be written down: no query, no payload, no header that could be a secret.  Does not know where the lines go.
"""

import datetime
import json
import logging

from aiohttp import web

from logdb_http_api.door.request import Request

logger = logging.getLogger("logdb.access")


def write(request: Request, response: web.StreamResponse, took_s: float) -> None:
    """Note a request that was answered."""
    http = request.http
    principal = getattr(request, "principal", None)
    line = {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        "host": http.remote,
        "principal": None if principal is None else str(principal),
        "method": http.method,
        "path": http.rel_url.raw_path,
        "status": response.status,
        "request_bytes": http.content.total_bytes,
        "response_bytes": response.body_length,
        "ms": round(took_s * 1000, 3),
    }
    logger.info("%s", json.dumps(line))
