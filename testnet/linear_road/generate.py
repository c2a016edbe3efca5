"""The traffic of Linear Road: cars that enter an expressway, queue downtown, crash, and leave; and
their questions.

The benchmark's own generator drives the traffic simulator MITSIM. This one moves all cars at once,
in steps of half a minute, with everything on which the answers depend (Arasu et al., VLDB 2004; the
files of walmartlabs/linearroad): a report of each car every 30 seconds, in every segment that it
passes; more and more cars for three hours, and the slower the more there are in a segment; on each
expressway an accident every 20 minutes, which takes 10 to 20 minutes to clear and slows what passes
it; cars that come back; a question with every hundredth report; 69 days of old tolls for each car.

Positions follow from speeds: a mile an hour for 30 seconds is 44 feet. The second car of an
accident is the one that was behind the first, and is moved to its place.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from medusa.testnet.linear_road import tables
from medusa.testnet.linear_road.tables import (
    DAYS,
    EAST,
    ENTRY,
    EXIT,
    REPORT_EVERY_S,
    SEGMENT_FEET,
    SEGMENTS,
    START_S,
    WEST,
)

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

FEET: Final = 44
"""Feet between two reports at a mile an hour: 30 s of 22/15 feet a second."""

FASTEST: Final = 100
"""The greatest speed, miles an hour. 100 are 4,400 feet between two reports, so that a car reports
from every segment."""
SLOWEST: Final = 15
PAST_ACCIDENT: Final = 15
"""The speed at which cars pass an accident, miles an hour."""
CROWD: Final = 100.0
"""Cars in a segment that slow one another to little more than a third."""

DOWNTOWN: Final = (30, 70)
"""Half of the cars enter in these segments, seen from where the direction begins."""
LONGEST_TRIP: Final = 40
"""The segments of the longest trip. Trips have 2 or more, and half as many as this on average."""

COMES_BACK: Final = 0.1
"""The share of entering cars that were on the road before, and left more than BACK_AFTER_S ago."""
BACK_AFTER_S: Final = 61 + REPORT_EVERY_S

BREAKS_DOWN: Final = 2e-5
"""The share of reports after which a car stands for a while, alone: it is no accident."""

BALANCE_SHARE: Final = 5 / 6
"""The share of questions for a balance; the others are for a day of the past."""


@dataclass(frozen=True)
class Traffic:
    """The amount of traffic. The defaults, apart from the expressways, are those of a rating."""

    seed: int
    xways: int = 1
    minutes: int = 180
    cars_per_minute: int = 600
    """Cars that enter a direction of an expressway in its last minute. In the first minute it is a
    fifth of this, and it grows steadily."""
    accident_every_min: float = 20.0
    """Minutes between accidents on an expressway."""
    cleared_after_min: tuple[float, float] = (10.0, 20.0)
    question_share: float = 0.01
    """The number of questions per report."""

    def __post_init__(self) -> None:
        """Refuse impossible numbers. Raises: ValueError: the message names the number and its
        range.
        """
        for name in ("xways", "minutes", "cars_per_minute"):
            if not 0 < getattr(self, name) < 1_000_000:
                raise ValueError(f"{name} is {getattr(self, name)}; give 1 to 999999")
        if not 0 <= self.question_share <= 1:
            raise ValueError(f"question_share is {self.question_share}; give 0 to 1")
        if self.seed < 0 or self.accident_every_min <= 0:
            raise ValueError("seed must not be negative, and accident_every_min more than 0")

    @property
    def steps(self) -> int:
        return self.minutes * 60 // REPORT_EVERY_S


@dataclass(frozen=True)
class Part:
    """The tuples of half a minute, each table ascending by time."""

    reports: pa.Table
    balance_requests: pa.Table
    expenditure_requests: pa.Table


@dataclass
class _Cars:
    """The cars on the road: each array has one value for each car."""

    vid: Integers
    xway: Integers
    direction: Integers
    lane: Integers
    pos: Integers
    speed: Integers
    phase: Integers
    """The second of each half minute at which the car reports."""
    likes: Integers
    """The car's speed on an empty road."""
    leaves: Integers
    """The segment of the exit."""
    stands: Integers
    """The step until which the car does not move."""

    @property
    def seg(self) -> Integers:
        return self.pos // SEGMENT_FEET

    @property
    def cell(self) -> Integers:
        """A number for each segment of each direction of each expressway."""
        return (self.xway * 2 + self.direction) * SEGMENTS + self.seg

    def where(self, chosen: Flags | Integers) -> _Cars:
        return _Cars(*(getattr(self, part.name)[chosen] for part in fields(self)))

    def __add__(self, more: _Cars) -> _Cars:
        pairs = ((getattr(self, part.name), getattr(more, part.name)) for part in fields(self))
        return _Cars(*(np.concatenate(pair) for pair in pairs))


