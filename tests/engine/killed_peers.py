"""Real peers that a test kills at a failpoint and starts again; and the search for a stream's
leader among them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trio
from crashing_peer import Order, arm, is_armed
from deadline import DEADLINE_S

from medusa.overlay.errors import MedusaError
from medusa.testnet.kit import peers
from medusa.testnet.kit.peers import Peer
from medusa.tools.client.async_client import open_medusa


def let_crash(folder: Path, monkeypatch: pytest.MonkeyPatch, *, interpreting: bool = False) -> None:
    """Let every `medusa-peer` obey orders to die from now on.

    Args:
        folder: where the program is put.
        interpreting: the peers have no JVM, see `interpreting_peer`.
    """
    name = "interpreting_peer.py" if interpreting else "crashing_peer.py"
    script = folder / "medusa-peer"
    script.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).with_name(name)}" "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setattr(peers, "_installed", lambda _: str(script))


class Victim:
    """A peer that a test kills at a failpoint and starts again."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def arm(self, order: Order) -> None:
        arm(self._peer.home.folder, order)

    async def revive(self) -> None:
        """Start the peer again once it has died of its order."""
        assert self._peer.process is not None
        with trio.fail_after(DEADLINE_S):
            await self._peer.process.wait()
        assert not is_armed(self._peer.home.folder)
        await self._peer.start()
        await self._peer.ready()


PARTICIPANT = "mit.edu"


STREAM = f"medusa://{PARTICIPANT}/s"


QUIET_S = 1.0


async def who_is_home(peers: list[Peer], stream: str = STREAM) -> Peer | None:
    """Return the leader by the peers' own reports; if two claim to be leader, return the one of the
    later term."""
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
