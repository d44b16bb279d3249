"""Requests that one worker sends to another: those of clients, and task configs for the leader, signed (KIP-507)."""

import base64
import functools
import hmac
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from logdb_connect.errors import Conflict, ConnectError

SIGNATURE = "X-Connect-Authorization"
_ALGORITHM = "X-Connect-Request-Signature-Algorithm"
_TIMEOUT_S = 90
_SEND_TIMEOUT_S = 10
_PASSED_ON = ("Authorization", "Content-Type", "Accept")


def signature(key: bytes, content: bytes) -> str:
    """Of the body of a request between workers."""
    return base64.b64encode(hmac.digest(key, content, "sha256")).decode()


@functools.cache
def _trusting(cafile: str | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=cafile)


async def forward(request: web.Request, url: str, config: Mapping[str, Any]) -> web.Response:
    """Have another worker answer a request; it does not send it on again, but to a task's owner."""
    query = {**request.query, "forward": "true" if request.query.get("forward") is None else "false"}
    target = URL(url).with_path(request.rel_url.raw_path, encoded=True).with_query(query)  # a name may have %2F or %3F
    headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
    tls = _trusting(config["rest.ssl.cafile"]) if url.startswith("https:") else True
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S)) as session,
            session.request(request.method, target, data=await request.read(), headers=headers, ssl=tls, allow_redirects=False) as answer,
        ):
            content = await answer.read()
            kept = {name: answer.headers[name] for name in ("Content-Type", "Location") if name in answer.headers}
            return web.Response(status=answer.status, body=content, headers=kept)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ConnectError(f"Could not forward the request to {url}: {type(error).__name__} {error}; a retry is safe") from None


def sender(config: Mapping[str, Any]) -> Callable[[str, str, Sequence[Mapping[str, str]], bytes], None]:
    """Sends task configs to the leader."""

    def send(url: str, connector: str, tasks: Sequence[Mapping[str, str]], key: bytes) -> None:
        content = json.dumps([dict(one) for one in tasks]).encode()
        request = urllib.request.Request(  # noqa: S310 -- the URL is a worker's own
            f"{url}/connectors/{urllib.parse.quote(connector, safe='')}/tasks?forward=false",
            data=content,
            method="POST",
            headers={"Content-Type": "application/json", SIGNATURE: signature(key, content), _ALGORITHM: "HmacSHA256"},
        )
        tls = _trusting(config["rest.ssl.cafile"]) if url.startswith("https:") else None
        try:
            with urllib.request.urlopen(request, timeout=_SEND_TIMEOUT_S, context=tls):  # noqa: S310 -- as above
                return
        except urllib.error.HTTPError as error:
            error.close()
            raise Conflict(f"{url} did not store the task configs of {connector}: {error.code}") from None
        except OSError as error:
            raise Conflict(f"{url} did not store the task configs of {connector}: {error}") from None

    return send
