"""Zeek's logs, JSON and compressed files give the same tuples as CSV; columns may have other
names."""

from __future__ import annotations

import datetime
import gzip
import io
import json
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
from field_texts import fields_of
from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.overlay.errors import InvalidInputError
from medusa.tools.commands.medusa.medusa_command import medusa
from medusa.tools.rows.encodings import as_utf8
from medusa.tools.rows.format_names import Format, format_of
from medusa.tools.rows.formats import Reading, RowFile, read_rows
from medusa.tools.rows.json_rows import MAX_ARRAY_BYTES
from medusa.tools.rows.row_input import (
    BLOCK_BYTES,
    RowInput,
    end_of_first_line,
    end_of_lines,
    end_of_quoted_lines,
    whole_lines,
)
from medusa.tools.rows.row_output import open_writer
from medusa.tools.rows.row_process import open_rows

SCHEMA = Schema(
    "medusa://mit.edu/conn",
    fields_of("ts timestamp, src_ip string, dst_port int?, local bool?, note string?"),
    "ts",
)
NAMES = {"id.orig_h": "src_ip", "id.resp_p": "dst_port", "local_orig": "local"}
TSV = (
    "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n#path\tconn\n"
    "#open\t2018-03-24-17-15-20\n"
    "#fields\tts\tuid\tid.orig_h\tid.resp_p\tlocal_orig\tnote\n"
    "#types\ttime\tstring\taddr\tport\tbool\tstring\n"
    "1521911720.5\tC1\t10.0.0.1\t80\tT\ta\\x09tab\n"
    "1521911721.0\tC2\t10.0.0.2\t-\tF\t(empty)\n"
)
JSON = (
    '{"ts":1521911720.5,"uid":"C1","id.orig_h":"10.0.0.1","id.resp_p":80,"local_orig":true,'
    '"note":"a\\ttab"}\n'
    '{"ts":"2018-03-24T17:15:21Z","id.orig_h":"10.0.0.2","local_orig":false,"note":"","tags":[]}\n'
)
UTC = datetime.UTC
WANTED = [
    (datetime.datetime(2018, 3, 24, 17, 15, 20, 500000, UTC), "10.0.0.1", 80, True, "a\ttab"),
    (datetime.datetime(2018, 3, 24, 17, 15, 21, 0, UTC), "10.0.0.2", None, False, ""),
]


def opened(data: bytes, kind: Format | None = None, **more: Any) -> RowFile:
    reading = Reading(SCHEMA, kind, **({"names": NAMES} | more))
    return read_rows(RowInput(io.BytesIO(data)), "f", reading)


def tuples(rows: RowFile) -> list[tuple[object, ...]]:
    table = pa.concat_tables([SCHEMA.payload.empty_table(), *rows.batches()])
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize("kind", [None, Format.ZEEK])
def test_zeek_tsv(kind: Format | None) -> None:
    rows = opened(TSV.encode(), kind)
    assert tuples(rows) == WANTED
    assert list(rows.columns.dropped) == ["uid"]


def test_zeek_logs_put_together_say_their_fields_anew() -> None:
    other = TSV.replace("\tuid\t", "\tservice\t").replace("\\x09\n", "|\n").replace("\t", "|")
    rows = opened((TSV + "#close\t2018\n" + other).encode())
    assert tuples(rows) == WANTED * 2
    assert list(rows.columns.dropped) == ["uid", "service"]


def test_zeek_json() -> None:
    rows = opened(JSON.encode(), Format.ZEEK)
    assert tuples(rows) == WANTED
    assert sorted(rows.columns.dropped) == ["tags", "uid"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1\t2\n", "no line `#fields`"),
        (TSV + "1521911722\tC3\n", "row 3: 2 values, and #fields names 6"),
        (TSV + "soon\tC3\t10.0.0.1\t80\tT\t-\n", "row 3, field 'ts': 'soon' is no timestamp"),
        (TSV + "-\tC3\t10.0.0.1\t80\tT\t-\n", "row 3, field 'ts': null"),
        (TSV.replace("\\x09\n#set", "\\x00\n#set"), "is not one ASCII character"),
        ("#fields\t" + "x\t" * 5000 + "\n", "more than 4096 columns"),
        (TSV.replace("id.orig_h", "host"), "--map COLUMN=src_ip says which it is"),
    ],
)
def test_faults_in_zeek_are_named(text: str, told: str) -> None:
    with pytest.raises(InvalidInputError, match="f: ") as caught:
        tuples(opened(text.encode(), Format.ZEEK))
    assert told in str(caught.value)


