"""What the peers use: CPU of their processes and JVMs, bytes between them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import psutil
import trio

from overlay.errors import UnavailableError
from overlay.events import wall_clock
from testnet.ha.observations import Cost
from testnet.peers import Peer
from tools.client.async_client import AsyncMedusaClient

TRIES: Final = 5
"""A peer that is busy answers late: so often it is asked again."""


async def measure(peers: Iterable[Peer], client: AsyncMedusaClient) -> Cost:
    """What the peers have used until now.

    Args:
        client: of any one of them: it asks the others.

    Raises:
        UnavailableError: one does not tell.
    """
    pids = [peer.pid for peer in peers]
    sent = await _sent(client, len(pids))
    at = wall_clock()
    cpu = await trio.to_thread.run_sync(cpu_seconds, pids)
    return Cost(at, cpu, sent)


async def _sent(client: AsyncMedusaClient, count: int) -> int:
    silent: list[str] = []
    for _ in range(TRIES):
        peers = (await client.status()).peers
        silent = [peer.peer[:8] for peer in peers if peer.state == "unreachable"]
        if len(peers) == count and not silent:
            return sum(peer.sent_bytes for peer in peers)
    raise UnavailableError(f"these peers do not tell what they sent: {', '.join(silent)}")


def cpu_seconds(pids: Iterable[int]) -> float:
    """Of processes and all that they started, ended children included. Blocking, milliseconds."""
    total = 0.0
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            total += _of(process)
            for child in process.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    total += _of(child)
    return total


def _of(process: psutil.Process) -> float:
    times = process.cpu_times()
    ended = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return float(times.user + times.system + ended)
