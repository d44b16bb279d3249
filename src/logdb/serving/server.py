"""The server of one database: its doors, the thread with their event loop, and the addresses they may listen at.

An address that other machines can reach needs TLS and authentication.  A door speaks a protocol; the package that speaks it
announces the door by an entry point.
"""

import asyncio
import ipaddress
import logging
import os
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

from logdb.access.access_control import AccessControl
from logdb.access.authentication import Identity
from logdb.announced import announced
from logdb.errors import InsecureAddress, InvalidCertificate, missing_package
from logdb.handles import Handle
from logdb.serving.connection_slots import ConnectionSlot
from logdb.serving.limits import Limits
from logdb.serving.memory_return import MemoryReturn
from logdb.serving.resources import ServerShares
from logdb.serving.shares import NoRoom
from logdb.serving.tls import TLS_OPTIONS
from logdb.signatures import readable
from logdb.threads import started

logger = logging.getLogger(__name__)

HandOver: TypeAlias = Callable[[str, asyncio.Transport, bytes], None]
Upgrade: TypeAlias = "Callable[[str, Given], Awaitable[asyncio.BaseProtocol]]"
DOORS = "logdb.doors"
"""Entry points of doors, each names a ``DoorType``."""
DRAIN_MS = 10_000
_TLS = "TLS (--tls-cert)"
_AUTHENTICATION = "authentication (on once there is a user: logdb users add NAME --super-user)"


class Given(NamedTuple):
    """What a door gives away with a connection that goes on in another protocol.

    The connection keeps its slot with the door that accepted it.

    Attributes:
        identity: Who the client is.
        lost: To be called with the end of the connection.
    """

    identity: Identity
    lost: Callable[[Exception | None], None]


class Door(Protocol):
    """Serves one protocol at one address, or at none.  All methods are called on the loop of the server.

    Attributes, which the server sets before ``open``:
        hand_over: Gives a connection to the door of this name, with the bytes read so far.
        upgrade: Makes the protocol, of the door of this name, in which a connection goes on.  Raises NoRoom while the server drains,
            and as ``Server``.
        shares: Memory and threads that its doors share.
    """

    hand_over: HandOver
    upgrade: Upgrade
    shares: ServerShares

    async def open(self) -> Sequence[str]:
        """Listen, if the door has an address; returns the addresses, as a client writes them."""

    def accept(self, slot: ConnectionSlot | None = None) -> asyncio.BaseProtocol:
        """The protocol for a connection; None: the protocol takes a slot itself."""

    def reload(self) -> None:
        """Read certificates again, for later connections; any thread.  After InvalidCertificate the former ones stay in use."""

    async def drain(self, timeout_ms: int) -> None:
        """Take no new requests, answer those that wait, and close; after ``timeout_ms``, or when cancelled, cut off the rest."""


@runtime_checkable
class Upgradable(Protocol):
    """A door in whose protocol connections of other doors may go on."""

    def take_over(self, given: Given) -> asyncio.BaseProtocol:
        """The protocol for such a connection."""


class DoorType(Protocol):
    """Makes doors of one protocol, and names the options that they take beside those of TLS.

    Attributes:
        LIMITS: Each of its fields is an option.
        OPTIONS: Others.
    """

    LIMITS: type[Limits]
    OPTIONS: frozenset[str]

    def __call__(self, access: AccessControl, address: str, **options: Any) -> Door:
        """A door that is not open yet; ``address`` empty: it does not listen."""