class Road:
    """A run of the traffic: `history` is known from the start; `parts` drives the cars, once."""

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic
        self._rng = np.random.default_rng(traffic.seed)
        growing = np.linspace(0.2, 1.0, traffic.steps) * traffic.cars_per_minute
        each_step = growing * traffic.xways * 2 * REPORT_EVERY_S / 60
        self._entering = self._rng.poisson(each_step)
        shape = int(self._entering.sum()), DAYS
        self._past_xway = self._rng.integers(0, traffic.xways, shape, dtype=np.int32)
        self._past_toll = self._rng.integers(10, 100, shape, dtype=np.int32)
        self._cars = self._new(0, 0)
        self._gone = np.zeros((0, 2), dtype=np.int64)
        """Cars that have left and may come back: number, and the step in which they left."""
        self._vids = 0
        self._questions = 0
        self._crashed: dict[int, int] = {}
        """By cell with an accident, the step in which it is cleared."""
        first = self._rng.uniform(0, traffic.accident_every_min, traffic.xways)
        self._crash_at = first * 60 / REPORT_EVERY_S

    @property
    def history(self) -> pa.Table:
        """The tolls that each possible car paid on each day of the past, by car and day."""
        cars = len(self._past_xway)
        vids = np.repeat(np.arange(cars, dtype=np.int32), DAYS)
        days = np.tile(np.arange(1, DAYS + 1, dtype=np.int32), cars)
        columns = [vids, days, self._past_xway.reshape(-1), self._past_toll.reshape(-1)]
        return pa.table([pa.array(column) for column in columns], schema=tables.HISTORY)

    def parts(self) -> Iterator[Part]:
        """All tuples in order, half a minute at a time."""
        for step in range(self.traffic.steps):
            self._drive(step)
            self._crash(step)
            self._cars = self._cars + self._new(step, int(self._entering[step]))
            yield self._heard(step)
            self._leave(step)

    def _drive(self, step: int) -> None:
        cars, rng = self._cars, self._rng
        rows = len(cars.vid)
        crowd = np.bincount(cars.cell, minlength=self.traffic.xways * 2 * SEGMENTS)[cars.cell]
        free = SLOWEST + (cars.likes - SLOWEST) * np.exp(-crowd / CROWD)
        speed = np.clip(np.rint(free + rng.normal(0, 3, rows)), SLOWEST, FASTEST).astype(np.int64)
        slowed = np.isin(cars.cell, list(self._crashed))
        speed = np.where(slowed, np.minimum(speed, PAST_ACCIDENT), speed)
        breaks = (rng.random(rows) < BREAKS_DOWN) & (cars.lane != ENTRY) & (cars.stands <= step)
        cars.stands = np.where(breaks, step + rng.integers(1, 8, rows), cars.stands)
        moves = cars.stands <= step
        cars.speed = np.where(moves, speed, 0)
        ahead = np.where(cars.direction == EAST, 1, -1)
        cars.pos = np.clip(cars.pos + ahead * cars.speed * FEET, 0, SEGMENTS * SEGMENT_FEET - 1)
        to_lane = np.where(rng.random(rows) < 0.2, rng.integers(1, EXIT, rows), cars.lane)
        to_lane = np.where(cars.lane == ENTRY, 1, to_lane)
        out = (cars.leaves - cars.seg) * ahead <= 0
        cars.lane = np.where(moves, np.where(out, EXIT, to_lane), cars.lane)

    def _crash(self, step: int) -> None:
        self._crashed = {cell: end for cell, end in self._crashed.items() if end > step}
        for xway in np.flatnonzero(self._crash_at <= step):
            if self._crash_on(int(xway), step):
                self._crash_at[xway] += self.traffic.accident_every_min * 60 / REPORT_EVERY_S

    def _crash_on(self, xway: int, step: int) -> bool:
        """Two cars of an expressway crash, if two are near enough to each other."""
        cars = self._cars
        direction = int(self._rng.integers(EAST, WEST + 1))
        driving = (cars.lane != ENTRY) & (cars.lane != EXIT) & (cars.stands <= step)
        here = np.flatnonzero(driving & (cars.xway == xway) & (cars.direction == direction))
        here = here[np.argsort(cars.pos[here], kind="stable")]
        pairs = list(itertools.pairwise(here))
        self._rng.shuffle(pairs)
        for back, front in pairs if direction == EAST else [(b, a) for a, b in pairs]:
            cell = int(cars.cell[front])
            gap = abs(int(cars.pos[front] - cars.pos[back]))
            if cars.cell[back] == cell and gap < SEGMENT_FEET // 4 and cell not in self._crashed:
                ends = step + self._clearing_steps()
                cars.pos[back], cars.lane[back] = cars.pos[front], cars.lane[front]
                cars.stands[[back, front]] = ends
                self._crashed[cell] = ends
                return True
        return False

    def _clearing_steps(self) -> int:
        minutes = self._rng.uniform(*self.traffic.cleared_after_min)
        return 4 + int(minutes * 60 / REPORT_EVERY_S)

    def _new(self, step: int, count: int) -> _Cars:
        rng = self._rng
        xway = rng.integers(0, self.traffic.xways, count)
        direction = rng.integers(EAST, WEST + 1, count)
        downtown = rng.integers(*DOWNTOWN, count)
        entry = np.where(rng.random(count) < 1 / 2, downtown, rng.integers(0, SEGMENTS - 2, count))
        leaves = np.minimum(entry + rng.integers(2, LONGEST_TRIP, count), SEGMENTS - 1)
        feet = rng.integers(0, SEGMENT_FEET // 4, count)
        pos = entry * SEGMENT_FEET + feet
        west = direction == WEST
        return _Cars(
            vid=self._numbers(step, count) if count else np.zeros(0, dtype=np.int64),
            xway=xway,
            direction=direction,
            lane=np.full(count, ENTRY),
            pos=np.where(west, SEGMENTS * SEGMENT_FEET - 1 - pos, pos),
            speed=rng.integers(20, 40, count),
            phase=rng.integers(0, REPORT_EVERY_S, count),
            likes=rng.integers(55, 80, count),
            leaves=np.where(west, SEGMENTS - 1 - leaves, leaves),
            stands=np.zeros(count, dtype=np.int64),
        )

    def _numbers(self, step: int, count: int) -> Integers:
        """The numbers of entering cars: new ones, and some of those that have left."""
        away = (step - self._gone[:, 1]) * REPORT_EVERY_S > BACK_AFTER_S
        ready = np.flatnonzero(away)
        back = self._rng.permutation(ready)[: int(self._rng.binomial(count, COMES_BACK))]
        fresh = np.arange(self._vids, self._vids + count - len(back))
        self._vids += len(fresh)
        numbers = np.concatenate([self._gone[back, 0], fresh])
        self._gone = np.delete(self._gone, back, axis=0)
        return self._rng.permutation(numbers)

    def _leave(self, step: int) -> None:
        out = self._cars.lane == EXIT
        left = self._cars.vid[out]
        rows = np.stack([left, np.full(len(left), step)], axis=1)
        self._gone = np.concatenate([self._gone, rows])
        self._cars = self._cars.where(~out)

    def _heard(self, step: int) -> Part:
        # by second, and within one by number: each run gives the same order
        order = np.lexsort((self._cars.vid, self._cars.phase))
        cars = self._cars.where(order)
        times = (START_S + step * REPORT_EVERY_S + cars.phase) * 1_000_000
        asks = self._rng.random(len(times)) < self.traffic.question_share
        balance = asks & (self._rng.random(len(times)) < BALANCE_SHARE)
        past = asks & ~balance
        qids = self._questions + np.cumsum(asks) - 1
        self._questions += int(asks.sum())
        vids = cars.vid[past]
        days = self._rng.integers(1, DAYS + 1, len(vids))
        xways = self._past_xway[vids, days - 1].astype(np.int64)
        columns = [cars.vid, cars.speed, cars.xway, cars.lane, cars.direction, cars.seg, cars.pos]
        return Part(
            reports=_table(tables.REPORT, [times, *columns]),
            balance_requests=_table(
                tables.BALANCE_REQUEST, [times[balance], cars.vid[balance], qids[balance]]
            ),
            expenditure_requests=_table(
                tables.EXPENDITURE_REQUEST, [times[past], vids, xways, qids[past], days]
            ),
        )


def _table(schema: pa.Schema, columns: list[Integers]) -> pa.Table:
    arrays = [
        pa.array(column).cast(field.type) for field, column in zip(schema, columns, strict=True)
    ]
    return pa.table(arrays, schema=schema)


def whole(parts: Iterator[Part]) -> Part:
    """All parts as one, in memory."""
    every = list(parts)
    return Part(
        reports=pa.concat_tables([part.reports for part in every]),
        balance_requests=pa.concat_tables([part.balance_requests for part in every]),
        expenditure_requests=pa.concat_tables([part.expenditure_requests for part in every]),
    )
