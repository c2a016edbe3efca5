"""The process that reads an untrusted file has bounded memory and time, and reports each fault in
one line."""

from __future__ import annotations

import io
import json
import os
import re
import struct
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deadline import DEADLINE_S
from field_texts import fields_of
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.engine.objects.schema import Schema
from medusa.overlay.errors import InvalidInputError
from medusa.tools.rows.format_names import Format
from medusa.tools.rows.formats import BATCH_BYTES, Reading, read_rows
from medusa.tools.rows.row_input import BLOCK_BYTES, RowInput
from medusa.tools.rows.row_process import ReadRequest, open_rows, read_apart

pytestmark = pytest.mark.process

SCHEMA = Schema("medusa://mit.edu/s", fields_of("n long, text string?"))
MEMORY = 400 * 2**20
"""A memory limit above the reader's own use, and below the bombs' size."""

BOMB = 2**29


def told(folder: Path, data: bytes, kind: Format, *, extra: bool = False) -> tuple[int, str]:
    """Return the rows that were read, and the error."""
    path = folder / "f"
    path.write_bytes(data)
    rows = 0
    asked = ReadRequest(str(path), Reading(SCHEMA, kind, extra), MEMORY)
    with path.open("rb") as file, read_apart(file, asked) as reading:
        try:
            for table in reading.batches():
                rows += table.num_rows
        except InvalidInputError as error:
            return rows, str(error)
    return rows, ""


def zipped_page() -> bytes:
    """Return Parquet with one value of 512 MiB, in 50 KB."""
    table = pa.table({"n": [1], "text": pa.array(["y" * BOMB], pa.large_string())})
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd", use_dictionary=False, write_statistics=False)
    return file.getvalue()


def one_word_again_and_again() -> bytes:
    """Return Parquet with a dictionary of one word, and 8192 references to it: 512 MiB."""
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 8192, pa.int32()), ["y" * 2**16])
    file = io.BytesIO()
    table = pa.table({"n": range(8192), "text": words.cast(pa.string())})
    pq.write_table(table, file, compression="zstd", store_schema=False)
    return file.getvalue()


def zipped_batch() -> bytes:
    """Return Arrow with the same content as `zipped_page`."""
    table = pa.table({"n": [1], "text": pa.array(["y" * BOMB], pa.string())})
    file = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(file, table.schema, options=options) as writer:
        writer.write_table(table)
    return file.getvalue()


def columns_of_parquet() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({f"c{n}": pa.array([1], pa.int8()) for n in range(5000)}), file)
    return file.getvalue()


def footer(claimed: int) -> Callable[[], bytes]:
    return lambda: b"PAR1" + bytes(100) + struct.pack("<I", claimed) + b"PAR1"


def nested() -> bytes:
    kind: pa.DataType = pa.int64()
    for _ in range(20):
        kind = pa.struct([("s", pa.list_(kind))])
    file = io.BytesIO()
    pq.write_table(pa.table({"n": [1], "text": pa.array([None], kind)}), file)
    return file.getvalue()


GOOD = b'{"n": 1, "text": "a"}\n'

FILES: list[tuple[str, Format, Callable[[], bytes], str]] = [
    ("page", Format.PARQUET, zipped_page, "what follows row 0 takes more memory at once"),
    ("words", Format.PARQUET, one_word_again_and_again, "what follows row 0 takes more memory"),
    ("columns", Format.PARQUET, columns_of_parquet, "more than 4096 columns"),
    ("footer", Format.PARQUET, footer(2**31), "footer"),
    ("no footer", Format.PARQUET, footer(0), "f: "),
    ("nested", Format.PARQUET, nested, "field 'text': a struct"),
    ("batch", Format.ARROW, zipped_batch, "what follows row 0 takes more memory at once"),
    ("columns", Format.CSV, lambda: b"," * 8_000_000 + b"\n", "more than 4096 columns"),
    ("line", Format.CSV, lambda: b"n,text\n" + b"x" * 20_000_000, "a line of more than 8388608"),
    ("quote", Format.CSV, lambda: b'n,text\n1,"' + b"\n" * 20_000_000, "a quotation never closed"),
    ("nul", Format.CSV, lambda: b"n,text\n\0,a\n", "row 1, field 'n': '\\x00' is no long"),
    ("utf-16", Format.CSV, lambda: "n,text\n1".encode("utf-16") + b"\0\xd8", "as UTF-16"),
    ("latin", Format.CSV, lambda: "n,text\n1,é\n".encode("latin-1"), "row 1, field 'text'"),
    ("number", Format.CSV, lambda: b"n\n" + b"9" * 2**20, "row 1, field 'n': '9999"),
    (
        "line",
        Format.JSON,
        lambda: GOOD + b'{"n": 1, "text": "' + b"x" * 9 * 2**20,
        "a line of more than 8388608",
    ),
    ("number", Format.JSON, lambda: GOOD + b'{"n": ' + b"9" * 2**20 + b"}", "row 2, field 'n': 9"),
    ("float", Format.JSON, lambda: GOOD + b'{"n": 1e999999999}', "row 2, field 'n': 1e9"),
    (
        "surrogate",
        Format.JSON,
        lambda: GOOD + b'{"n": 1, "text": "\\ud800"}',
        "row 2: a text has half of a surrogate pair",
    ),
    ("nul", Format.JSON, lambda: GOOD + b"\0\0", "row 2: "),
    (
        "latin",
        Format.JSON,
        lambda: GOOD + '{"n": 1, "text": "é"}'.encode("latin-1"),
        "row 2, field 'text': it is not UTF-8",
    ),
]


