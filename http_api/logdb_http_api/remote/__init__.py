"""The session behind ``logdb.open("http://…")``.

Knows how calls travel.  Does not know what they do: the server's session does.
"""

from logdb_http_api.remote.database import open_urls

__all__ = ["open_urls"]
