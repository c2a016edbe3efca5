"""Links that are cut inside the peers: on any Linux machine, without root."""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Final

from overlay.errors import UnavailableError
from testnet.cutting.sockets import Reach
from testnet.cutting.switchboard import Switchboard, open_switchboard
from testnet.cutting.wires import Cut
from testnet.peers import Launch

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
        program = (sys.executable, "-m", "testnet.cutting.peer")
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
        await self._switchboard.tell(reaches)


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
        UnavailableError: there is no place for a socket; names the mend.
    """
    async with open_switchboard() as switchboard:
        yield LoopbackWires(switchboard)
