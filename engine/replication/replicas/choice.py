"""Which peer becomes the secondary of a query."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

from overlay.names import PeerId


def preferred(
    query: str, candidates: Iterable[PeerId], asked: str, is_busy: Callable[[PeerId], bool]
) -> list[PeerId]:
    """All candidates, the best first: the one asked for, then those with room, in an order that
    differs from query to query, so that secondaries spread over the peers, and that hardly changes
    when peers come and go (rendezvous hashing: Thaler and Ravishankar, 1998).

    Args:
        candidates: peer ids. asked: a peer id (hex), or "".
    """

    def rank(peer: PeerId) -> tuple[bool, bool, bytes]:
        return peer.hex() != asked, is_busy(peer), hashlib.sha256(query.encode() + peer).digest()

    return sorted(candidates, key=rank)
