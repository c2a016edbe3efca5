"""One run: the chain gets warm, is split, healed, corrected, and ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from engine.schema import END
from engine.streams.corrections import Corrections
from overlay.errors import DeadlineError
from overlay.events import wall_clock
from testnet.cutting.links import Links
from testnet.partition.cast import Cast
from testnet.partition.chain import Source
from testnet.partition.observations import Heard, Observations
from testnet.partition.traffic import Sensor
from testnet.stages import Stages
from tools.async_client import AsyncMedusaClient, open_medusa

STAGES: Final[dict[str, str]] = {
    "start": "start the peers",
    "define": "publish the chain",
    "warm": "until the chain is warm",
    "steady": "measure the usual delay",
    "split": "split the federation",
    "heal": "heal it, and watch",
    "end": "end and compare",
}
"""Stage -> what a person reads."""

START_S: Final = 120.0
"""Longest until the first answer, the JVMs' start included, seconds."""
WARM_S: Final = 8.0
"""A JVM that has just started is slower than it will be, seconds."""
STEADY_S: Final = 8.0
"""How long the usual delay is measured, seconds."""
HEAL_S: Final = 60.0
"""Longest that corrections may take, seconds."""
WATCH_S: Final = 6.0
"""How long it is watched afterwards, seconds."""
FINISH_S: Final = 45.0
"""Longest that the last answers may take after the last reading, seconds."""
LOOK_S: Final = 0.1


class Play:
    """Fills `run`."""

    def __init__(
        self,
        cast: Cast,
        links: Links,
        run: Observations,
        stages: Stages,
        *,
        sources: tuple[Source, ...],
        bound_s: float,
        seconds: float,
        corrections: Corrections,
    ) -> None:
        self._cast = cast
        self._links = links
        self._run = run
        self._stages = stages
        self._sources = sources
        self._bound_s = bound_s
        self._seconds = seconds
        self._corrections = corrections
        self._ended = trio.Event()

    async def run(self) -> None:
        """
        Raises:
            MedusaError: something failed.
        """
        with self._stages.stage("start") as stage:

            def report(detail: str) -> None:
                stage.detail = detail

            await self._cast.enter(report)
        with self._stages.stage("define"):
            await self._cast.define(self._sources, self._bound_s)
        async with (
            open_medusa(self._cast.homes[0].home.folder) as far,
            open_medusa(self._cast.homes[1].home.folder) as near,
            open_medusa(self._cast.servers[-1].home.folder) as client,
            trio.open_nursery() as nursery,
        ):
            sensors = [
                Sensor(poster, source, self._run.posted)
                for poster, source in zip((far, near, near), self._sources, strict=True)
            ]
            nursery.start_soon(self._follow, client)
            async with trio.open_nursery() as posting:
                for sensor in sensors:
                    posting.start_soon(sensor.run)
                await self._happen()
                for sensor in sensors:
                    sensor.end()
            with self._stages.stage("end"):
                await self._until(self._ended.is_set, FINISH_S, "the answers did not end")
            nursery.cancel_scope.cancel()

    async def _happen(self) -> None:
        run = self._run
        with self._stages.stage("warm"):
            await self._until(lambda: bool(run.heard), START_S, "the chain gave no answer")
            await trio.sleep(WARM_S)
            if self._cast.replica is not None:
                with trio.fail_after(START_S):
                    await self._cast.replica_is_ready()
        with self._stages.stage("steady"):
            run.steady_at = wall_clock()
            await trio.sleep(STEADY_S)
        with self._stages.stage("split") as stage:
            await self._links.split(self._cast.sides)
            run.cut_at = wall_clock()
            with trio.move_on_after(self._seconds):
                while True:
                    await trio.sleep(LOOK_S)
                    stage.detail = f"{run.outstanding} tentative tuples"
            await self._note_version()
        with self._stages.stage("heal"):
            await self._links.heal()
            run.healed_at = wall_clock()
            await self._until(
                lambda: run.corrected, HEAL_S, "what was tentative was not all corrected"
            )
            await trio.sleep(WATCH_S)
            await self._note_version()

    async def _note_version(self) -> None:
        if self._cast.replica is not None:
            read = await self._cast.read_from()
            self._run.read_from.append("nobody" if read is None else read.name)

    async def _follow(self, client: AsyncMedusaClient) -> None:
        """The changes, until the stream's end."""
        boundary = None
        async for change in client.follow(self._cast.answers, self._corrections):
            self._run.heard.append(Heard(wall_clock(), change))
            boundary = change.boundary
        if boundary == END:
            self._ended.set()

    async def _until(self, condition: Callable[[], bool], within_s: float, otherwise: str) -> None:
        """
        Raises:
            DeadlineError: it does not come to hold in time.
        """
        with trio.move_on_after(within_s):
            while not condition():  # noqa: ASYNC110
                await trio.sleep(LOOK_S)
            return
        raise DeadlineError(f"{otherwise} within {within_s:.0f} s")
