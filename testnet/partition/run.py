"""The demonstration from its peers to its result."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
import trio

from medusa.engine.objects.schema import END
from medusa.engine.replication.records.status import Snapshot
from medusa.overlay.events import wall_clock
from medusa.testnet.cutting.links import Links, open_links
from medusa.testnet.kit.cast import enter, publish, until_status
from medusa.testnet.kit.patience import until, while_moving
from medusa.testnet.kit.peers import CONFIG, Federation, Peer, open_federation
from medusa.testnet.kit.picture import draw
from medusa.testnet.kit.stages import Stages
from medusa.testnet.partition import chain
from medusa.testnet.partition.figures import (
    REPLICA,
    Observations,
    Options,
    PartitionResult,
    ReceivedChange,
    figures,
    write_plot,
)
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa

STAGES: Final[dict[str, str]] = {
    "start": "start the peers",
    "define": "publish the chain",
    "warm": "until the chain is warm",
    "steady": "measure the usual delay",
    "split": "split the federation",
    "heal": "heal it, and watch",
    "end": "end and compare",
}
"""The text that the screen shows for each stage."""

WARM_S: Final = 8.0
"""Seconds before the measurement: a JVM is slow at its start."""
STEADY_S: Final = 8.0
"""Seconds in which the usual delay is measured."""
WATCH_S: Final = 6.0
"""Seconds of observation after all tentative tuples are corrected."""
LOOK_S: Final = 0.1

EPOCH_S: Final = 0.15
"""Shortest epoch, seconds, multiplied by the number of peers: a job takes a tenth of a second of a
core that all share, and delays by a busy machine are not due to the split."""

PEER_CONFIG: Final = f"{CONFIG}\n[contracts]\ntrade = false\n\n[engine]\nepoch_s = "
"""medusa.toml of every peer. No market: only the split shall happen."""


class Cast:
    """The peers of the demonstration.

    Args:
        length: the length of the chain.
        replica: the first server is on the far side as well, and its replica on the near side: B
            and R of the poster's demonstration, in which the sources are at A and the client reads
            from C.

    Attributes:
        source: the peer of the first source: on the far side, unless there is a replica.
        servers: the peers of the servers, in the order of the chain; the client asks the last.
            replica: the replica of the first server.
    """

    def __init__(self, federation: Federation, length: int, *, replica: bool) -> None:
        self._federation = federation
        self._federation.config = f"{PEER_CONFIG}{EPOCH_S * (length + 1 + replica):.2f}\n"
        self._length = length
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
        return chain.output(self._length - 1)

    async def enter(self, report: Callable[[str], None]) -> None:
        """Start all peers, and wait until they know each other."""
        servers = [f"server{number + 1}" for number in range(self._length)]
        near = [*servers, REPLICA] if self._replicated else servers
        roles = {"source": chain.FAR_OWNER, **dict.fromkeys(near, chain.NEAR_OWNER)}
        peers = await enter(self._federation, roles, report)
        self.source, self.replica = peers["source"], peers.get(REPLICA)
        self.servers = [peers[name] for name in servers]

    async def define(self, sources: tuple[chain.Source, ...], bound_s: float) -> None:
        """Publish the sources and a query on each server, and start all."""
        await publish(self.source, (chain.SCHEMA,))
        for source, peer in zip(sources, self.homes, strict=True):
            await publish(peer, streams=(source.stream,))
        for number, peer in enumerate(self.servers):
            standby = self.replica if not number else None
            work = chain.query(number, bound_s, "" if standby is None else standby.id)
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
        producers = {each.name: each.producer for each in last.streams if each.role == "follower"}
        wanted = producers.get(chain.output(self._length - 2), "")
        return next((peer for peer in self.all if peer.id == wanted), None)


class Play:
    """Carries out the run: fills `run`."""

    def __init__(
        self, options: Options, cast: Cast, links: Links, run: Observations, stages: Stages
    ) -> None:
        self._options = options
        self._sources = chain.sources(options.missing, replica=options.replica)
        self._cast = cast
        self._links = links
        self._run = run
        self._stages = stages
        self._ended = trio.Event()
        self._all_posted = False

    async def run(self) -> None:
        """
        Raises:
            MedusaError: the run failed.
        """
        with self._stages.stage("start"):
            await self._cast.enter(partial(self._stages.say, "start"))
        with self._stages.stage("define"):
            await self._cast.define(self._sources, self._options.bound_s)
        async with (
            open_medusa(self._cast.homes[0].home.folder) as far,
            open_medusa(self._cast.homes[1].home.folder) as near,
            open_medusa(self._cast.servers[-1].home.folder) as client,
            trio.open_nursery() as nursery,
        ):
            sensors = [
                chain.sensor_of(poster, source, self._run.posted)
                for poster, source in zip((far, near, near), self._sources, strict=True)
            ]
            nursery.start_soon(self._follow, client)
            async with trio.open_nursery() as posting:
                for sensor in sensors:
                    posting.start_soon(sensor.run)
                await self._happen()
                for sensor in sensors:
                    sensor.end()
            self._all_posted = True
            with self._stages.stage("end"):
                await self._until(self._ended.is_set, "until the answers end")
            nursery.cancel_scope.cancel()

    async def _happen(self) -> None:
        run = self._run
        with self._stages.stage("warm"):
            await self._until(lambda: bool(run.heard), "until the chain's first answer")
            await trio.sleep(WARM_S)
            if self._cast.replica is not None:
                async with while_moving("until the replica has caught up"):
                    await self._cast.replica_is_ready()
        with self._stages.stage("steady"):
            run.steady_at = wall_clock()
            await trio.sleep(STEADY_S)
        with self._stages.stage("split") as stage:
            await self._links.split(self._cast.sides)
            run.cut_at = wall_clock()
            with trio.move_on_after(self._options.seconds):
                while True:
                    await trio.sleep(LOOK_S)
                    stage.detail = f"{run.outstanding} tentative tuples"
            await self._note_version()
        with self._stages.stage("heal"):
            await self._links.heal()
            run.healed_at = wall_clock()
            await self._until(lambda: run.corrected, "until all that was tentative is corrected")
            await trio.sleep(WATCH_S)
            await self._note_version()

    async def _note_version(self) -> None:
        if self._cast.replica is not None:
            read = await self._cast.read_from()
            self._run.read_from.append("nobody" if read is None else read.name)

    async def _follow(self, client: AsyncMedusaClient) -> None:
        """Receive the changes, until the stream's end."""
        boundary = None
        async for change in client.follow(self._cast.answers, self._options.corrections):
            self._run.heard.append(ReceivedChange(wall_clock(), change))
            boundary = change.boundary
        if boundary == END:
            self._ended.set()

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        """
        Raises:
            DeadlineError: the condition does not hold, and there is no progress.
        """
        run = self._run

        def stands() -> str:
            # changes do not end while readings come; corrections do
            heard = len(run.heard) if self._all_posted else bool(run.heard)
            return f"{heard} changes heard, {run.outstanding} tentative tuples"

        async with while_moving(what, stands):
            await until(condition, LOOK_S)


async def run_partition(options: Options, stages: Stages) -> PartitionResult:
    """
    Raises:
        InvalidInputError: the picture cannot be written.
        MedusaError: the run failed; a note has the ends of the peers' logs.
    """
    run = Observations()
    async with (
        open_links(netns=options.netns) as links,
        open_federation(keep=options.keep, links=links) as federation,
    ):
        cast = Cast(federation, options.chain, replica=options.replica)
        await Play(options, cast, links, run, stages).run()
        folder = str(federation.folder)
    result = figures(run, options)
    plot = await draw(options.plot, write_plot, run, result)
    return msgspec.structs.replace(result, plot=plot, folder=folder if options.keep else None)
