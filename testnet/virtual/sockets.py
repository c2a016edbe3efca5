"""Trio's sockets on the simulated network: those of their methods that TCP and UDP programs use."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections import deque
from typing import Any, Final, Protocol, TypeAlias

import trio

from medusa.testnet.virtual.hosts import Process
from medusa.testnet.virtual.tcp import Carrier, Endpoint

MOST_DATAGRAMS: Final = 4096
"""Datagrams that wait to be read: about the 4 MiB of a kernel; further ones are lost."""

BACKLOG: Final = 1024
"""Connections that wait to be accepted; the next one is refused."""

Address = tuple[str, int]

Value: TypeAlias = Any
"""Arguments of trio's sockets: trio's own signatures say no more."""


class Ports(Carrier, Protocol):
    """The network behind the sockets: bound ports, and connections."""

    def listen(self, address: Address, listener: Listener) -> None:
        """
        Raises:
            OSError: the port is in use.
        """

    def bind_datagrams(self, address: Address, bound: DatagramSocket) -> None:
        """
        Raises:
            OSError: the port is in use.
        """

    def forget(self, address: Address, closed: object) -> None:
        """Free the port of a closed socket."""

    def send_datagram(self, source: Address, target: Address, data: bytes) -> None: ...

    async def connect(self, endpoint: Endpoint, target: Address) -> None:
        """Open a connection from a new endpoint.

        Raises:
            OSError: refused, or there is no answer.
        """


class SimulatedSocket(trio.socket.SocketType):
    """The common part of streams and datagrams. A socket belongs to the process that made it."""

    _kind: socket.SocketKind

    def __init__(self, network: Ports, process: Process, proto: int) -> None:
        super().__init__()
        self._network = network
        self._process = process
        self._proto = proto
        self._number = next(process.machine.ports)
        self._closed = False
        self._local: Address = ("0.0.0.0", 0)  # noqa: S104
        process.sockets[self._number] = self

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET

    @property
    def type(self) -> socket.SocketKind:
        return self._kind

    @property
    def proto(self) -> int:
        return self._proto

    def fileno(self) -> int:
        return -1 if self._closed else self._number

    def getsockname(self) -> Address:
        self._check_open()
        return self._local

    def setsockopt(self, *_: object) -> None:
        self._check_open()

    def __enter__(self) -> SimulatedSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def bind(self, address: Value) -> None:
        await trio.lowlevel.checkpoint()
        self._check_open()
        ip, port = address[:2]
        if ipaddress.ip_address(ip).is_unspecified:
            ip = self._process.machine.ip
        if ip != self._process.machine.ip:
            raise OSError(errno.EADDRNOTAVAIL, f"{ip} is no address of this machine")
        self._local = (ip, port or next(self._process.machine.ports))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._process.sockets.pop(self._number, None)
            self._network.forget(self._local, self)
            self._release()

    def die(self, *, power: bool) -> None:
        """Close the socket as the death of its process does."""
        self.close()

    def _release(self) -> None:
        """Wake the waiting tasks."""

    def _check_open(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "the socket is closed")


class DatagramSocket(SimulatedSocket):
    """UDP."""

    _kind = socket.SOCK_DGRAM

    def __init__(self, network: Ports, process: Process, proto: int) -> None:
        super().__init__(network, process, proto)
        self._queue: deque[tuple[bytes, Address]] = deque()
        self._readers = trio.lowlevel.ParkingLot()

    async def bind(self, address: Value) -> None:
        await super().bind(address)
        self._network.bind_datagrams(self._local, self)

    async def sendto(self, *arguments: Value) -> int:
        await trio.lowlevel.checkpoint()
        self._check_open()
        data, address = bytes(arguments[0]), arguments[-1]
        if self._local[1] == 0:
            await self.bind(("0.0.0.0", 0))  # noqa: S104
        self._network.send_datagram(self._local, (address[0], address[1]), data)
        return len(data)

    async def recvfrom(self, bufsize: int, flags: int = 0) -> tuple[bytes, Address]:
        assert flags == 0
        self._check_open()
        if self._queue:
            await trio.lowlevel.checkpoint()
        while not self._queue:
            await self._readers.park()
            self._check_open()
        self._check_open()
        data, source = self._queue.popleft()
        return data[:bufsize], source

    def receive(self, data: bytes, source: Address) -> None:
        """Queue an arrived datagram."""
        if len(self._queue) < MOST_DATAGRAMS:
            self._queue.append((data, source))
            self._readers.unpark()

    def _release(self) -> None:
        self._readers.unpark_all()


class Listener:
    """The queue of a listening socket."""

    def __init__(self) -> None:
        self.queue: deque[Endpoint] = deque()
        self.waiting = trio.lowlevel.ParkingLot()

    def offer(self, endpoint: Endpoint) -> bool:
        """Queue a connection; False if it is refused."""
        if len(self.queue) >= BACKLOG:
            return False
        self.queue.append(endpoint)
        self.waiting.unpark()
        return True


class StreamSocket(SimulatedSocket):
    """TCP: made to listen, to dial, or by `accept`."""

    _kind = socket.SOCK_STREAM

    def __init__(
        self, network: Ports, process: Process, proto: int, endpoint: Endpoint | None = None
    ) -> None:
        super().__init__(network, process, proto)
        self._endpoint = endpoint
        self._listener: Listener | None = None
        if endpoint is not None:
            self._local = (endpoint.ip, endpoint.port)

    @property
    def did_shutdown_SHUT_WR(self) -> bool:
        return self._endpoint is not None and self._endpoint.finished

    def getsockopt(self, level: int, option: int, *_: object) -> int:  # type: ignore[override]
        self._check_open()
        if (level, option) == (socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return int(self._listener is not None)
        raise OSError(errno.ENOPROTOOPT, "the simulated network does not keep this option")

    def getpeername(self) -> Address:
        self._check_open()
        other = self._connected().other
        return other.ip, other.port

    def listen(self, backlog: int = BACKLOG) -> None:
        self._check_open()
        listener = Listener()
        self._network.listen(self._local, listener)
        self._listener = listener

    async def accept(self) -> tuple[StreamSocket, Address]:
        await trio.lowlevel.checkpoint()
        assert self._listener is not None
        while not self._listener.queue:
            self._check_open()
            await self._listener.waiting.park()
        self._check_open()
        endpoint = self._listener.queue.popleft()
        accepted = StreamSocket(self._network, self._process, self._proto, endpoint)
        return accepted, (endpoint.other.ip, endpoint.other.port)

    async def connect(self, address: Value) -> None:
        await trio.lowlevel.checkpoint()
        self._check_open()
        assert self._endpoint is None
        if self._local[1] == 0:
            await self.bind(("0.0.0.0", 0))  # noqa: S104
        self._endpoint = Endpoint(self._network, *self._local)
        await self._network.connect(self._endpoint, (address[0], address[1]))
        self._check_open()

    async def recv(self, bufsize: int, flags: int = 0) -> bytes:
        assert flags == 0
        endpoint = self._connected()
        if endpoint.has_news:
            await trio.lowlevel.checkpoint()
        while not self._closed and not endpoint.has_news:
            await endpoint.readable.park()
        self._check_open()
        return endpoint.take(bufsize)

    async def send(self, data: Value, flags: int = 0) -> int:
        assert flags == 0
        await self.wait_writable()
        endpoint = self._connected()
        endpoint.check()
        if endpoint.finished:
            raise OSError(errno.EPIPE, "broken pipe")
        piece = bytes(data[: endpoint.room])
        endpoint.send(piece)
        return len(piece)

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint()
        endpoint = self._connected()
        while not (self._closed or endpoint.room or endpoint.failure):
            await endpoint.writable.park()
        self._check_open()

    def is_readable(self) -> bool:
        return self._connected().has_news

    def shutdown(self, flag: int) -> None:
        self._check_open()
        if flag in {socket.SHUT_WR, socket.SHUT_RDWR}:
            self._connected().finish()

    def close(self) -> None:
        if self._listener is not None:
            self._network.forget(self._local, self._listener)
        super().close()

    def die(self, *, power: bool) -> None:
        if power:
            for endpoint in (self._endpoint, *(self._listener.queue if self._listener else ())):
                if endpoint is not None:
                    endpoint.vanish()
        self.close()

    def _release(self) -> None:
        if self._endpoint is not None:
            self._endpoint.close()
        if self._listener is not None:
            for endpoint in self._listener.queue:
                endpoint.close()
            self._listener.waiting.unpark_all()

    def _connected(self) -> Endpoint:
        self._check_open()
        if self._endpoint is None:
            raise OSError(errno.ENOTCONN, "not connected")
        return self._endpoint
