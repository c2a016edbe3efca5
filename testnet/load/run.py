"""The poster's four steps (SIGMOD 2004 demonstration), with real peers and real contracts:

1. A is overloaded; it sheds load to B, then to C, until nobody is above capacity.
2. Load rises at B, until the system as a whole is overloaded: nobody is below capacity.
3. D joins, with a contract with C at 0.8 of the others' price.
4. Load flows from C to D, and from B to C, until nobody is above capacity.

All the while every peer's questions are answered; in the end each answer must be that of a batch
run over what was posted, row by row.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import trio

from medusa.engine.objects.query import QueryStatus
from medusa.testnet.connections.conn import conn_schema
from medusa.testnet.connections.generate import generate
from medusa.testnet.connections.query import Row, source_schema
from medusa.testnet.kit.answers import to_its_end
from medusa.testnet.kit.cast import agree
from medusa.testnet.kit.patience import while_moving
from medusa.testnet.kit.peers import Federation, Peer, open_federation
from medusa.testnet.kit.picture import draw
from medusa.testnet.load import script
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
from medusa.testnet.load.screen import write_plot
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa

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


async def run_load(options: Options, board: LoadBoard, course: script.Script) -> LoadResult:
    """Run the demonstration from nothing to the comparison, and stop everything.

    Raises:
        InvalidInputError: the picture cannot be written.
        MedusaError: a peer or a call failed; a note has the ends of the peers' logs.
    """
    async with open_federation(keep=options.keep) as federation:
        return await _run(federation, options, board, course)


async def _run(
    federation: Federation, options: Options, board: LoadBoard, course: script.Script
) -> LoadResult:
    traces = await trio.to_thread.run_sync(
        generate, options.seed, len(script.EVERYBODY) * script.SENSORS, ROWS
    )
    async with trio.open_nursery() as nursery, AsyncExitStack() as closing:
        cast = Cast(federation, closing, nursery, board)
        observer = Observer(cast.clients, board)
        play = Play(course, cast, observer, board, options.step_s)
        speed = await play.prepare(traces, nursery)
        steps = await play.steps(traces[-script.SENSORS :], speed)
        with board.stage("end"):
            await cast.finish()
        nursery.cancel_scope.cancel()
    with board.stage("compare") as stage:
        different = await trio.to_thread.run_sync(cast.different)
        stage.detail = "exactly equal" if not different else f"DIFFERENT: {', '.join(different)}"
    return LoadResult(
        steps=steps,
        moves=tuple(sorted(board.moves)),
        answers_exact=not different,
        answers=cast.questions,
        different=different,
        rows=board.rows,
        speed=round(speed, 2),
        seconds=round(board.now, 1),
        plot=await draw(options.plot, write_plot, board),
        folder=str(federation.folder) if options.keep else None,
    )


class Cast:
    """The peers of the demonstration.

    Args:
        nursery: runs the posting and the receiving.

    Attributes:
        clients: a client of each running peer, by participant.
        players: the posters, sensor by sensor.
    """

    def __init__(
        self,
        federation: Federation,
        closing: AsyncExitStack,
        nursery: trio.Nursery,
        board: LoadBoard,
    ) -> None:
        self._federation = federation
        self._closing = closing
        self._nursery = nursery
        self._board = board
        self.clients: dict[str, AsyncMedusaClient] = {}
        self.players: dict[str, list[script.Player]] = {}
        self._peers: dict[str, Peer] = {}
        self._answers: dict[script.Watch, list[Row]] = {}
        self._ended: dict[script.Watch, trio.Event] = {}

    def peer(self, place: script.Place) -> Peer:
        return self._peers[place.participant]

    async def enter(self, place: script.Place) -> None:
        """Start the peer of a place: the first one founds the federation."""
        self._federation.config = place.config
        make = self._federation.admit if self._federation.peers else self._federation.found
        peer = await make(place.participant)
        await peer.ready()
        client = await self._closing.enter_async_context(open_medusa(peer.home.folder))
        self._peers[place.participant] = peer
        self.clients[place.participant] = client
        await self._federation.together()

    async def perform(self, place: script.Place, traces: Sequence[pa.Table], speed: float) -> None:
        """Publish its streams, start its queries, receive their answers, and post.

        Args:
            traces: the traces of its sensors.
        """
        client = self.clients[place.participant]
        await client.create_schema(conn_schema(source_schema(place.participant)))
        streams = [place.stream(sensor) for sensor in range(len(traces))]
        for stream in streams:
            await client.create_stream(stream)
        for watch in place.watches:
            await client.create_query_xml(watch.document(streams[watch.sensor].name))
            await client.set_query_status(watch.query, QueryStatus.RUNNING)
            self._answers[watch], self._ended[watch] = [], trio.Event()
            self._nursery.start_soon(self._receive, client, watch)
        self.players[place.participant] = []
        for number, (trace, stream) in enumerate(zip(traces, streams, strict=True)):
            tape = script.Tape(trace, number * script.AHEAD_S)
            player = script.Player(tape, client, stream.name, speed, self._count)
            self.players[place.participant].append(player)
            self._nursery.start_soon(player.run)

    async def _receive(self, client: AsyncMedusaClient, watch: script.Watch) -> None:
        async for epoch in to_its_end(client, watch.answer, subscriber="testnet-load"):
            rows = watch.rows_of(epoch.table)
            self._answers[watch] += rows
            self._board.answers += len(rows)
        self._ended[watch].set()

    def _count(self, rows: int) -> None:
        self._board.rows += rows

    async def finish(self) -> None:
        """End the traffic, and wait for the last answers.

        Raises:
            DeadlineError: some answers did not end; names these answers.
        """
        for players in self.players.values():
            for player in players:
                player.end()

        def stands() -> str:
            left = [watch.answer for watch, event in self._ended.items() if not event.is_set()]
            return f"{self._board.answers:,} rows of answers; not ended: {', '.join(left)}"

        async with while_moving("until the last answers", stands):
            for event in self._ended.values():
                await event.wait()

    @property
    def questions(self) -> int:
        return len(self._answers)

    def different(self) -> tuple[str, ...]:
        """The answers that differ from a batch run over the posted connections. Blocking."""
        found: list[str] = []
        for participant, players in self.players.items():
            for sensor, player in enumerate(players):
                place = (participant, sensor)
                watches = [each for each in self._answers if (each.owner, each.sensor) == place]
                wanted = script.expected(player.posted, watches)
                found += [
                    each.answer for each in watches if sorted(self._answers[each]) != wanted[each]
                ]
        return tuple(found)


class Play:
    """The steps, one after the other."""

    def __init__(
        self, course: script.Script, cast: Cast, observer: Observer, board: LoadBoard, step_s: float
    ) -> None:
        self._course = course
        self._cast = cast
        self._observer = observer
        self._board = board
        self._step_s = step_s

    async def prepare(self, traces: list[pa.Table], nursery: trio.Nursery) -> float:
        """Run the founders with their own load, without contracts; returns the traffic's speed."""
        founders = self._course.founders
        with self._board.stage("start"):
            for place in founders:
                await self._cast.enter(place)
                self._board.say("start", f"{place.letter} is {place.participant}")
        with self._board.stage("define"):
            for index, place in enumerate(founders):
                theirs = traces[index * script.SENSORS : (index + 1) * script.SENSORS]
                await self._cast.perform(place, theirs, FIRST_SPEED)
            streams = len(founders) * script.SENSORS
            self._board.say("define", f"{self._cast.questions} queries over {streams} streams")
        nursery.start_soon(self._observer.run)
        with self._board.stage("calibrate"):
            return await self._calibrate()

    async def _calibrate(self) -> float:
        """Choose the speed of the traffic so that a task's load is `TASK_UNITS`."""
        speed = FIRST_SPEED
        tasks = sum(place.tasks for place in self._course.founders)
        await self._until_work(*self._course.founders)
        for _ in range(self._course.rounds):
            await self._fresh_means()
            load = sum(load.load for load in self._board.recent.means().values()) / tasks
            self._board.say("calibrate", f"a task is {load:.2f} units at {speed:.0f} s of trace/s")
            if abs(load / script.TASK_UNITS - 1) <= CLOSE:
                break
            # at most doubled or halved at once, because the measurement may still be settling
            speed *= min(max(script.TASK_UNITS / max(load, 0.01), 0.5), 2.0)
            for place in self._course.founders:
                self._play(place, speed)
        return speed

    async def _until_work(self, *places: script.Place) -> None:
        """Wait until their JVMs run, have done some work, and are warm."""

        def idle() -> str:
            return ", ".join(each.participant for each in places if not self._has_worked(each))

        async with while_moving("until a task has worked at each peer", idle):
            while idle():
                await self._observer.next_look()
        await trio.sleep(self._course.warm_s)

    def _has_worked(self, place: script.Place) -> bool:
        sample = self._board.samples[-1] if self._board.samples else Sample(0.0, {})
        return place.participant in sample.loads and sample.loads[place.participant].load > 0

    def _play(self, place: script.Place, speed: float) -> None:
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
            traces: the traces of D's traffic.
        """

        async def sign() -> None:
            for agreement in self._course.agreements:
                await self._agree(agreement)

        async def join() -> None:
            await self._cast.enter(script.D)
            await self._cast.perform(script.D, traces, speed)
            await self._until_work(script.D)

        async def sign_with_d() -> None:
            await self._agree(script.WITH_D)

        shed = await self._step("shed", sign, is_relieved)
        if not self._course.whole:
            return (shed,)
        return (
            shed,
            await self._step("rise", partial(self._raise, speed), is_full),
            await self._step("join", join, None),
            await self._step("flow", sign_with_d, is_relieved),
        )

    async def _raise(self, speed: float) -> None:
        """Play B's traffic faster and faster, until all peers together are overloaded."""
        for power in range(1, script.RAISES + 1):
            self._play(script.B, speed * script.RAISE**power)
            self._board.say("rise", f"{speed * script.RAISE**power:.0f} s of trace/s")
            await self._fresh_means()
            loads = self._board.recent.means().values()
            if sum(load.load for load in loads) > script.OVERLOAD * sum(
                load.capacity for load in loads
            ):
                return

    async def _agree(self, agreement: script.Agreement) -> None:
        one, other = self._cast.peer(agreement.one), self._cast.peer(agreement.other)
        await agree(one, other, *agreement.proposal())

    async def _step(
        self,
        key: str,
        change: Callable[[], Awaitable[None]],
        wanted: Callable[[tuple[Load, ...]], bool] | None,
    ) -> Step:
        """Make a change, and wait for the wanted state; if `wanted` is None, wait for one look at
        the loads."""
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
        settling = Settling(self._course.hold_s)
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
