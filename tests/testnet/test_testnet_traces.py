"""Traces: every format gives the same connections, and every error names its place."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from medusa.overlay.errors import InvalidInputError
from medusa.testnet.connections.conn import ARROW
from medusa.testnet.connections.traces import (
    BATCH_ROWS,
    Trace,
    merge,
    open_trace,
    read_batches,
    write_trace,
)

ROWS = [
    (1521911720.25, "10.0.0.1", 4000, "10.1.0.1", 80, "tcp", 10, 20, 0.5),
    (1521911721.5, "fe80::1", None, "10.1.0.2", None, "icmp", None, None, None),
    (1521911722.0, "10.0.0.3", 1, None, 65535, None, 0, 2**40, 0.0),
]
WANTED = pa.table([list(c) for c in zip(*ROWS, strict=True)], schema=ARROW)

ZEEK_FIELDS = ["ts", "uid", "id.orig_h", "id.orig_p", "id.resp_h", "id.resp_p", "proto"]
ZEEK_FIELDS += ["service", "duration", "orig_bytes", "resp_bytes"]
ZEEK_HEAD = (
    "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n#path\tconn\n"
    "#fields\t" + "\t".join(ZEEK_FIELDS) + "\n#types\t" + "\t".join(["string"] * 11) + "\n"
)


def zeek_lines(rows: list[tuple[object, ...]]) -> str:
    lines = []
    for ts, src, sport, dst, dport, proto, out, back, duration in rows:
        cells = (ts, 'C"x', src, sport, dst, dport, proto, "(empty)", duration, out, back)
        lines.append("\t".join("-" if cell is None else str(cell) for cell in cells) + "\n")
    return "".join(lines)


def zeek_json(rows: list[tuple[object, ...]]) -> str:
    names = ["ts", "id.orig_h", "id.orig_p", "id.resp_h", "id.resp_p", "proto"]
    names += ["orig_bytes", "resp_bytes", "duration"]
    return "".join(
        json.dumps({n: v for n, v in zip(names, row, strict=True) if v is not None}) + "\n"
        for row in rows
    )


def read(path: Path) -> pa.Table:
    return pa.concat_tables(open_trace(path).batches())


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_parquet(tmp_path: Path) -> None:
    pq.write_table(WANTED, tmp_path / "t")
    assert read(tmp_path / "t") == WANTED


def test_parquet_of_other_types(tmp_path: Path) -> None:
    """The file has timestamps, large and dictionary strings, wider integers, extra and missing
    columns."""
    table = pa.table(
        {
            "extra": [1, 2, 3],
            "id.resp_p": pa.array([80, None, 65535], pa.int64()),
            "ts": pa.array([int(row[0] * 1e3) * 10**6 for row in ROWS], pa.timestamp("ns", "UTC")),
            "src_ip": pa.array([row[1] for row in ROWS]).dictionary_encode(),
            "proto": pa.array([row[5] for row in ROWS], pa.large_string()),
        }
    )
    pq.write_table(table, tmp_path / "t")
    got = read(tmp_path / "t")
    assert got.schema == ARROW
    for name in ("ts", "src_ip", "dst_port", "proto"):
        assert got.column(name).to_pylist() == WANTED.column(name).to_pylist()
    assert got.column("bytes_out").null_count == 3


def test_csv(tmp_path: Path) -> None:
    pa.csv.write_csv(WANTED, tmp_path / "t.csv")
    assert read(tmp_path / "t.csv") == WANTED


def test_csv_with_iso_times_and_whole_floats(tmp_path: Path) -> None:
    text = (
        "ts,src_ip,dst_port\n2018-03-24T17:15:20.25Z,10.0.0.1,80.0\n"
        "2018-03-24T19:15:21.500+02:00,fe80::1,\n2018-03-24 17:15:22Z,10.0.0.3,65535\n"
    )
    got = read(write(tmp_path / "t.csv", text))
    assert got.column("ts").to_pylist() == [row[0] for row in ROWS]
    assert got.column("dst_port").to_pylist() == [80, None, 65535]


@pytest.mark.parametrize("packed", [False, True])
def test_zeek_tsv(tmp_path: Path, packed: bool) -> None:
    """Two rotated logs in one file: the second brings its own header."""
    text = (ZEEK_HEAD + zeek_lines(ROWS[:2]) + "#close\t2018-03-24\n").encode()
    text += (ZEEK_HEAD + zeek_lines(ROWS[2:])).encode()
    path = write(tmp_path / "conn.log", gzip.compress(text) if packed else text)
    assert read(path) == WANTED


def test_zeek_json(tmp_path: Path) -> None:
    assert read(write(tmp_path / "conn.log", zeek_json(ROWS))) == WANTED


def test_zeek_json_nested_with_iso_time(tmp_path: Path) -> None:
    line = {
        "ts": "2018-03-24T17:15:20.25Z",
        "id": {"orig_h": "10.0.0.1", "orig_p": 4000, "resp_h": "10.1.0.1", "resp_p": 80},
    }
    got = read(write(tmp_path / "conn.log", json.dumps(line)))
    assert got.select(["ts", "src_ip", "dst_port"]).to_pylist() == [
        {"ts": 1521911720.25, "src_ip": "10.0.0.1", "dst_port": 80}
    ]


def test_unsorted_is_sorted(tmp_path: Path) -> None:
    trace = open_trace(write(tmp_path / "conn.log", ZEEK_HEAD + zeek_lines(ROWS[::-1])))
    assert not trace.ascending
    assert (trace.first, trace.last, trace.rows) == (ROWS[0][0], ROWS[2][0], 3)
    assert pa.concat_tables(trace.batches()) == WANTED


@pytest.mark.parametrize("empty", [b"", ZEEK_HEAD.encode(), b"ts,src_ip,dst_port\n"])
def test_no_connections(tmp_path: Path, empty: bytes) -> None:
    path = write(tmp_path / "t", empty)
    if empty:
        assert open_trace(path).rows == 0
    else:
        with pytest.raises(InvalidInputError, match="t: is empty"):
            open_trace(path)


BAD = {
    "csv port": (
        "ts,src_ip,dst_port\n1,a,1\n2,b,80x\n",
        "row 2: dst_port: '80x' is not a whole number",
    ),
    "csv port range": ("ts,src_ip,dst_port\n1,a,70000\n", r"row 1: dst_port: 70000 is not a port"),
    "csv ts": ("ts,src_ip,dst_port\n1,a,1\n-,b,1\n", "row 2: ts: is empty"),
    "csv ms": ("ts,src_ip,dst_port\n1521911720250,a,1\n", "row 1: ts: .* is not seconds"),
    "csv nan": ("ts,src_ip,dst_port\ninf,a,1\n", "row 1: ts: inf is not seconds"),
    "csv time": ("ts,src_ip,dst_port\n1,a,1\nnoon,a,1\n", "row 2: ts: 'noon' is neither"),
    "csv column": ("ts,src_ip\n1,a\n", "no column dst_port or id.resp_p; it has ts, src_ip"),
    "csv cells": ("ts,src_ip,dst_port\n1,a,1\n1,a\n", "after row .*Expected 3 columns, got 2"),
    "zeek cells": (
        ZEEK_HEAD + zeek_lines(ROWS) + "1\t2\n",
        "row 4: 2 values, and #fields",
    ),
    "zeek cell": (
        ZEEK_HEAD + zeek_lines([*ROWS, (9.0, "a", "x", "b", 1, "tcp", 1, 1, 1.0)]),
        "row 4: src_port: 'x' is not a whole number",
    ),
    "zeek headless": ("#close\n1\t2\n", "no line `#fields`"),
    "zeek separator": ("#separator \\x\n", "is not one ASCII character"),
    "zeek nul separator": ("#separator \\x00\n#fields\0ts\n", "is not one ASCII character"),
    "zeek columns": ("#fields\t" + "x\t" * 5000 + "\n", "more than 4096 columns"),
    "zeek nested": ('{"ts": ' + "[" * 10**5 + "]" * 10**5 + "}\n", "row 1: nested too deeply"),
    "json": (zeek_json(ROWS) + "{\n", "row 4: not a JSON object"),
    "json value": (
        zeek_json(ROWS) + '{"ts":9,"id.orig_h":"a","id.resp_p":{}}\n',
        "row 4: dst_port: {} is neither text nor a number",
    ),
    "json source": (zeek_json(ROWS) + '{"ts":9,"id.resp_p":1}\n', "row 4: src_ip: is empty"),
    "gzip": (gzip.compress(ZEEK_HEAD.encode() + bytes(range(256)))[:-9], "after row 0"),
    "parquet": (b"PAR1nothing", "after row 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_faults_name_file_row_and_field(tmp_path: Path, name: str) -> None:
    text, message = BAD[name]
    path = write(tmp_path / "bad.trace", text)
    with pytest.raises(InvalidInputError, match=message) as caught:
        open_trace(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_row_of_a_fault_in_a_later_batch(tmp_path: Path) -> None:
    lines = ["ts,src_ip,dst_port"] + [f"{row},a,1" for row in range(BATCH_ROWS + 10)]
    lines[BATCH_ROWS + 5] = "x,a,1"
    with pytest.raises(InvalidInputError, match=f"row {BATCH_ROWS + 5}: ts"):
        open_trace(write(tmp_path / "t.csv", "\n".join(lines)))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="No such file"):
        open_trace(tmp_path / "none")


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.binary(max_size=200),
        st.binary(max_size=100).map(lambda tail: ZEEK_HEAD.encode() + tail),
        st.binary(max_size=100).map(lambda tail: b"#separator " + tail),
        st.binary(max_size=100).map(lambda tail: b'{"ts":1,"id.orig_h":' + tail),
        st.binary(max_size=100).map(lambda tail: b"ts,src_ip,dst_port\n" + tail),
        st.binary(max_size=100).map(lambda tail: b"PAR1" + tail + b"PAR1"),
        st.binary(max_size=100).map(lambda tail: b"\x1f\x8b\x08" + tail),
    )
)
def test_any_bytes_raise_one_error(tmp_path: Path, data: bytes) -> None:
    path = write(tmp_path / "fuzz", data)
    try:
        for batch in read_batches(path):
            assert batch.schema == ARROW
            batch.validate(full=True)
    except InvalidInputError:
        pass


@given(
    st.lists(st.lists(st.integers(0, 50), max_size=30), min_size=1, max_size=4),
    st.integers(1, 5),
)
@settings(deadline=None)
def test_merge_is_a_sort(parts: list[list[int]], size: int) -> None:
    class Fake(Trace):
        def batches(self) -> Iterator[pa.Table]:
            rows = sorted(parts[int(self.path.name)])
            for start in range(0, len(rows), size):
                ts = [float(row) for row in rows[start : start + size]]
                yield pa.table({"ts": ts, "from": [self.path.name] * len(ts)})

    traces = [Fake(Path(str(index)), 0, 0, 0, True) for index in range(len(parts))]
    merged = [row for table in merge(traces) for row in table.to_pylist()]
    assert [row["ts"] for row in merged] == sorted(ts for part in parts for ts in part)
    for index, part in enumerate(parts):
        assert [r["ts"] for r in merged if r["from"] == str(index)] == sorted(part)


def test_written_traces_read_back(tmp_path: Path) -> None:
    write_trace(tmp_path / "t.parquet", [WANTED, WANTED])
    assert read(tmp_path / "t.parquet").num_rows == 6
