"""Trio's sockets for a peer whose links can be cut: real sockets with cuts.

Every peer has an IP of its own on the loopback interface (on Linux all of 127.0.0.0/8 is there) and
dials from it, so that both ends of a connection know the peer at the other end.

* TCP: at a cut, the receiving end of the direction stops reading. Written bytes fill the buffers of
  both kernels, as with a pulled cable, and arrive complete and in order after the heal. The death
  of the process at the other end does not get through either.
* UDP: a datagram is dropped at its sender.
* A dial waits if either direction is cut.

Kernels can drop a socket's segments themselves (SO_ATTACH_FILTER), with real retransmissions; on
recent ones (measured on 6.18) that takes CAP_NET_ADMIN for TCP, and with that right namespaces work
as well.
"""

from __future__ import annotations

import socket
from typing import Any, TypeAlias

import trio
from msgspec import Struct

Value: TypeAlias = Any
"""Arguments of trio's sockets: trio's own signatures say no more."""


class Reach(Struct, frozen=True):
    """The cuts around one peer, by the IPs of others.

    Attributes:
        unheard: peers from which nothing arrives. unreached: peers that nothing reaches.
    """

    unheard: frozenset[str] = frozenset()
    unreached: frozenset[str] = frozenset()


class CuttableSockets(trio.abc.SocketFactory):
    """Makes all sockets of one peer.

    Attributes:
        host: the peer's own IP.
        reach: the present cuts.
        changed: sockets wait here for changes of `reach`.
    """

    def __init__(self, host: str) -> None:
        self.host = host
        self.reach = Reach()
        self.changed = trio.lowlevel.ParkingLot()

    def obey(self, reach: Reach) -> None:
        """Replace the cuts."""
        self.reach = reach
        self.changed.unpark_all()

    def socket(
        self,
        family: socket.AddressFamily | int = socket.AF_INET,
        type: socket.SocketKind | int = socket.SOCK_STREAM,  # noqa: A002 - trio's name for it
        proto: int = 0,
    ) -> trio.socket.SocketType:
        made = socket.socket(family, type, proto)
        if made.family != socket.AF_INET:  # peers of a testnet have IPv4 addresses
            return trio.socket.from_stdlib_socket(made)
        kind = DatagramSocket if made.type is socket.SOCK_DGRAM else StreamSocket
        return kind(self, made)


class CuttableSocket(trio.socket.SocketType):
    """The common part of streams and datagrams: the methods of trio's sockets that peers use."""

    def __init__(self, sockets: CuttableSockets, bare: socket.socket) -> None:
        super().__init__()
        self._sockets = sockets
        self._bare = bare
        self._socket = trio.socket.from_stdlib_socket(bare)  # this makes it non-blocking

    @property
    def family(self) -> socket.AddressFamily:
        return self._socket.family

    @property
    def type(self) -> socket.SocketKind:
        return self._socket.type

    @property
    def proto(self) -> int:
        return self._socket.proto

    def fileno(self) -> int:
        return self._socket.fileno()

    def getsockname(self) -> Value:
        return self._socket.getsockname()

    def getsockopt(self, *arguments: Value) -> Value:
        return self._socket.getsockopt(*arguments)

    def setsockopt(self, *arguments: Value) -> None:
        self._socket.setsockopt(*arguments)

    async def bind(self, address: Value) -> None:
        await self._socket.bind(address)

    def close(self) -> None:
        self._socket.close()
        self._sockets.changed.unpark_all()  # so that tasks that wait here notice the end

    def __enter__(self) -> CuttableSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class DatagramSocket(CuttableSocket):
    """UDP."""

    async def sendto(self, *arguments: Value) -> int:
        data, address = arguments[0], arguments[-1]
        if address[0] in self._sockets.reach.unreached:
            await trio.lowlevel.checkpoint()
            return len(data)
        return await self._socket.sendto(*arguments)

    async def recvfrom(self, bufsize: int, flags: int = 0, /) -> tuple[bytes, Value]:
        return await self._socket.recvfrom(bufsize, flags)


class StreamSocket(CuttableSocket):
    """TCP: made to listen, to dial, or by `accept`.

    Args:
        remote: the IP at the other end, if there is one.
    """

    def __init__(self, sockets: CuttableSockets, bare: socket.socket, remote: str = "") -> None:
        super().__init__(sockets, bare)
        self._remote = remote

    @property
    def did_shutdown_SHUT_WR(self) -> bool:
        return self._socket.did_shutdown_SHUT_WR

    def getpeername(self) -> Value:
        return self._socket.getpeername()

    def listen(self, backlog: int = socket.SOMAXCONN) -> None:
        self._socket.listen(backlog)

    def shutdown(self, flag: int) -> None:
        self._socket.shutdown(flag)

    async def wait_writable(self) -> None:
        await self._socket.wait_writable()

    async def accept(self) -> tuple[StreamSocket, Value]:
        await trio.lowlevel.checkpoint()
        while True:
            try:
                accepted, address = self._bare.accept()
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._bare)
            else:
                return StreamSocket(self._sockets, accepted, address[0]), address

    async def connect(self, address: Value) -> None:
        if self.getsockname()[1] == 0:
            await self.bind((self._sockets.host, 0))
        while self._cannot_dial(address[0]):
            await self._sockets.changed.park()
        self._remote = address[0]
        await self._socket.connect(address)

    async def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        await trio.lowlevel.checkpoint()
        while True:
            # checked before every read, also for data that arrives during a wait
            while self._is_unheard():
                await self._sockets.changed.park()
            try:
                return self._bare.recv(bufsize, flags)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._bare)

    async def send(self, data: Value, flags: int = 0, /) -> int:
        try:
            return await self._socket.send(data, flags)
        except ConnectionError:
            if not self._is_unheard():
                raise
            # the other end is gone but its reset does not get through: the data seem sent
            return len(data)

    def _is_unheard(self) -> bool:
        return self._remote in self._sockets.reach.unheard and self._is_open()

    def _cannot_dial(self, host: str) -> bool:
        reach = self._sockets.reach
        return (host in reach.unheard or host in reach.unreached) and self._is_open()

    def _is_open(self) -> bool:
        return self.fileno() >= 0
