"""A member of the federation that sends anything: whole calls, or frames byte by byte.

It has an admitted root, and makes itself as many peers as it wants. A `Wire` is one TLS connection
of such a peer, without the overlay's own limits and credit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from struct import Struct as Layout
from typing import Any

import msgspec
import trio

from medusa.overlay.addresses import Address
from medusa.overlay.connection import Connection, running
from medusa.overlay.encoding import encode as pack
from medusa.overlay.events import Events, wall_clock
from medusa.overlay.frames import FRAME_BYTES, LIMIT, FrameDecoder, Kind, encode, encode_header
from medusa.overlay.greeting import INSTANCE_BYTES, Answer, receive_verdict, send_hello
from medusa.overlay.identity import Identity, Root
from medusa.overlay.membership import Membership
from medusa.overlay.rpc import Caller, Service
from medusa.overlay.streams import Failure, Opening
from medusa.overlay.tls import PEER_PROTOCOL, PeerContexts, shake_hands
from medusa.overlay.tls_stream import TlsStream

_LENGTHS = Layout("!II")


@dataclass
class HostileMember:
    """
    Attributes:
        root: the member's own root, which was admitted. membership: the federation's members.
    """

    root: Root
    membership: Membership

    def peer(self) -> HostilePeer:
        """Make one more peer of this member."""
        return HostilePeer(Identity.issue(self.root, wall_clock()), self.membership)


@dataclass
class HostilePeer:
    identity: Identity
    membership: Membership

    @asynccontextmanager
    async def wire(self, address: Address) -> AsyncIterator[Wire]:
        """Connect to the peer at that address, to write arbitrary bytes."""
        async with await trio.open_tcp_stream(*address) as socket:
            wire = Wire(await self._greet(socket))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wire.drain)
                yield wire
                nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def connection(
        self, address: Address, service: Service | None = None
    ) -> AsyncIterator[Connection]:
        """Connect as the overlay does, to make calls."""
        async with await trio.open_tcp_stream(*address) as socket:
            tls = await self._greet(socket)
            remote = self.membership.authenticate(tls.certificate, wall_clock())
            connection = Connection(
                tls,
                Caller(remote.participant, remote.peer_id),
                dialled=True,
                service=service or Service(),
                events=Events(),
            )
            async with running(connection):
                yield connection

    async def _greet(self, socket: trio.SocketStream) -> TlsStream:
        context = PeerContexts(self.identity).context(self.membership.roots(), server_side=False)
        tls = await shake_hands(socket, context, PEER_PROTOCOL, server_side=False)
        await send_hello(tls, self.identity.peer_id[:INSTANCE_BYTES])
        verdict = await receive_verdict(tls)
        assert verdict.answer is Answer.ACCEPTED, verdict
        return tls


@dataclass
class Wire:
    """Writes frames unchanged, and reads and counts the answers.

    Attributes:
        received: bytes of DATA by stream.
        ended: streams that the other side has reset or finished, with the frame's payload.
        over: whether the other side has ended the connection. reads: the wire reads the socket only
            while this event is set.
    """

    tls: TlsStream
    received: Counter[int] = field(default_factory=Counter)
    ended: dict[int, bytes] = field(default_factory=dict)
    over: bool = False
    reads: trio.Event = field(default_factory=trio.Event)
    _last: int = -1

    def __post_init__(self) -> None:
        self.reads.set()

    async def write(self, *frames: bytes) -> None:
        await self.tls.send_all(b"".join(frames))

    async def call(self, method: str, request: msgspec.Struct, body: bytes = b"") -> int:
        """Open a call with its request; return the number of its stream."""
        said = pack(request)
        return await self.announce(method, _LENGTHS.pack(len(said), len(body)) + said + body)

    async def announce(self, method: str, data: bytes) -> int:
        """Open a call with arbitrary bytes; return the number of its stream."""
        self._last += 2
        await self.write(encode(Kind.OPEN, self._last, pack(Opening(method, 16, ""))))
        await self.data(self._last, data)
        return self._last

    async def reset(self) -> None:
        """Reset the call that was opened last."""
        await self.write(encode(Kind.RESET, self._last, pack(Failure("closed", "enough"))))

    async def say(self, stream: int, message: msgspec.Struct, body: bytes = b"") -> None:
        """Send a message on an open call."""
        said = pack(message)
        await self.data(stream, _LENGTHS.pack(len(said), len(body)) + said + body)

    async def data(self, stream: int, data: bytes) -> None:
        for start in range(0, len(data), FRAME_BYTES):
            piece = data[start : start + FRAME_BYTES]
            await self.write(encode_header(stream, len(piece)), piece)

    async def credit(self, stream: int, limit: int) -> None:
        """Let the other side send `limit` bytes on the stream in total."""
        await self.write(encode(Kind.CREDIT, stream, LIMIT.pack(limit)))

    async def drain(self) -> None:
        """Read and drop all incoming bytes."""
        decoder = FrameDecoder()
        while True:
            await self.reads.wait()
            try:
                data: Any = await self.tls.receive_some()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            if not data:
                self.over = True
                return
            for frame in decoder.feed(bytes(data)):
                if frame.kind is Kind.DATA:
                    self.received[frame.stream] += len(frame.payload)
                elif frame.kind in {Kind.RESET, Kind.FINISH}:
                    self.ended[frame.stream] = bytes(frame.payload)
                elif frame.kind is Kind.PING:
                    await self.write(encode(Kind.PONG, 0))
