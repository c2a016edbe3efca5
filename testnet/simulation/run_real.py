"""A manifest's testbed of real processes on this machine, with real kill -9 and restarts.

The network is loopback and cannot be broken; the peers' internal states are not visible. So faults
of the network and of clocks are refused, and only clients' observations are checked.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final

import msgspec
import trio

from medusa.overlay.errors import InvalidInputError
from medusa.testnet.kit.cast import cpu_seconds
from medusa.testnet.kit.peers import Federation, Peer, open_federation
from medusa.testnet.simulation.checkers import violations
from medusa.testnet.simulation.faults import Crash, Fault, Stop
from medusa.testnet.simulation.history import (
    Acknowledged,
    Covered,
    History,
    PeerView,
    Reached,
    Received,
)
from medusa.testnet.simulation.manifest import Check, Manifest
from medusa.testnet.simulation.scenario import Run
from medusa.testnet.simulation.simulate import Result, settings_of
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa
from medusa.tools.home.folder import Home

CHECKS: Final = (Check.STREAMS, Check.LIVENESS)
"""The checks that do not need the peers' internal states."""


class RealPlace:
    """A peer's home; see `testbed.Place`."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.participant = peer.participant
        self.id = peer.running.peer if peer.running is not None else ""

    @property
    def home(self) -> Home:
        return self.peer.home

    @property
    def up(self) -> bool:
        return self.peer.alive


class RealBed:
    """See `testbed.Testbed`."""

    def __init__(self, federation: Federation, peers: Mapping[str, Peer], seed: int) -> None:
        self.peers = {name: RealPlace(peer) for name, peer in peers.items()}
        self.rng = random.Random(f"{seed} scenario")
        self.trace: list[str] = []
        self._federation = federation
        self._begun = trio.current_time()

    def now(self) -> float:
        return trio.current_time() - self._begun

    def note(self, kind: str, text: str, peer: str = "") -> None:
        self.trace.append(f"{self.now():12.6f}  {peer:<16} {kind:<8} {text}")

    def client(
        self, name: str, *, producer: str | None = None, patience_s: float = 60.0
    ) -> AbstractAsyncContextManager[AsyncMedusaClient]:
        home = self.peers[name].home.folder
        return open_medusa(home, producer=producer, patience_s=patience_s)

    async def inflict(self, fault: Fault) -> None:
        match fault:
            case Crash(peer=name):
                await self.peers[name].peer.kill_9()
            case Stop(peer=name):
                await self.peers[name].peer.stop()
            case _:
                raise refused(fault)

    async def heal(self, fault: Fault) -> None:
        match fault:
            case Crash(peer=name) | Stop(peer=name):
                await self.peers[name].peer.restart()
            case _:
                raise refused(fault)

    def look(self, *, books: bool = False) -> tuple[PeerView, ...]:
        del books
        return ()

    def covered(self, look: int) -> Iterable[Covered]:
        del look
        return ()

    def reached(self, look: int) -> Iterable[Reached]:
        del look
        return ()

    async def look_up(self, streams: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        del streams
        await trio.lowlevel.checkpoint()
        return {}


def refused(fault: Fault) -> InvalidInputError:
    kind = type(fault).__name__.lower()
    return InvalidInputError(f"{kind}: real processes can be killed and stopped only; leave --real")


async def run_real(manifest: Manifest, seed: int) -> Result:
    """Run a manifest on real peers.

    Raises:
        InvalidInputError: it has faults that cannot be made here.
        MedusaError: its peers cannot be started.
    """
    for fault in manifest.faults:
        if not isinstance(fault, Crash | Stop) or (isinstance(fault, Crash) and fault.power):
            raise refused(fault)
    checks = tuple(check for check in manifest.checks if check in CHECKS)
    manifest = msgspec.structs.replace(manifest, checks=checks)
    history = History()
    async with open_federation() as federation:
        peers = await _populate(federation, manifest)
        bed = RealBed(federation, peers, seed)
        await Run(bed, manifest, history)()
        cpu_s = cpu_seconds(peer.pid for peer in federation.peers if peer.alive)
        passed_s = bed.now()
    acknowledged = {each.poster: each.upto for each in history.of(Acknowledged)}
    return Result(
        seed,
        tuple(violations(history, manifest)),
        virtual_s=passed_s,
        cpu_s=cpu_s,
        rows=sum(acknowledged.values()),
        epochs=sum(1 for _ in history.of(Received)),
        faults=len(manifest.faults),
        trace=tuple(bed.trace),
    )


async def _populate(federation: Federation, manifest: Manifest) -> dict[str, Peer]:
    """Fill the federation: all its peers, running, by name."""
    peers: dict[str, Peer] = {}
    for number, (participant, count) in enumerate(manifest.participants.items()):
        federation.config = _config(manifest, f"{participant}/0")
        make = federation.admit if number else partial(federation.found, name="testnet")
        peers[f"{participant}/0"] = first = await make(participant)
        await first.ready()
        for sibling in range(1, count):
            federation.config = _config(manifest, f"{participant}/{sibling}")
            name = f"{participant}-{sibling}"
            peers[f"{participant}/{sibling}"] = await federation.admit_sibling(first, name)
    return peers


def _config(manifest: Manifest, peer: str) -> str:
    """medusa.toml."""
    lines: list[str] = []
    for section, table in settings_of(manifest, peer).items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {msgspec.json.encode(value).decode()}" for key, value in table.items()]
    return "\n".join(lines) + "\n"
