"""Linear Road: its traffic, the rules of its answers one by one, and all answers of a run against
SQL."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from medusa.testnet.linear_road import tables
from medusa.testnet.linear_road.generate import FEET, Part, Road, Traffic, whole
from medusa.testnet.linear_road.tables import EXIT, SEGMENT_FEET, START_S
from medusa.testnet.linear_road.validate import Answers, Row, expected

SMALL: Final = Traffic(
    seed=2,
    minutes=12,
    cars_per_minute=1_000,
    accident_every_min=3,
    cleared_after_min=(0.5, 3),
    question_share=0.05,
)


@pytest.fixture(scope="module")
def road() -> Road:
    return Road(SMALL)


@pytest.fixture(scope="module")
def run(road: Road) -> Part:
    return whole(road.parts())


@pytest.fixture(scope="module")
def answers(road: Road, run: Part) -> Answers:
    return expected([run.reports], run.balance_requests, run.expenditure_requests, road.history)


def seconds(table: pa.Table) -> np.ndarray:
    return np.asarray(table.column("time"), "M8[s]").astype(np.int64) - START_S


def table(schema: pa.Schema, rows: Iterable[Row]) -> pa.Table:
    """Return a table of rows whose times count from the start."""
    columns = dict(zip(schema.names, zip(*rows, strict=True), strict=True))
    times = pa.array([(START_S + time) * 1_000_000 for time in columns["time"]])
    arrays = [
        times.cast(field.type)
        if field.name == "time"
        else pa.array(columns[field.name], field.type)
        for field in schema
    ]
    return pa.table(arrays, schema=schema)


def told(reports: Sequence[Row], balances: Sequence[Row] = ()) -> Answers:
    """Return the answers to some reports, whatever the order of the reports."""
    asked = table(tables.BALANCE_REQUEST, balances) if balances else None
    return expected(
        [table(tables.REPORT, sorted(reports))],
        asked or tables.BALANCE_REQUEST.empty_table(),
        tables.EXPENDITURE_REQUEST.empty_table(),
        tables.HISTORY.empty_table(),
    )


def tolls_of(answers: Answers, vid: int) -> list[tuple[int, int, int]]:
    """Return seconds, velocity and toll of each notice to a car."""
    rows = answers.tolls.filter(pc.equal(answers.tolls.column("vid"), vid))
    columns = (rows.column(name).to_pylist() for name in ("lav", "toll"))
    return list(zip(seconds(rows).tolist(), *columns, strict=True))


def queue(cars: int, speed: int = 20, seg: int = 10) -> list[Row]:
    """Return that many cars, each of which reports once from a segment in the first minute."""
    return [(n % 60, 1_000 + n, speed, 0, 1, 0, seg, seg * SEGMENT_FEET + n) for n in range(cars)]


def entering(time: int, seg: int, vid: int = 1, lane: int = 2, direction: int = 0) -> Row:
    return (time, vid, 50, 0, lane, direction, seg, seg * SEGMENT_FEET + 99)


@pytest.mark.parametrize(("cars", "toll"), [(50, 0), (51, 2), (60, 200), (150, 20_000)])
def test_a_crowded_segment_costs(cars: int, toll: int) -> None:
    answers = told([*queue(cars), entering(70, seg=10)])
    assert tolls_of(answers, 1) == [(70, 20, toll)]


@pytest.mark.parametrize(("speed", "toll"), [(39, 2 * 50**2), (40, 0)])
def test_a_fast_segment_costs_nothing(speed: int, toll: int) -> None:
    assert tolls_of(told([*queue(100, speed), entering(70, seg=10)]), 1) == [(70, speed, toll)]


def test_the_velocity_is_rounded_halves_up() -> None:
    reports = [*queue(40, 39), *queue(80, 40)[40:]]
    assert tolls_of(told([*reports, entering(70, seg=10)]), 1) == [(70, 40, 0)]


def test_a_car_counts_once_in_a_minute_and_only_in_the_minute_before() -> None:
    twice = [*queue(30), *((time, vid, *rest) for time, vid, *rest in queue(30))]
    assert tolls_of(told([*twice, entering(70, seg=10)]), 1) == [(70, 20, 0)]
    assert tolls_of(told([*queue(60), entering(50, seg=10)]), 1) == [(50, 0, 0)]
    assert tolls_of(told([*queue(60), entering(120, seg=10)]), 1) == [(120, 20, 0)]


def test_the_velocity_is_of_five_minutes() -> None:
    for time, lav in [(359, 20), (360, 0)]:
        assert tolls_of(told([*queue(5), entering(time, seg=10)]), 1) == [(time, lav, 0)]


def test_a_toll_is_due_on_going_on_to_the_next_segment() -> None:
    here = [*queue(60), entering(70, seg=10)]
    stays = told([*here, entering(100, seg=10, lane=EXIT)], [(130, 1, 0)])
    goes = told([*here, entering(100, seg=11, lane=EXIT)], [(99, 1, 0), (100, 1, 1)])
    assert stays.balances.column("balance").to_pylist() == [0]
    assert goes.balances.column("balance").to_pylist() == [0, 200]
    assert len(tolls_of(goes, 1)) == 1, "a car that leaves is told nothing"


def test_a_returning_car_pays_no_toll_for_the_segment_where_it_left() -> None:
    trip = [entering(70, seg=10), entering(100, seg=10, lane=EXIT)]
    back = [entering(170, seg=10, lane=0), entering(200, seg=11)]
    answers = told([*queue(60), *trip, *back], [(230, 1, 0)])
    assert tolls_of(answers, 1) == [(70, 20, 200), (170, 21, 0), (200, 0, 0)]
    assert answers.balances.column("balance").to_pylist() == [0]


def standing(vid: int, since: int, reports: int, seg: int = 20, direction: int = 0) -> list[Row]:
    """Return a car that reports from one place, and then from the next segment."""
    place = (0, 1, direction, seg, seg * SEGMENT_FEET + 7)
    on = (0, 1, direction, seg, seg * SEGMENT_FEET + 4_000)
    still = [(since + 30 * n, vid, 0, *place) for n in range(reports)]
    return [*still, (since + 30 * reports, vid, 30, *on)]


def alerts(answers: Answers) -> list[tuple[int, int, int]]:
    """Return seconds, segment and car of each alert."""
    columns = (answers.alerts.column(name).to_pylist() for name in ("seg", "vid"))
    return list(zip(seconds(answers.alerts).tolist(), *columns, strict=True))


@pytest.mark.parametrize(
    ("time", "alerted"), [(119, False), (120, True), (239, True), (240, False)]
)
def test_an_accident_is_reported_from_the_minute_after_until_it_is_cleared(
    time: int, alerted: bool
) -> None:
    """The accident is found at second 95, in minute 1, and cleared at 215, in minute 3."""
    crash = [*standing(100, 0, 8), *standing(101, 5, 7)]
    assert alerts(told([*crash, entering(time, seg=20)])) == [(time, 20, 1)] * alerted


@pytest.mark.parametrize(
    ("seg", "direction", "alerted"),
    [(15, 0, False), (16, 0, True), (21, 0, False), (24, 1, True), (25, 1, False), (19, 1, False)],
)
def test_an_accident_is_reported_in_five_segments(seg: int, direction: int, alerted: bool) -> None:
    crash = [*standing(100, 0, 9, direction=direction), *standing(101, 5, 9, direction=direction)]
    answers = told([*crash, entering(130, seg, direction=direction)])
    assert alerts(answers) == [(130, 20, 1)] * alerted
    assert alerts(told([*crash, entering(130, seg, direction=1 - direction)])) == []


@pytest.mark.parametrize(
    "cars",
    [
        standing(100, 0, 9),
        [*standing(100, 50, 3), *standing(101, 55, 3)],
        [*standing(100, 0, 9), *((*row[:4], 2, *row[5:]) for row in standing(101, 5, 9))],
    ],
    ids=["one car", "three reports", "two lanes"],
)
def test_cars_that_do_not_all_stand_in_one_place_make_no_accident(cars: list[Row]) -> None:
    assert alerts(told([*cars, entering(130, seg=20), entering(180, seg=19, vid=2)])) == []


def test_a_segment_has_a_second_accident() -> None:
    crash = [*standing(100, 0, 5), *standing(101, 5, 5)]
    again = [*standing(102, 600, 9), *standing(103, 605, 9)]
    passing = [entering(150, seg=20), entering(450, seg=20, vid=2), entering(750, seg=20, vid=3)]
    assert alerts(told([*crash, *again, *passing])) == [(150, 20, 1), (750, 20, 3)]


def test_near_an_accident_there_is_no_toll() -> None:
    crash = [*standing(100, 0, 9), *standing(101, 5, 9)]
    later = [(time + 60, *rest) for time, *rest in queue(60, seg=18)]
    answers = told([*crash, *later, entering(130, seg=18)])
    assert tolls_of(answers, 1) == [(130, 20, 0)]
    assert tolls_of(told([*later, entering(130, seg=18)]), 1) == [(130, 20, 200)]


def test_a_day_of_the_past() -> None:
    history = pa.table([[4, 4], [1, 2], [0, 1], [30, 40]], schema=tables.HISTORY)
    asked = table(
        tables.EXPENDITURE_REQUEST,
        [(9, 4, 0, 70, 1), (9, 4, 1, 71, 1), (9, 4, 1, 72, 2), (10, 5, 0, 73, 1)],
    )
    answers = expected([], tables.BALANCE_REQUEST.empty_table(), asked, history)
    rows = answers.expenditures
    assert rows.column("qid").to_pylist() == [70, 72]
    assert rows.column("toll").to_pylist() == [30, 40]
    assert seconds(rows).tolist() == [9, 9]


def test_a_seed_gives_the_same_traffic(run: Part) -> None:
    assert whole(Road(SMALL).parts()) == run
    other = Road(Traffic(seed=3, minutes=1)).history
    assert other != Road(Traffic(seed=4, minutes=1)).history


@pytest.mark.parametrize(
    "wrong", [{"xways": 0}, {"minutes": -1}, {"question_share": 1.5}, {"accident_every_min": 0}]
)
def test_wrong_settings_of_the_traffic_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Traffic(**{"seed": 1, **wrong})  # type: ignore[arg-type]


def test_cars_report_every_half_minute_from_every_segment(run: Part) -> None:
    times = seconds(run.reports)
    assert (np.diff(times) >= 0).all()
    trips: dict[int, list[dict[str, int]]] = {}
    for row, time in zip(run.reports.drop(["time"]).to_pylist(), times.tolist(), strict=True):
        trip = trips.setdefault(row["vid"], [])
        assert (row["lane"] == 0) == (not trip)
        assert row["seg"] == row["pos"] // SEGMENT_FEET
        if trip:
            last = trip[-1]
            assert time - last["time"] == 30
            assert abs(row["seg"] - last["seg"]) <= 1
            ahead = (row["pos"] - last["pos"]) * (-1 if row["dir"] else 1)
            # a car that crashes into another car is at the place of the other car
            assert ahead == row["speed"] * FEET or abs(ahead) < 3 * SEGMENT_FEET // 2
        trip.append({**row, "time": time})
        if row["lane"] == EXIT:
            del trips[row["vid"]]


def test_the_traffic_is_worth_asking_about(road: Road, run: Part, answers: Answers) -> None:
    assert pc.sum(pc.greater(answers.tolls.column("toll"), 0)).as_py() > 500
    assert answers.alerts.num_rows > 500
    assert pc.count_distinct(answers.alerts.column("seg")).as_py() >= 3
    assert pc.sum(pc.greater(answers.balances.column("balance"), 0)).as_py() > 5
    assert answers.balances.num_rows == run.balance_requests.num_rows > 1_000
    assert answers.expenditures.num_rows == run.expenditure_requests.num_rows > 200
    history = road.history
    assert history.num_rows % 69 == 0
    assert pc.min_max(history.column("toll")).as_py() == {"min": 10, "max": 99}
    entries = run.reports.filter(pc.equal(run.reports.column("lane"), 0))
    assert pc.count_distinct(entries.column("vid")).as_py() < entries.num_rows, "none came back"


BY_SQL: Final = """
    CREATE TABLE report AS SELECT
            *, second // 60 AS minute,
            lag(seg) OVER trip AS seg_before,
            coalesce(lag(lane) OVER trip <> lane OR lag(pos) OVER trip <> pos, true) AS moved
        FROM (SELECT *, count(*) FILTER (lane = 0) OVER (
            PARTITION BY vid ORDER BY second ROWS UNBOUNDED PRECEDING) AS trip_no FROM heard)
        WINDOW trip AS (PARTITION BY vid, trip_no ORDER BY second);
    CREATE TABLE busy AS SELECT xway, dir, seg, minute, count(DISTINCT vid) AS cars,
        sum(speed) AS speeds, count(*) AS reports FROM report GROUP BY ALL;
    CREATE TABLE stop AS SELECT vid, xway, dir, lane, seg, pos,
            list(second ORDER BY second)[4] AS began, any_value(ended) AS ended
        FROM (SELECT *, max(next) OVER (PARTITION BY vid, trip_no, stay) AS ended
            FROM (SELECT *, lead(second) OVER (PARTITION BY vid, trip_no ORDER BY second) AS next,
                count(*) FILTER (moved) OVER (PARTITION BY vid, trip_no ORDER BY second) AS stay
            FROM report))
        GROUP BY vid, trip_no, stay, xway, dir, lane, seg, pos HAVING count(*) >= 4;
    CREATE TABLE accident AS SELECT a.xway, a.dir, a.seg,
            greatest(a.began, b.began) AS began, least(a.ended, b.ended) AS ended
        FROM stop AS a JOIN stop AS b USING (xway, dir, lane, seg, pos)
        WHERE a.vid < b.vid AND greatest(a.began, b.began) < least(a.ended, b.ended);
    CREATE TABLE entered AS SELECT vid, trip_no, second, minute, xway, dir, seg, lane,
            coalesce((SELECT CAST(floor(sum(speeds) / sum(reports) + 0.5) AS INT) FROM busy AS b
                WHERE b.xway = r.xway AND b.dir = r.dir AND b.seg = r.seg
                AND b.minute BETWEEN r.minute - 5 AND r.minute - 1), 0) AS lav,
            coalesce((SELECT cars FROM busy AS b WHERE b.xway = r.xway AND b.dir = r.dir
                AND b.seg = r.seg AND b.minute = r.minute - 1), 0) AS cars,
            (SELECT min((a.seg - r.seg) * (1 - 2 * r.dir)) FROM accident AS a
                WHERE a.xway = r.xway AND a.dir = r.dir
                AND (a.seg - r.seg) * (1 - 2 * r.dir) BETWEEN 0 AND 4
                AND r.minute > a.began // 60 AND r.minute <= a.ended // 60) AS ahead
        FROM report AS r WHERE seg_before IS DISTINCT FROM seg;
    CREATE TABLE toll AS SELECT *, CASE WHEN lane <> 4 AND ahead IS NULL AND cars > 50 AND lav < 40
        THEN 2 * (cars - 50) * (cars - 50) ELSE 0 END AS toll FROM entered;
    CREATE TABLE paid AS SELECT vid, second, lag(toll) OVER (
        PARTITION BY vid, trip_no ORDER BY second) AS toll FROM toll;
"""


def test_equals_sql(run: Part, answers: Answers) -> None:
    """SQL states the rules as joins and windows over the whole run, instead of report by report."""
    with duckdb.connect() as database:
        for name, given in (("heard", run.reports), ("asked", run.balance_requests)):
            numbers = given.append_column("second", pa.array(seconds(given)))
            database.register(name, numbers.drop(["time"]))
        database.execute(BY_SQL)
        tolls = "SELECT vid, second, lav, toll FROM toll WHERE lane <> 4 ORDER BY second, vid"
        by_sql = database.execute(tolls).fetchall()
        right = answers.tolls.select(["vid", "lav", "toll"]).to_pylist()
        times = seconds(answers.tolls).tolist()
        assert by_sql == [
            (r["vid"], t, r["lav"], r["toll"]) for r, t in zip(right, times, strict=True)
        ]

        near = "SELECT second, seg + ahead * (1 - 2 * dir), vid FROM toll"
        by_sql = database.execute(f"{near} WHERE ahead IS NOT NULL AND lane <> 4").fetchall()
        assert sorted(by_sql) == sorted(alerts(answers))

        balances = """SELECT qid, coalesce((SELECT sum(toll) FROM paid AS p
            WHERE p.vid = a.vid AND p.second <= a.second), 0) FROM asked AS a ORDER BY qid"""
        columns = (answers.balances.column(name).to_pylist() for name in ("qid", "balance"))
        assert database.execute(balances).fetchall() == sorted(zip(*columns, strict=True))


def test_the_parts_give_the_same_as_the_whole(road: Road, run: Part, answers: Answers) -> None:
    cuts = [0, 1, 5_000, run.reports.num_rows]
    pieces = [run.reports.slice(a, b - a) for a, b in itertools.pairwise(cuts)]
    history = road.history
    again = expected(pieces, run.balance_requests, run.expenditure_requests, history)
    assert again == answers
