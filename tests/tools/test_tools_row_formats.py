"""Zeek's logs, JSON, compressed files: the same tuples as from CSV; columns of other names."""

from __future__ import annotations

import datetime
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.objects.schema import Field, FieldType, Schema
from overlay.errors import InvalidInputError
from tools.rows.formats import Format, Reading, RowFile, format_of, read_rows
from tools.rows.json_rows import MAX_ARRAY_BYTES
from tools.rows.row_input import (
    BLOCK_BYTES,
    RowInput,
    end_of_first_line,
    end_of_lines,
    end_of_quoted_lines,
    whole_lines,
)
from tools.rows.row_process import open_rows

SCHEMA = Schema(
    "medusa://mit.edu/conn",
    (
        Field("ts", FieldType.TIMESTAMP),
        Field("src_ip", FieldType.STRING),
        Field("dst_port", FieldType.INT, nullable=True),
        Field("local", FieldType.BOOL, nullable=True),
        Field("note", FieldType.STRING, nullable=True),
    ),
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
    with pytest.raises(InvalidInputError, match=r"f: row 2, `\$\.ts`|f: .*row 2, `\$\.ts`"):
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


def test_a_directory_is_said_to_be_one(tmp_path: Path) -> None:
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
