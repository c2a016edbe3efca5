"""The right answers of Linear Road, in plain Python, report by report.

The rules are those of the validator of walmartlabs/linearroad
(JavaValidator/ValidateMTBQEven3AeroTolls.java). The latest average velocity is there the mean over
reports; others (mjsax/aeolus) take the mean of each car first. We differ from that validator in two
places:

* It keeps one accident for each segment and direction in the whole run, so it never sees a second
  one there. We see each.
* It divides in single precision. We round exactly, halves up.

A minute is the whole minute of the report's time; "the minute before" is that less one.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from medusa.testnet.linear_road import tables
from medusa.testnet.linear_road.tables import EAST, ENTRY, EXIT, START_S

STOPPED_AFTER: Final = 4
"""The number of reports in a row from one lane and position that make a car a stopped car."""

REENTRY_S: Final = 60
"""A car on an entry lane, after a longer silence than this, begins a new trip."""

FREE_CARS: Final = 50
"""A segment with at most this number of cars in the minute before costs nothing."""

FREE_SPEED: Final = 40
"""A segment where the latest average velocity is at least this costs nothing, miles an hour."""

LAV_MINUTES: Final = 5
"""The latest average velocity is computed over this number of minutes before."""

ALERT_SEGMENTS: Final = 5
"""A car gets an alert for an accident in its segment or one of the next four."""

ANSWER_WITHIN_S: Final[Mapping[str, float]] = {
    "tolls": 5.0,
    "alerts": 5.0,
    "balances": 5.0,
    "expenditures": 10.0,
}
"""The longest delay of an answer, seconds after the report or request (the paper, table of
queries). The rating of a system is the greatest number of expressways with which all its answers
are right and in time."""

Row = tuple[int, ...]
"""A row of a table, its time in seconds since the start."""


@dataclass(frozen=True)
class Answers:
    """All messages to cars, each table by time and then by its other columns."""

    tolls: pa.Table
    alerts: pa.Table
    balances: pa.Table
    expenditures: pa.Table


def expected(
    reports: Iterable[pa.Table],
    balance_requests: pa.Table,
    expenditure_requests: pa.Table,
    history: pa.Table,
) -> Answers:
    """The answers to a whole run.

    Args:
        reports: the position reports in parts, ascending by time.
        balance_requests: by time. An answer counts all reports up to and including its second, as
            the standard's validator does. A system may answer with any balance that was true at
            some moment of the 60 seconds before (the paper).
        expenditure_requests: for days 1 to 69. A request for which the history has no entry gets no
            answer. history: the tolls paid on the days of the past.
    """
    city = _City()
    requests = deque(_rows(balance_requests))
    balances: list[Row] = []

    def answer(before: float) -> None:
        while requests and requests[0][0] < before:
            time, vid, qid = requests.popleft()
            balances.append((time, qid, vid, city.paid.get(vid, 0)))

    for part in reports:
        for report in _rows(part):
            answer(before=report[0])
            city.take(report)
    answer(before=math.inf)
    return Answers(
        tolls=_table(tables.TOLL, city.tolls),
        alerts=_table(tables.ALERT, city.alerts),
        balances=_table(tables.BALANCE, balances),
        expenditures=_expenditures(expenditure_requests, history),
    )


def _rows(table: pa.Table) -> Iterator[Row]:
    """Rows with `time`, the first column, in whole seconds since the start."""
    for batch in table.to_batches():
        times = pc.divide(batch.column("time").cast(pa.int64()), 1_000_000)
        columns = [pc.subtract(times, START_S), *batch.columns[1:]]
        yield from zip(*(column.to_pylist() for column in columns), strict=True)


def _table(schema: pa.Schema, rows: Sequence[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = []
    for spec, column in zip(schema, columns, strict=True):
        if spec.name == "time":
            since = pa.array(column, pa.int64())
            arrays.append(pc.multiply(pc.add(since, START_S), 1_000_000).cast(spec.type))
        else:
            arrays.append(pa.array(column, spec.type))
    others = [name for name in schema.names if name != "time"]
    order = [(name, "ascending") for name in ("time", *others)]
    return pa.table(arrays, schema=schema).sort_by(order)


def _expenditures(requests: pa.Table, history: pa.Table) -> pa.Table:
    """The past expenditures of the cars that ask; of other cars the history is not read, because it
    is large."""
    wanted = history.filter(pc.is_in(history.column("vid"), requests.column("vid")))
    columns = (wanted.column(name).to_pylist() for name in ("vid", "day", "xway", "toll"))
    paid = {(vid, day, xway): toll for vid, day, xway, toll in zip(*columns, strict=True)}
    rows = []
    for time, vid, xway, qid, day in _rows(requests):
        toll = paid.get((vid, day, xway))
        if toll is not None:
            rows.append((time, qid, vid, toll))
    return _table(tables.EXPENDITURE, rows)


@dataclass(slots=True)
class _Car:
    """A trip: the last report of the car."""

    time: int
    lane: int
    seg: int = -1
    pos: int = -1
    reports_here: int = 0
    """The number of consecutive reports from this lane and position."""
    toll: int = 0
    """The toll, announced when the car enters the segment, and due when it moves to the next."""


@dataclass(slots=True)
class _Accident:
    began: int
    """When the second car was found to be stopped, seconds."""
    cars: tuple[int, int]
    cleared: int | None = None
    """When one of the cars moved, seconds."""

    def is_told(self, minute: int) -> bool:
        """Whether cars are warned: from the minute after the accident began, until the end of the
        minute in which it is cleared."""
        if self.cleared is not None and minute > self.cleared // 60:
            return False
        return minute > self.began // 60


@dataclass(slots=True)
class _Minute:
    """The reports of a minute from a segment."""

    speeds: int = 0
    reports: int = 0
    cars: set[int] = field(default_factory=set)


class _Direction:
    """One direction of one expressway, which is independent of all others."""

    def __init__(self) -> None:
        self.cars: dict[int, _Car] = {}
        self.minutes: defaultdict[tuple[int, int], _Minute] = defaultdict(_Minute)
        self.stopped: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
        self.accidents: defaultdict[int, list[_Accident]] = defaultdict(list)

    def lav(self, seg: int, minute: int) -> int:
        """The latest average velocity: the mean speed in the reports of the five minutes before,
        rounded; 0 if there were none."""
        speeds = reports = 0
        for earlier in range(minute - LAV_MINUTES, minute):
            heard = self.minutes.get((seg, earlier))
            if heard is not None:
                speeds += heard.speeds
                reports += heard.reports
        return (2 * speeds + reports) // (2 * reports) if reports else 0

    def cars_before(self, seg: int, minute: int) -> int:
        """The number of different cars that reported from the segment in the minute before."""
        heard = self.minutes.get((seg, minute - 1))
        return len(heard.cars) if heard is not None else 0

    def accident_ahead(self, seg: int, minute: int, direction: int) -> int | None:
        """The nearest segment with an accident for which a car that enters `seg` gets an alert."""
        step = 1 if direction == EAST else -1
        for near in range(seg, seg + step * ALERT_SEGMENTS, step):
            if any(accident.is_told(minute) for accident in self.accidents.get(near, ())):
                return near
        return None

    def stop(self, vid: int, time: int, lane: int, seg: int, pos: int) -> None:
        """Note that a car has stopped. Two cars in one place are an accident, if the segment has
        none."""
        here = self.stopped[lane, seg, pos]
        here.append(vid)
        current = self.accidents[seg]
        if len(here) >= 2 and all(accident.cleared is not None for accident in current):
            current.append(_Accident(time, (here[0], here[1])))

    def move(self, vid: int, car: _Car, time: int) -> None:
        """Note that a car has left its place. This clears an accident of which it was part."""
        here = self.stopped.get((car.lane, car.seg, car.pos))
        if here is not None and vid in here:
            here.remove(vid)
        for accident in self.accidents.get(car.seg, ()):
            if accident.cleared is None and vid in accident.cars:
                accident.cleared = time


class _City:
    """All expressways, and the accounts of all cars."""

    def __init__(self) -> None:
        self.directions: defaultdict[tuple[int, int], _Direction] = defaultdict(_Direction)
        self.paid: defaultdict[int, int] = defaultdict(int)
        self.tolls: list[Row] = []
        self.alerts: list[Row] = []

    def take(self, report: Row) -> None:
        """Take the next report by time: a row of tables.REPORT."""
        time, vid, speed, xway, lane, direction, seg, pos = report
        road = self.directions[xway, direction]
        car = road.cars.get(vid)
        if car is None or (lane == ENTRY and time > car.time + REENTRY_S):
            car = road.cars[vid] = _Car(time, lane)
        elif car.lane == EXIT and lane != ENTRY:
            return  # the car has left, so it cannot be here
        if (pos, lane) == (car.pos, car.lane):
            car.reports_here += 1
            if car.reports_here == STOPPED_AFTER:
                road.stop(vid, time, lane, seg, pos)
        else:
            road.move(vid, car, time)
            car.reports_here = 1
            if seg != car.seg:
                self._enter(road, car, report)
        car.time, car.lane, car.seg, car.pos = time, lane, seg, pos
        minute = road.minutes[seg, time // 60]
        minute.speeds += speed
        minute.reports += 1
        minute.cars.add(vid)
        road.minutes.pop((seg, time // 60 - LAV_MINUTES - 1), None)

    def _enter(self, road: _Direction, car: _Car, report: Row) -> None:
        """Note that a car is in a new segment: it pays for the one before, and gets the toll of
        this one. toll = 2 (cars - 50)^2 if there were more than 50 cars in the minute before, if
        they were slower than 40 miles an hour, and if no accident is near; otherwise 0. A car that
        leaves gets no message."""
        time, vid, _, xway, lane, direction, seg, _ = report
        self.paid[vid] += car.toll
        car.toll = 0
        if lane == EXIT:
            return
        minute = time // 60
        lav, cars = road.lav(seg, minute), road.cars_before(seg, minute)
        accident = road.accident_ahead(seg, minute, direction)
        if accident is not None:
            self.alerts.append((time, xway, accident, direction, vid))
        elif cars > FREE_CARS and lav < FREE_SPEED:
            car.toll = 2 * (cars - FREE_CARS) ** 2
        self.tolls.append((vid, time, lav, car.toll))
