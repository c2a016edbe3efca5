"""The parts of the bench around its measurements: goals, table and workload. The measurements
themselves are tested by each run of the bench."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import trio
import trio.testing
from click.testing import CliRunner, Result
from deadline import DEADLINE_S
from screens import text_of

from medusa.testnet.bench import __main__ as bench
from medusa.testnet.bench import fanout
from medusa.testnet.bench.fanout import Arrivals
from medusa.testnet.bench.moving_reference import copy_checkpoint
from medusa.testnet.bench.path import HOPS, Meter, measure_plain
from medusa.testnet.bench.sender import BATCH_ROWS, batches
from medusa.testnet.connections.conn import ARROW


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
    text = text_of(bench.render([entry(goal="< 6"), entry(goal="< 5"), entry()]), 100)
    assert text.count(" met") == 1
    assert text.count("missed") == 1


def measure(tmp_path: Path, *parts: str) -> tuple[Result, list[dict[str, Any]]]:
    out = tmp_path / "bench.json"
    result = CliRunner().invoke(bench.main, [*parts, "--out", str(out)])
    return result, msgspec.json.decode(out.read_bytes())


def put_parts(folder: Path, monkeypatch: pytest.MonkeyPatch, **bodies: str) -> None:
    """Let the processes find other programs under these names."""
    for name, body in bodies.items():
        lines = [f"    {line}" for line in body.splitlines()]
        (folder / f"{name}.py").write_text("\n".join(("def measure():", *lines)))
    code = f"import medusa.testnet.bench as bench; bench.__path__.insert(0, {str(folder)!r})"
    (folder / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(folder))


GOOD = f"yield {entry(name='good', goal='< 6')}"


def test_the_bench_writes_the_measurements_of_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_parts(tmp_path, monkeypatch, epochs=GOOD, path=GOOD.replace("good", "better"))
    result, entries = measure(tmp_path, "epochs", "path")
    assert result.exit_code == 0, result.output
    assert [entry["name"] for entry in entries] == ["good", "better"]
    assert "failed" not in result.output


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("raise FileNotFoundError('.offsets.tmp')", "FileNotFoundError: .offsets.tmp"),
        ("import os; os._exit(7)", "its process ended with 7"),
    ],
)
def test_a_part_that_fails_is_named_and_all_other_figures_are_kept(
    fault: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = f"print('not a figure')\n{GOOD}\n{fault}"
    put_parts(tmp_path, monkeypatch, epochs=GOOD, moving=bad, path=GOOD)
    result, entries = measure(tmp_path, "epochs", "moving", "path")
    assert result.exit_code == 1
    good = entry(name="good", goal="< 6")
    assert entries == [good, good, {"name": "moving", "failed": reason}, good]
    assert f"moving failed: {reason}" in result.output


def test_figures_are_in_the_file_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "bench.json"
    look = f"import pathlib\nassert pathlib.Path({str(out)!r}).read_text().count('good') == 1"
    wait = f"while 'good' not in open({str(out)!r}).read(): pass"
    put_parts(tmp_path, monkeypatch, epochs=f"{GOOD}\n{wait}\n{look}")
    result, entries = measure(tmp_path, "epochs")
    assert result.exit_code == 0, result.output
    assert len(entries) == 1


def test_a_checkpoint_is_copied_while_temporary_files_go(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    (before / "state").mkdir(parents=True)
    (before / "state" / "1.delta").write_text("committed")
    gone = before / "state" / ".2.delta.0b1f.tmp"
    gone.symlink_to("nowhere")  # a link whose target is gone when it is opened
    (before / "state" / "..2.delta.0b1f.tmp.crc").symlink_to("nowhere")
    copy_checkpoint(before, after)
    assert [path.name for path in (after / "state").iterdir()] == ["1.delta"]


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


async def test_three_plain_connections_move_all_rows() -> None:
    assert min(await measure_plain(2_500_000, HOPS)) > 0


def test_meter_counts_whole_segments() -> None:
    clock = iter(float(second) for second in range(10))
    meter = Meter(lambda: next(clock))
    ended = [meter.add(500_000) for _ in range(6)]
    assert ended == [False, True, False, True, False, True]
    assert meter.rates == [1_000_000.0] * 3
    assert meter.rate == 1_000_000.0


async def test_the_delay_of_a_part_counts_once_all_subscribers_have_it(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    monkeypatch.setattr(fanout, "SUBSCRIBERS", 2)
    arrivals = Arrivals()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(arrivals.next_whole)
        arrivals.note(7)
        arrivals.note(9)
        await trio.sleep(2)
        assert arrivals.delays == []
        arrivals.note(7)
    assert arrivals.delays == [[0.0, 2.0]]


async def test_the_plain_process_writes_all_parts_to_all_readers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fanout, "SUBSCRIBERS", 3)
    monkeypatch.setattr(fanout, "PARTS", 1)
    assert 0 < await fanout._plain_cpu_s() < DEADLINE_S
