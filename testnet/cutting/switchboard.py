"""Sends running peers their cuts, and waits until these have taken effect.

A starting peer asks before it opens anything. A message is one packet of a Unix socket: the cuts
around the peer, with a number; the answer is that number.
"""

from __future__ import annotations

import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import trio
from msgspec import Struct

from medusa.overlay.errors import UnavailableError
from medusa.testnet.cutting import Cut
from medusa.testnet.cutting.sockets import CuttableSockets, Reach
from medusa.testnet.kit.patience import while_moving
from medusa.testnet.kit.peers import Launch
from medusa.tools.client.link import open_background

MAX_PACKET: Final = 64 * 1024
"""Bytes: the addresses of some thousand peers."""

OBEYED_S: Final = 30.0
"""Seconds of the machine's time after which a peer that does not answer counts as stopped."""


class _Order(Struct, frozen=True):
    number: int
    reach: Reach


class _Line:
    """The connection to one peer that runs or ran."""

    def __init__(self, host: str, socket: trio.socket.SocketType) -> None:
        self.host = host
        self.socket = socket
        self.turn = trio.Lock()

    async def say(self, order: _Order) -> None:
        """Send an order; return once the peer obeys, or is dead."""
        try:
            await self.socket.send(msgspec.json.encode(order))
            # answers to orders with an interrupted wait may come first
            while (answer := await self.socket.recv(MAX_PACKET)) and int(answer) != order.number:
                pass
        except ConnectionError:
            pass


class Switchboard:
    """The testnet's end. path: the path of the socket that peers connect to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reaches: Mapping[str, Reach] = {}
        self._number = 0
        self._lines: dict[str, _Line] = {}

    async def notify(self, reaches: Mapping[str, Reach], obeyed_s: float = OBEYED_S) -> None:
        """Set the cuts by IP, even for peers that start later; peers that are not named have none.

        Args:
            obeyed_s: seconds of the machine's time within which each peer must answer.

        Raises:
            DeadlineError: some running peer does not answer.
        """
        self._reaches = reaches
        self._number += 1
        waiting = set(self._lines)

        async def notify(line: _Line) -> None:
            await self._notify(line)
            waiting.discard(line.host)

        def stands() -> str:
            return f"no answer of {', '.join(sorted(waiting))}; is the process stopped?"

        what = "until the peers have cut or healed their links"
        async with while_moving(what, stands, obeyed_s), trio.open_nursery() as nursery:
            for line in self._lines.values():
                nursery.start_soon(notify, line)

    async def answer(self, listening: trio.socket.SocketType, nursery: trio.Nursery) -> None:
        """Driver: accepts starting peers."""
        while True:
            socket, _ = await listening.accept()
            nursery.start_soon(self._welcome, socket)

    async def _welcome(self, socket: trio.socket.SocketType) -> None:
        with socket:
            host = (await socket.recv(MAX_PACKET)).decode()
            line = self._lines[host] = _Line(host, socket)  # a restarted peer has a new one
            await self._notify(line)
            await trio.sleep_forever()

    async def _notify(self, line: _Line) -> None:
        async with line.turn:
            reach = self._reaches.get(line.host, Reach())
            await line.say(_Order(self._number, reach))


@asynccontextmanager
async def open_switchboard() -> AsyncIterator[Switchboard]:
    """
    Raises:
        UnavailableError: a socket cannot be made in the folder for temporary files.
    """
    with (
        tempfile.TemporaryDirectory(prefix="medusa-links-") as folder,
        trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_SEQPACKET) as listening,
    ):
        switchboard = Switchboard(Path(folder) / "socket")
        try:
            await listening.bind(str(switchboard.path))
        except OSError as error:
            raise UnavailableError(
                f"no socket can be made at {switchboard.path}: {error}; "
                "set TMPDIR to a local folder with a short name"
            ) from None
        listening.listen()
        async with open_background() as nursery:
            nursery.start_soon(switchboard.answer, listening, nursery)
            yield switchboard


@asynccontextmanager
async def obeying(path: Path, host: str) -> AsyncIterator[None]:
    """A peer's end: every socket that trio makes in the block follows the switchboard.

    Args:
        path: the path of the switchboard's socket.
        host: the peer's IP.

    Raises:
        UnavailableError: there is no switchboard (any more).
    """
    sockets = CuttableSockets(host)
    with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_SEQPACKET) as line:
        try:
            await line.connect(str(path))
            await line.send(host.encode())
        except OSError as error:
            raise UnavailableError(f"no switchboard at {path}: {error.strerror}") from None
        if not await _obey(line, sockets):
            raise UnavailableError(f"the switchboard at {path} has closed")
        trio.socket.set_custom_socket_factory(sockets)

        async def go_on() -> None:
            # after the testnet's end the cuts stay: nobody is left to observe a heal
            while await _obey(line, sockets):
                pass

        async with open_background() as nursery:
            nursery.start_soon(go_on)
            yield


async def _obey(line: trio.socket.SocketType, sockets: CuttableSockets) -> bool:
    """Obey the next order; False if there are no more."""
    try:
        packet = await line.recv(MAX_PACKET)
        if packet:
            order = msgspec.json.decode(packet, type=_Order)
            sockets.obey(order.reach)
            await line.send(b"%d" % order.number)
    except ConnectionError:
        return False
    return bool(packet)


HOST: Final = "127.77.{}.{}"
"""IPs of peers. Two federations may use the same ones: ports tell them apart."""


class LoopbackWires:
    """Peers on IPs of their own of the loopback interface, with `CuttableSockets`."""

    def __init__(self, switchboard: Switchboard) -> None:
        self._switchboard = switchboard
        self._hosts: dict[str, str] = {}

    async def launch(self, peer: str) -> Launch:
        number = len(self._hosts) + 1
        host = self._hosts[peer] = HOST.format(*divmod(number, 256))
        _check_local(host)
        program = (sys.executable, "-m", "medusa.testnet.cutting.peer")
        where = ("--switchboard", str(self._switchboard.path))
        return Launch(f"{host}:0", program=(*program, *where))

    async def lose(self, cuts: Collection[Cut]) -> None:
        hosts = self._hosts
        reaches = {
            host: Reach(
                frozenset(hosts[cut.source] for cut in cuts if cut.target == peer),
                frozenset(hosts[cut.target] for cut in cuts if cut.source == peer),
            )
            for peer, host in hosts.items()
        }
        await self._switchboard.notify(reaches)


def _check_local(host: str) -> None:
    with socket.socket() as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            raise UnavailableError(
                f"a peer cannot have {host}: {error.strerror}; Linux has all of 127.0.0.0/8 on its "
                f"loopback interface, elsewhere add it (`ifconfig lo0 alias {host}`)"
            ) from None


@asynccontextmanager
async def open_loopback() -> AsyncIterator[LoopbackWires]:
    """
    Raises:
        UnavailableError: a socket cannot be made; names the mend.
    """
    async with open_switchboard() as switchboard:
        yield LoopbackWires(switchboard)
