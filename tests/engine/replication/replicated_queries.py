"""Queries with a secondary; the test lets a primary die through a failure detector of its own,
behind the interface of `medusa.overlay.gossip`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest
from engine_peers import Cluster, Place, begin, until

from medusa.engine.objects.availability import Availability, Mode, Recovery
from medusa.engine.objects.query import Filter, Query
from medusa.engine.streams.config import Timing
from medusa.overlay.addresses import Address
from medusa.overlay.errors import NotFoundError
from medusa.overlay.gossip.events import Health
from medusa.overlay.listeners import Listeners
from medusa.overlay.peers import PeerTable
from medusa.tools.client.async_client import AsyncMedusaClient

QUICK = Timing(maintenance_s=0.05, keep_up_s=0.05)
"""Settings of peers whose retention ends soon."""


LOSSLESS = [Mode.UPSTREAM_BACKUP, Mode.PASSIVE_STANDBY, Mode.ACTIVE_STANDBY]


def asked(query: Query, mode: Mode, secondary: Place, recovery: Recovery | None = None) -> Query:
    weakest = Recovery.GAP if mode is Mode.AMNESIA else Recovery.PRECISE
    wish = Availability(mode, recovery or weakest, secondary=secondary.id)
    if mode is Mode.PASSIVE_STANDBY:
        wish = msgspec.structs.replace(wish, checkpoint_s=0.1)
    return msgspec.structs.replace(query, availability=wish)


def secondary_of(place: Place, query: str) -> str:
    """Return the secondary's part of a query that the peer runs, or is about to run after a
    takeover."""
    with suppress(NotFoundError):
        running = place.up.engine.queries.get(place.name(query))
        return running.stored.term.secondary.hex()
    return ""


async def stands_by(primary: Place, secondary: Place, query: str) -> None:
    await until(lambda: secondary_of(primary, query) == secondary.id, "it has a secondary")


async def begin_stood_by(
    owner: AsyncMedusaClient, query: Query, primary: Place, secondary: Place
) -> None:
    """Create the query, start it, and wait until its secondary stands by."""
    await begin(owner, query)
    await stands_by(primary, secondary, query.name.removeprefix(primary.name("")))


def standby_boundary(place: Place, query: str, stream: str) -> Callable[[], int]:
    def boundary() -> int:
        standby = place.up.engine.standbys.get(place.name(query))
        return -1 if standby is None else standby.boundaries.get(place.name(stream), -1)

    return boundary


async def die(made: Made, victim: Place, cluster: Cluster, *witnesses: Place) -> None:
    """End the peer's process, and let the others notice."""
    peer = victim.id
    await cluster.stop(victim)
    for witness in witnesses:
        made[bytes.fromhex(witness.id)].notify(peer, Health.DEAD)


def believes(made: Made, witness: Place, peer: str, health: Health) -> None:
    made[bytes.fromhex(witness.id)].notify(peer, health)


def has(place: Place, query: str) -> bool:
    return any(running.name == query for running in place.up.engine.queries.all())


async def taken_over(made: Made, primary: Place, secondary: Place, query: str) -> None:
    """Let the secondary believe wrongly that its primary is dead, and take over; the primary then
    steps down."""
    believes(made, secondary, primary.id, Health.DEAD)
    await until(lambda: has(secondary, query), "it is taken over")
    await until(lambda: not has(primary, query), "the old primary steps down")


def passed(place: Place, source: str, path: str) -> Query:
    """Return a query that passes on all tuples of value 0 or more."""
    box = Filter("all", source, (place.name(path),), ("value >= 0",))
    return Query(place.name("q/" + path), (box,))


class ScriptedDetector:
    def __init__(self) -> None:
        self.changed: Listeners[[bytes, Health]] = Listeners()
        self.digest_changed: Listeners[[bytes, bytes]] = Listeners()
        self.doubted: list[bytes] = []
        self._health: dict[bytes, Health] = {}
        self.digests: dict[bytes, bytes] = {}

    def roster_changed(self) -> None:
        pass

    def publish(self, digest: bytes) -> None:
        pass

    def health(self, peer: bytes) -> Health:
        return self._health.get(peer, Health.ALIVE)

    def doubt(self, peer: bytes) -> None:
        self.doubted.append(peer)

    def notify(self, peer: str, health: Health) -> None:
        self._health[bytes.fromhex(peer)] = health
        self.changed.notify(bytes.fromhex(peer), health)


Made = dict[bytes, ScriptedDetector]


def first_address(contacts: Any, peer_id: bytes) -> Address | None:
    """Return the first address of any known peer, whatever its health."""
    return next(iter(contacts.overlay.peers.addresses_of(peer_id)), None)


def detectors(monkeypatch: pytest.MonkeyPatch) -> dict[bytes, ScriptedDetector]:
    """Give a detector for every overlay that is opened from now on, by peer id; a detector keeps
    its beliefs when its peer restarts."""
    made: dict[bytes, ScriptedDetector] = {}

    @asynccontextmanager
    async def open_told(peers: PeerTable, *_: Any, **__: Any) -> AsyncIterator[ScriptedDetector]:
        detector = made.setdefault(peers.identity.peer_id, ScriptedDetector())
        detector.changed, detector.digest_changed = Listeners(), Listeners()
        yield detector

    monkeypatch.setattr("medusa.overlay.node.node.open_gossip", open_told)
    # a test may declare a living peer dead: the catalog continues without that belief
    monkeypatch.setattr("medusa.dht.local_peer._PeerContacts.address_of", first_address)
    return made


async def cast(cluster: Cluster, made: Made) -> list[Place]:
    """Return the source's leader, a primary, its secondary and a reader: only the middle two keep
    queries."""
    places = await cluster.siblings(4)
    home, one, two, reader = places
    for place in (one, two):
        for other in (home, reader):
            believes(made, place, other.id, Health.DEAD)  # not chosen
    return places
