"""The oracle against answers computed by others, and against a count by hand."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pytest

from medusa.testnet.connections.conn import ARROW
from medusa.testnet.connections.generate import generate
from medusa.testnet.connections.query import COLUMNS, Answers, expected, write_answers
from medusa.testnet.connections.traces import merge, open_trace

DATA = Path(__file__).parents[2].parent / "shared" / "data"

TRACES = {
    "wrccdc_a": ["wrccdc_a"],
    "wrccdc_b": ["wrccdc_b"],
    "wrccdc_a+b": ["wrccdc_a", "wrccdc_b"],
    "marx_oregon": ["marx_oregon"],
    "marx_tokyo": ["marx_tokyo"],
    "marx_oregon+tokyo": ["marx_oregon", "marx_tokyo"],
    "ctu_portscan": ["ctu_portscan"],
    "ctu_exposed_hosts": ["ctu_exposed_hosts"],
}


def by_hand(table: pa.Table) -> Answers:
    """Compute the query row by row."""
    seen: dict[tuple[int, str], list[int | None]] = {}
    for row in table.select(["ts", "src_ip", "dst_port"]).to_pylist():
        seen.setdefault((int(row["ts"] // 60) * 60, row["src_ip"]), []).append(row["dst_port"])
    prefixes: dict[tuple[int, str], int] = {}
    for (window, source), ports in seen.items():
        if len(ports) <= 100:
            key = window, source.rsplit(".", 1)[0]
            prefixes[key] = prefixes.get(key, 0) + len(ports)
    distinct = {key: len(set(ports) - {None}) for key, ports in seen.items()}
    return {
        "busy": sorted((*key, len(ports)) for key, ports in seen.items() if len(ports) > 100),
        "scan": sorted((*key, ports) for key, ports in distinct.items() if ports > 10),
        "cluster": sorted((*key, count) for key, count in prefixes.items() if count > 100),
    }


@pytest.mark.parametrize("name", TRACES)
def test_equals_the_published_answers(name: str, tmp_path: Path) -> None:
    files = [DATA / f"{part}.parquet" for part in TRACES[name]]
    if not all(file.exists() for file in files):
        pytest.skip(f"{name}: the traces are not here")
    write_answers(tmp_path, expected(merge([open_trace(file) for file in files])))
    for answer in COLUMNS:
        given = (tmp_path / f"{answer}.csv").read_text()
        assert given == (DATA / "answers" / f"{name}_{answer}.csv").read_text(), answer


def test_equals_a_count_by_hand() -> None:
    tables = generate(5, networks=2, rows=20_000)
    assert expected(tables) == by_hand(pa.concat_tables(tables))


def test_edges() -> None:
    """The edges: a thousandth before a window's end, the thresholds themselves, null ports, no
    dots."""
    rows = [(59.999, "a.b.c.d", 1)] * 100 + [(60.0, "a.b.c.d", port) for port in range(101)]
    rows += [(-1.0, "fe80::1", None)] * 101 + [(120.0, "a.b.c.x", 7), (125.0, "a.b.c.y", 7)] * 51
    times, sources, ports = zip(*rows, strict=True)
    columns = {"ts": times, "src_ip": sources, "dst_port": ports}
    arrays = [pa.array(columns.get(field.name, [None] * len(rows)), field.type) for field in ARROW]
    answers = expected([pa.table(arrays, schema=ARROW)])
    assert answers == {
        "busy": [(-60, "fe80::1", 101), (60, "a.b.c.d", 101)],
        "scan": [(60, "a.b.c.d", 101)],
        "cluster": [(120, "a.b.c", 102)],
    }


def test_no_connections() -> None:
    assert expected([]) == {"busy": [], "scan": [], "cluster": []}


def test_answers_are_csv(tmp_path: Path) -> None:
    answers: Answers = {"busy": [(60, "a", 101)], "scan": [], "cluster": []}
    write_answers(tmp_path / "new", answers)
    with (tmp_path / "new" / "busy.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["window_start", "src_ip", "conns"], ["60", "a", "101"]]
    assert (tmp_path / "new" / "scan.csv").read_text() == "window_start,src_ip,ports\n"
