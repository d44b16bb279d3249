"""Who a client of a door is: by its certificate, or by a user and a password.

A certificate, and a password that was right within the last minute, cost microseconds.  Any other password is hashed in one of a few
threads that do nothing else.  For one address at most ``_PER_ADDRESS`` passwords are in threads and ``_WAITING_MAX`` wait for one: a flood
of wrong passwords delays only its own address.

Threading: one event loop; ``by_certificate`` any thread.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

from logdb.access.access_control import AccessControl
from logdb.access.attempts import machine
from logdb.access.authentication import AuthenticationOff, ClientCertificate, Identity
from logdb.access.certificates import PrincipalRule, expires_ms, principal_of
from logdb.errors import AuthenticationFailed
from logdb.pools import Pool
from logdb.requests.principals import ANONYMOUS
from logdb.requests.users import Mechanism, ScramCredential
from logdb.serving.shares import NoRoom
from logdb.serving.tls import unlisted_issuer

UNASKED = Identity(ANONYMOUS, AuthenticationOff())
"""Who any client is while authentication is off."""
_THREAD_COUNT = 8
_PER_ADDRESS, _WAITING_MAX = 2, 64


class Logins:
    """The logins of one door."""

    def __init__(self, access: AccessControl, certificate_rule: PrincipalRule) -> None:
        """There are none yet; ``certificate_rule``: how a certificate's subject becomes a principal."""
        self._access, self._certificate_rule = access, certificate_rule
        self._threads = Pool(_THREAD_COUNT, "logdb-login")
        self._turns: dict[str, _Turns] = {}

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def by_certificate(self, connection: ssl.SSLObject | None) -> Identity | None:
        """Who the client of a connection is, by the certificate of its handshake; None: it has shown none.

        Args:
            connection: Its TLS, after the handshake; None: it has none.

        Raises:
            AuthenticationFailed: Its subject names no principal, it has expired since the connection began, or an issuer of it is not
                in the file of authorities.
        """
        certificate = connection.getpeercert() if connection is not None else None
        if connection is None or not certificate:
            return None
        if (issuer := unlisted_issuer(connection)) is not None:
            raise AuthenticationFailed(
                f"the client's certificate was issued by {issuer}, which is not in the file tls_client_ca: "
                "use a certificate of an authority of that file, or add this issuer to it"
            )
        principal, credential = principal_of(certificate, self._certificate_rule), ClientCertificate(expires_ms(certificate))
        if not self._access.is_valid(principal, credential):
            raise AuthenticationFailed(f"the client's certificate was good until {certificate['notAfter']}")
        return Identity(principal, credential)

    async def by_password(self, user: str, password: str, host: str) -> Identity:
        """Who has this name and password.

        Args:
            host: The client's address.

        Raises:
            AuthenticationFailed: No user has them, or the address has to wait.
            NoRoom: Too many passwords from the address wait already.
        """
        return await asyncio.shield(self._in_turn(user, password, host))  # a client that hangs up does not give back its turn

    async def _in_turn(self, user: str, password: str, host: str) -> Identity:
        async with self._turn(machine(host)):
            if (known := self._access.remembered(user, password)) is not None:
                return known  # also for those that came at the same time
            authenticate = self._access.authenticate_password
            return await asyncio.get_running_loop().run_in_executor(self._threads, authenticate, user, password, host)

    async def by_proof(
        self, user: str, mechanism: Mechanism, credential: ScramCredential, auth_message: bytes, proof: bytes, host: str
    ) -> Identity:
        """Who has shown by SCRAM that they have the password of that credential; raises as ``by_password``."""
        async with self._turn(machine(host)):
            authenticate = self._access.authenticate_proof
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, authenticate, user, mechanism, credential, auth_message, proof, host)

    @contextlib.asynccontextmanager
    async def _turn(self, address: str) -> AsyncIterator[None]:
        """Wait until fewer than ``_PER_ADDRESS`` passwords of an address are in threads."""
        turns = self._turns.setdefault(address, _Turns())
        if turns.count >= _PER_ADDRESS + _WAITING_MAX:
            raise NoRoom(f"{_WAITING_MAX} logins from {address} wait already")
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
