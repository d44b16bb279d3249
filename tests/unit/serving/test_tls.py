"""tls.py: what a handshake gives a door's protocol, and what becomes of a connection that never gets so far."""

import asyncio
import contextlib
import ssl
import time

import pytest

from logdb.serving.connection_slots import ConnectionSlots
from logdb.serving.tls import Certificate, PendingHandshakes, unlisted_issuer
from support.certificates import Authority, handshake

HELLO = b"\x16\x03\x01\x02\x00"  # the begin of a client's first record


class Echo(asyncio.Protocol):
    """A door's protocol: it answers with what it was sent, and owns its slot."""

    def __init__(self, slot):
        self.slot = slot

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)

    def connection_lost(self, exc):
        self.slot.give_back()


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "ca")


@contextlib.asynccontextmanager
async def listening(certificate, *, timeout_ms=60_000, protocol=Echo):
    """The slots of a door, and its port."""
    slots = ConnectionSlots(100)
    pending = PendingHandshakes(certificate, slots, protocol, timeout_ms=timeout_ms)
    server = await asyncio.get_running_loop().create_server(pending.begin, "127.0.0.1", 0)
    try:
        yield slots, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        pending.abort()


async def freed(slots):
    async with asyncio.timeout(30):
        while slots.count:
            await asyncio.sleep(0)


def test_a_door_is_given_a_connection_after_its_handshake(authority):
    files = authority.server()

    async def story():
        async with listening(Certificate(files.cert, files.key)) as (slots, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=authority.context(), server_hostname="127.0.0.1")
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            assert slots.count == 1
            writer.close()
            await freed(slots)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("sent", "answer"),
    [(b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 "), (bytes(4), b""), (HELLO, b""), (b"", b"")],
    ids=["HTTP", "a size", "a hello", "nothing"],
)
def test_a_connection_without_a_handshake_is_answered_and_closed_in_time(authority, sent, answer):
    files = authority.server()

    async def story():
        async with listening(Certificate(files.cert, files.key), timeout_ms=100) as (slots, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            with contextlib.suppress(ConnectionError):
                assert (await reader.read())[: len(b"HTTP/1.1 400 ")] == answer
            await freed(slots)
            writer.close()

    asyncio.run(story())


def test_a_client_is_told_why_its_handshake_failed(authority):
    files = authority.server()

    async def story():
        async with listening(Certificate(files.cert, files.key)) as (slots, port):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            context.set_ciphers("ECDHE-ECDSA-AES256-SHA384:AES128-SHA:ECDHE-RSA-AES256-SHA")  # none of the door's
            with pytest.raises(ssl.SSLError, match=r"(?i)alert handshake failure"):
                await asyncio.open_connection("127.0.0.1", port, ssl=context)
            await freed(slots)

    asyncio.run(story())


def test_a_connection_that_the_door_closes_at_once_has_its_slot_until_its_end(authority):
    files, closed = authority.server(), []

    class Closing(Echo):
        def connection_made(self, transport):
            transport.write(bytes(16 << 20))  # more than the client's socket takes
            transport.close()
            closed.append(self)

    async def story():
        async with listening(Certificate(files.cert, files.key), protocol=Closing) as (slots, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=authority.context(), server_hostname="127.0.0.1")
            while not closed:
                await asyncio.sleep(0)
            for _ in range(5):
                await asyncio.sleep(0)
            assert slots.count == 1
            await reader.read(1)
            writer.transport.abort()
            await freed(slots)

    asyncio.run(story())


def test_a_certificate_of_options():
    assert Certificate.of_options() is None
    for options in ({"tls_key": "key"}, {"tls_client_ca": "ca"}):
        with pytest.raises(ValueError, match="only with tls_cert"):
            Certificate.of_options(**options)


# ---------------------------------------------------------------- who may issue a client's certificate


def test_a_certificate_that_a_client_has_signed_names_an_unlisted_issuer(authority):
    alice = authority.signing_client("alice")
    server = Certificate(*authority.server(), authority.file).context
    forged = authority.context(alice.client("admin"))
    assert "O=alice" in unlisted_issuer(handshake(server, forged)[0])
    assert unlisted_issuer(handshake(server, authority.context(authority.client("admin")))[0]) is None


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_resumed_session_is_judged_as_the_one_before_it(authority, version):
    server = Certificate(*authority.server(), authority.file).context
    for client, listed in ((authority.signing_client("alice").client("admin"), False), (authority.client("admin"), True)):
        context = authority.context(client)
        context.maximum_version = version
        first, other_end = handshake(server, context)
        assert (unlisted_issuer(first) is None) is listed
        resumed, _ = handshake(server, context, other_end.session)
        assert resumed.session_reused
        assert (unlisted_issuer(resumed) is None) is listed


def test_an_authority_between_is_good_once_the_file_lists_it(authority, tmp_path):
    between = authority.signing_client("between")
    for name, listed in (("both.pem", [authority.file, between.file]), ("one.pem", [between.file])):
        (tmp_path / name).write_bytes(b"".join(file.read_bytes() for file in listed))
        server = Certificate(*authority.server(), tmp_path / name).context
        assert unlisted_issuer(handshake(server, authority.context(between.client("admin")))[0]) is None


def test_a_certificate_that_may_sign_is_logged_once(authority, caplog):
    server, alice = Certificate(*authority.server(), authority.file).context, authority.signing_client("alice").itself()
    for _ in range(2):
        assert unlisted_issuer(handshake(server, authority.context(alice))[0]) is None
    (warning,) = caplog.messages
    assert "O=alice" in warning
    assert "CA:FALSE" in warning


def test_a_server_whose_own_certificate_may_sign_warns_at_its_start(authority, caplog):
    Certificate(*authority.server(), authority.file)
    assert not caplog.messages
    itself = authority.signing_client("server").itself()
    Certificate(*itself, authority.file)
    (warning,) = caplog.messages
    assert str(itself.cert) in warning
    assert "CA:FALSE" in warning


def test_time_in_which_the_loop_had_no_turn_is_not_the_clients(authority):
    """The hello lies in the socket while the process has no processor: the handshake goes on afterwards."""
    files = authority.server()

    async def story():
        async with listening(Certificate(files.cert, files.key), timeout_ms=400) as (slots, port):
            _, silent = await asyncio.open_connection("127.0.0.1", port)
            while not slots.count:
                await asyncio.sleep(0)
            opening = asyncio.open_connection("127.0.0.1", port, ssl=authority.context(), server_hostname="127.0.0.1")
            connecting = asyncio.ensure_future(opening)
            while slots.count < 2:
                await asyncio.sleep(0)
            for _ in range(4):  # a turn now and then, each for one step
                time.sleep(0.3)
                await asyncio.sleep(0)
            reader, writer = await connecting
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            writer.close()
            await freed(slots)  # the silent one is closed in its time
            silent.close()

    asyncio.run(story())