@pytest.mark.parametrize(
    ("kind", "made", "wanted"),
    [pytest.param(*rest, id=f"{rest[0]}-{name}") for name, *rest in FILES],
)
def test_hostile_files_are_refused_in_a_line(
    tmp_path: Path, kind: Format, made: Callable[[], bytes], wanted: str
) -> None:
    _, error = told(tmp_path, made(), kind)
    assert error.startswith(f"{tmp_path / 'f'}: ")
    assert wanted in error
    assert "\n" not in error
    assert len(error) < 2000


@pytest.mark.timeout(DEADLINE_S)
@pytest.mark.parametrize(
    ("row", "wanted"),
    [(b"x,a\n", "row 1, field 'n'"), (b"1,\xff\n", "row 1, field 'text': it is not UTF-8")],
)
def test_a_fault_is_reported_while_more_is_being_read(row: bytes, wanted: str) -> None:
    """The reader reads the next block ahead, which never comes: the writer of the pipe is
    silent."""
    data = b"n,text\n" + row + b"1,a\n" * (2 * BLOCK_BYTES // 4 + 1)
    source, sink = os.pipe()
    asked = ReadRequest("rows", Reading(SCHEMA, Format.CSV), MEMORY)
    with (
        open(source, "rb") as file,
        open(sink, "wb", buffering=0) as pipe,
        read_apart(file, asked) as reading,
    ):
        Thread(target=pipe.write, args=(data,), daemon=True).start()
        with pytest.raises(InvalidInputError, match=re.escape(wanted)):
            list(reading.batches())


def test_json_that_is_nested_deeply_is_refused_where_it_is_to_be_skipped(tmp_path: Path) -> None:
    data = GOOD + b'{"n": 1, "more": ' + b"[" * 10**6 + b"]" * 10**6 + b"}"
    assert "row 2: nested too deeply" in told(tmp_path, data, Format.JSON, extra=True)[1]


def test_long_rows_come_few_at_a_time(tmp_path: Path) -> None:
    """In all they exceed the memory; at a time they do not exceed a batch."""
    path = tmp_path / "long.jsonl"
    line = json.dumps({"n": 1, "text": "x" * 2**20}).encode() + b"\n"
    path.write_bytes(line * 300)
    rows = 0
    with path.open("rb") as file:
        asked = ReadRequest("long", Reading(SCHEMA, Format.JSON), MEMORY)
        with read_apart(file, asked, path.stat().st_size) as reading:
            for table in reading.batches():
                assert table.nbytes <= BATCH_BYTES
                rows += table.num_rows
                assert 0 < reading.position <= 301 * len(line)
    assert rows == 300


def test_words_of_a_dictionary_count_as_often_as_they_occur() -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([0, None] * 500, pa.int32()), ["y" * 2**20])
    file = io.BytesIO()
    table = pa.table({"n": range(1000), "text": words})
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    file.seek(0)
    sizes = [
        part.nbytes
        for part in read_rows(RowInput(file), "f", Reading(SCHEMA, Format.ARROW)).batches()
    ]
    assert max(sizes) <= 1.01 * BATCH_BYTES
    assert sum(sizes) >= 500 * 2**20


def test_the_death_of_the_reading_process_is_an_error_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_bytes(GOOD * 200_000)
    with open_rows(path, Reading(SCHEMA)) as reading:
        batches = reading.batches()
        assert next(batches).num_rows == 65_536
        reading._process.kill()
        with pytest.raises(InvalidInputError, match=r"f\.jsonl: to read it .* breaks what reads"):
            list(batches)


def test_a_reader_that_is_left_ends(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.write(write, b"n,text\n1,a\n")
    asked = ReadRequest("pipe", Reading(SCHEMA, Format.CSV))
    with os.fdopen(read, "rb") as file, read_apart(file, asked) as reading:
        assert reading.position == 0
    assert reading._process.returncode is not None
    os.close(write)


@settings(max_examples=15)
@given(st.binary(max_size=300), st.sampled_from(Format))
def test_any_bytes_give_rows_or_the_one_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, kind: Format
) -> None:
    rows, error = told(tmp_path_factory.mktemp("any"), data, kind)
    assert rows == 0 or not error
