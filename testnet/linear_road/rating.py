"""The rating of this machine in Linear Road: the most expressways whose cars receive all answers in
time, and rightly.

The benchmark runs three hours, and its load grows until the end. Here all but the last minutes are
posted as fast as the peer takes them, so that windows, accounts and cars are as after that time.
The last minutes then come at the recorded speed: the reports of a second are posted in that second,
with the promise that no earlier ones follow. An answer's delay is from the time that its report or
request has to the moment when a subscriber has the answer.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import trio
from rich.console import Group, RenderableType
from rich.text import Text

from medusa.engine.language.document import Document
from medusa.engine.spark.config import Profile
from medusa.overlay.concurrency import one_error
from medusa.overlay.errors import InvalidInputError
from medusa.overlay.names import SCHEME
from medusa.testnet.kit.report import new_table
from medusa.testnet.kit.stages import Stages
from medusa.testnet.linear_road.generate import Road, Traffic, whole
from medusa.testnet.linear_road.tables import START_S
from medusa.testnet.linear_road.validate import ANSWER_WITHIN_S
from medusa.testnet.linear_road.workload import ANSWERS, right_answers, rows_of, text_of
from medusa.testnet.workload.comparison import difference
from medusa.testnet.workload.patience import lose_patience, patience_with
from medusa.testnet.workload.run import plan_script, write_rows
from medusa.testnet.workload.workload import Script
from medusa.tools.client.async_client import AsyncMedusaClient
from medusa.tools.client.posting import Poster
from medusa.tools.trial.peer_of_the_moment import create, open_peer_of_the_moment, watch
from medusa.tools.trial.trial import SELF, Trial

LIVE_STREAMS: Final = ("reports", "balance_requests", "expenditure_requests")

PROFILE: Final[Profile] = "throughput"
"""The profile of Spark, for a peer that runs for long."""

STAGES: Final = {"trials": "expressways are driven"}

Times = npt.NDArray[np.float64]
"""Times, in seconds."""


@dataclass(frozen=True)
class Delay:
    """The delays of answers in the live minutes, seconds; 0 if there were none."""

    answers: int
    median_s: float
    most_s: float


@dataclass(frozen=True)
class Drive:
    """The figures of a drive with a number of expressways. Attributes: reports: the number of
    reports of the whole drive. reports_per_s: reports per second in the live minutes. warm_up_s:
    seconds in which all rows before the live minutes were posted and answered. delays: the delays,
    by answer.
    in_time: whether each is within the benchmark's limit. exact: whether every answer, from the
    first minute on, is right.
    """

    xways: int
    reports: int
    reports_per_s: float
    warm_up_s: float
    delays: Mapping[str, Delay]
    in_time: bool
    exact: bool


@dataclass(frozen=True)
class Rating:
    """The rating, and the drives that prove it."""

    minutes: int
    live_s: int
    xways: int
    drives: tuple[Drive, ...]

    @property
    def good(self) -> bool:
        """Whether all answers were right; whether they were in time is the rating."""
        return all(drive.exact for drive in self.drives)


async def rate(traffic: Traffic, live_s: int, most: int, stages: Stages) -> Rating:
    """Find the rating: one expressway, then twice as many each time, then numbers in between.

    Args:
        traffic: the traffic of each expressway; its own number of expressways is ignored.
        live_s: the last seconds, which come at the recorded speed.
        most: the most expressways to try.

    Raises:
        MedusaError: the peer or Spark does not start, or a query fails.
    """
    drives: list[Drive] = []

    async def drive(xways: int) -> bool:
        stages.say("trials", f"{xways}, {live_s} s at the recorded speed")
        with one_error():
            drives.append(await _drive(replace(traffic, xways=xways), live_s))
        return drives[-1].in_time and drives[-1].exact

    with stages.stage("trials"):
        good, tried = 0, 1
        while tried <= most and await drive(tried):
            good, tried = tried, tried * 2
        bad = min(tried, most + 1)
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if await drive(middle) else (good, middle)
        stages.say("trials", f"{good}")
    return Rating(traffic.minutes, live_s, good, tuple(drives))


@dataclass
class ReceivedAnswers:
    """The answers that a subscriber has received of one stream.

    Attributes:
        boundary: up to which it is complete, microseconds.
        parts: the answers, and when each part came, by the clock of trio.
    """

    boundary: int
    parts: list[tuple[float, pa.Table]] = field(default_factory=list)
    more: trio.Event = field(default_factory=trio.Event)

    def take(self, table: pa.Table, boundary: int) -> None:
        if table.num_rows:
            self.parts.append((trio.current_time(), table))
        self.boundary = boundary
        self.more.set()
        self.more = trio.Event()

    async def reach(self, boundary: int) -> None:
        while self.boundary < boundary:
            await self.more.wait()

    def delays(self, began: float, start_s: int) -> Times:
        """The delays of the answers to the tuples from `start_s` on. began: when that moment was,
        by the clock of trio."""
        found = []
        for at, table in self.parts:
            asked = np.asarray(pc.divide(table.column("time").cast(pa.int64()), 1_000_000))
            late = (at - began) - (asked - start_s)
            found.append(late[asked >= start_s])
        return np.concatenate(found) if found else np.zeros(0)


async def _drive(traffic: Traffic, live_s: int) -> Drive:
    """Drive the expressways at a new peer."""
    road = await trio.to_thread.run_sync(Road, traffic)
    run = await trio.to_thread.run_sync(lambda: whole(road.parts()))
    rows = await trio.to_thread.run_sync(rows_of, road, run)
    right = await trio.to_thread.run_sync(right_answers, road, run)
    trial = await trio.to_thread.run_sync(_plan, rows)
    start_s = START_S + traffic.minutes * 60 - live_s
    async with open_peer_of_the_moment(SELF, profile=PROFILE) as client:
        document = trial.document
        await create(client, Document(document.schemas, document.streams))
        posters = {name: await client.poster(f"{SCHEME}{SELF}/{name}") for name in rows}
        await create(client, Document(queries=document.queries))
        heard = {name: ReceivedAnswers(0) for name in ANSWERS}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, client, document.queries)
            nursery.start_soon(lose_patience, client, document.queries, patience_with(rows))
            warm = trio.current_time()
            async with trio.open_nursery() as listeners:
                for name, each in heard.items():
                    listeners.start_soon(_listen, client, name, each)
                await _post_before(posters, rows, start_s)
                for each in heard.values():
                    await each.reach(start_s * 1_000_000 - 1)
                warm_up_s = trio.current_time() - warm
                began = trio.current_time()
                await _post_live(posters, rows, range(start_s, start_s + live_s), began)
            nursery.cancel_scope.cancel()
    delays = {name: _delay(each.delays(began, start_s)) for name, each in heard.items()}
    live = pc.sum(pc.greater_equal(_seconds(run.reports), start_s)).as_py()
    exact = [
        await trio.to_thread.run_sync(_is_exact, heard[name], getattr(right, name))
        for name in ANSWERS
    ]
    return Drive(
        traffic.xways,
        run.reports.num_rows,
        live / live_s,
        warm_up_s,
        delays,
        in_time=all(each.most_s <= ANSWER_WITHIN_S[name] for name, each in delays.items()),
        exact=all(exact),
    )


def _plan(rows: Mapping[str, pa.Table]) -> Trial:
    with tempfile.TemporaryDirectory(prefix="medusa-linear-road-") as folder:
        files = write_rows(rows, Path(folder))
        script = Script(text_of("linear_road"), {}, frozenset({"history"}))
        plan = plan_script(script, files, SELF)
    if isinstance(plan, str):
        raise InvalidInputError(plan)
    return plan


async def _listen(client: AsyncMedusaClient, name: str, heard: ReceivedAnswers) -> None:
    async with client.subscribe(f"{SCHEME}{SELF}/{name}") as subscription:
        async for epoch in subscription:
            heard.take(epoch.table, epoch.upto)
            if subscription.ended:
                return


async def _post_before(
    posters: Mapping[str, Poster], rows: Mapping[str, pa.Table], start_s: int
) -> None:
    """Post the city's memory, and all rows before a second."""

    async def post(name: str) -> None:
        if name == "history":
            await posters[name].post(rows[name], end=True)
            return
        before = rows[name].filter(pc.less(_seconds(rows[name]), start_s))
        await posters[name].post(before, boundary=start_s * 1_000_000 - 1)

    async with trio.open_nursery() as nursery:
        for name in rows:
            nursery.start_soon(post, name)


