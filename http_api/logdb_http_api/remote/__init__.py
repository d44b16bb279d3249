"""The session behind ``logdb.open("http://…")``: each call is a request, which the server's session carries out."""

from logdb_http_api.remote.database import open_urls

__all__ = ["open_urls"]
