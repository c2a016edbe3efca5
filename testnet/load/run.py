"""The poster's four steps (SIGMOD 2004 demonstration), with real peers and real contracts:

1. A is overloaded; it sheds load to B, then to C, until nobody is above capacity.
2. Load rises at B, until the system as a whole is overloaded: nobody is below capacity.
3. D joins, with a contract with C at 0.8 of the others' price.
4. Load flows from C to D, and from B to C, until nobody is above capacity.

All the while every peer's questions are answered; in the end each answer must be that of a batch
run over what was posted, row by row.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import trio

from medusa.testnet.connections.generate import generate
from medusa.testnet.kit.cast import agree
from medusa.testnet.kit.patience import while_moving
from medusa.testnet.kit.peers import Federation, open_federation
from medusa.testnet.load.board import (
    Load,
    LoadBoard,
    LoadResult,
    Observer,
    Sample,
    Settling,
    Step,
    is_acceptable,
    is_overload,
)
from medusa.testnet.load.cast import Cast
from medusa.testnet.load.screen import write_plot
from medusa.testnet.load.script import (
    EVERYBODY,
    OVERLOAD,
    RAISE,
    RAISES,
    SENSORS,
    TASK_UNITS,
    WITH_D,
    Agreement,
    B,
    D,
    Place,
    Script,
)

STEP_S: Final = 150.0
"""Longest time in which a step must become acceptable, seconds."""

ROWS: Final = 200_000
"""Connections in the traces of all peers together: 50,000 in 20 minutes for each peer."""
FIRST_SPEED: Final = 24.0
"""Seconds of trace per second until a task's load is known."""
CLOSE: Final = 0.1
"""Allowed deviation of a task's load from the intended one, as a share."""


@dataclass(frozen=True)
class Options:
    """The options of the demonstration.

    Attributes:
        keep: keep homes and logs. plot: the file of the picture, if any.
        step_s: longest duration of a step, seconds.
    """

    keep: bool = False
    plot: Path | None = None
    seed: int = 0
    step_s: float = STEP_S


async def run_load(options: Options, board: LoadBoard, script: Script) -> LoadResult:
    """Run the demonstration from nothing to the comparison, and stop everything.

    Raises:
        InvalidInputError: the picture cannot be written.
        MedusaError: a peer or a call failed; a note has the ends of the peers' logs.
    """
    async with open_federation(keep=options.keep) as federation:
        return await _run(federation, options, board, script)


async def _run(
    federation: Federation, options: Options, board: LoadBoard, script: Script
) -> LoadResult:
    traces = await trio.to_thread.run_sync(generate, options.seed, len(EVERYBODY) * SENSORS, ROWS)
    async with trio.open_nursery() as nursery, AsyncExitStack() as closing:
        cast = Cast(federation, closing, nursery, board)
        observer = Observer(cast.clients, board)
        play = Play(script, cast, observer, board, options.step_s)
        speed = await play.prepare(traces, nursery)
        steps = await play.steps(traces[-SENSORS:], speed)
        with board.stage("end"):
            await cast.finish()
        nursery.cancel_scope.cancel()
    with board.stage("compare") as stage:
        different = await trio.to_thread.run_sync(cast.different)
        stage.detail = "exactly equal" if not different else f"DIFFERENT: {', '.join(different)}"
    if options.plot is not None:
        await trio.to_thread.run_sync(write_plot, options.plot, board)
    return LoadResult(
        steps=steps,
        moves=tuple(sorted(board.moves)),
        answers_exact=not different,
        answers=cast.questions,
        different=different,
        rows=board.rows,
        speed=round(speed, 2),
        seconds=round(board.now, 1),
        plot=None if options.plot is None else str(options.plot),
        folder=str(federation.folder) if options.keep else None,
    )


