"""Gossip over connections: pings where datagrams do not pass, and push-pulls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import trio

from overlay.addresses import Address
from overlay.concurrency import Locks
from overlay.datagrams import Datagrams
from overlay.errors import DecodeError, MedusaError, UnavailableError
from overlay.events import Events
from overlay.gossip.detector import Detector
from overlay.gossip.events import Doubt, Event, Reached, Synced
from overlay.gossip.messages import MAX_STATE, PING_METHOD, SYNC_METHOD, Here, Knock, State
from overlay.listening import dial_tcp
from overlay.names import PeerId
from overlay.peers import PeerTable
from overlay.rpc import Caller, Service
from overlay.streams import Buffer
from overlay.transport import Transport

SYNC_S: Final = 10.0
"""Seconds a push-pull may take: dialling included, over a slow line."""

LEARNT_AT_ONCE: Final = 32
"""Claims or digests of a push-pull that are looked at before others have their turn: some
milliseconds, where each is news."""

MAX_REACHING: Final = 16
"""Peers tried over the stream at once."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The parts of a peer's overlay that gossip goes over, and where it notes what happens."""

    peers: PeerTable
    transport: Transport
    datagrams: Datagrams
    events: Events


class Calls:
    """One detector's calls to other peers, and its answers to theirs."""

    def __init__(
        self, detector: Detector, lines: Lines, reach_s: float, handle: Callable[[Event], None]
    ) -> None:
        """
        Args:
            reach_s: seconds for an answer over the stream.
            handle: passes an event to the detector, and carries out what follows.
        """
        self._detector = detector
        self._lines = lines
        self._reach_s = reach_s
        self._handle = handle
        self._reaching: set[PeerId] = set()
        self._learning = Locks()

    def register(self, service: Service) -> None:
        """Serve pings and push-pulls to peers, and to nobody else."""
        service.unary(PING_METHOD, Knock, self._on_knock)
        service.unary(SYNC_METHOD, State, self._on_state, limit=2 * MAX_STATE)

    async def _on_knock(self, _caller: Caller, _knock: Knock, _body: Buffer) -> Here:
        return Here()

    async def _on_state(self, caller: Caller, state: State, _body: Buffer) -> State:
        assert caller.peer_id is not None
        await self._learn(caller.peer_id, state)
        return self._detector.state()

    async def _learn(self, peer: PeerId, state: State) -> None:
        """Take in what another peer holds, a few signatures at a time: others have their turn in
        between, its own further states come after.

        Raises:
            DecodeError: it is larger than a peer sends.
        """
        if sum(len(item) for item in (*state.claims, *state.digests)) > MAX_STATE:
            raise DecodeError(f"gossip state: more than {MAX_STATE} bytes")
        async with self._learning.of(peer.hex()):
            for at in range(0, len(state.claims), LEARNT_AT_ONCE):
                part = State(state.claims[at : at + LEARNT_AT_ONCE], ())
                self._handle(Synced(peer, part))
                await trio.lowlevel.checkpoint()
            for at in range(0, len(state.digests), LEARNT_AT_ONCE):
                part = State((), state.digests[at : at + LEARNT_AT_ONCE])
                self._handle(Synced(peer, part))
                await trio.lowlevel.checkpoint()

    async def sync(self, peer: PeerId) -> None:
        """A push-pull with that peer, if it answers."""
        with trio.move_on_after(SYNC_S):
            try:
                connection = await self._lines.transport.connection(peer)
                state = await connection.call(
                    SYNC_METHOD, self._detector.state(), State, timeout_s=SYNC_S
                )
                await self._learn(peer, state)
            except MedusaError:
                pass  # probes will find out what is wrong with it; the next time is another's turn

    def may_reach(self, peer: PeerId) -> bool:
        """Whether to try that peer over the stream now; if so, `reach` is to follow."""
        if len(self._reaching) >= MAX_REACHING or peer in self._reaching:
            return False
        self._reaching.add(peer)
        return True

    async def reach(self, peer: PeerId, number: int) -> None:
        """Over the stream, and if it cannot be reached, ask its machine whether it is gone."""
        try:
            with trio.move_on_after(self._reach_s):
                try:
                    connection = await self._lines.transport.connection(peer)
                    await connection.call(PING_METHOD, Knock(), Here, timeout_s=SYNC_S)
                except UnavailableError:
                    if await _refuses_all(self._lines.peers.addresses_of(peer)):
                        self._handle(Doubt(peer, gone=True))
                except MedusaError:
                    pass
                else:
                    self._handle(Reached(peer, number))
        finally:
            self._reaching.discard(peer)


async def _refuses_all(addresses: Sequence[Address]) -> bool:
    """Whether connections to all of its addresses are refused: its machine's kernel says that the
    peer is gone. No address says nothing."""
    for address in addresses:
        try:
            stream = await dial_tcp(address)
        except MedusaError as error:
            if not _refused(error):
                return False
        else:
            await trio.aclose_forcefully(stream)
            return False
    return bool(addresses)


def _refused(error: BaseException | None) -> bool:
    """Whether connections were refused, nothing else: the kernel's word is the innermost cause."""
    while error is not None:
        if isinstance(error, BaseExceptionGroup):
            return all(_refused(part) for part in error.exceptions)
        if isinstance(error, ConnectionRefusedError):
            return True
        error = error.__cause__ or error.__context__
    return False
