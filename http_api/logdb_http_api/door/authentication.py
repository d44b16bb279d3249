"""Who asks: what a request says of that, and how the access control is asked whether it is true.

Knows HTTP's ``Authorization`` and certificates of connections.  Does not know passwords, tokens or principals: the access control does.

    authentication   Authorization         certificate    who
    off              whatever              -              ANONYMOUS
    on               Basic, Bearer         whatever       whose password or token it is; otherwise 401
    on               none                  shown          the certificate's subject (``access.certificates``)
    on               none                  none           nobody: 401; for ``/metrics``, asked on this machine: ANONYMOUS, if
                                                          an ACL allows ANONYMOUS to see them

``/health`` is open to everybody, whatever they say of themselves.  What a page of another site has a browser ask is refused (403),
whoever the browser can say it is; as is a body without a type (415).

A password that was right a moment ago, and a token, cost microseconds, and are looked at at once.  Another password is hashed in one
of a few threads that are there for nothing else.  Of one address only ``_PER_ADDRESS`` passwords are in threads, others wait without
one, and of those there are at most ``_WAITING_MAX``: whoever floods a server with wrong passwords holds up nobody but themselves.
"""

import asyncio
import base64
import contextlib
import ipaddress
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

from aiohttp import web

from logdb.access.access_control import AccessControl
from logdb.access.attempts import is_loopback, machine
from logdb.access.authentication import AuthenticationOff, ClientCertificate, Identity
from logdb.access.certificates import PrincipalRule, expires_ms, principal_of
from logdb.access.principals import ANONYMOUS
from logdb.errors import AuthenticationFailed
from logdb.pools import Pool
from logdb.requests.resources import CLUSTER
from logdb_http_api.door.routing import Route
from logdb_http_api.errors import ApiError

CHALLENGE = 'Basic realm="logdb", charset="UTF-8", Bearer realm="logdb"'
"""What ``WWW-Authenticate`` says where somebody is to say who they are (RFC 9110, section 11.6.1)."""
OPEN_PATHS = frozenset(("/health/live", "/health/ready", "/status/ready"))
"""What whoever comes may ask."""
UNASKED = Identity(ANONYMOUS, AuthenticationOff())
_OF_SCRAPERS = "/metrics"
_OF_PROXIES = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Via")
_HOST = re.compile(r"(?P<name>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?", re.ASCII)
_OWN_SITES = frozenset(("same-origin", "none"))  # none: whoever sits before the browser asks
_PORTS = {"http": ":80", "https": ":443"}
_OF_THIS_MACHINE = (".localhost", ".localdomain")
_HOST_LENGTH_MAX = 255 + len(":65535")
_THREAD_COUNT = 8
_PER_ADDRESS, _WAITING_MAX = 2, 64
_RETRY_S = "1"


class Authenticator:
    """Finds out who makes the requests of one door.  Used on one event loop; ``recognized`` in any thread."""

    def __init__(self, access: AccessControl, certificate_rule: PrincipalRule) -> None:
        """For the door of ``access``; ``certificate_rule``: who somebody is by a certificate."""
        self._access, self._certificate_rule = access, certificate_rule
        self._threads = Pool(_THREAD_COUNT, "logdb-login")
        self._turns: dict[str, _Turns] = {}

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def identity(self, http: web.BaseRequest, route: Route) -> Identity:
        """Who makes a request.

        Raises:
            AuthenticationFailed: They cannot show who they are, or did not say, and have to.
            ApiError: Too many passwords from the same address wait (429); a page of another site asks (403), or may (415); ``Host``
                is none (400).
        """
        _check_site(http)
        name = host_name(http.headers.get("Host"))
        if not self._access.authentication:
            if is_of_internet(name) and is_at_loopback(http.transport and http.transport.get_extra_info("sockname")):
                raise ApiError(403, 403, f"{name} is no name of the loopback: ask localhost, or have users say who they are")
            return UNASKED
        if route.path in OPEN_PATHS:
            return UNASKED
        given, host = http.headers.get("Authorization"), http.remote or ""
        if (known := self.recognized(given, http.get_extra_info("peercert"))) is not None:
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
        return await asyncio.shield(self._hashed(user, password, host))  # a client that hangs up does not give back its turn

    def recognized(self, given: str | None, certificate: Mapping[str, Any] | None) -> Identity | None:
        """Who makes a request, if that shows at once; nothing is noted of who is not recognized.

        Args:
            given: ``Authorization``.
            certificate: That of the connection.
        """
        with contextlib.suppress(AuthenticationFailed):
            if not self._access.authentication:
                return UNASKED
            if given is None:
                return self._certified(certificate) if certificate else None
            scheme, _, credentials = given.partition(" ")
            if scheme.lower() == "bearer":
                return self._access.owner(credentials.strip())
            return self._access.remembered(*_user_and_password(scheme, credentials.strip()))
        return None

    def _certified(self, certificate: Mapping[str, Any]) -> Identity:
        """Who shows a certificate.

        Raises:
            AuthenticationFailed: Its subject says nobody, or it has expired since the connection began.
        """
        principal, credential = principal_of(certificate, self._certificate_rule), ClientCertificate(expires_ms(certificate))
        if not self._access.is_valid(principal, credential):
            raise AuthenticationFailed(f"the client's certificate was good until {certificate['notAfter']}")
        return Identity(principal, credential)

    def _without_authorization(self, http: web.BaseRequest, route: Route) -> Identity:
        certificate: dict[str, Any] | None = http.get_extra_info("peercert")
        if certificate:
            return self._certified(certificate)
        if route.path == _OF_SCRAPERS and self._is_scraper(http):
            return Identity(ANONYMOUS, None)
        raise AuthenticationFailed("who asks? Give a user and a password, a token, or a certificate")

    def _is_scraper(self, http: web.BaseRequest) -> bool:
        """Whether it comes from this machine, for nobody else, and may see metrics without saying who it is.

        A proxy need not say that it is one, so that an ACL has to: ``Allow User:ANONYMOUS Describe Cluster``.
        """
        host = http.remote or ""
        if (
            not is_loopback(host)
            or is_of_internet(host_name(http.headers.get("Host")))
            or any(name in http.headers for name in _OF_PROXIES)
        ):
            return False
        return self._access.allows(ANONYMOUS, host, "Describe", "Cluster", CLUSTER)

    async def _hashed(self, user: str, password: str, host: str) -> Identity:
        async with self._turn(machine(host)):
            if (known := self._access.remembered(user, password)) is not None:
                return known  # it came several times at once
            authenticate = self._access.authenticate_password
            return await asyncio.get_running_loop().run_in_executor(self._threads, authenticate, user, password, host)

    @contextlib.asynccontextmanager
    async def _turn(self, address: str) -> AsyncIterator[None]:
        """Wait until fewer than ``_PER_ADDRESS`` others of an address are at it."""
        turns = self._turns.setdefault(address, _Turns())
        if turns.count >= _PER_ADDRESS + _WAITING_MAX:
            raise ApiError(429, 429, f"{_WAITING_MAX} logins from {address} wait already", headers={"Retry-After": _RETRY_S})
        turns.count += 1
        try:
            async with turns.free:
                yield
        finally:
            turns.count -= 1
            if not turns.count:
                del self._turns[address]


