"""Rows of files: every format gives the same tuples, every error names its row and field."""

from __future__ import annotations

import datetime
import io
import json
import math
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from field_texts import fields_of
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from medusa.engine.objects.schema import Schema
from medusa.overlay.errors import InvalidInputError, NotFoundError
from medusa.tools.rows.format_names import Format, format_of
from medusa.tools.rows.formats import Reading, read_rows
from medusa.tools.rows.row_input import RowInput
from medusa.tools.rows.row_output import open_writer
from medusa.tools.rows.row_process import open_rows

SCHEMA = Schema(
    "medusa://mit.edu/s",
    fields_of("at timestamp, name string(8), n short, d double?, b bool?, note string?"),
    "at",
)
UTC = datetime.UTC
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "at": st.datetimes(timezones=st.just(UTC)),
            "name": st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=8),
            "n": st.integers(-(2**15), 2**15 - 1),
            "d": st.none() | st.floats(allow_nan=False, allow_infinity=False),
            "b": st.none() | st.booleans(),
            "note": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        }
    ),
    max_size=20,
)


def _read(data: bytes, kind: Format, *, ignore_extra: bool = False) -> pa.Table:
    rows = read_rows(RowInput(io.BytesIO(data)), "f", Reading(SCHEMA, kind, ignore_extra))
    return pa.concat_tables([SCHEMA.payload.empty_table(), *rows.batches()])


def _written(table: pa.Table, kind: Format, *, ours: bool = False) -> bytes:
    file = io.BytesIO()
    if kind is Format.PARQUET and not ours:
        pq.write_table(table, file)
    else:
        writer = open_writer(file, kind, table.schema)
        writer.write(table)
        writer.finish()
    return file.getvalue()


@settings(max_examples=50)
@given(ROWS, st.sampled_from([kind for kind in Format if kind is not Format.ZEEK]))
def test_written_rows_are_read_back(rows: list[dict[str, object]], kind: Format) -> None:
    table = pa.Table.from_pylist(rows, schema=SCHEMA.payload)
    if kind is Format.CSV and any("\r" in str(row["name"]) + str(row["note"]) for row in rows):
        return  # CSV readers take a carriage return in a text for the end of a line
    assert _read(_written(table, kind), kind).equals(table)


def test_parquet_of_a_subscription_keeps_nan_for_readers_that_skip_by_bounds(
    tmp_path: Path,
) -> None:
    table = pa.table({"stime": [1, 2], "x": [1.0, math.nan]})
    (tmp_path / "x.parquet").write_bytes(_written(table, Format.PARQUET, ours=True))
    with duckdb.connect() as database:
        asked = f"select stime from '{tmp_path}/x.parquet' where x > 5"
        assert database.execute(asked).fetchall() == [(2,)]


@settings(max_examples=200)
@given(st.binary(max_size=300), st.sampled_from(Format))
def test_any_bytes_give_rows_or_the_one_error(data: bytes, kind: Format) -> None:
    told = "f: "
    try:
        _read(data, kind)
    except InvalidInputError as error:
        told = str(error)
    assert told.startswith("f: ")
    assert "\n" not in told


