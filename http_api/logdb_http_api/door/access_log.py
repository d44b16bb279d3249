"""The access log: a line of JSON for each request, with principal, path, time and sizes.

A line has no query, no payload, and no header that could be a secret.
"""

import datetime
import json
import logging
import time

from aiohttp import web

from logdb_http_api.door.request import Request

logger = logging.getLogger("logdb.access")


def write(request: Request, response: web.StreamResponse) -> None:
    """Log an answered request."""
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
        "ms": round((time.perf_counter() - request.began_s) * 1000, 3),
    }
    logger.info("%s", json.dumps(line))
