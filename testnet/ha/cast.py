"""The peers of one run: A, the chain, its standbys, the client's; and the commands to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import trio

from medusa.engine.objects.availability import Mode
from medusa.engine.replication.records.status import PeerStatus
from medusa.overlay.errors import MedusaError, UnavailableError
from medusa.overlay.events import wall_clock
from medusa.testnet.ha.chain import (
    CHAIN_OWNER,
    CLIENT_OWNER,
    SCHEMA,
    SERVERS,
    SOURCE,
    SOURCE_OWNER,
    Variant,
    output,
    query,
)
from medusa.testnet.ha.figures import Cost
from medusa.testnet.kit.cast import all_at_once, cpu_seconds, publish
from medusa.testnet.kit.peers import CONFIG, Federation, Peer
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa

TRIES: Final = 5
"""Tries of a request: a busy peer answers late."""


async def measure(peers: Iterable[Peer], client: AsyncMedusaClient) -> Cost:
    """The resources that the peers have used so far.

    Args:
        client: of any one of them: it asks the others.

    Raises:
        UnavailableError: one does not answer.
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


EPOCH_S: Final = 1.0
"""Shortest epoch of the chain, seconds. With active standbys there are eight tasks on six JVMs; at
half a second they need more than two cores."""
STANDBYS: Final = 2
"""Peers with the secondaries, two each: fewer processes than servers, and none is killed."""

CHAIN_CONFIG: Final = f"{CONFIG}\n[engine]\nepoch_s = {EPOCH_S}\n\n[contracts]\ntrade = false\n"
"""medusa.toml of every peer. No market: only a kill shall move a task."""


class Cast:
    """The peers of one run.

    Attributes:
        source: A, for posting. client: the client's peer.
        primaries: B, C, D, E. standbys: the peers of the secondaries.
    """

    def __init__(self, federation: Federation) -> None:
        self._federation = federation
        self._federation.config = CHAIN_CONFIG
        self.primaries: dict[str, Peer] = {}
        self.standbys: list[Peer] = []
        self.source: Peer
        self.client: Peer

    @property
    def all(self) -> tuple[Peer, ...]:
        return (self.source, self.client, *self.primaries.values(), *self.standbys)

    async def enter(self, report: Callable[[str], None]) -> None:
        """Start all peers, and wait until they know each other."""
        federation = self._federation
        self.source = await federation.found(SOURCE_OWNER)
        self.client = await federation.admit(CLIENT_OWNER)
        first = await federation.admit(CHAIN_OWNER)
        await first.ready()
        await self.client.ready()
        made: dict[str, Peer] = {SERVERS[0]: first}
        names = (*SERVERS[1:], *(f"S{number + 1}" for number in range(STANDBYS)))

        async def admit(name: str) -> None:
            made[name] = await federation.admit_sibling(first, name)
            report(f"{len(made) + 2} of {len(names) + 3} peers")

        await all_at_once(partial(admit, name) for name in names)
        self.primaries = {server: made[server] for server in SERVERS}
        self.standbys = [made[name] for name in names[len(SERVERS) - 1 :]]
        await self._federation.together()

    async def define(self, variant: Variant) -> None:
        """Publish the source and a query on each server, and start all."""
        await publish(self.source, (SCHEMA,), (SOURCE,))
        for number, (server, peer) in enumerate(self.primaries.items()):
            standby = self.standbys[number % len(self.standbys)]
            work = query(server, variant.availability(standby.id))
            await publish(peer, queries=(work,))

    async def progress(self) -> str:
        """The state of the chain in words: servers with a running Spark, and the boundaries of
        their answers."""
        told = {}

        async def ask(server: str, peer: Peer) -> None:
            try:
                async with open_medusa(peer.home.folder) as client:
                    (status,) = (await client.status(federation=False)).peers
            except MedusaError:
                told[server] = f"{server} does not answer"
                return
            name = output(server)
            written = any(each.name == name and each.rows for each in status.streams)
            told[server] = f"{server}'s Spark is {status.spark}" + ", it answers" * written

        await all_at_once(partial(ask, *each) for each in self.primaries.items())
        return "; ".join(told[server] for server in SERVERS)

    async def kill(self) -> None:
        """SIGKILL to B, C, D and E and to their JVMs, all at once."""
        await all_at_once(peer.kill_9 for peer in self.primaries.values())

    async def restart(self) -> None:
        """Start the killed peers again, in their homes."""
        await all_at_once(peer.restart for peer in self.primaries.values())

    def returned(self, peers: Sequence[PeerStatus], variant: Variant) -> int:
        """Number of B, C, D and E that run again and do not believe that they are still primary."""
        ids = {peer.id for peer in self.primaries.values() if peer.alive}
        return sum(
            peer.peer in ids
            and peer.state == "running"
            and (variant.mode is Mode.NONE or not primaries_of(peer))
            for peer in peers
        )


def secured(peers: Sequence[PeerStatus]) -> int:
    """Number of queries whose secondary is caught up, by the primaries' reports."""
    return len(
        {
            replica.query
            for peer in peers
            for replica in peer.replicas
            if replica.role == "primary" and replica.secondary and replica.state == "caught up"
        }
    )


def primaries_of(peer: PeerStatus) -> set[str]:
    """The queries of which a peer believes to be the primary."""
    return {replica.query for replica in peer.replicas if replica.role == "primary"}