def test_an_array_of_json_is_rows() -> None:
    array = json.dumps([json.loads(line) for line in JSON.splitlines()])
    assert tuples(opened(array.encode(), ignore_extra=True)) == WANTED
    assert tuples(opened(b" [ ] ")) == []
    with pytest.raises(InvalidInputError, match=r"f: row 2, field 'ts': .* is a list, and"):
        tuples(opened(b'[{"ts":1,"id.orig_h":"a"},{"ts":[],"id.orig_h":"a"}]'))
    with pytest.raises(InvalidInputError, match=r"array is read at once.*jq -c"):
        tuples(opened(b"[" + b" " * (MAX_ARRAY_BYTES + 1)))


def test_columns_that_are_too_many_are_named_once_and_the_flags_explained() -> None:
    text = b"ts,src_ip,uid,service\n1,a,b,c\n"
    told = (
        r"columns 'uid', 'service': no field of the schema; --ignore-extra posts the rows without, "
        r"--map COLUMN=FIELD .* medusa://mit\.edu/conn has: ts, src_ip, dst_port"
    )
    with pytest.raises(InvalidInputError, match=told):
        tuples(opened(text))
    with pytest.raises(InvalidInputError, match=r"row 2: columns 'uid', 'tags': no field"):
        tuples(opened(b'{"ts":1,"id.orig_h":"a"}\n{"ts":1,"uid":1,"tags":2}\n'))
    rows = opened(text, ignore_extra=True)
    assert len(tuples(rows)) == 1
    assert list(rows.columns.dropped) == ["uid", "service"]


def test_columns_of_other_names_in_every_format(tmp_path: Path) -> None:
    text = b"ts,id.orig_h\n1521911720.5,a\n"
    assert tuples(opened(text))[0][1] == "a"
    with pytest.raises(InvalidInputError, match="'src_ip' appears twice"):
        tuples(opened(b"ts,id.orig_h,src_ip\n1,a,b\n"))


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
@pytest.mark.parametrize("text", [TSV, JSON, "ts,src_ip\n1,a\n"])
def test_compressed_files(tmp_path: Path, codec: str, text: str) -> None:
    kind = Format.ZEEK if text is JSON else None
    path = tmp_path / {"gzip": "f.log.gz", "zstd": "f.log.zst"}[codec]
    with pa.CompressedOutputStream(str(path), codec) as packed:
        packed.write(text.encode())
    assert format_of(path) is Format.ZEEK
    assert tuples(opened(path.read_bytes(), kind)) == tuples(opened(text.encode(), kind))
    for broken in (path.read_bytes()[:-9], path.read_bytes()[:12] + b"garbage"):
        with pytest.raises(InvalidInputError, match="f: "):
            tuples(opened(broken, kind))


def test_gzip_files_put_together_are_one() -> None:
    both = gzip.compress(b"ts,src_ip\n1,a\n") + gzip.compress(b"2,b\n")
    assert [row[1] for row in tuples(opened(both))] == ["a", "b"]


def test_a_bomb_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as packed:
        for _ in range(64):
            packed.write(bytes(2**24))
    with (
        open_rows(path, Reading(SCHEMA)) as rows,
        pytest.raises(InvalidInputError, match=f"a line of more than {BLOCK_BYTES} bytes"),
    ):
        list(rows.batches())