class Play:
    """The steps, one after the other."""

    def __init__(
        self, script: Script, cast: Cast, observer: Observer, board: LoadBoard, step_s: float
    ) -> None:
        self._script = script
        self._cast = cast
        self._observer = observer
        self._board = board
        self._step_s = step_s

    async def prepare(self, traces: list[pa.Table], nursery: trio.Nursery) -> float:
        """Run the founders with their own load, without contracts; returns the traffic's speed."""
        founders = self._script.founders
        with self._board.stage("start"):
            for place in founders:
                await self._cast.enter(place)
                self._board.say("start", f"{place.letter} is {place.participant}")
        with self._board.stage("define"):
            for index, place in enumerate(founders):
                theirs = traces[index * SENSORS : (index + 1) * SENSORS]
                await self._cast.perform(place, theirs, FIRST_SPEED)
            streams = len(founders) * SENSORS
            self._board.say("define", f"{self._cast.questions} queries over {streams} streams")
        nursery.start_soon(self._observer.run)
        with self._board.stage("calibrate"):
            return await self._calibrate()

    async def _calibrate(self) -> float:
        """Choose the speed of the traffic so that a task's load is `TASK_UNITS`."""
        speed = FIRST_SPEED
        tasks = sum(place.tasks for place in self._script.founders)
        await self._until_work(*self._script.founders)
        for _ in range(self._script.rounds):
            await self._fresh_means()
            load = sum(load.load for load in self._board.recent.means().values()) / tasks
            self._board.say("calibrate", f"a task is {load:.2f} units at {speed:.0f} s of trace/s")
            if abs(load / TASK_UNITS - 1) <= CLOSE:
                break
            # at most doubled or halved at once, because the measurement may still be settling
            speed *= min(max(TASK_UNITS / max(load, 0.01), 0.5), 2.0)
            for place in self._script.founders:
                self._play(place, speed)
        return speed

    async def _until_work(self, *places: Place) -> None:
        """Wait until their JVMs run, have done some work, and are warm."""

        def idle() -> str:
            return ", ".join(each.participant for each in places if not self._has_worked(each))

        async with while_moving("until a task has worked at each peer", idle):
            while idle():
                await self._observer.next_look()
        await trio.sleep(self._script.warm_s)

    def _has_worked(self, place: Place) -> bool:
        sample = self._board.samples[-1] if self._board.samples else Sample(0.0, {})
        return place.participant in sample.loads and sample.loads[place.participant].load > 0

    def _play(self, place: Place, speed: float) -> None:
        for player in self._cast.players[place.participant]:
            player.speed = speed

    async def _fresh_means(self) -> None:
        """Wait until the means contain only later samples, smoothing included."""
        await trio.sleep(self._board.mean_s)
        self._board.forget()
        await trio.sleep(self._board.mean_s)
        await self._observer.next_look()

    async def steps(self, traces: list[pa.Table], speed: float) -> tuple[Step, ...]:
        """Play all four steps, or the first.

        Args:
            traces: of D's traffic.
        """

        async def sign() -> None:
            for agreement in self._script.agreements:
                await self._agree(agreement)

        async def join() -> None:
            await self._cast.enter(D)
            await self._cast.perform(D, traces, speed)
            await self._until_work(D)

        async def sign_with_d() -> None:
            await self._agree(WITH_D)

        shed = await self._step("shed", sign, is_relieved)
        if not self._script.whole:
            return (shed,)
        return (
            shed,
            await self._step("rise", partial(self._raise, speed), is_full),
            await self._step("join", join, None),
            await self._step("flow", sign_with_d, is_relieved),
        )

    async def _raise(self, speed: float) -> None:
        """Play B's traffic faster and faster, until all peers together are overloaded."""
        for power in range(1, RAISES + 1):
            self._play(B, speed * RAISE**power)
            self._board.say("rise", f"{speed * RAISE**power:.0f} s of trace/s")
            await self._fresh_means()
            loads = self._board.recent.means().values()
            if sum(load.load for load in loads) > OVERLOAD * sum(load.capacity for load in loads):
                return

    async def _agree(self, agreement: Agreement) -> None:
        one, other = self._cast.peer(agreement.one), self._cast.peer(agreement.other)
        await agree(one, other, *agreement.proposal())

    async def _step(
        self,
        key: str,
        change: Callable[[], Awaitable[None]],
        wanted: Callable[[tuple[Load, ...]], bool] | None,
    ) -> Step:
        """Change something, and wait for the wanted state, or for one look if none is given."""
        board = self._board
        before = _rounded(board.recent.means())
        with board.stage(key) as stage:
            await change()
            board.forget()
            await self._observer.next_look()
            if wanted is not None:
                with trio.move_on_after(self._step_s):
                    await self._until(wanted)
            means = board.recent.means()
            loads = tuple(means.values())
            good = is_acceptable(loads)
            stage.detail = "acceptable" if good else "not acceptable"
        return Step(
            name=self._board.words[key],
            acceptable=good if wanted is None else good and wanted(loads),
            loads=_rounded(means),
            capacities={name: round(load.capacity, 2) for name, load in means.items()},
            due=wanted is not None,
            overload=is_overload(loads),
            before=before,
            seconds=round(stage.ended - stage.began, 1),
        )

    async def _until(self, wanted: Callable[[tuple[Load, ...]], bool]) -> None:
        settling = Settling(self._script.hold_s)
        # the first means are of few samples, and smoothed load lags its cause
        await trio.sleep(self._board.mean_s)
        while True:
            await self._observer.next_look()
            loads = tuple(self._board.recent.means().values())
            if settling.is_settled(self._board.now, good=wanted(loads)):
                return


def is_relieved(loads: tuple[Load, ...]) -> bool:
    """Whether no peer is above capacity."""
    return not is_overload(loads) and is_acceptable(loads)


def is_full(loads: tuple[Load, ...]) -> bool:
    """Whether all loads exceed all capacities, and no peer is below."""
    return is_overload(loads) and is_acceptable(loads)


def _rounded(loads: dict[str, Load]) -> dict[str, float]:
    return {name: round(load.load, 2) for name, load in loads.items()}
