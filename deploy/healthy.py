"""Exits with 0 if the server in this container lives: what Docker's HEALTHCHECK runs.

Knows where it listens, by the variables that it was started with.  Does not look whose certificate it shows: the way to it does
not leave the container.
"""

import http.client
import os
import ssl
import sys

TIMEOUT_S = 2


def connection() -> http.client.HTTPConnection:
    """One to the server, not open yet."""
    port = int(os.environ.get("LOGDB_HTTP", "127.0.0.1:8080").rpartition(":")[2])
    if not os.environ.get("LOGDB_TLS_CERT"):
        return http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection("127.0.0.1", port, timeout=TIMEOUT_S, context=context)


def main() -> None:
    """Ask ``/health/live``; exits with 1, and says why, where the answer is not 200."""
    asking = connection()
    try:
        asking.request("GET", "/health/live")
        answer = asking.getresponse()
    except (OSError, http.client.HTTPException) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    finally:
        asking.close()
    if answer.status != http.HTTPStatus.OK:
        sys.exit(f"status {answer.status}")


if __name__ == "__main__":
    main()
