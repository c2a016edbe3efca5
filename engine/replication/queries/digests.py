"""Digests of peers by gossip: their load, and the terms under which they produce streams.

A digest is small and may be late. It only speeds up news that the catalog and a primary's calls
bring as well: a stream is produced under a later term. Then the holder of the earlier term steps
down, and its readers look elsewhere.
"""

from __future__ import annotations

from typing import Final

import trio
from msgspec import Struct

from medusa.engine.objects.availability import Mode
from medusa.engine.replication.directory.book import key_of
from medusa.engine.replication.directory.directory import Directory
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.streams.config import EngineConfig
from medusa.overlay.concurrency import Bell, next_beat
from medusa.overlay.encoding import decode, encode
from medusa.overlay.errors import DecodeError
from medusa.overlay.names import PeerId
from medusa.overlay.node.node import Overlay

PUBLISH_S: Final = 1.0
"""How often a digest is made, seconds; gossip cannot spread it faster than it sends packets."""

MAX_VERSIONS: Final = 14
"""Versions in one digest, of up to 30 bytes each: with the rest they fit the 512 bytes of gossip.
If there are more, each digest has the next ones."""

NEWEST: Final = 7
"""The places in a digest for the versions with the latest terms, so that a takeover spreads at
once."""

MAX_DIGEST: Final = 512
"""The bytes of a digest, at most."""


class Version(Struct, frozen=True, array_like=True):
    """A stream that the author produces, and the number of the term."""

    stream: bytes
    number: int


class Digest(Struct, frozen=True, array_like=True):
    """A peer's load, and the streams that it produces.

    Attributes:
        load, capacity: load and capacity of the author, thousandths of a core.
    """

    load: int
    capacity: int
    versions: tuple[Version, ...] = ()


class Digests:
    """Publishes this peer's digest, and takes those of other peers."""

    def __init__(
        self, overlay: Overlay, queries: QueryHost, directory: Directory, config: EngineConfig
    ) -> None:
        self._overlay = overlay
        self._queries = queries
        self._directory = directory
        self._config = config
        self._next = 0
        self._digests: dict[PeerId, Digest] = {}
        self._soon = Bell()
        queries.appointed.add(self._soon.ring)

    def is_busy(self, peer: PeerId) -> bool:
        """Whether a peer's digest says that it has no room for more load; a peer without a digest
        counts as having room."""
        digest = self._digests.get(peer)
        return digest is not None and digest.load >= digest.capacity

    async def maintain(self) -> None:
        """Publish digests, for ever."""
        gossip = self._overlay.gossip
        with gossip.digest_changed.listening(self._receive):
            for peer, content in gossip.digests.items():
                self._receive(peer, content)
            while True:
                self._soon.clear()
                gossip.publish(encode(self._own()))
                for peer in self._digests.keys() - gossip.digests.keys():
                    del self._digests[peer]
                with trio.move_on_at(next_beat(PUBLISH_S)):
                    await self._soon.wait()

    def _own(self) -> Digest:
        tasks = (task for running in self._queries.all() for task in running.tasks)
        load = sum(task.runner.load.cores for task in tasks)
        return Digest(int(1000 * load), int(1000 * self._config.capacity_cores), self._versions())

    def _versions(self) -> tuple[Version, ...]:
        versions = [
            Version(key_of(task.name), running.stored.term.number)
            for running in self._queries.all()
            if running.stored.availability.mode is not Mode.NONE
            for task in running.tasks
        ]
        if len(versions) <= MAX_VERSIONS:
            return tuple(versions)
        versions.sort(key=lambda version: version.number, reverse=True)
        newest, others = versions[:NEWEST], versions[NEWEST:]
        count = MAX_VERSIONS - NEWEST
        self._next = (self._next + count) % len(others)
        return (*newest, *[*others[self._next :], *others[: self._next]][:count])

    def _receive(self, peer: PeerId, content: bytes) -> None:
        if peer == self._overlay.identity.peer_id:
            return
        try:
            digest = decode(content, Digest, limit=MAX_DIGEST, what="digest")
        except DecodeError:
            return  # a hostile digest harms only its author
        self._digests[peer] = digest
        for version in digest.versions:
            self._directory.receive(peer, version.stream, version.number)