@readable
class Server(Handle):
    """A server of one database.  Made by ``logdb.serve``; a context manager that closes itself.

    A client may connect to any of its addresses with any protocol that it speaks.

    Attributes:
        addresses: Where it listens, as clients write it: ``http://127.0.0.1:8080``, ``127.0.0.1:9092``.
    """

    # A door gives a connection on which another protocol is spoken to that one's door, at its begin (``hand_over``) or later (``upgrade``).
    # A missing door is made for the first such connection, without an address.
    #
    # ================== ========================== ==================================================================
    # field              changed by                 to be trusted
    # ================== ========================== ==================================================================
    # ``addresses``      ``open``                   once it is open
    # ``_named``         ``_door``, in ``_making``  always: the doors that drain; none is added once draining has begun
    # ``_handing_over``  ``_hand_over``             always: connections that wait for a door to be made
    # ``_draining``      ``drain``                  always, for good
    # ================== ========================== ==================================================================
    #
    # Threading: the event loop of the server; ``start``, ``reload`` and ``close`` any thread.

    def __init__(
        self, access: AccessControl, addresses: Mapping[str, str], *, insecure: bool = False, drain_ms: int = DRAIN_MS, **options: Any
    ) -> None:
        """As ``logdb.serve``, without opening it.

        Args:
            addresses: ``host:port`` by name of the protocol.
            insecure: Serve other addresses than loopback without TLS and authentication, too.
            drain_ms: How long closing waits for running requests.
            options: Options of the listeners.

        Raises:
            InsecureAddress: Other machines could reach one of the addresses.
            ValueError: There is no such protocol, or an address or an option is invalid.
            TypeError: No listener takes one of the options.
            ModuleNotFoundError: A listener needs a package that is not installed; it names it.
        """
        for address in addresses.values():
            check_address(address, tls=options.get("tls_cert") is not None, authentication=access.authentication, insecure=insecure)
        made = _door_types(addresses)
        _check_options(options, made.values())
        self._access, self._options = access, options
        self._shares = ServerShares(Limits(**{name: options[name] for name in Limits.names() & options.keys()}))
        self._addresses = tuple(addresses.values())
        self._named = {name: self._made(made[name], address) for name, address in addresses.items()}
        self._drain_ms = drain_ms
        self._handing_over: set[asyncio.Task[None]] = set()
        self._draining = False
        self._memory_return = MemoryReturn()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.addresses: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Server at {', '.join(self.addresses) or 'no address yet'}>"

    @property
    def authentication(self) -> bool:
        """Whether clients need credentials."""
        return self._access.authentication

    @property
    def _doors(self) -> tuple[Door, ...]:
        return tuple(self._named.values())

    def _made(self, door_type: DoorType, address: str) -> Door:
        names = _options(door_type)
        door = door_type(self._access, address, **{name: value for name, value in self._options.items() if name in names})
        door.hand_over, door.upgrade, door.shares = self._hand_over, self._upgrade, self._shares
        return door

    async def open(self) -> None:
        """Open all listeners on the running event loop, or none; in place of ``start``.

        Raises:
            OSError: One of the addresses cannot be listened at; the message names it.
        """
        self._making = asyncio.Lock()
        opened: list[Door] = []
        addresses: list[str] = []
        try:
            for address, door in zip(self._addresses, self._doors, strict=True):
                try:
                    addresses += await door.open()
                except OSError as error:
                    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
                    raise OSError(error.errno, f"cannot listen at {address}: {reason}") from error
                opened.append(door)
        except BaseException:
            for door in opened:
                await door.drain(0)
            raise
        self.addresses = tuple(addresses)
        self._memory_return.begin()

    def reload(self) -> None:
        """Read the certificates of all listeners again, for later connections; any thread.

        Raises:
            InvalidCertificate: One cannot be used: its listener keeps the former one, the others use the new ones.
        """
        failure: InvalidCertificate | None = None
        for door in self._doors:
            try:
                door.reload()
            except InvalidCertificate as error:
                failure = error
        if failure is not None:
            raise failure

    async def drain(self) -> None:
        """Answer the running requests, and close all listeners; in place of ``close``.  Cancelled: disconnect the rest."""
        self._draining = True
        self._memory_return.end()
        try:
            async with self._making:  # a door that is made is drained, too
                pass
            await asyncio.gather(*self._handing_over)
            await asyncio.gather(*(door.drain(self._drain_ms) for door in self._doors))
        finally:
            self._access.close()

    # ------------------------------------------------------------ a connection that speaks another door's protocol

    def _hand_over(self, name: str, transport: asyncio.Transport, begun: bytes) -> None:
        if self._draining:
            transport.abort()
            return
        transport.pause_reading()
        transport.set_protocol(asyncio.Protocol())
        task = asyncio.get_running_loop().create_task(self._go_on(name, transport, begun))
        self._handing_over.add(task)
        task.add_done_callback(self._handing_over.discard)

    async def _go_on(self, name: str, transport: asyncio.Transport, begun: bytes) -> None:
        """Give the connection to the door, with the bytes that have been read from it."""
        try:
            door = await self._door(name)
        except (ModuleNotFoundError, ValueError, NoRoom) as error:
            logger.info("a connection is closed: %s", error)
            transport.abort()
            return
        transport.set_protocol(accepted := door.accept())
        accepted.connection_made(transport)
        current = transport.get_protocol()  # another one, if the connection is refused
        assert isinstance(current, asyncio.Protocol)
        transport.resume_reading()  # before it is given what has come: the protocol may pause at once
        current.data_received(begun)

    async def _upgrade(self, name: str, given: Given) -> asyncio.BaseProtocol:
        door = await self._door(name)
        if not isinstance(door, Upgradable):
            raise ValueError(f"no connection can change to the protocol of the listener {name!r}")
        return door.take_over(given)

    async def _door(self, name: str) -> Door:
        """The door of this name; a missing one is made.

        Raises:
            ModuleNotFoundError, ValueError: as ``Server``.
            NoRoom: The server drains.
        """
        async with self._making:
            if self._draining:
                raise NoRoom("the server is draining")
            if name not in self._named:
                door_type = (await asyncio.to_thread(_door_types, (name,)))[name]  # imports what it needs
                door = self._made(door_type, "")
                await door.open()
                self._named[name] = door
            return self._named[name]

    # ------------------------------------------------------------ in a thread

    def start(self) -> Self:
        """Open all listeners in a thread of their own; ``logdb.serve`` has done so."""
        failure: list[BaseException] = []
        ready = threading.Event()

        async def main() -> None:
            self._stopped = asyncio.Event()
            self._loop = asyncio.get_running_loop()
            try:
                await self.open()
            except BaseException as error:  # noqa: BLE001 -- raised where start was called
                failure.append(error)
                return
            finally:
                ready.set()
            await self._stopped.wait()
            await self.drain()

        self._thread = started("logdb-server", lambda: asyncio.run(main()))
        ready.wait()
        if failure:
            self._thread.join()
            raise failure[0]
        return self

    def close(self) -> None:
        """Answer the running requests, close all listeners, and end the thread; a second call does nothing."""
        thread, self._thread = self._thread, None
        if thread is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _door_types(doors: Iterable[str]) -> dict[str, DoorType]:
    known = announced(DOORS)
    if unknown := set(doors) - known.keys():
        raise ValueError(f"no listener {min(unknown)!r} is installed; installed: {', '.join(sorted(known)) or 'none'}")
    return {name: _door_type(known[name]) for name in doors}


