"""The output of `medusa subscribe` with corrections."""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools_fake_peer import DERIVED, derived, open_fake_peer

from medusa.engine.objects.schema import BEGINNING, END
from medusa.overlay.errors import InvalidInputError
from medusa.tools.client.async_client import Corrections, open_medusa
from medusa.tools.client.corrected_subscription import CorrectedSubscription
from medusa.tools.commands.medusa.print_stream import Options, copy_changes, marked_schema
from medusa.tools.rows.format_names import Format
from medusa.tools.rows.row_output import open_writer

EPOCHS = [
    (BEGINNING, 9, [derived(0, 2)]),
    (9, 12, [derived(10, 2)]),
    (9, 12, [derived(11, 1)]),
    (12, END, [derived(20, 1)]),
]
"""Epochs, of which the second one is tentative and has one row too many."""


@asynccontextmanager
async def following(folder: Path, how: Corrections) -> AsyncIterator[CorrectedSubscription]:
    async with open_fake_peer(folder) as peer:
        peer.epochs, peer.tentative = EPOCHS, {1}
        async with open_medusa(folder) as client, client.follow(DERIVED, how) as changes:
            yield changes


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        (
            Corrections.UNDO,
            [
                ("INSERTION", 0),
                ("INSERTION", 1),
                ("TENTATIVE", 10),
                ("TENTATIVE", 11),
                ("UNDO", 9),
                ("INSERTION", 11),
                ("REC_DONE", 12),
                ("INSERTION", 20),
            ],
        ),
        (
            Corrections.REVISIONS,
            [
                ("INSERTION", 0),
                ("INSERTION", 1),
                ("TENTATIVE", 10),
                ("TENTATIVE", 11),
                ("DELETION", 10),
                ("INSERTION", 20),
            ],
        ),
    ],
)
async def test_each_printed_row_names_its_kind_of_change(
    tmp_path: Path, how: Corrections, wanted: list[tuple[str, int]]
) -> None:
    file = io.BytesIO()
    async with following(tmp_path, how) as changes:
        await copy_changes(changes, file, Options("json", BEGINNING, END, "", 5.0))
    rows = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [(row["change"], row["stime"]) for row in rows] == wanted
    assert all(row["ts"] is None for row in rows if row["change"] in {"UNDO", "REC_DONE"})


async def test_csv_and_arrow_carry_the_same(tmp_path: Path) -> None:
    for kind in ("csv", "arrow"):
        file = io.BytesIO()
        async with following(tmp_path / kind, Corrections.UNDO) as changes:
            await copy_changes(changes, file, Options(kind, BEGINNING, END, "", 5.0))
        if kind == "csv":
            header, *lines = csv.reader(file.getvalue().decode().splitlines())
            assert header[:2] == ["change", "stime"]
            assert lines[4][:2] == ["UNDO", "9"]
        else:
            table = pa.ipc.open_stream(pa.py_buffer(file.getvalue())).read_all()
            assert table.column("change").to_pylist()[4:7] == ["UNDO", "INSERTION", "REC_DONE"]


async def test_until_ends_the_output_at_a_final_boundary(tmp_path: Path) -> None:
    file = io.BytesIO()
    async with following(tmp_path, Corrections.UNDO) as changes:
        await copy_changes(changes, file, Options("json", BEGINNING, 11, "", 5.0))
    rows = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [row["stime"] for row in rows if row["change"] == "INSERTION"] == [0, 1, 11]


def test_a_field_of_that_name_is_left_alone() -> None:
    schema = pa.schema([("stime", pa.int64()), ("change", pa.int32())])
    assert marked_schema(schema).names == ["change_", "stime", "change"]


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


HOSTILE = 'a\x1b]0;owned\x07\x9b2J\u202eb\r\n\u2028,"ä\U0001f600'
HARMLESS = 'a?]0;owned??2J?b???,"ä\U0001f600'


@pytest.mark.parametrize("kind", [Format.CSV, Format.JSON])
def test_texts_steer_no_terminal_and_are_kept_in_files(kind: Format) -> None:
    table = pa.table({"text": [HOSTILE, None, ""], "number": [1, 2, 3]})
    written = []
    for file in (Terminal(), io.BytesIO()):
        writer = open_writer(file, kind, table.schema)
        writer.write(table)
        writer.finish()
        text = file.getvalue().decode()
        if kind is Format.JSON:
            written.append(json.loads(text.split("\n")[0])["text"])
            continue
        written.append(list(csv.reader(io.StringIO(text, newline="")))[1][0])
    assert written == [HARMLESS, HOSTILE]


@given(st.text())
def test_a_terminal_gets_only_printable_text_and_line_ends(text: str) -> None:
    file = Terminal()
    open_writer(file, Format.CSV, pa.schema([("text", pa.string())])).write(
        pa.table({"text": [text]})
    )
    categories = {unicodedata.category(c) for c in file.getvalue().decode().replace("\n", "")}
    assert not categories & {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}


def test_arrow_is_not_written_to_a_terminal() -> None:
    with pytest.raises(InvalidInputError, match="not for a terminal"):
        open_writer(Terminal(), Format.ARROW, pa.schema([]))
