"""What rides on a packet: as much of the news as fits."""

from __future__ import annotations

from overlay.gossip.digests import Digests
from overlay.gossip.events import Send
from overlay.gossip.messages import HEADER, MAX_PACKET, PER_ITEM, Kind, Packet
from overlay.gossip.verdicts import Verdicts


class Packing:
    """Fills packets: first what the receiver should refute, then news, our digest, others'."""

    def __init__(self, verdicts: Verdicts, digests: Digests) -> None:
        self._verdicts = verdicts
        self._digests = digests

    def send(self, peer: bytes, kind: Kind, number: int = 0, about: bytes = b"") -> Send:
        """A packet for that peer; what it takes along counts as passed on."""
        claims: list[bytes] = []
        room = MAX_PACKET - HEADER - self._digests.own_size
        if (against := self._verdicts.held_against(peer)) is not None:
            claims.append(against)
            room -= PER_ITEM + len(against)
        news, room = self._verdicts.broadcasts.take(room)
        claims += (claim for claim in news if claim != against)
        digests = self._digests.take(room + self._digests.own_size)
        return Send(peer, Packet(kind, number, about, tuple(claims), tuple(digests)))
