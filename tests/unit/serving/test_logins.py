"""logins.py: passwords are hashed off the loop, and a flood of one address delays only itself."""

import asyncio
import ssl
import threading

import pytest

from logdb.access.authentication import ClientCertificate, Identity
from logdb.errors import AuthenticationFailed
from logdb.requests.principals import Principal
from logdb.serving.logins import Logins
from logdb.serving.shares import NoRoom
from logdb.serving.tls import Certificate
from support.certificates import Authority, handshake

ALICE = Identity(Principal("User", "alice"), None)


class Access:
    """An access control whose hashing takes until ``go``."""

    def __init__(self):
        self.go, self.hashed, self.known, self.now_ms = threading.Event(), [], set(), 0

    def remembered(self, user, password):
        return ALICE if (user, password) in self.known else None

    def authenticate_password(self, user, password, host):
        assert self.go.wait(60)
        self.hashed.append((host, threading.current_thread().name))
        if password != "secret":
            raise AuthenticationFailed("unknown user, or wrong password")
        return ALICE

    def is_valid(self, principal, credential):
        return credential.expires_ms > self.now_ms


@pytest.fixture
def access():
    return Access()


def run(access, story):
    async def main():
        logins = Logins(access, "cn")
        try:
            await story(logins)
        finally:
            access.go.set()
            logins.close()

    asyncio.run(main())


def test_a_flood_of_one_address_delays_only_itself(access):
    async def story(logins):
        flood = [asyncio.create_task(logins.by_password("alice", f"wrong-{at}", "10.0.0.1")) for at in range(66)]
        await asyncio.sleep(0)
        with pytest.raises(NoRoom, match=r"64 logins from 10\.0\.0\.1 wait already"):
            await logins.by_password("alice", "secret", "10.0.0.1")
        other = asyncio.create_task(logins.by_password("alice", "secret", "10.0.0.2"))
        access.go.set()
        assert await other == ALICE
        assert [host for host, _ in access.hashed].index("10.0.0.2") <= 3
        outcomes = await asyncio.gather(*flood, return_exceptions=True)
        assert {type(one) for one in outcomes} == {AuthenticationFailed}
        assert await logins.by_password("alice", "secret", "10.0.0.1") == ALICE
        assert all(thread.startswith("logdb-login") for _, thread in access.hashed)

    run(access, story)


def test_a_remembered_password_is_not_hashed(access):
    async def story(logins):
        access.known.add(("alice", "secret"))
        assert await logins.by_password("alice", "secret", "10.0.0.1") == ALICE
        assert not access.hashed

    run(access, story)


def test_a_client_that_leaves_keeps_its_turn(access):
    async def story(logins):
        leaving = [asyncio.create_task(logins.by_password("alice", "wrong", "10.0.0.1")) for _ in range(2)]
        await asyncio.sleep(0)
        for one in leaving:
            one.cancel()
        await asyncio.wait(leaving)
        following = asyncio.create_task(logins.by_password("alice", "secret", "10.0.0.1"))
        await asyncio.sleep(0.01)
        assert not following.done(), "both threads of the address still hash"
        access.go.set()
        assert await following == ALICE

    run(access, story)


def test_a_certificate_is_valid_until_it_expires(access, tmp_path):
    authority = Authority(tmp_path)
    server = Certificate(*authority.server(), authority.file).context
    connection, _ = handshake(server, authority.context(authority.client("alice")))
    expires_ms = int(ssl.cert_time_to_seconds(connection.getpeercert()["notAfter"])) * 1000

    async def story(logins):
        assert logins.by_certificate(connection) == Identity(Principal("User", "alice"), ClientCertificate(expires_ms))
        access.now_ms = expires_ms
        with pytest.raises(AuthenticationFailed, match="was good until"):
            logins.by_certificate(connection)

    run(access, story)


def test_a_certificate_that_a_client_has_signed_is_refused(access, tmp_path):
    authority = Authority(tmp_path)
    server = Certificate(*authority.server(), authority.file).context
    connection, _ = handshake(server, authority.context(authority.signing_client("alice").client("admin")))

    async def story(logins):
        with pytest.raises(AuthenticationFailed, match=r"O=alice.*not in the file tls_client_ca"):
            logins.by_certificate(connection)

    run(access, story)
