"""A manifest's testbed in the simulator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import msgspec
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from medusa.contracts.desk import Effect, Send
from medusa.contracts.payer import Payer
from medusa.contracts.receipts import Proposal, countersign
from medusa.overlay.certificates import der
from medusa.overlay.errors import MedusaError
from medusa.overlay.events import wall_clock
from medusa.overlay.exchange import PUSH, Push, Pushed
from medusa.overlay.identity import Root, parse_peer_id
from medusa.overlay.names import PeerId
from medusa.overlay.node.node import Overlay
from medusa.overlay.statements import Admission, digest_of, seal_statement
from medusa.testnet.simulation.faults import (
    Admit,
    Cheat,
    Clog,
    Crash,
    Drift,
    Fault,
    Forge,
    Noise,
    Partition,
    Stop,
)
from medusa.testnet.simulation.history import Covered, History, Invited, PeerView, Reached
from medusa.testnet.simulation.views import books_of, covered, producers_of, reached, view_of
from medusa.testnet.simulation.world import SimulatedPeer, World
from medusa.testnet.virtual.hosts import inside
from medusa.tools.daemon.peer import Peer
from medusa.tools.market.settler import Settler

CALL_S = 5.0
"""Seconds for a call to the victim of a lie."""

NOBODYS_KEY: Final = Ed25519PrivateKey.from_private_bytes(bytes(32))


async def forge_admission(liar: Overlay, victim: str, participant: str) -> None:
    """Send a peer (hex) a forged statement that the founder has admitted a participant."""
    root = Root.create(participant, wall_clock())
    charter = digest_of(liar.membership.charter)
    admission = Admission(
        liar.membership.federation, participant, der(root.certificate), charter, wall_clock()
    )
    statement = seal_statement(root.private_key, admission)
    try:
        connection = await liar.connect(parse_peer_id(victim))
        await connection.call(PUSH, Push((statement,), ()), Pushed, timeout_s=CALL_S)
    except MedusaError:
        return  # the victim is away, or closed the connection


def admit(sponsor: Overlay, root: Root, participant: str) -> None:
    """Admit a participant of that name, and let the others learn of it."""
    newcomer = Root.create(participant, wall_clock())
    statement = sponsor.membership.admit(root, newcomer.certificate, wall_clock())
    sponsor.learn((statement,))


def cheat(peer: Peer | None) -> None:
    """Let the peer pay its bills with forged signatures, and record nothing."""

    def proposed(payee: PeerId, proposal: Proposal, _: float) -> list[Effect]:
        return [Send(payee, countersign(NOBODYS_KEY, proposal))]

    if peer is not None:
        vars(_payer(peer))["proposed"] = proposed


def honest(peer: Peer | None) -> None:
    """Let the peer pay correctly again."""
    if peer is not None:
        vars(_payer(peer)).pop("proposed", None)


def _payer(peer: Peer) -> Payer:
    settler: Settler = peer.engine.mover.agree._decide.__self__  # type: ignore[attr-defined]
    return settler._settlement._payer


class SimulatedBed:
    """The simulator's `testbed.Testbed`. Faults of one kind may overlap: the last heal counts.

    Args:
        history: called with changes of the membership.
    """

    def __init__(self, world: World, history: History) -> None:
        self.world, self.rng, self.peers = world, world.rng, world.peers
        self.now, self.note, self.client = world.now, world.note, world.client
        self._history = history
        self._down: dict[str, Fault] = {}
        self._cuts: Counter[tuple[str, str]] = Counter()
        self._noises: list[Noise] = []
        self._calm = world.network.links.default

    # -- faults ------------------------------------------------------------------------------------

    async def inflict(self, fault: Fault) -> None:
        match fault:
            case Crash() | Stop():
                await self._take_down(fault)
            case Clog(source=source, target=target):
                hosts = self.peers[source].host, self.peers[target].host
                network = self.world.network
                network.links.clog(*hosts, network.time.now + fault.for_s)
            case Noise():
                self._noises.append(fault)
                self._make_noise()
            case Partition():
                for pair in self._between(fault):
                    self._cuts[pair] += 1
                    self.world.network.links.cut(*pair, both=False)
            case Drift(peer=peer, rate=rate, step_s=step_s):
                self.world.set_clock(peer, offset_s=step_s, drift=rate)
            case Forge() | Admit():
                await self._intrude(fault)
            case Cheat(peer=peer):
                cheat(self.peers[peer].peer)

    async def heal(self, fault: Fault) -> None:
        match fault:
            case Crash(peer=peer) | Stop(peer=peer):
                await self._restart(peer, fault)
            case Noise():
                self._noises.remove(fault)
                self._make_noise()
            case Partition():
                for pair in self._between(fault):
                    self._cuts[pair] -= 1
                    if not self._cuts[pair]:
                        self.world.network.links.heal(*pair, both=False)
            case Drift(peer=peer):
                self.world.set_clock(peer)
            case Cheat(peer=peer):
                honest(self.peers[peer].peer)
            case Clog() | Forge() | Admit():
                pass  # the network removes the clog by itself

    async def _intrude(self, fault: Forge | Admit) -> None:
        place = self.peers[fault.peer]
        if place.peer is None:
            return
        overlay = place.peer.engine.overlay
        if isinstance(fault, Admit):
            self._history.add(Invited(self.now(), fault.participant))
            admit(overlay, Root.load(place.home.folder), fault.participant)
        else:
            victim = self.peers[fault.victim].id
            await forge_admission(overlay, victim, fault.participant)

    async def _take_down(self, fault: Crash | Stop) -> None:
        if self.peers[fault.peer].life is None:
            return  # the last stop took so long that the peer is still down
        self._down[fault.peer] = fault
        if isinstance(fault, Crash):
            await self.world.crash(fault.peer, power=fault.power)
        else:
            await self.world.stop(fault.peer)

    async def _restart(self, peer: str, fault: Fault) -> None:
        """Restart the peer, unless a later fault takes it down before or during the start: then the
        heal of the later fault restarts it."""
        if self._down[peer] is not fault:
            return
        try:
            await self.world.restart(peer)
        except MedusaError:
            if self._down[peer] is fault:
                raise

    def _make_noise(self) -> None:
        loss = max((noise.loss for noise in self._noises), default=0.0)
        doubles = max((noise.duplicate for noise in self._noises), default=0.0)
        self.world.network.links.default = replace(
            self._calm,
            loss=max(loss, self._calm.loss),
            duplicate=max(doubles, self._calm.duplicate),
        )

    def _between(self, fault: Partition) -> Iterator[tuple[str, str]]:
        """Ordered pairs of hosts that are cut."""
        inside = [self.peers[name].host for name in fault.peers]
        outside = [p.host for name, p in self.peers.items() if name not in fault.peers]
        for one in inside:
            for other in outside:
                yield one, other
                if fault.symmetric:
                    yield other, one

    # -- looking on ----------------------------------------------------------------------------

    def look(self, *, books: bool = False) -> tuple[PeerView, ...]:
        views: list[PeerView] = []
        for name, place in self.peers.items():
            if place.peer is None:
                continue
            view = view_of(name, place.lives, place.peer, self.now())
            if books:
                federation = place.peer.engine.overlay.membership.federation
                read = books_of(place.home, view.id, federation)
                view = msgspec.structs.replace(view, books=read)
            views.append(view)
        return tuple(views)

    def covered(self, look: int) -> Iterable[Covered]:
        running = {name: place.peer for name, place in self.peers.items() if place.peer is not None}
        lives = {name: self.peers[name].lives for name in running}
        return covered(running, lives, look, self.now())

    def reached(self, look: int) -> Iterable[Reached]:
        for name, place in self.peers.items():
            if place.peer is not None:
                yield from reached(place.peer, name, place.lives, look, self.now())

    async def look_up(self, streams: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        names = tuple(streams)
        found: dict[str, Mapping[str, str]] = {}

        async def ask(name: str, place: SimulatedPeer) -> None:
            if place.peer is not None and place.life is not None:
                with inside(place.life.process):
                    found[name] = await producers_of(place.peer, names)

        async with trio.open_nursery() as nursery:
            for name, place in self.peers.items():
                nursery.start_soon(ask, name, place)
        return found