HEADER = b"at,name,n,d,b,note\n"
GOOD = b"2020-01-01T00:00:00Z,a,1,2.5,true,x\n"


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2020-01-01T00:00:00.25Z", 1577836800_250_000),
        ("2020-01-01 00:00:00.25", 1577836800_250_000),
        ("2020-01-01T01:00:00+01:00", 1577836800_000_000),
        ("1577836800.25", 1577836800_250_000),
        ("1577836800", 1577836800_000_000),
    ],
)
def test_times_in_csv(text: str, at: int) -> None:
    table = _read(HEADER + f"{text},a,1,,,\n".encode(), Format.CSV)
    assert table.column("at").cast(pa.int64()).to_pylist() == [at]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (b"2020-01-01T00:00:00Z,a,x,2.5,true,\n", "row 3, field 'n': 'x' is no short"),
        (b"2020-01-01T00:00:00Z,a,40000,,,\n", "row 3, field 'n': '40000' is no short"),
        (b"2020-01-01T00:00:00Z,a,,,,\n", "row 3, field 'n': null"),
        (b"soon,a,1,,,\n", "row 3, field 'at': 'soon' is no timestamp"),
        (b"1e18,a,1,,,\n", "row 3, field 'at': '1e18' is no timestamp: times are within"),
        (b"nan,a,1,,,\n", "row 3, field 'at': 'nan' is no timestamp: a time is 2026-"),
        (b"2020-01-01T00:00:00Z,123456789,1,,,\n", "row 3, field 'name': longer than the 8 bytes"),
        (b"2020-01-01T00:00:00Z,a,1,,maybe,\n", "row 3, field 'b': 'maybe' is no bool"),
        (b"2020-01-01T00:00:00Z,a,1\n", "row 3: 3 values, and the first line names 6"),
        (b"2020-01-01T00:00:00Z,\xff,1,,,\n", "row 3, field 'name': it is not UTF-8"),
    ],
)
def test_faults_in_csv_are_named(row: bytes, told: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        _read(HEADER + GOOD + GOOD + row + GOOD, Format.CSV)
    assert told in str(caught.value)


@pytest.mark.parametrize("end", [b"", b"\r", b"\n"])
def test_csv_whose_lines_end_with_cr_alone_is_refused(end: bytes) -> None:
    """Programs that cut files into lines see one line: without this check it would be a file
    without rows."""
    with pytest.raises(InvalidInputError, match="its lines end with CR alone: write LF"):
        _read((HEADER + GOOD).replace(b"\n", b"\r").rstrip(b"\r") + end, Format.CSV)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"n": "1"},
            "row 2, field 'n': \"1\" is a text, and a short is a whole number from -32768",
        ),
        ({"n": 40000}, "row 2, field 'n': 40000 is a number, and a short is a whole number from"),
        ({"n": 1.5}, "row 2, field 'n': 1.5 is a number, and a short is a whole number from"),
        ({"n": None}, "row 2, field 'n': null, and it may not be"),
        ({"n": 10**80}, f"row 2, field 'n': 1{'0' * 59}... is a number, and a short is"),
        ({"name": False}, "row 2, field 'name': false is a bool, and a string is a text"),
        ({"d": {"x": 1}}, "row 2, field 'd': {\"x\": 1} is an object, and a double is a number"),
        ({"b": 1}, "row 2, field 'b': 1 is a number, and a bool is true or false"),
        ({"at": 1e300}, "row 2, field 'at': '1e+300' is no timestamp: times are within"),
        ({"at": "soon"}, "row 2, field 'at': 'soon' is no timestamp: a time is 2026-"),
        ({"at": []}, "row 2, field 'at': [] is a list, and a timestamp is a text, or a number of"),
        ({"more": 1}, "row 2: column 'more': no field of the schema; --ignore-extra posts"),
        ({"name": "123456789"}, "row 2, field 'name': longer"),
    ],
)
def test_faults_in_json_are_named(changes: dict[str, object], told: str) -> None:
    good: dict[str, object] = {"at": 1577836800.5, "name": "a", "n": 1}
    rows = [json.dumps(row) for row in (good, good | changes, good)]
    for text in ("\n".join(rows), f"[{','.join(rows)}]"):
        with pytest.raises(InvalidInputError) as caught:
            _read(text.encode(), Format.JSON)
        assert told in str(caught.value)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (b'{"at":1,"name":"a"}', "row 2, field 'n': missing, and it may not be"),
        (b'{"at":1,', "row 2: it breaks off: each object on one line (jq -c .)"),
        (b"[1]", "row 2: a row is an object"),
        (b"5", "row 2: a row is an object"),
        (b'{"at":1,"n":NaN}', "row 2: no JSON from byte 13 on: NaN}"),
        (b'{"at":1} {"at":2}', 'row 2: more after the object: {"at":2}'),
        (b'{"at":1,"name":"\xff","n":1}', "row 2, field 'name': it is not UTF-8"),
        (
            b'{"at":1,"d":1e999,"name":"","n":1}',
            "row 2, field 'd': 1e999 is a number, and a double",
        ),
        (b'{"at":1,"d":' + b"[" * 9999, "row 2: nested too deeply"),
    ],
)
def test_lines_that_are_no_rows_are_named(row: bytes, told: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        _read(b'{"at":1,"name":"a","n":1}\n\n' + row + b"\n", Format.JSON)
    assert told in str(caught.value)


def test_the_error_says_that_an_array_is_incomplete() -> None:
    for text, told in (
        (b'[{"at":1,"name":"a","n":1}', "it breaks off: its end is missing"),
        (b'[{"at":1,"name":"a","n":1}] 1', "more after the array: 1"),
        (b'[{"at":1,"name":"a","n":1},2]', "row 2: a row is an object"),
    ):
        with pytest.raises(InvalidInputError, match=told):
            _read(text, Format.JSON)


TEXT = st.sampled_from(["", "x", '"', "\\", '\\"', "a\n", '","n":1', "é", "2020-01-01"])
MEMBER = st.one_of(
    st.tuples(st.just("at"), st.sampled_from([1.5, "2020-01-01"])),
    st.tuples(st.just("name"), TEXT.filter(lambda text: len(text) < 8)),
    st.tuples(st.just("n"), st.integers(-9, 9)),
    st.tuples(st.just("note"), st.none() | TEXT),
    st.tuples(st.sampled_from(["stime", "seq"]), st.integers(0, 9) | TEXT),
    st.tuples(st.just('mo"re'), TEXT | st.lists(st.dictionaries(TEXT, TEXT), max_size=2)),
)


@settings(max_examples=examples(100, soak=5_000))
@given(
    st.lists(st.lists(MEMBER, max_size=6), min_size=1, max_size=6),
    st.sampled_from([(",", ":"), (" , ", " : ")]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_a_name_that_is_twice_in_an_object_is_refused(
    rows: list[list[tuple[str, object]]],
    signs: tuple[str, str],
    ascii_only: bool,
    array: bool,
    ignore_extra: bool,
) -> None:
    """The oracle counts the names; all values are valid, in all ways to write them."""
    needed = [("at", 1.5), ("name", "a"), ("n", 1)]
    faults = []
    texts = []
    for number, members in enumerate(rows, 1):
        kept = [each for each in members if ignore_extra or each[0] != 'mo"re']
        have = {name for name, _ in kept}
        whole = [*kept, *(each for each in needed if each[0] not in have)]
        names = [name for name, _ in whole]
        twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
        if twice is not None:
            faults.append(f"row {number}: column {twice!r} appears twice")
        written = [
            json.dumps(name)
            + signs[1]
            + json.dumps(value, ensure_ascii=ascii_only, separators=signs)
            for name, value in whole
        ]
        texts.append("{" + signs[0].join(written) + "}")
    data = f"[{','.join(texts)}]" if array else "\n".join(texts)
    if not faults:
        read = _read(data.encode(), Format.JSON, ignore_extra=ignore_extra)
        assert read.num_rows == len(rows)
        return
    with pytest.raises(InvalidInputError) as caught:
        _read(data.encode(), Format.JSON, ignore_extra=ignore_extra)
    assert str(caught.value) == f"f: {faults[0]}"


@pytest.mark.parametrize("kind", [Format.PARQUET, Format.ARROW])
def test_other_numeric_types_are_widened_or_refused_by_row(kind: Format) -> None:
    table = pa.table({"at": [1.5, 2.5], "name": ["a", "b"], "n": pa.array([1, 40000], pa.int64())})
    with pytest.raises(InvalidInputError, match="row 2, field 'n': '40000' is no short"):
        _read(_written(table, kind), kind)
    good = _read(_written(table.slice(0, 1), kind), kind)
    assert good.column("at").cast(pa.int64()).to_pylist() == [1_500_000]
    assert good.column("d").to_pylist() == [None]


def test_columns_that_do_not_belong() -> None:
    extra = b"at,name,n,d,b,note,more\n2020-01-01T00:00:00Z,a,1,,,,z\n"
    with pytest.raises(InvalidInputError, match=r"'more': no field .*--ignore-extra"):
        _read(extra, Format.CSV)
    assert _read(extra, Format.CSV, ignore_extra=True).num_rows == 1
    with pytest.raises(InvalidInputError, match="no column for field 'n'"):
        _read(b"at,name\n", Format.CSV)
    told = (
        "no column for field 'at'; it has columns 'name', 'n', 'stime', 'seq'; --map stime=at says"
    )
    for kind in (Format.CSV, Format.PARQUET, Format.ARROW):
        ours = _written(pa.table({"stime": [7], "seq": [0], "name": ["a"], "n": [1]}), kind)
        with pytest.raises(InvalidInputError, match=told):
            _read(ours, kind)
    with pytest.raises(InvalidInputError, match="'n' appears twice"):
        _read(b"at,name,n,n\n1,a,1,1\n", Format.CSV)


def test_rows_are_counted_over_batches(tmp_path: Path) -> None:
    path = tmp_path / "many.csv"
    path.write_bytes(HEADER + GOOD * 70_000 + b"2020-01-01T00:00:00Z,a,x,,,\n")
    with open_rows(path, Reading(SCHEMA)) as rows:
        batches = rows.batches()
        assert next(batches).num_rows <= 65_536
        with pytest.raises(InvalidInputError, match="row 70001, field 'n'"):
            list(batches)
        assert rows.total == path.stat().st_size
        assert 0 < rows.position <= rows.total


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError), open_rows(tmp_path / "none.csv", Reading(SCHEMA)):
        pass
    with pytest.raises(InvalidInputError), open_rows(tmp_path, Reading(SCHEMA, Format.CSV)):
        pass
    assert format_of(Path("trace.xyz")) is None


def test_a_flipped_bit_under_a_parquet_checksum_is_found() -> None:
    rows = [b"2020-01-01T00:00:00Z,a,%d,,,\n" % n for n in range(1000)]
    table, file = _read(HEADER + b"".join(rows), Format.CSV), io.BytesIO()
    pq.write_table(table, file, compression="none", use_dictionary=False, write_page_checksum=True)
    column = pq.read_metadata(file).row_group(0).column(2)
    data = bytearray(file.getvalue())
    data[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    with pytest.raises(InvalidInputError, match=r"f: .*CRC"):
        _read(bytes(data), Format.PARQUET)
