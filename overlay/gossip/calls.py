"""Gossip over connections: pings where datagrams do not pass, and push-pulls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import trio

from medusa.overlay.addresses import Address
from medusa.overlay.concurrency import Locks
from medusa.overlay.datagrams import Datagrams
from medusa.overlay.errors import DecodeError, MedusaError, UnavailableError
from medusa.overlay.events import Events
from medusa.overlay.gossip.detector import Detector
from medusa.overlay.gossip.events import Doubt, Event, Reached, Synced
from medusa.overlay.gossip.messages import MAX_STATE, PING_METHOD, SYNC_METHOD, Here, Knock, State
from medusa.overlay.listening import dial_tcp
from medusa.overlay.names import PeerId
from medusa.overlay.peers import PeerTable
from medusa.overlay.rpc import Caller, Service
from medusa.overlay.streams import Buffer
from medusa.overlay.transport import Transport

SYNC_S: Final = 10.0
"""Seconds for a push-pull, including dialling over a slow line."""

LEARNT_AT_ONCE: Final = 32
"""Claims or digests of a push-pull that are processed before other tasks have their turn: some
milliseconds, if each is news."""

MAX_REACHING: Final = 16
"""Peers probed over TCP at once, where datagrams are lost: each probe may dial."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The parts of a peer's overlay that gossip uses, and its events."""

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
            handle: passes an event to the detector, and carries out its effects.
        """
        self._detector = detector
        self._lines = lines
        self._reach_s = reach_s
        self._handle = handle
        self._reaching: set[PeerId] = set()
        self._learning = Locks()

    def register(self, service: Service) -> None:
        """Serve pings and push-pulls to peers only."""
        service.unary(PING_METHOD, Knock, self._on_knock)
        service.unary(SYNC_METHOD, State, self._on_state, limit=2 * MAX_STATE)

    async def _on_knock(self, _caller: Caller, _knock: Knock, _body: Buffer) -> Here:
        return Here()

    async def _on_state(self, caller: Caller, state: State, _body: Buffer) -> State:
        assert caller.peer_id is not None
        await self._learn(caller.peer_id, state)
        return self._detector.state()

    async def _learn(self, peer: PeerId, state: State) -> None:
        """Take in another peer's state, a few signatures at a time. Other tasks have their turn in
        between; further states of the same peer come after.

        Raises:
            DecodeError: the state is larger than a peer sends.
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
        """Do a push-pull with that peer; a peer that does not answer is ignored."""
        with trio.move_on_after(SYNC_S):
            try:
                connection = await self._lines.transport.connection(peer)
                state = await connection.call(
                    SYNC_METHOD, self._detector.state(), State, timeout_s=SYNC_S
                )
                await self._learn(peer, state)
            except MedusaError:
                pass  # probes will find the reason, and the next push-pull is with another peer

    def may_reach(self, peer: PeerId) -> bool:
        """Whether to probe that peer over the stream now; if so, the caller must call `reach`."""
        if len(self._reaching) >= MAX_REACHING or peer in self._reaching:
            return False
        self._reaching.add(peer)
        return True

    async def reach(self, peer: PeerId, number: int) -> None:
        """Probe the peer over the stream. If it cannot be reached, find out whether its port
        refuses connections."""
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
    """Whether all of a peer's addresses refuse connections: then its machine's kernel says that the
    peer is gone. False without addresses."""
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
    """Whether the innermost cause is a refused connection, which is the kernel's answer."""
    while error is not None:
        if isinstance(error, BaseExceptionGroup):
            return all(_refused(part) for part in error.exceptions)
        if isinstance(error, ConnectionRefusedError):
            return True
        error = error.__cause__ or error.__context__
    return False
