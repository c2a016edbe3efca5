"""The bench of other systems: skipped ones, the files that all of them read, the meter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from medusa.testnet.bench.others import (
    Shape,
    figures,
    percentile,
    write,
)
from medusa.testnet.bench.systems import (
    FILTER,
    LOW_PORT,
    PATIENCE_S,
    QUERIES,
    TUMBLING,
    WARM_EPOCHS,
    Measured,
    System,
    WrongAnswerError,
    measure,
    patient,
    tree,
)
from medusa.testnet.bench.systems.medusa import check


def test_each_file_closes_a_window_and_both_formats_have_the_same_rows(tmp_path: Path) -> None:
    write(tmp_path, Shape("small", 3, 2_500, 250))
    tables = sorted((tmp_path / "small").glob("*.parquet"))
    texts = sorted((tmp_path / "small").glob("*.csv"))
    last = [pq.read_table(file)["ts"][-1].as_py() for file in tables]
    assert last == [10_000_000, 20_000_000, 30_000_000]
    assert [file.stem for file in tables] == [f"{ts:016}-2500" for ts in last]
    assert [file.stem for file in texts] == [file.stem for file in tables]
    columns = ["ts", "src", "port", "bytes"]
    options = pyarrow.csv.ReadOptions(column_names=columns)
    read = pyarrow.csv.read_csv(texts[1], read_options=options)
    assert read.to_pylist() == pq.read_table(tables[1], columns=columns).to_pylist()


class Counting(System):
    """Counts the files that it receives."""

    slow = (QUERIES[2],)

    def __init__(self) -> None:
        self.given: list[tuple[str, int]] = []

    def run(self, query: str, files: Sequence[Path]) -> None:
        self.given.append((query, len(files)))

    def epochs(self, query: str, files: Sequence[Path]) -> Iterator[float]:
        yield from map(float, range(len(files)))


def test_rounds_are_repeated_and_first_epochs_warm_up(tmp_path: Path) -> None:
    for name, files in (("large", 2), ("small", WARM_EPOCHS + 3)):
        (tmp_path / name).mkdir()
        for number in range(files):
            (tmp_path / name / f"{number:03}-10.parquet").touch()
    system = Counting()
    measured = list(measure(system, tmp_path))
    assert [each.query for each in measured] == list(QUERIES)
    expected = [1e3 * (WARM_EPOCHS + n) for n in range(3)]
    assert all(each.latencies_ms == expected for each in measured)
    assert [files for _, files in system.given] == [2] * 8 + [1] * 4


def test_no_more_is_asked_of_a_slow_system() -> None:
    clock = iter([0.0, 1.0, PATIENCE_S, PATIENCE_S + 1])
    assert list(patient(iter("abcd"), lambda: next(clock))) == ["a", "b", "c"]


def test_children_are_measured_too() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert {os.getpid(), child.pid} <= set(tree())
        child.communicate()


def test_figures_are_against_ours() -> None:
    ours = Measured("filter", 100.0, 2.0, [1.0, 3.0], 50.0)
    theirs = Measured("filter", 50.0, 4.0, [2.0, 6.0], 100.0)
    ratios = [each["ratio"] for each in figures("riverdb", theirs, ours)]
    assert ratios == [0.5, 2.0, 2.0, 2.0, 2.0]
    assert all(each["ratio"] is None for each in figures("medusa", ours, None))


@pytest.mark.parametrize(("part", "value"), [(0.5, 51), (0.99, 100), (1.0, 100)])
def test_percentile(part: float, value: int) -> None:
    assert percentile(list(range(1, 101)), part) == value


def test_medusas_answers_are_compared_with_arrows(tmp_path: Path) -> None:
    write(tmp_path, Shape("small", 3, 2_500, 250))
    files = sorted((tmp_path / "small").glob("*.parquet"))
    rows = pa.concat_tables([pq.read_table(file) for file in files])
    low = pq.read_table(files[-1]).filter(pc.field("port") < LOW_PORT)
    check(FILTER, low, files)
    with pytest.raises(WrongAnswerError, match="not those that Arrow gives"):
        check(FILTER, low.slice(1), files)
    ports: dict[str, list[int]] = {}
    for row in rows.to_pylist():
        if 20_000_000 <= row["ts"] < 30_000_000:
            ports.setdefault(row["src"], []).append(row["port"])
    counted = [(src, len(found), len(set(found))) for src, found in ports.items()]
    names = ["src", "n", "ports"]
    check(TUMBLING, pa.table(list(map(list, zip(*counted, strict=True))), names), files)
    counted[0] = (counted[0][0], counted[0][1], counted[0][2] + 1)
    with pytest.raises(WrongAnswerError, match="100 rows, not those"):
        check(TUMBLING, pa.table(list(map(list, zip(*counted, strict=True))), names), files)
