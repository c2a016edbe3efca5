"""Hostile peers that claim the death of another one, for every incarnation that they learn."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from medusa.overlay.datagrams import Channel
from medusa.overlay.gossip.claims import PeerKeys, Word, make_claim
from medusa.overlay.gossip.messages import Kind, Packet, encode_packet
from medusa.tools.daemon.peer import Peer


async def accuse_for_ever(
    liars: Sequence[Peer], victim: bytes, listeners: Sequence[bytes], every_s: float = 0.02
) -> None:
    """Let each of them send to all peers, again and again, its own claims and the claims that the
    other liars sign."""
    while True:
        heard = max(
            liar.engine.overlay.gossip._detector.members.incarnation(victim) for liar in liars
        )
        claims = tuple(_dead(liar, victim, heard) for liar in liars)
        packet = encode_packet(Packet(Kind.GOSSIP, claims=claims))
        for liar in liars:
            overlay = liar.engine.overlay
            for listener in listeners:
                record = overlay.peers.get(listener)
                if record is not None:
                    overlay.datagrams.send(Channel.GOSSIP, record.addresses[0], packet)
        await trio.sleep(every_s)


def _dead(liar: Peer, victim: bytes, incarnation: int) -> bytes:
    overlay = liar.engine.overlay
    keys, me = PeerKeys(overlay.peers), overlay.identity.peer_id
    return make_claim(keys, me, Word.DEAD, victim, incarnation).data
