"""The peers: the far one with its source, and the servers on the near side of the split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.replication.status import Snapshot
from testnet.kit.cast import publish, until_status
from testnet.kit.peers import CONFIG, Federation, Peer
from testnet.partition.chain import FAR_OWNER, NEAR_OWNER, SCHEMA, Source, output, query
from tools.client.async_client import open_medusa

EPOCH_S: Final = 0.15
"""Shortest epoch, seconds, multiplied by the number of peers: a job takes a tenth of a second of a
core that all share, and delays by a busy machine are not due to the split."""

PEER_CONFIG: Final = f"{CONFIG}\n[contracts]\ntrade = false\n\n[engine]\nepoch_s = "
"""medusa.toml of every peer. No market: only the split shall happen."""


class Cast:
    """The peers of the demonstration.

    Args:
        replica: the first server is on the far side as well, with a replica on the near one: the
            poster's B and R, where the sources are at A and the client asks C.

    Attributes:
        source: the peer of the first source: on the far side, unless there is a replica.
        servers: in the order of the chain; the client asks the last. replica: that of the first.
    """

    def __init__(self, federation: Federation, chain: int, *, replica: bool) -> None:
        self._federation = federation
        self._federation.config = f"{PEER_CONFIG}{EPOCH_S * (chain + 1 + replica):.2f}\n"
        self._chain = chain
        self._replicated = replica
        self.source: Peer
        self.servers: list[Peer] = []
        self.replica: Peer | None = None

    @property
    def sides(self) -> tuple[list[Peer], list[Peer]]:
        """The peers on each side."""
        far = self.servers[0] if self._replicated else self.source
        return [far], [peer for peer in self.all if peer is not far]

    @property
    def all(self) -> list[Peer]:
        return [self.source, *self.servers, *([self.replica] if self.replica else [])]

    @property
    def homes(self) -> tuple[Peer, Peer, Peer]:
        """The peer of each source."""
        near = self.source if self._replicated else self.servers[0]
        return self.source, near, near

    @property
    def answers(self) -> str:
        """The last server's output stream."""
        return output(self._chain - 1)

    async def enter(self, report: Callable[[str], None]) -> None:
        """Start all peers, and wait until they know each other."""
        self.source = await self._federation.found(FAR_OWNER)
        first = await self._federation.admit(NEAR_OWNER)
        await first.ready()
        self.servers = [first]
        for number in range(1, self._chain):
            self.servers.append(await self._federation.admit_sibling(first, f"server{number + 1}"))
            report(f"{len(self.all)} peers")
        if self._replicated:
            self.replica = await self._federation.admit_sibling(first, "replica")
        await self._federation.together()

    async def define(self, sources: tuple[Source, ...], bound_s: float) -> None:
        """Publish the sources and a query on each server, and start all."""
        await publish(self.source, (SCHEMA,))
        for source, peer in zip(sources, self.homes, strict=True):
            await publish(peer, streams=(source.stream,))
        for number, peer in enumerate(self.servers):
            standby = self.replica if not number else None
            work = query(number, bound_s, "" if standby is None else standby.id)
            await publish(peer, queries=(work,))

    async def replica_is_ready(self) -> None:
        """Wait until the replica has caught up, and others know that."""

        def caught_up(told: Snapshot) -> bool:
            return any(each.state == "caught up" for peer in told.peers for each in peer.replicas)

        async with open_medusa(self.servers[0].home.folder) as client:
            await until_status(client, caught_up)

    async def read_from(self) -> Peer | None:
        """The peer from which the last server reads the first one's output."""
        async with open_medusa(self.servers[-1].home.folder) as client:
            (last,) = (await client.status(federation=False)).peers
        producers = {each.name: each.producer for each in last.streams if each.role == "mirror"}
        wanted = producers.get(output(self._chain - 2), "")
        return next((peer for peer in self.all if peer.id == wanted), None)
