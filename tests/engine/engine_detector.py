"""A failure detector whose word is given by the test, behind the interface of `overlay.gossip`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from overlay.addresses import Address
from overlay.gossip.events import Health
from overlay.listeners import Listeners
from overlay.peers import PeerTable


class ToldDetector:
    def __init__(self) -> None:
        self.changed: Listeners[[bytes, Health]] = Listeners()
        self.said: Listeners[[bytes, bytes]] = Listeners()
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

    def tell(self, peer: str, health: Health) -> None:
        self._health[bytes.fromhex(peer)] = health
        self.changed.tell(bytes.fromhex(peer), health)


def first_address(contacts: Any, peer_id: bytes) -> Address | None:
    """Of any peer that is known, whatever is believed of its health."""
    return next(iter(contacts.overlay.peers.addresses_of(peer_id)), None)


def detectors(monkeypatch: pytest.MonkeyPatch) -> dict[bytes, ToldDetector]:
    """One for every overlay that is opened from now on, by peer id; it forgets nothing when that
    peer restarts."""
    made: dict[bytes, ToldDetector] = {}

    @asynccontextmanager
    async def open_told(peers: PeerTable, *_: Any, **__: Any) -> AsyncIterator[ToldDetector]:
        detector = made.setdefault(peers.identity.peer_id, ToldDetector())
        detector.changed, detector.said = Listeners(), Listeners()
        yield detector

    monkeypatch.setattr("overlay.node.open_gossip", open_told)
    # a test may say of a living peer that it is dead: the catalog goes on without believing it
    monkeypatch.setattr("dht.local_peer._PeerContacts.address_of", first_address)
    return made
