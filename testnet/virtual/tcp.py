"""A TCP connection as programs see it: order, windows, retransmission, FIN and RST.

Each direction is a queue of segments that arrive in order. A segment on a cut link is repeated with
growing pauses, as by a kernel; so a healed link resumes after a while, not at once.
"""

from __future__ import annotations

import errno
from collections import deque
from typing import Final, Protocol

import trio

from medusa.testnet.virtual.clock import VirtualTime
from medusa.testnet.virtual.links import MOST_RETRANSMIT_S, RETRANSMIT_S, Links

WINDOW_BYTES: Final = 256 * 2**10
"""Bytes of one direction sent and not yet read; beyond it the sender waits."""

FIN: Final = b""
"""The end of a direction: a segment without data."""


class Carrier(Protocol):
    """Carries segments between machines, depending on the weather."""

    time: VirtualTime
    links: Links

    def is_up(self, ip: str) -> bool:
        """Whether that machine has power."""

    def delivered(self, kind: str, source: str, target: str, length: int) -> None:
        """Note that a packet has arrived."""

    def send_reset(self, source: Endpoint, target: Endpoint) -> None:
        """Send a reset, which is not repeated if it is lost."""


class Endpoint:
    """One side of a connection.

    Attributes:
        ip, port: IP and port of this side. other: the other side.
        readable, writable: where tasks wait for data, and for room.
        failure: errno of the reset that ended it.
        closed: the program closed it, or died; or its machine lost power.
    """

    def __init__(self, network: Carrier, ip: str, port: int) -> None:
        self.network = network
        self.ip, self.port = ip, port
        self.other: Endpoint = self  # until there is another side
        self.readable = trio.lowlevel.ParkingLot()
        self.writable = trio.lowlevel.ParkingLot()
        self.failure = 0
        self.closed = self.finished = False
        self._arrived: deque[bytes] = deque()
        self._ended = False
        self._on_the_way: deque[tuple[float, bytes]] = deque()
        self._last_arrival = 0.0
        self._retransmit_s = RETRANSMIT_S
        self._waiting = False
        self._outstanding = 0

    # -- the program's side

    @property
    def room(self) -> int:
        """Bytes that may be sent now."""
        return max(0, WINDOW_BYTES - self._outstanding)

    @property
    def has_news(self) -> bool:
        """Whether `take` returns something, or raises."""
        return bool(self._arrived) or self._ended or self.failure != 0

    def take(self, limit: int) -> bytes:
        """Data that has arrived, b"" at the end.

        Raises:
            OSError: it was reset.
        """
        assert self.has_news
        if not self._arrived:
            self.check()
            return b""
        data = self._arrived.popleft()
        if len(data) > limit:
            self._arrived.appendleft(data[limit:])
            data = data[:limit]
        while self._arrived and len(data) + len(self._arrived[0]) <= limit:
            data += self._arrived.popleft()
        self._acknowledge(len(data))
        return data

    def send(self, data: bytes) -> None:
        """Send data for which there is room, or FIN."""
        network = self.network
        arrival = network.links.segment_arrival(self.ip, self.other.ip, network.time.now)
        self._last_arrival = max(arrival, self._last_arrival)
        self._on_the_way.append((self._last_arrival, data))
        self._outstanding += len(data)
        network.time.at(self._last_arrival, self._deliver)

    def finish(self) -> None:
        """Send no more data."""
        if not self.finished and not self.failure:
            self.finished = True
            self.send(FIN)

    def close(self) -> None:
        """Close as a kernel does: sent data arrives; unread data causes a reset."""
        if self.closed:
            return
        self.closed = True
        if self._arrived:
            self._on_the_way.clear()
            self.network.send_reset(self, self.other)
        else:
            self.finish()
        self.wake()

    def vanish(self) -> None:
        """The machine lost power: nothing more is sent, not even a reset."""
        self.closed = True
        self._on_the_way.clear()
        self.wake()

    def check(self) -> None:
        """
        Raises:
            OSError: it was reset.
        """
        if self.failure:
            raise OSError(self.failure, "connection reset by peer")

    def wake(self) -> None:
        self.readable.unpark_all()
        self.writable.unpark_all()

    # -- the network's side

    def reset(self) -> None:
        """Handle a reset."""
        if not self.failure:
            self.failure = errno.EPIPE if self._ended else errno.ECONNRESET
            self._on_the_way.clear()
            self.wake()

    def _deliver(self) -> None:
        """Deliver segments whose time has come to the other side, unless the link is down."""
        if self._waiting or not self._on_the_way:
            return
        network, target = self.network, self.other.ip
        now = network.time.now
        if network.links.is_cut(self.ip, target):
            self._try_again(now + self._retransmit_s)
            self._retransmit_s = min(2 * self._retransmit_s, MOST_RETRANSMIT_S)
            return
        opens = network.links.open_at(self.ip, target, now)
        if opens > now:
            self._try_again(opens)
            return
        self._retransmit_s = RETRANSMIT_S
        while self._on_the_way and self._on_the_way[0][0] <= now:
            _, data = self._on_the_way.popleft()
            network.delivered("tcp", self.ip, target, len(data))
            self.other._receive(data)

    def _try_again(self, when: float) -> None:
        self._waiting = True

        def again() -> None:
            self._waiting = False
            self._deliver()

        self.network.time.at(when, again)

    def _receive(self, data: bytes) -> None:
        if self.closed or self.failure:
            if data and self.network.is_up(self.ip):  # with no reader, that kernel sends a reset
                self.network.send_reset(self, self.other)
        elif data == FIN:
            self._ended = True
            self.readable.unpark_all()
        else:
            self._arrived.append(data)
            self.readable.unpark_all()

    def _acknowledge(self, read: int) -> None:
        """Tell the sender that there is room again, once that gets through."""
        network = self.network
        if network.links.is_cut(self.ip, self.other.ip):
            network.time.at(network.time.now + RETRANSMIT_S, self._acknowledge, read)
            return
        self.other._outstanding -= read
        self.other.writable.unpark_all()
