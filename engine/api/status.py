from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec
import trio

from engine.api.hearsay import NONSENSE, SNAPSHOT_BYTES, cut, fitted, for_members, heard
from engine.api.own_status import OwnStatus
from engine.objects.readers import Readers
from engine.replication.copies import Copies
from engine.replication.status import PeerStatus, Snapshot, Status
from engine.replication.versions.messages import MAX_STREAMS, AskVersions, Version, Versions
from engine.streams.store import StreamStore
from overlay.errors import DecodeError, InvalidInputError, MedusaError
from overlay.names import PeerId
from overlay.node import Overlay
from overlay.rpc import Caller

ASK_PEER_S: Final = 1.0
"""The longest wait for one peer's answer, seconds: a screen is drawn once a second."""


class StatusCalls:
    """Calls for the status of peers, and of the streams that they produce."""

    def __init__(
        self,
        overlay: Overlay,
        own: OwnStatus,
        copies: Copies,
        store: StreamStore,
        readers: Readers,
    ) -> None:
        self._overlay = overlay
        self._own = own
        self._copies = copies
        self._store = store
        self._readers = readers

    def register(self) -> None:
        service = self._overlay.service
        # It asks every peer: only our own clients may cause that.
        service.unary("status", Status, self.status, clients=True, peers=False)
        service.unary("peer_status", Status, self.peer_status)
        service.unary("versions", AskVersions, self.versions)

    async def status(self, _caller: Caller, request: Status, _: bytes) -> Snapshot:
        peers: dict[PeerId, PeerStatus] = {}

        async def ask(peer: PeerId) -> None:
            if peer == self._overlay.identity.peer_id:
                peers[peer] = self._own.now()
                return
            try:
                with trio.fail_after(ASK_PEER_S):
                    connection = await self._overlay.connect(peer)
                    said = await connection.call("peer_status", Status(), PeerStatus)
                who = connection.remote.participant
                known, own = self._known(peer, who), who == self._overlay.identity.participant
                peers[peer] = heard(said, known, own=own)
            except DecodeError:
                peers[peer] = msgspec.structs.replace(self._known(peer), state=NONSENSE)
            except (MedusaError, trio.TooSlowError):
                peers[peer] = self._known(peer)

        if request.federation:
            await self._of_all_peers(ask)
        else:
            await ask(self._overlay.identity.peer_id)
        return Snapshot(
            self._overlay.clock(),
            self._overlay.identity.peer_id.hex(),
            self._overlay.membership.name,
            fitted(
                [
                    msgspec.structs.replace(peer, health=self._health(peer_id))
                    for peer_id, peer in sorted(
                        peers.items(), key=lambda both: (both[1].participant, both[1].peer)
                    )
                ]
            ),
            self._overlay.membership.federation,
        )

    async def peer_status(self, caller: Caller, _request: Status, _: bytes) -> PeerStatus:
        """Load and streams are for all members; events are for our own participant."""
        status = self._own.now()
        if caller.participant != self._overlay.identity.participant:
            who = caller.participant
            status = for_members(status, partial(self._may_read, who), partial(self._may_know, who))
        return cut(status, SNAPSHOT_BYTES)

    async def versions(self, caller: Caller, request: AskVersions, _: bytes) -> Versions:
        """The state of streams at this peer: their consumers monitor the producers by it."""
        if len(request.streams) > MAX_STREAMS:
            raise InvalidInputError(f"more than {MAX_STREAMS} streams in one question")
        found: list[Version] = []
        for stream in request.streams:
            state = self._copies.rendition(stream)
            if state is None:
                continue
            if self._readers.may_read(state.entry.stream, caller.participant):
                suffix, number = state.suffix, self._copies.version(state)
                version = Version(stream, suffix.state, state.log.boundary, suffix.visible, number)
                found.append(version)
        return Versions(tuple(found))

    def _may_read(self, participant: str, stream: str) -> bool:
        state = self._copies.rendition(stream) or self._store.get(stream)
        return state is not None and self._readers.may_read(state.entry.stream, participant)

    def _may_know(self, participant: str, query: str) -> bool:
        network = self._copies.network(query)
        return network is not None and self._readers.may_know(query, network.policies, participant)

    async def _of_all_peers(self, ask: Callable[[PeerId], Awaitable[None]]) -> None:
        async with trio.open_nursery() as nursery:
            for record in self._overlay.peers.all():
                nursery.start_soon(ask, record.peer_id)

    def _health(self, peer: PeerId) -> str:
        return self._overlay.gossip.health(peer).value

    def _known(self, peer: PeerId, participant: str = "") -> PeerStatus:
        """The status of a silent peer, by the peer table. participant: from its connection."""
        record = self._overlay.peers.get(peer)
        host, port = record.addresses[0] if record and record.addresses else ("?", 0)
        participant = participant or (record.participant if record else "?")
        return PeerStatus(participant, peer.hex(), f"{host}:{port}", "unreachable")
