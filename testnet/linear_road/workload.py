"""Linear Road as a workload: its traffic, its queries in SQL, and the right answers to cars; and
the query of the first paper's figure 1 over the same traffic."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from medusa.testnet.linear_road import tables
from medusa.testnet.linear_road.figure import figure_answers, sightings
from medusa.testnet.linear_road.generate import Part, Road, Traffic, whole
from medusa.testnet.linear_road.validate import Answers, expected
from medusa.testnet.workload.workload import Right, Script, Workload

QUERIES: Final = Path(__file__).with_name("queries")
"""The folder of the queries' texts."""

ANSWERS: Final = ("tolls", "alerts", "balances", "expenditures")
"""The answers of the benchmark: streams of `queries/linear_road.sql`."""


def linear_road_workload(traffic: Traffic) -> Workload:
    """Drive the traffic, for both scripts."""
    road = Road(traffic)
    run = whole(road.parts())
    answers = right_answers(road, run)
    seen = sightings(run.reports)
    benchmark: dict[str, Right] = {name: partial(getattr, answers, name) for name in ANSWERS}
    return Workload(
        title_of(traffic, run.reports.num_rows),
        {**rows_of(road, run), "sightings": seen},
        (
            Script(text_of("linear_road"), benchmark, frozenset({"history"})),
            Script(text_of("figure_1"), figure_answers(seen)),
        ),
    )


def title_of(traffic: Traffic, reports: int) -> str:
    """The number of expressways, for people."""
    ways = f"{traffic.xways} expressway{'' if traffic.xways == 1 else 's'}"
    return f"Linear Road, {ways} for {traffic.minutes} min, {reports:,} reports"


def text_of(query: str) -> str:
    """The text of a file of `queries/`."""
    return (QUERIES / f"{query}.sql").read_text()


def rows_of(road: Road, run: Part) -> dict[str, pa.Table]:
    """The rows of the streams that the benchmark's script reads."""
    return {
        "reports": run.reports,
        "balance_requests": run.balance_requests,
        "expenditure_requests": run.expenditure_requests,
        "history": _before_the_start(road.history),
    }


def right_answers(road: Road, run: Part) -> Answers:
    """The right messages to cars, by the validator's rules."""
    return expected([run.reports], run.balance_requests, run.expenditure_requests, road.history)


def _before_the_start(history: pa.Table) -> pa.Table:
    """The city's memory as a table of the federation: each row has a different time, and all come
    before the traffic begins."""
    start_us = tables.START_S * 1_000_000
    times = np.arange(start_us - len(history), start_us)
    return history.append_column("time", pa.array(times).cast(tables.TIME))