def test_how_many_rows_there_are_is_known_of_parquet(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    table = pa.table({"ts": [1.0, 2.0], "id.orig_h": ["a", "b"], "uid": [1, 2]})
    pq.write_table(table, tmp_path / "f.parquet")
    with open_rows(tmp_path / "f.parquet", Reading(SCHEMA, None, True, NAMES)) as rows:
        assert sum(batch.num_rows for batch in rows.batches()) == rows.rows == 2
        assert rows.dropped == ["uid"]


def test_the_error_says_that_a_directory_is_one(tmp_path: Path) -> None:
    with (
        pytest.raises(InvalidInputError, match=r"is a directory: give one of the files in it"),
        open_rows(tmp_path, Reading(SCHEMA)),
    ):
        pass


@given(st.text(st.sampled_from('a,"\n'), max_size=40), st.integers(1, 7))
def test_lines_are_cut_where_no_quotation_is_open(text: str, width: int) -> None:
    data = text.encode()
    ends = [
        end
        for end in range(len(data) + 1)
        if data[:end].endswith(b"\n") and data.count(b'"', 0, end) % 2 == 0
    ]
    assert end_of_quoted_lines(data) == max(ends, default=0)
    assert end_of_first_line(data) == min(ends, default=0)
    pieces = [data[start : start + width] for start in range(0, len(data), width)]
    source = RowInput(io.BytesIO())
    for end in (end_of_lines, end_of_quoted_lines):
        blocks = list(whole_lines(iter(pieces), end, source))
        assert b"".join(blocks) == data
        assert all(end(block) == len(block) for block in blocks[:-1])


# -- encodings -------------------------------------------------------------------------------------

ENCODINGS = ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("text", [TSV, JSON, "ts,src_ip\n1,é\n", '[{"ts":1,"id.orig_h":"é"}]'])
def test_texts_of_other_encodings_are_the_same_rows(encoding: str, text: str) -> None:
    data = text.encode(encoding)
    wanted = tuples(opened(text.encode(), ignore_extra=True))
    assert tuples(opened(data, ignore_extra=True)) == wanted
    assert tuples(opened(gzip.compress(data), ignore_extra=True)) == wanted


@given(st.text(max_size=30), st.sampled_from(ENCODINGS), st.lists(st.integers(1, 5), min_size=1))
def test_pieces_of_a_text_are_cut_anywhere(text: str, encoding: str, widths: list[int]) -> None:
    data, pieces = ("{}" + text).encode(encoding), []
    while data:
        width = widths[len(pieces) % len(widths)]
        pieces.append(data[:width])
        data = data[width:]
    read = as_utf8(lambda: pieces.pop(0) if pieces else b"")
    assert b"".join(iter(read, b"")) == ("{}" + text).encode()


def test_the_error_says_that_utf_16_is_incomplete() -> None:
    with pytest.raises(InvalidInputError, match=r"f: it begins as UTF-16.* and does not go on so"):
        tuples(opened("ts,src_ip\n1,a".encode("utf-16") + b"\x00"))


# -- columns ---------------------------------------------------------------------------------------

PLAIN = Schema(
    "medusa://mit.edu/plain", fields_of("ts timestamp, id_orig_h string, note string?"), "ts"
)
DOTTED = [
    (b"ts,id.orig_h\n1,a\n2,b\n", Format.CSV),
    (b"#fields\tts\tid.orig_h\n1\ta\n2\tb\n", Format.ZEEK),
    (b'{"ts":1,"id.orig_h":"a"}\n{"ts":2,"id.orig_h":"b"}\n', Format.ZEEK),
    (b'{"ts":1,"id.orig_h":"a"}\n{"ts":2,"id.orig_h":"b"}\n', Format.JSON),
    (b'[{"ts":1,"id.orig_h":"a"},{"ts":2,"id.orig_h":"b"}]', Format.JSON),
]


@pytest.mark.parametrize(("data", "kind"), DOTTED)
def test_dots_of_names_are_underscores_of_the_schema(data: bytes, kind: Format) -> None:
    rows = read_rows(RowInput(io.BytesIO(data)), "f", Reading(PLAIN, kind))
    assert [row["id_orig_h"] for row in rows_of(rows)] == ["a", "b"]
    assert not rows.columns.dropped
    assert rows.columns.unfilled == ["note"]
    optional = Schema(
        PLAIN.name, (PLAIN.fields[0], Field("id_orig_h", FieldType.STRING, None, True))
    )
    for ignore_extra in (True, False):
        reading = Reading(optional, kind, ignore_extra)
        rows = read_rows(RowInput(io.BytesIO(data)), "f", reading)
        assert [row["id_orig_h"] for row in rows_of(rows)] == ["a", "b"], "also where null may be"
    mapped = Reading(PLAIN, kind, ignore_extra=True, names={"id.orig_h": "note", "ts": "ts"})
    with pytest.raises(InvalidInputError, match=r"id_orig_h"):
        rows_of(read_rows(RowInput(io.BytesIO(data)), "f", mapped))


def rows_of(rows: RowFile) -> list[dict[str, object]]:
    return [row for table in rows.batches() for row in table.to_pylist()]


def test_a_name_with_dots_that_comes_later_is_seen() -> None:
    optional = Schema(PLAIN.name, (PLAIN.fields[0], Field("a_b", FieldType.INT, None, True)), "ts")
    lines = b'{"ts":1}\n' * 300_000 + b'{"ts":2,"a.b":7}\n'
    for ignore_extra in (True, False):
        reading = Reading(optional, Format.JSON, ignore_extra)
        rows = read_rows(RowInput(io.BytesIO(lines)), "f", reading)
        assert [table.column("a_b")[-1].as_py() for table in rows.batches()][-1] == 7


def test_fields_that_nothing_fills_are_known() -> None:
    rows = opened(TSV.replace("\tlocal_orig\t", "\tlocal.orig\t").encode())
    assert [row[3] for row in tuples(rows)] == [None, None]
    assert rows.columns.unfilled == ["local"]
    rows = opened(
        b'{"ts":1,"id.orig_h":"a","note":null}\n{"ts":1,"id.orig_h":"a","local_orig":true}\n'
    )
    assert len(tuples(rows)) == 2
    assert rows.columns.unfilled == ["dst_port", "note"]


def test_the_reading_process_reports_the_columns(tmp_path: Path) -> None:
    for text, dropped, unfilled in (
        (TSV.replace("\tnote\n", "\tother\n"), ["uid", "other"], ["note"]),
        ("".join(JSON.splitlines(True)[1:]), ["tags"], ["dst_port"]),
        (JSON, ["uid", "tags"], []),
    ):
        (tmp_path / "f.log").write_text(text)
        with open_rows(tmp_path / "f.log", Reading(SCHEMA, None, False, NAMES)) as rows:
            assert sum(table.num_rows for table in rows.batches())
            assert (sorted(rows.dropped), rows.unfilled) == (sorted(dropped), unfilled)


def test_rows_without_any_value_are_rows() -> None:
    schema = Schema(PLAIN.name, (PLAIN.fields[2],))
    rows = read_rows(RowInput(io.BytesIO(b"{}\n{}\n")), "f", Reading(schema, Format.JSON))
    assert rows_of(rows) == [{"note": None}] * 2
    assert rows.columns.unfilled == []


ODD: dict[str, Any] = {
    "day": [datetime.time(1)],
    "list": [[1]],
    "struct": [{"a": 1}],
    "bytes": [b"\xff"],
    "uuid": pa.array([b"0" * 16], pa.uuid()),
    "long": pa.array([1], pa.duration("ns")),
    "far": pa.array([2**62], pa.int64()).cast(pa.timestamp("s")),
    "wide": pa.array([1], pa.decimal256(60)),
    "view": pa.array(["x"], pa.string_view()),
}


@pytest.mark.parametrize("kind", [Format.PARQUET, Format.ARROW])
def test_a_column_that_is_no_field_stops_no_file(kind: Format) -> None:
    import pyarrow.parquet as pq

    file, table = io.BytesIO(), pa.table({"ts": [1], "src_ip": ["a"], **ODD})
    if kind is Format.PARQUET:
        table = table.drop("far")  # the writer refuses such a table
        pq.write_table(table, file)
    else:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    rows = opened(file.getvalue(), kind, ignore_extra=True)
    assert len(tuples(rows)) == 1
    assert {*rows.columns.dropped} == {*table.column_names} - {"ts", "src_ip"}


def test_a_column_of_csv_that_is_no_field_stops_no_file() -> None:
    data = b"ts,raw,src_ip\n1,\xff\xfe,a\n"
    assert len(tuples(opened(data, ignore_extra=True))) == 1
    with pytest.raises(InvalidInputError, match="row 1, field 'src_ip': it is not UTF-8"):
        tuples(opened(b"ts,raw,src_ip\n1,a,\xff\n", ignore_extra=True))


@pytest.mark.parametrize("kind", [Format.CSV, Format.JSON, Format.PARQUET, Format.ARROW])
def test_the_written_rows_of_a_stream_are_posted_without_options(kind: Format) -> None:
    at = [datetime.datetime(2018, 3, 24, tzinfo=UTC)] * 2
    fields = {"ts": at, "src_ip": ["a", "b"], "dst_port": [1, None]}
    payload = pa.Table.from_pydict(
        {**fields, "local": [True] * 2, "note": ["x", ""]}, SCHEMA.payload
    )
    source = payload.add_column(0, "stime", [[1, 2]]).add_column(1, "seq", [[0, 1]])
    file = io.BytesIO()
    writer = open_writer(file, kind, source.schema)
    writer.write(source)
    writer.finish()
    rows = opened(file.getvalue(), kind, names={})
    assert tuples(rows) == [tuple(row.values()) for row in payload.to_pylist()]
    assert sorted(rows.columns.dropped) == ["seq", "stime"]
    renamed = Schema(SCHEMA.name, (Field("at", FieldType.LONG),), "at")
    reading = Reading(renamed, kind, ignore_extra=True, names={"stime": "at"})
    again = read_rows(RowInput(io.BytesIO(file.getvalue())), "f", reading)
    assert tuples_of_longs(again) == [1, 2]


def tuples_of_longs(rows: RowFile) -> list[int]:
    return [value for table in rows.batches() for value in table.column("at").to_pylist()]


# -- Parquet's old timestamps ----------------------------------------------------------------------


def int96(counts: list[int | None], unit: str = "us") -> bytes:
    import pyarrow.parquet as pq

    file = io.BytesIO()
    column = pa.array(counts, pa.int64()).cast(pa.timestamp(unit))
    table = pa.table({"ts": column, "src_ip": ["a"] * len(counts)})
    pq.write_table(table, file, use_deprecated_int96_timestamps=True)
    return file.getvalue()


@given(st.lists(st.none() | st.integers(-2 * 10**17, 2 * 10**18), min_size=1, max_size=9))
def test_int96_is_right_beyond_the_years_of_nanoseconds(counts: list[int | None]) -> None:
    optional = Schema(SCHEMA.name, (Field("ts", FieldType.TIMESTAMP, nullable=True),))
    reading = Reading(optional, Format.PARQUET, ignore_extra=True)
    rows = read_rows(RowInput(io.BytesIO(int96(counts))), "f", reading)
    found = [v for t in rows.batches() for v in t.column("ts").cast(pa.int64()).to_pylist()]
    assert found == counts


def test_int96_is_cut_down_and_refused_beyond_64_bits_of_microseconds() -> None:
    rows = opened(int96([-1, 999, 1000], "ns"), Format.PARQUET, names={})
    assert [row[0] for row in tuples(rows)] == [
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        datetime.datetime(1970, 1, 1, tzinfo=UTC),
        datetime.datetime(1970, 1, 1, microsecond=1, tzinfo=UTC),
    ]
    far = opened(int96([1, 10**14], "s"), Format.PARQUET, names={})
    with pytest.raises(InvalidInputError, match=r"row 2, column 'ts': times are within 292,000"):
        tuples(far)


@pytest.mark.parametrize(
    ("command", "choices"),
    [
        ("post", ("csv", "json", "zeek", "parquet", "arrow")),
        ("subscribe", ("csv", "json", "parquet", "arrow")),
        ("table scan", ("csv", "json", "parquet", "arrow")),
    ],
)
def test_commands_offer_the_formats_by_their_lower_case_names(
    command: str, choices: tuple[str, ...]
) -> None:
    found: click.Command = medusa
    for word in command.split():
        assert isinstance(found, click.Group)
        found = found.commands[word]
    (option,) = (each for each in found.params if each.name == "kind")
    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == choices
    assert option.type.convert("csv", option, None) == "csv"