def _options(door: DoorType) -> frozenset[str]:
    return TLS_OPTIONS | door.OPTIONS | door.LIMITS.names()


def _check_options(given: Mapping[str, Any], doors: Collection[DoorType]) -> None:
    """Look for options that no door takes, among the doors of a server and those that are made for a connection.

    Raises:
        TypeError, ValueError, ModuleNotFoundError: as ``Server``.
    """
    if not given.keys() - set().union(*map(_options, doors)):
        return
    others = _door_types(announced(DOORS))
    if unknown := given.keys() - set().union(*map(_options, others.values())):
        limits = set().union(*(door.LIMITS.names() for door in others.values()))
        options = set(others).union(*map(_options, others.values())) - limits
        allowed = f"it has {', '.join(sorted(options))}; its limits are {', '.join(sorted(limits))}"
        raise TypeError(f"a server has no option {', '.join(sorted(unknown))}; {allowed}")
    for door in others.values():  # a wrong value is told now, not to a later client
        door.LIMITS(**{name: given[name] for name in door.LIMITS.names() & given.keys()})


def _door_type(point: EntryPoint) -> DoorType:
    try:
        made: DoorType = point.load()
    except ModuleNotFoundError as error:
        raise missing_package(f"the listener {point.name!r}", error.name or "") from error
    return made


def check_address(address: str, *, tls: bool, authentication: bool, insecure: bool, port_meant: int = 8080) -> None:
    """See that an address, ``host:port``, may be served.

    Args:
        port_meant: What an error suggests where there is no port.

    Raises:
        InsecureAddress: Others can reach it, it lacks TLS or authentication, and ``insecure`` is False.
        ValueError: It is not an address, or one that is refused has a host that does not resolve.
    """
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535 or (":" in host and not host.startswith("[")):
        hint = "".join(f"; {one} is one" for one in _address_meant(address, port_meant))
        raise ValueError(f"address {address!r}: must be host:port, the port in [0, 65535]{hint}")
    lacking = [what for what, there in ((_TLS, tls), (_AUTHENTICATION, authentication)) if not there]
    if lacking and not (insecure or is_loopback(host)):
        _check_resolves(address, host)
        raise InsecureAddress(address, " and ".join(lacking))


def _check_resolves(address: str, host: str) -> None:
    """Raise ValueError if the host is a name that is not known."""
    try:
        socket.getaddrinfo(host.removeprefix("[").removesuffix("]"), None)
    except (OSError, UnicodeError) as error:  # UnicodeError: no name at all, such as a..b
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"address {address!r}: the name {host} does not resolve: {reason}") from None


def _address_meant(text: str, port_meant: int) -> Sequence[str]:
    """Suggestions for a text that is not ``host:port``."""
    rest = text.strip().partition("://")[2].partition("/")[0] or text.strip()
    host, _, port = rest.rpartition(":")
    if port.isdigit() and int(port) > 65535:
        return ()
    if rest.isdigit() or (not host and port.isdigit()):
        return f"127.0.0.1:{port}, for this machine alone,", f"0.0.0.0:{port}, for all,"
    if port.isdigit():
        return (rest if ":" not in host or host.startswith("[") else f"[{host}]:{port}",)
    return (f"{rest}:{port_meant}",) if re.fullmatch(r"[\w.-]+|\[[0-9a-fA-F:]+\]", rest, re.ASCII) else ()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host: by its name, or its address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False  # a name, which may lead anywhere