async def _post_live(
    posters: Mapping[str, Poster], rows: Mapping[str, pa.Table], seconds: range, began: float
) -> None:
    """Post the rows of each second when it comes, and end the streams."""
    for name in LIVE_STREAMS:
        await posters[name].flush()
    times = {name: np.asarray(_seconds(rows[name])) for name in LIVE_STREAMS}
    for second in seconds:
        await trio.sleep_until(began + second - seconds.start)
        for name in LIVE_STREAMS:
            first, after = np.searchsorted(times[name], [second, second + 1])
            part = rows[name].slice(first, after - first)
            await posters[name].post(part, boundary=second * 1_000_000)
    for name in LIVE_STREAMS:
        await posters[name].post(None, end=True)


def _seconds(table: pa.Table) -> pa.ChunkedArray:
    return pc.divide(table.column("time").cast(pa.int64()), 1_000_000)


def _delay(delays: Times) -> Delay:
    if not len(delays):
        return Delay(0, 0.0, 0.0)
    return Delay(len(delays), float(np.median(delays)), float(delays.max()))


def _is_exact(heard: ReceivedAnswers, right: pa.Table) -> bool:
    if not heard.parts:
        return not right.num_rows
    found = difference(pa.concat_tables([table for _, table in heard.parts]), right)
    return not (found.missing or found.extra)


def render_rating(rating: Rating) -> RenderableType:
    """The drives for people: a row for each, with the greatest delays."""
    limits = [f"{name}\n≤ {ANSWER_WITHIN_S[name]:.0f} s" for name in ANSWERS]
    table = new_table(("xways", "reports/s", *limits, ""), ("",))
    for drive in rating.drives:
        delays = [drive.delays[name] for name in ANSWERS]
        in_time = "in time" if drive.in_time else "too late"
        words = in_time if drive.exact else "wrong"
        table.add_row(
            str(drive.xways),
            f"{drive.reports_per_s:,.0f}",
            *(f"{each.median_s:.3g}/{each.most_s:.3g}" if each.answers else "" for each in delays),
            Text(words, "green" if drive.exact and drive.in_time else "red"),
        )
    title = f"Linear Road: rated {rating.xways}, by the last {rating.live_s} s of "
    title += f"{rating.minutes} min; median/greatest delay in s"
    return Group(Text(title, "bold"), table)
