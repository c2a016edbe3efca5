"""The demonstration from its options to its result."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
import trio

from medusa.engine.objects.schema import END
from medusa.overlay.events import wall_clock
from medusa.testnet.cutting.links import Links, open_links
from medusa.testnet.kit.patience import until, while_moving
from medusa.testnet.kit.peers import open_federation
from medusa.testnet.kit.stages import Stages
from medusa.testnet.partition.cast import Cast, sensor_of, sources
from medusa.testnet.partition.figures import Heard, Observations, Options, PartitionResult, figures
from medusa.testnet.partition.screen import write_plot
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
"""By stage, its text for people."""

WARM_S: Final = 8.0
"""Seconds before the measurement: a JVM is slow at its start."""
STEADY_S: Final = 8.0
"""Seconds in which the usual delay is measured."""
WATCH_S: Final = 6.0
"""Seconds of observation afterwards."""
LOOK_S: Final = 0.1


class Play:
    """Carries out the run: fills `run`."""

    def __init__(
        self,
        options: Options,
        cast: Cast,
        links: Links,
        run: Observations,
        stages: Stages,
    ) -> None:
        self._options = options
        self._sources = sources(options.missing, replica=options.replica)
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
                sensor_of(poster, source, self._run.posted)
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
            self._run.heard.append(Heard(wall_clock(), change))
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
    if options.plot is not None:
        await trio.to_thread.run_sync(write_plot, options.plot, run, result)
    return msgspec.structs.replace(
        result,
        plot=None if options.plot is None else str(options.plot),
        folder=folder if options.keep else None,
    )
