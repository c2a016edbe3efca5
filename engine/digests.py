"""What peers say of themselves by gossip: their load, and the versions of streams they produce.

A digest is small and may be late; it only makes known sooner what the catalog and a primary's own
calls make known as well: that a stream is produced under a higher fence, so that who has the lower
one steps down and who reads it looks elsewhere. A peer is believed about streams of its own
participant alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

import trio
from msgspec import Struct

from engine.availability import Mode
from engine.config import EngineConfig
from engine.producers import Producers
from engine.queries import QueryHost
from engine.stream_store import StreamStore
from overlay.encoding import decode, encode
from overlay.errors import DecodeError
from overlay.names import ObjectName
from overlay.node import Overlay

PUBLISH_S: Final = 1.0
"""How often a digest is made, seconds; gossip carries it no faster than its packets go anyway."""

MAX_VERSIONS: Final = 14
"""Versions in one digest, of up to 31 bytes each: with the rest they fit the 512 bytes of gossip.
Of more, each digest has the next ones."""

MAX_DIGEST: Final = 512
"""Bytes."""

KEY_BYTES: Final = 8
"""Of a stream's name: enough that two of one peer do not meet."""


class Version(Struct, frozen=True, array_like=True):
    """One stream as its author produces it. boundary: microseconds."""

    stream: bytes
    fence: int
    boundary: int


class Digest(Struct, frozen=True, array_like=True):
    """load, capacity: of the author, thousandths of a core."""

    load: int
    capacity: int
    versions: tuple[Version, ...] = ()


def key_of_stream(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()[:KEY_BYTES]


class Digests:
    """Publishes ours and heeds those of others."""

    def __init__(
        self,
        overlay: Overlay,
        queries: QueryHost,
        store: StreamStore,
        producers: Producers,
        config: EngineConfig,
    ) -> None:
        self._overlay = overlay
        self._queries = queries
        self._store = store
        self._producers = producers
        self._config = config
        self._next = 0
        self._heard: dict[bytes, bytes] = {}
        self._digests: dict[bytes, Digest] = {}

    def is_busy(self, peer: bytes) -> bool:
        """Whether a peer says that it has no room for more; one that says nothing has."""
        digest = self._digests.get(peer)
        return digest is not None and digest.load >= digest.capacity

    async def tend(self) -> None:
        """For ever."""
        while True:
            self._overlay.gossip.publish(encode(self._own()))
            self._heed_others()
            await trio.sleep(PUBLISH_S)

    def _own(self) -> Digest:
        load = sum(task.load for task in self._queries.task_status())
        return Digest(int(1000 * load), int(1000 * self._config.capacity_cores), self._versions())

    def _versions(self) -> tuple[Version, ...]:
        fenced = [
            Version(key_of_stream(task.name), running.stored.tenure.fence, task.boundary)
            for running in self._queries.all()
            if running.stored.availability.mode is not Mode.NONE
            for task in running.tasks
        ]
        if len(fenced) > MAX_VERSIONS:
            self._next = (self._next + MAX_VERSIONS) % len(fenced)
            fenced = [*fenced[self._next :], *fenced[: self._next]][:MAX_VERSIONS]
        return tuple(fenced)

    def _heed_others(self) -> None:
        gossip = self._overlay.gossip
        changed = {
            peer: data
            for peer, data in gossip.digests.items()
            if self._heard.get(peer) != data and peer != self._overlay.identity.peer_id
        }
        if not changed:
            return
        names = {key_of_stream(kept.name): kept.name for kept in self._store.all()}
        for peer, data in changed.items():
            self._heard[peer] = data
            try:
                digest = decode(data, Digest, limit=MAX_DIGEST, what="digest")
            except DecodeError:
                continue  # of a later Medusa, or hostile: it harms its author alone
            self._digests[peer] = digest
            self._believe(peer, digest.versions, names)
        for peer in self._heard.keys() - gossip.digests.keys():
            del self._heard[peer]
            self._digests.pop(peer, None)

    def _believe(self, peer: bytes, versions: Iterable[Version], names: dict[bytes, str]) -> None:
        record = self._overlay.peers.get(peer)
        for version in versions:
            name = names.get(version.stream)
            if name is None or record is None:
                continue
            if record.participant == ObjectName.parse(name).participant:
                self._producers.believe(name, version.fence)