class _Turns:
    """Passwords of one address; ``count``: those in threads, and those that wait."""

    __slots__ = ("count", "free")

    def __init__(self) -> None:
        self.count, self.free = 0, asyncio.Semaphore(_PER_ADDRESS)


def _check_site(http: web.BaseRequest) -> None:
    """Refuse what a page of another site has a browser ask: it knows passwords and certificates, and reaches the loopback.

    A browser names the page's site in ``Origin`` wherever more than a link is followed or an image shown, and says in
    ``Sec-Fetch-Site`` what the two have to do with each other, unless it is old, or asks another machine without TLS.  A body
    without a type is what a page can send without asking first.

    Source: RFC 6454, section 7; W3C, Fetch Metadata Request Headers; WHATWG Fetch, CORS-safelisted request headers.
    """
    of_other_sites = set(http.headers.getall("Sec-Fetch-Site", ())) - _OWN_SITES
    if of_other_sites and (http.method, http.headers.get("Sec-Fetch-Mode")) != ("GET", "navigate"):
        raise ApiError(403, 403, "a page of another site asks this of your browser")
    for origin in http.headers.getall("Origin", ()):
        if not _is_own(origin, http.headers.get("Host"), secure=http.secure):
            raise ApiError(
                403, 403, f"a page of {origin[:80]!r} asks this of your browser: allowed are those of this server, as Host names it"
            )
    if http.body_exists and "Content-Type" not in http.headers:
        raise ApiError(415, 415, "the body has no Content-Type")


def _is_own(origin: str, host: str | None, *, secure: bool) -> bool:
    """Whether an ``Origin`` is of the server that ``Host`` names; ``secure``: by TLS, without which a proxy may still have it."""
    scheme, _, name = origin.lower().partition("://")
    port = _PORTS.get(scheme)
    if port is None or host is None or (secure and scheme != "https"):
        return False
    return name.removesuffix(port) == host.lower().removesuffix(port)


def host_name(given: str | None) -> str:
    """By which name the client knows this server, as ``Host`` says; empty where it does not.

    Raises:
        ApiError: By what is none; 400.
    """
    if given is None:  # HTTP/1.0
        return ""
    found = _HOST.fullmatch(given) if len(given) <= _HOST_LENGTH_MAX else None
    if found is None or int(found["port"] or 0) > 65535 or (found["name"].startswith("[") and not _is_address(found["name"][1:-1])):
        raise ApiError(400, 400, f"Host is {given[:80]!r}, wanted is a name or an address, and perhaps a port")
    return found["name"]


def is_of_internet(name: str) -> bool:
    """Whether a server's name is one that only the Internet's name servers know.

    What comes to the loopback under such a name is refused where nobody has to say who they are: a page's own name can be made to
    lead here once a browser has loaded it (DNS rebinding), and to the browser that is no other site.
    """
    return "." in name and not _is_address(name) and not name.lower().endswith(_OF_THIS_MACHINE)


def is_at_loopback(local: Any) -> bool:
    """Whether a connection has come to the loopback; ``local``: the socket's address here, None: unknown."""
    return bool(local) and is_loopback(local[0])


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _user_and_password(scheme: str, credentials: str) -> tuple[str, str]:
    """What HTTP Basic carries (RFC 7617)."""
    if scheme.lower() != "basic":
        raise AuthenticationFailed("Authorization: allowed are Basic and Bearer")
    try:
        user, colon, password = base64.b64decode(credentials, validate=True).decode().partition(":")
    except ValueError:
        colon = ""
    if not colon:
        raise AuthenticationFailed("Authorization: after Basic comes user:password in UTF-8, in base64")
    return user, password
