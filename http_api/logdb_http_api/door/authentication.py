"""Authentication of HTTP requests, by ``Authorization`` or the connection's certificate.

    authentication   Authorization         certificate    principal
    any              Bearer, the cluster's any            CLUSTER_NODE
    off              any                   -              ANONYMOUS
    on               Basic, Bearer         any            the owner of the password or token; otherwise 401
    on               absent                presented      the certificate's subject (``access.certificates``)
    on               absent                absent         none: 401; for ``/metrics``, from this machine: ANONYMOUS, if an ACL
                                                          allows it

``/health`` and the files of the page need no authentication.  A request that a page of another site makes by a browser is refused (403),
with any credentials; so is a body without a type (415).

A token, and a password that was right within the last minute, are checked at once; any other password as ``serving.logins`` has it.
"""

import base64
import contextlib
import ipaddress
import re
import ssl
from typing import Any

from aiohttp import web

from logdb.access.access_control import AccessControl
from logdb.access.attempts import is_loopback
from logdb.access.authentication import Identity
from logdb.access.certificates import PrincipalRule
from logdb.errors import AuthenticationFailed
from logdb.requests.principals import ANONYMOUS
from logdb.requests.resources import CLUSTER
from logdb.serving.logins import UNASKED, Logins
from logdb.serving.shares import NoRoom
from logdb_http_api.door import page
from logdb_http_api.door.routing import Route
from logdb_http_api.errors import ApiError

_BEARER = 'Bearer realm="logdb"'
_BASIC_OR_BEARER = f'Basic realm="logdb", charset="UTF-8", {_BEARER}'
OPEN_PATHS = frozenset(("/health/live", "/health/ready", "/status/ready"))
"""Paths of probes: they need no authentication, and are answered however many requests there are."""
_UNAUTHENTICATED = OPEN_PATHS | page.PATHS
_OF_SCRAPERS = "/metrics"
_OF_PROXIES = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Via")
_HOST = re.compile(r"(?P<name>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?", re.ASCII)
_OWN_SITES = frozenset(("same-origin", "none"))  # none: the user made the request, not a page
_PORTS = {"http": ":80", "https": ":443"}
_OF_THIS_MACHINE = (".localhost", ".localdomain")
_HOST_LENGTH_MAX = 255 + len(":65535")
_RETRY_S = "1"


def challenge(http: web.BaseRequest) -> str:
    """``WWW-Authenticate`` of a 401 (RFC 9110, section 11.6.1).

    A script of the page asks for the password itself.  At the word Basic the browser would ask, too, and keep the answer.
    """
    return _BEARER if http.headers.get("Sec-Fetch-Mode", "navigate") != "navigate" else _BASIC_OR_BEARER


class Authenticator:
    """Authenticates the requests of one door.

    Threading: one event loop.
    """

    def __init__(self, access: AccessControl, certificate_rule: PrincipalRule) -> None:
        """For the door of ``access``; ``certificate_rule``: how a certificate's subject becomes a principal."""
        self._access, self._logins = access, Logins(access, certificate_rule)

    def close(self) -> None:
        self._logins.close()

    async def identity(self, http: web.BaseRequest, route: Route) -> Identity:
        """The principal of a request, and its credential.

        Raises:
            AuthenticationFailed: The credentials are invalid or absent.
            ApiError: Too many passwords from the same address wait (429); the request is one of another site's page (403), or may
                be (415); ``Host`` is invalid, or ``Authorization`` is there twice (400).
        """
        _check_site(http)
        if len(http.headers.getall("Authorization", ())) > 1:
            raise ApiError(400, 400, "Authorization is there twice: send one")
        name = host_name(http.headers.get("Host"))
        if (node := self._cluster_node(http.headers.get("Authorization"))) is not None:
            return node
        if not self._access.authentication:
            if is_of_internet(name) and is_at_loopback(http.transport and http.transport.get_extra_info("sockname")):
                raise ApiError(403, 403, f"{name} is no name of the loopback: use localhost, or switch authentication on")
            return UNASKED
        if route.path in _UNAUTHENTICATED:
            return UNASKED
        given, host = http.headers.get("Authorization"), http.remote or ""
        if (known := self._recognized(given, http.get_extra_info("ssl_object"))) is not None:
            return known
        scheme, _, credentials = (given or "").partition(" ")
        if scheme.lower() == "bearer":
            return self._access.authenticate_token(credentials.strip(), host)
        try:
            if given is None:
                return self._without_authorization(http, route)
            user, password = _user_and_password(scheme, credentials.strip())
        except AuthenticationFailed as error:
            self._access.not_authenticated(host, None, error)
            raise
        try:
            return await self._logins.by_password(user, password, host)
        except NoRoom as error:
            raise ApiError(429, 429, str(error), headers={"Retry-After": _RETRY_S}) from None

    def _cluster_node(self, given: str | None) -> Identity | None:
        """The identity of another node of the cluster; None: ``Authorization`` has no token, or another one."""
        scheme, _, token = (given or "").partition(" ")
        return self._access.cluster_node(token.strip()) if scheme.lower() == "bearer" else None

    def _recognized(self, given: str | None, connection: ssl.SSLObject | None) -> Identity | None:
        """As ``identity``, without a wait; None if that needs one, or fails, without a line in the audit log.

        Args:
            given: ``Authorization``.
            connection: The TLS of the request; None: it has none.
        """
        with contextlib.suppress(AuthenticationFailed):
            if not self._access.authentication:
                return UNASKED
            if given is None:
                return self._logins.by_certificate(connection)
            scheme, _, credentials = given.partition(" ")
            if scheme.lower() == "bearer":
                return self._access.owner(credentials.strip())
            return self._access.remembered(*_user_and_password(scheme, credentials.strip()))
        return None

    def _without_authorization(self, http: web.BaseRequest, route: Route) -> Identity:
        if (certified := self._logins.by_certificate(http.get_extra_info("ssl_object"))) is not None:
            return certified
        if route.path == _OF_SCRAPERS and self._is_scraper(http):
            return Identity(ANONYMOUS, None)
        raise AuthenticationFailed("credentials are missing: give a user and a password, a token, or a certificate")

    def _is_scraper(self, http: web.BaseRequest) -> bool:
        """Whether the request comes from this machine, not through a proxy, and may read metrics without authentication.

        A proxy need not announce itself, so an ACL must allow it: ``Allow User:ANONYMOUS Describe Cluster``.
        """
        host = http.remote or ""
        if (
            not is_loopback(host)
            or is_of_internet(host_name(http.headers.get("Host")))
            or any(name in http.headers for name in _OF_PROXIES)
        ):
            return False
        return self._access.allows(ANONYMOUS, host, "Describe", "Cluster", CLUSTER)


