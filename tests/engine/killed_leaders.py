"""Finds the leader of a stream whose peers are killed."""

from __future__ import annotations

import trio

from overlay.errors import MedusaError
from testnet.kit.peers import Peer
from tools.client.async_client import open_medusa

PARTICIPANT = "mit.edu"


STREAM = f"medusa://{PARTICIPANT}/s"


QUIET_S = 1.0


async def who_is_home(peers: list[Peer], stream: str = STREAM) -> Peer | None:
    """As they say themselves; of two, the one that has it from the other is the later."""
    for peer in peers:
        if not peer.alive:
            continue
        try:
            async with open_medusa(peer.home.folder, patience_s=1.0) as client:
                (status,) = (await client.status(federation=False)).peers
        except MedusaError:
            continue
        if any(s.name == stream and s.role == "source" for s in status.streams):
            return peer
    return None


async def stable_leader(peers: list[Peer], stream: str = STREAM) -> Peer:
    while (peer := await who_is_home(peers, stream)) is None:  # noqa: ASYNC110 - it tells nobody
        await trio.sleep(0.02)
    return peer
