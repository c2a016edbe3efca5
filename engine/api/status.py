"""Calls for the status of peers, and the checks of another peer's status.

The receiver takes the sender's participant and id from the connection, and its address from its
own peer table. It shortens long answers, so that short answers stay whole.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
import trio

from medusa.engine.api.own_status import OwnStatus
from medusa.engine.objects.readers import Readers
from medusa.engine.replication.finding import Copies
from medusa.engine.replication.records.status import PeerStatus, Snapshot, Status
from medusa.engine.replication.versions.choice import MAX_STREAMS, AskVersions, Version, Versions
from medusa.engine.streams.store.store import StreamStore
from medusa.engine.streams.store.stream_state import Role
from medusa.overlay.encoding import encode
from medusa.overlay.errors import DecodeError, InvalidInputError, MedusaError
from medusa.overlay.names import SCHEME, PeerId
from medusa.overlay.node.node import Overlay
from medusa.overlay.plain import plain
from medusa.overlay.rpc import MAX_STRUCT_BYTES, Caller

SNAPSHOT_BYTES: Final = MAX_STRUCT_BYTES * 3 // 4
"""Bytes of all peers in one answer to a client, which is one message."""

STATES: Final = frozenset({"running", "starting"})
"""States that a peer may claim for itself."""

COPIES: Final = frozenset({Role.FOLLOWER, Role.ASSIGNED, Role.STANDBY, Role.REPLICA})
"""Roles in which a peer may keep a stream of another participant."""

NONSENSE: Final = "nonsense"
"""The state of a peer whose answer cannot be read, or claims an impossible state."""

_LISTS: Final = ("streams", "tasks", "events", "links", "replicas", "clients", "troubles")


def for_members(
    status: PeerStatus, may_read: Callable[[str], bool], may_know: Callable[[str], bool]
) -> PeerStatus:
    """This peer's status for a peer of another participant: without events, links, clients,
    troubles and the reasons of tasks that do not go on, and without streams and queries that are
    not for that participant.

    Args:
        may_read: whether it may read a stream. may_know: whether it may know what a query does.
    """
    return msgspec.structs.replace(
        status,
        events=(),
        links=(),
        clients=(),
        troubles=(),
        streams=tuple(each for each in status.streams if may_read(each.name)),
        tasks=tuple(
            msgspec.structs.replace(task, reason="", waits=None)
            for task in status.tasks
            if may_read(task.name) and may_know(task.query)
        ),
        replicas=tuple(each for each in status.replicas if may_know(each.query)),
    )


def vouched(said: PeerStatus, known: PeerStatus, *, own: bool) -> PeerStatus:
    """A received status; fields for which its sender cannot vouch are replaced or removed.

    Args:
        known: its participant and id by its connection, and its address by this peer's table.
        own: whether it is of our own participant: only then its events are for us.
    """
    clean, mine = plain(said), f"{SCHEME}{known.participant}/"
    return msgspec.structs.replace(
        clean,
        participant=known.participant,
        peer=known.peer,
        address=known.address,
        state=clean.state if clean.state in STATES else NONSENSE,
        streams=tuple(s for s in clean.streams if s.role in COPIES or s.name.startswith(mine)),
        tasks=tuple(task for task in clean.tasks if task.owner or task.name.startswith(mine)),
        events=clean.events if own else (),
        clients=clean.clients if own else (),
        troubles=clean.troubles if own else (),
        left_out=max(0, clean.left_out),
    )


def fitted(peers: Sequence[PeerStatus], limit: int = SNAPSHOT_BYTES) -> tuple[PeerStatus, ...]:
    """The same, with the ends of lists left out if all together take more than `limit` bytes.
    Short answers stay whole; long ones share the rest."""
    sizes = {index: len(encode(peer)) for index, peer in enumerate(peers)}
    chosen, left = list(peers), limit
    for position, index in enumerate(sorted(sizes, key=sizes.__getitem__)):
        room = left // (len(peers) - position)
        chosen[index] = cut(peers[index], room)
        left -= min(room, sizes[index])
    return tuple(chosen)


def cut(peer: PeerStatus, limit: int) -> PeerStatus:
    """A status of `limit` bytes at most, or without any list at all."""
    while (size := len(encode(peer))) > limit and any(getattr(peer, name) for name in _LISTS):
        lists = {name: getattr(peer, name) for name in _LISTS}
        rest = {name: items[: len(items) * limit // size] for name, items in lists.items()}
        out = sum(len(lists[name]) - len(rest[name]) for name in _LISTS)
        peer = msgspec.structs.replace(peer, **rest, left_out=peer.left_out + out)
    return peer


ASK_PEER_S: Final = 1.0
"""The longest wait for one peer's answer, seconds: a screen is drawn once a second."""


