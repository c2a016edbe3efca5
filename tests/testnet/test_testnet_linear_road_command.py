"""`medusa-testnet linear-road`: the notices of a real peer to cars, and the rating."""

from __future__ import annotations

from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from scenario_commands import json_of
from screens import text_of

from medusa.testnet.linear_road import rating
from medusa.testnet.linear_road.figure import figure_answers, sightings
from medusa.testnet.linear_road.generate import Road, Traffic, whole
from medusa.testnet.linear_road.rating import Delay, Drive, Rating, ReceivedAnswers, render_rating
from medusa.testnet.linear_road.tables import START_S, TIME
from medusa.testnet.linear_road.workload import linear_road_workload

SMALL: Final = ("--minutes", "6", "--cars-per-minute", "1500", "--seed", "2")
"""A world with little traffic, but enough of it for tolls, and with an accident."""


@pytest.mark.spark
@pytest.mark.usefixtures("own_spark")
def test_the_answers_equal_the_validators() -> None:
    found = json_of("linear-road", *SMALL)
    outcomes = {each["query"]: each for each in found["outcomes"]}
    assert list(outcomes) == [
        *("tolls", "alerts", "balances", "expenditures"),
        *("toll_notifications", "tow_truck_dispatch"),
    ]
    assert all(each["exact"] for each in outcomes.values()), outcomes
    assert all(each["rows"] for each in outcomes.values()), "an empty answer proves nothing"


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.usefixtures("own_spark")
def test_accidents_are_reported_on_several_expressways() -> None:
    found = json_of(
        "linear-road", "--minutes", "40", "--cars-per-minute", "800", "--xways", "2", "--seed", "3"
    )
    assert all(each["exact"] for each in found["outcomes"]), found
    assert all(each["rows"] for each in found["outcomes"])


@pytest.mark.spark
@pytest.mark.usefixtures("own_spark")
def test_the_rating_is_of_exact_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rating, "PROFILE", "edge")  # a profile in which traffic starts sooner
    found = json_of(
        "linear-road",
        *("--rating", "--live-seconds", "3"),
        *("--minutes", "2", "--cars-per-minute", "100", "--xways", "1"),
    )
    (drive,) = found["drives"]
    assert drive["exact"]
    assert found["xways"] == int(drive["in_time"])
    tolls = drive["delays"]["tolls"]
    assert tolls["answers"] > 0
    assert 0 < tolls["median_s"] <= tolls["most_s"]
    assert drive["in_time"] == (
        all(drive["delays"][name]["most_s"] <= 5 for name in ("tolls", "alerts", "balances"))
        and drive["delays"]["expenditures"]["most_s"] <= 10
    )


def test_delays_count_from_the_time_of_the_report() -> None:
    def answers(*seconds: int) -> pa.Table:
        times = pa.array([(START_S + each) * 1_000_000 for each in seconds]).cast(TIME)
        return pa.table({"time": times})

    heard = ReceivedAnswers(0)
    heard.parts = [(90.0, answers(8, 9)), (102.5, answers(10, 11)), (107.0, answers(12))]
    delays = heard.delays(began=100.0, start_s=START_S + 10)
    assert np.allclose(delays, [2.5, 1.5, 5.0])
    assert not len(ReceivedAnswers(0).delays(began=100.0, start_s=START_S))


def test_a_rating_is_good_if_all_answers_are_right_and_is_rendered() -> None:
    delays = {name: Delay(3, 1.25, 6.5) for name in ("tolls", "alerts", "balances", "expenditures")}
    late = Drive(2, 1_000, 500.0, 9.0, delays, in_time=False, exact=True)
    assert Rating(180, 120, 1, (late,)).good
    assert not Rating(180, 120, 1, (Drive(2, 9, 9.0, 9.0, delays, True, False),)).good
    for width in (80, 120):
        text = text_of(render_rating(Rating(180, 120, 1, (late,))), width)
        for words in ("rated 1, by the last 120 s of 180 min", "1.25/6.5", "too late", "≤ 5 s"):
            assert words in text
        assert "…" not in text


def test_tow_trucks_are_among_the_cars() -> None:
    seen = sightings(whole(Road(Traffic(1, minutes=3)).parts()).reports)
    trucks = seen.filter(seen.column("tow_truck")).column("car").to_pylist()
    assert trucks
    assert all(car % 20 == 0 for car in trucks)
    assert len(set(seen.column("segment").to_pylist())) > 100


def test_the_figure_sends_a_truck_that_was_just_there() -> None:
    rows = [(0, 1, 0, 7, False), (0, 20, 9, 7, True), (31, 40, 9, 7, True), (60, 1, 0, 7, False)]
    times = pa.array([(START_S + row[0]) * 1_000_000 for row in rows]).cast(TIME)
    names = ("car", "speed", "segment", "tow_truck")
    seen = pa.table(
        {"time": times, **{name: [row[n + 1] for row in rows] for n, name in enumerate(names)}}
    )
    found = figure_answers(seen)["tow_truck_dispatch"]().to_pylist()
    assert sorted((each["car"], each["truck"]) for each in found) == [(1, 20), (1, 40)]
    assert figure_answers(seen)["toll_notifications"]().num_rows == 0


def test_the_past_is_over_when_the_traffic_begins() -> None:
    workload = linear_road_workload(Traffic(1, minutes=1, cars_per_minute=20))
    with duckdb.connect() as database:
        database.register("history", workload.tables["history"])
        database.register("reports", workload.tables["reports"])
        (found,) = database.sql(
            """SELECT (SELECT count(DISTINCT time) = count(*) FROM history),
                (SELECT max(time) FROM history) < (SELECT min(time) FROM reports)"""
        ).fetchall()
    assert found == (True, True)
