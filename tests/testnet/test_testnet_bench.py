"""The bench's frame: goals, table, workload. What it measures is measured by running it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from click.testing import CliRunner
from rich.console import Console

from testnet.bench import __main__ as bench
from testnet.bench.path import Meter, measure_plain
from testnet.bench.workload import BATCH_ROWS, batches
from testnet.conn import ARROW


def entry(**more: Any) -> dict[str, Any]:
    base = {"name": "n", "value": 5.0, "unit": "s", "reference": None, "ratio": None, "goal": None}
    return base | more


@pytest.mark.parametrize(
    ("given", "met"),
    [
        (entry(), None),
        (entry(goal="< 6"), True),
        (entry(goal="< 5"), False),
        (entry(ratio=0.2, goal=">= 0.2"), True),
        (entry(ratio=0.19, goal=">= 0.2"), False),
        (entry(ratio=0.6, goal="<= 0.6"), True),
    ],
)
def test_goals(given: dict[str, Any], met: bool | None) -> None:
    assert bench.met(given) is met


def test_table_says_met_or_missed() -> None:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(bench.render([entry(goal="< 6"), entry(goal="< 5"), entry()]))
    text = console.export_text()
    assert text.count(" met") == 1
    assert text.count("missed") == 1


def test_writes_what_the_modules_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Module:
        @staticmethod
        def measure() -> list[dict[str, Any]]:
            return [entry(goal="< 6")]

    out = tmp_path / "bench.json"
    monkeypatch.setattr(bench.importlib, "import_module", lambda name: Module)
    result = CliRunner().invoke(bench.main, ["epochs", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert out.read_text().count('"name"') == 1


def test_several_modules_are_measured_each_in_its_own_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], **_: object) -> None:
        assert command[:3] == [sys.executable, "-m", "testnet.bench"]
        Path(command[-1]).write_bytes(msgspec.json.encode([entry(name=command[3], goal="< 6")]))

    out = tmp_path / "bench.json"
    monkeypatch.setattr(bench.subprocess, "run", run)
    result = CliRunner().invoke(bench.main, ["epochs", "path", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert [e["name"] for e in msgspec.json.decode(out.read_bytes())] == ["epochs", "path"]


def test_workload_is_ascending_and_of_the_size_asked() -> None:
    rows = BATCH_ROWS * 16 + 5
    tables = list(batches(rows))
    assert sum(table.num_rows for table in tables) == rows
    assert all(table.schema == ARROW for table in tables)
    assert max(table.num_rows for table in tables) == BATCH_ROWS
    ts = pa.concat_tables(tables).column("ts").to_pylist()
    assert ts == sorted(ts)


async def test_the_plain_connection_moves_all_rows() -> None:
    assert min(await measure_plain(2_500_000)) > 0


def test_meter_counts_whole_segments() -> None:
    clock = iter(float(second) for second in range(10))
    meter = Meter(lambda: next(clock))
    ended = [meter.add(500_000) for _ in range(6)]
    assert ended == [False, True, False, True, False, True]
    assert meter.rates == [1_000_000.0] * 3
    assert meter.rate == 1_000_000.0