@dataclass(frozen=True, eq=False)
class StatusCalls:
    """Calls for the status of peers, and of the streams that they produce."""

    overlay: Overlay
    own: OwnStatus
    copies: Copies
    store: StreamStore
    readers: Readers

    def register(self) -> None:
        service = self.overlay.service
        # It asks every peer: only our own clients may cause that.
        service.unary("status", Status, self.status, clients=True, peers=False)
        service.unary("peer_status", Status, self.peer_status)
        service.unary("versions", AskVersions, self.versions)

    async def status(self, _caller: Caller, request: Status, _: bytes) -> Snapshot:
        peers: dict[PeerId, PeerStatus] = {}

        async def ask(peer: PeerId) -> None:
            if peer == self.overlay.identity.peer_id:
                peers[peer] = self.own.now()
                return
            try:
                with trio.fail_after(ASK_PEER_S):
                    connection = await self.overlay.connect(peer)
                    said = await connection.call("peer_status", Status(), PeerStatus)
                who = connection.remote.participant
                known, own = self._known(peer, who), who == self.overlay.identity.participant
                peers[peer] = vouched(said, known, own=own)
            except DecodeError:
                peers[peer] = msgspec.structs.replace(self._known(peer), state=NONSENSE)
            except (MedusaError, trio.TooSlowError):
                peers[peer] = self._known(peer)

        if request.federation:
            await self._of_all_peers(ask)
        else:
            await ask(self.overlay.identity.peer_id)
        return Snapshot(
            self.overlay.clock(),
            self.overlay.identity.peer_id.hex(),
            self.overlay.membership.name,
            fitted(
                [
                    msgspec.structs.replace(peer, health=self._health(peer_id))
                    for peer_id, peer in sorted(
                        peers.items(), key=lambda both: (both[1].participant, both[1].peer)
                    )
                ]
            ),
            self.overlay.membership.federation,
        )

    async def peer_status(self, caller: Caller, _request: Status, _: bytes) -> PeerStatus:
        """Load and streams are for all members; events are for our own participant."""
        status = self.own.now()
        if caller.participant != self.overlay.identity.participant:
            who = caller.participant
            status = for_members(status, partial(self._may_read, who), partial(self._may_know, who))
        return cut(status, SNAPSHOT_BYTES)

    async def versions(self, caller: Caller, request: AskVersions, _: bytes) -> Versions:
        """The state of streams at this peer: their consumers monitor the producers by it."""
        if len(request.streams) > MAX_STREAMS:
            raise InvalidInputError(f"more than {MAX_STREAMS} streams in one question")
        found: list[Version] = []
        for stream in request.streams:
            state = self.copies.rendition(stream)
            if state is None:
                continue
            if self.readers.may_read(state.entry.stream, caller.participant):
                suffix, number = state.suffix, self.copies.version(state)
                version = Version(stream, suffix.state, state.log.boundary, suffix.visible, number)
                found.append(version)
        return Versions(tuple(found))

    def _may_read(self, participant: str, stream: str) -> bool:
        state = self.copies.rendition(stream) or self.store.get(stream)
        return state is not None and self.readers.may_read(state.entry.stream, participant)

    def _may_know(self, participant: str, query: str) -> bool:
        network = self.copies.network(query)
        return network is not None and self.readers.may_know(query, network.policies, participant)

    async def _of_all_peers(self, ask: Callable[[PeerId], Awaitable[None]]) -> None:
        async with trio.open_nursery() as nursery:
            for record in self.overlay.peers.all():
                nursery.start_soon(ask, record.peer_id)

    def _health(self, peer: PeerId) -> str:
        return self.overlay.gossip.health(peer).value

    def _known(self, peer: PeerId, participant: str = "") -> PeerStatus:
        """The status of a silent peer, by the peer table. participant: from its connection."""
        record = self.overlay.peers.get(peer)
        host, port = record.addresses[0] if record and record.addresses else ("?", 0)
        participant = participant or (record.participant if record else "?")
        return PeerStatus(participant, peer.hex(), f"{host}:{port}", "unreachable")
