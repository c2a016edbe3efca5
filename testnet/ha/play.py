"""One run: the chain gets warm, is measured, loses its primaries, goes on, and ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from engine.availability import Mode
from engine.schema import END, STIME
from overlay.errors import DeadlineError, MedusaError
from overlay.events import wall_clock
from testnet.ha.board import HaBoard
from testnet.ha.cast import Cast, secured
from testnet.ha.chain import SERVERS, answers_in, output
from testnet.ha.costs import measure
from testnet.ha.observations import Observations
from testnet.ha.traffic import Sensor
from tools.async_client import AsyncMedusaClient, open_medusa

START_S: Final = 120.0
"""Longest until the chain's first answer, four JVMs' start included, seconds."""
WARM_S: Final = 10.0
"""A JVM that has just started is slower than it will be, seconds."""
STEADY_S: Final = 12.0
"""How long delay and costs are measured, seconds."""
OUTAGE_S: Final = 5.0
"""Without secondaries: after so long the killed peers are started again, seconds."""
RECOVER_S: Final = 60.0
"""Longest wait for the first answer of after the kill, seconds."""
WATCH_S: Final = 6.0
"""How long the chain is watched after that, seconds."""
RETURN_S: Final = 8.0
"""How long the killed peers have for becoming standbys, seconds."""
FINISH_S: Final = 45.0
"""Longest that the last answers may take after the last reading, seconds."""
LOOK_S: Final = 0.1


class Play:
    """Fills `run`, and tells the board."""

    def __init__(self, cast: Cast, run: Observations, board: HaBoard) -> None:
        self._cast = cast
        self._run = run
        self._board = board
        self._ended = trio.Event()

    async def run(self) -> None:
        """
        Raises:
            MedusaError: something failed before the kill, or a call failed for good.
        """
        with self._board.stage("start") as stage:

            def report(detail: str) -> None:
                stage.detail = detail

            await self._cast.enter(report)
        with self._board.stage("define") as stage:
            await self._cast.define(self._run.variant)
            stage.detail = self._run.variant.label
        async with (
            open_medusa(self._cast.source_home.folder) as poster,
            open_medusa(self._cast.client_home.folder) as client,
            trio.open_nursery() as nursery,
        ):
            sensor = Sensor(poster, self._run.posted)
            nursery.start_soon(self._receive, client)
            nursery.start_soon(sensor.run)
            await self._before(client)
            await self._after(client)
            with self._board.stage("end") as stage:
                sensor.end()
                await sensor.ended.wait()
                await self._until(self._ended.is_set, FINISH_S)
                if not self._ended.is_set():
                    self._fail(f"the answers did not end within {FINISH_S:.0f} s")
                stage.detail = self._run.failure
            nursery.cancel_scope.cancel()

    async def _before(self, client: AsyncMedusaClient) -> None:
        run = self._run
        with self._board.stage("warm") as stage:
            await self._until(lambda: bool(run.arrivals), START_S)
            if not run.arrivals:
                raise DeadlineError(
                    f"the chain gave no answer within {START_S:.0f} s: {await _said(client)}"
                )
            stage.detail = f"first answer after {self._board.now - stage.began:.0f} s"
            await trio.sleep(WARM_S)
        with self._board.stage("steady"):
            run.before = await measure(self._cast.all, client)
            await trio.sleep(STEADY_S)
            run.after = await measure(self._cast.all, client)

    async def _after(self, client: AsyncMedusaClient) -> None:
        run = self._run
        with self._board.stage("kill") as stage:
            run.killed_at = wall_clock()
            await self._cast.kill()
            if run.variant.mode is Mode.NONE:
                await trio.sleep(OUTAGE_S)
                stage.detail = f"nobody takes over: started again after {OUTAGE_S:.0f} s"
                await self._cast.restart()
            await self._until(lambda: run.first_new() is not None, RECOVER_S)
            first_new = run.first_new()
            if first_new is None:
                stage.detail = f"no answer within {RECOVER_S:.0f} s: {await _said(client)}"
            else:
                stage.detail = f"answers after {first_new - run.killed_at:.2f} s"
                await trio.sleep(WATCH_S)
            run.watched_at = wall_clock()
        with self._board.stage("return") as stage:
            if run.variant.mode is not Mode.NONE:
                await self._cast.restart()
                await trio.sleep(RETURN_S)
            peers = (await client.status()).peers
            run.returned, run.secured = self._cast.returned(peers, run.variant), secured(peers)
            stage.detail = f"{run.returned} of {len(SERVERS)}; {run.secured} queries have a standby"

    async def _receive(self, client: AsyncMedusaClient) -> None:
        """The answers, until their end; a failure for good is the run's."""
        upto = None
        try:
            async for epoch in client.subscribe(output(SERVERS[-1]), subscriber="testnet-ha"):
                at = wall_clock()
                stimes = epoch.table.column(STIME).to_pylist()
                self._run.received(at, stimes, answers_in(epoch.table))
                upto = epoch.upto
        except MedusaError as error:
            self._fail(f"the subscription failed: {error}")
        if upto == END:
            self._ended.set()

    def _fail(self, reason: str) -> None:
        self._run.failure = self._run.failure or reason

    async def _until(self, condition: Callable[[], bool], within_s: float) -> None:
        """Until it holds, the time is over, or there is nothing more to wait for."""
        with trio.move_on_after(within_s):
            while not condition() and not self._run.failure:  # noqa: ASYNC110
                await trio.sleep(LOOK_S)


async def _said(client: AsyncMedusaClient) -> str:
    """What is the matter with the tasks, as far as another participant is told."""
    try:
        peers = (await client.status()).peers
    except MedusaError as error:
        return str(error)
    tasks = [task for peer in peers for task in peer.tasks if task.state == "failing"]
    return "; ".join(f"{task.name} is failing" for task in tasks) or "no word"
