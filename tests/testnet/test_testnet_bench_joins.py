"""The part `joins` of the bench: its workload, and its figures."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from medusa.engine.objects.query import Join
from medusa.testnet.bench.bids import AS_OF, INTERVAL, JOINS, TABLE, Shape, pairs, query_of, write
from medusa.testnet.bench.joins import figures
from medusa.testnet.bench.systems import Measured

FEW = Shape("few", 5, 500, 20)
"""Few epochs of 25 s: fewer pairs lie within ten seconds than within a hundred."""


@pytest.mark.parametrize("name", JOINS)
def test_pairs_equal_a_join(tmp_path: Path, name: str) -> None:
    write(tmp_path, FEW)
    files = sorted((tmp_path / "few").glob("*.parquet"))
    assert len(files) == len(list((tmp_path / "few/auction").glob("*-500.parquet"))) == 5
    seconds = {INTERVAL: 10, AS_OF: 100, TABLE: 10**6}[name]
    bids, auctions = f"{tmp_path}/few/*.parquet", f"{tmp_path}/few/auction/*.parquet"
    counted = duckdb.sql(
        f"SELECT count(*) AS n FROM '{bids}' AS b JOIN '{auctions}' AS a ON b.auction = a.id "
        f"AND a.stime BETWEEN b.stime - {seconds * 1_000_000} AND b.stime"
    ).to_arrow_table()
    assert pairs(name, files) == counted["n"][0].as_py() > 0
    (box,) = query_of(name).boxes
    assert isinstance(box, Join)
    assert box.table if name == TABLE else box.before_us == seconds * 1_000_000


def test_each_epoch_has_its_events(tmp_path: Path) -> None:
    write(tmp_path, FEW)
    for file in (tmp_path / "few").glob("*.parquet"):
        boundary = int(file.name.partition("-")[0])
        for side in (file, file.parent / "auction" / file.name):
            found = duckdb.sql(f"SELECT min(stime) AS a, max(stime) AS b FROM '{side}'")
            low, high = (found.to_arrow_table()[name][0].as_py() for name in "ab")
            assert boundary - 25_000_000 < low <= high <= boundary


def test_figures_are_against_structured_streaming() -> None:
    ours = Measured(INTERVAL, 200.0, 2.0, [1.0, 3.0, 2.0], 9.0, state_mb=1.0, small_cpu_us=4.0)
    theirs = Measured(INTERVAL, 100.0, 8.0, [4.0], 9.0, state_mb=4.0, small_cpu_us=8.0)
    found = {each["name"].partition(": ")[2]: each for each in figures(ours, theirs)}
    ratios = {name: (each["ratio"], each["goal"]) for name, each in found.items()}
    assert ratios == {
        "throughput of a catch-up": (2.0, "> 1"),
        "CPU of a row of a catch-up": (0.25, "< 1"),
        "CPU of a row of small epochs": (0.5, "< 1"),
        "latency of an epoch, median": (0.5, "< 1"),
        "state": (0.25, "< 1"),
    }