def _check_site(http: web.BaseRequest) -> None:
    """Refuse requests that a page of another site makes by a browser, which has passwords and certificates, and reaches the loopback.

    A browser names the page's site in ``Origin``, except for links and images.  It names the relation of the two sites in
    ``Sec-Fetch-Site``, unless it is old, or the server is another machine without TLS.  A page can send a body without a type
    without a preflight request.

    Source: RFC 6454, section 7; W3C, Fetch Metadata Request Headers; WHATWG Fetch, CORS-safelisted request headers.
    """
    of_other_sites = set(http.headers.getall("Sec-Fetch-Site", ())) - _OWN_SITES
    if of_other_sites and (http.method, http.headers.get("Sec-Fetch-Mode")) != ("GET", "navigate"):
        raise ApiError(403, 403, "a page of another site asks this of your browser")
    for origin in http.headers.getall("Origin", ()):
        if not _is_own(origin, http.headers.get("Host"), secure=http.secure):
            raise ApiError(403, 403, f"a page of {origin[:80]!r} sent this request: only pages of this server may, under the name in Host")
    if http.body_exists and "Content-Type" not in http.headers:
        raise ApiError(415, 415, "the body has no Content-Type")


def _is_own(origin: str, host: str | None, *, secure: bool) -> bool:
    """Whether an ``Origin`` is the server that ``Host`` names; ``secure``: by TLS; without it a proxy may still use TLS."""
    scheme, _, name = origin.lower().partition("://")
    port = _PORTS.get(scheme)
    if port is None or host is None or (secure and scheme != "https"):
        return False
    return name.removesuffix(port) == host.lower().removesuffix(port)


def host_name(given: str | None) -> str:
    """The name of this server in the client's ``Host``; empty if it is absent.

    Raises:
        ApiError: ``Host`` is invalid; 400.
    """
    if given is None:  # HTTP/1.0
        return ""
    found = _HOST.fullmatch(given) if len(given) <= _HOST_LENGTH_MAX else None
    if found is None or int(found["port"] or 0) > 65535 or (found["name"].startswith("[") and not _is_address(found["name"][1:-1])):
        raise ApiError(400, 400, f"Host is {given[:80]!r}: must be NAME or NAME:PORT")
    return found["name"]


def is_of_internet(name: str) -> bool:
    """Whether a server's name is resolved by the Internet's name servers.

    A request to the loopback under such a name is refused while authentication is off: the name of a page can be pointed here after a
    browser has loaded it (DNS rebinding), and for the browser it is then the same site.
    """
    return "." in name and not _is_address(name) and not name.lower().endswith(_OF_THIS_MACHINE)


def is_at_loopback(local: Any) -> bool:
    """Whether a connection has come to the loopback; ``local``: the socket's local address, None: unknown."""
    return bool(local) and is_loopback(local[0])


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _user_and_password(scheme: str, credentials: str) -> tuple[str, str]:
    """The user and password of HTTP Basic (RFC 7617)."""
    if scheme.lower() != "basic":
        raise AuthenticationFailed("Authorization: must be Basic or Bearer")
    try:
        user, colon, password = base64.b64decode(credentials, validate=True).decode().partition(":")
    except ValueError:
        colon = ""
    if not colon:
        raise AuthenticationFailed("Authorization: after Basic comes user:password in UTF-8, in base64")
    return user, password
