"""Where engines answer differently: Flink, if it is installed, answers as docs/reference says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
import trio
from engine_differences import DIFFERENCES, FLINK, FLINK_STREAMS, ORDERS
from flink_here import flink_is_missing

from medusa.testnet.nexmark.flink.answers import read_answer
from medusa.testnet.nexmark.flink.run import find_flink
from medusa.testnet.nexmark.flink.texts import DROPPED, written
from medusa.testnet.nexmark.flink.work import Limits, Ran, Text, Work, run_work

ASKED: Final = [
    *((each.flink_sql, (each.flink,)) for each in DIFFERENCES if each.flink_sql),
    *(asked for each in ORDERS for asked in each.flink),
]
"""The text after SELECT, and the rows of its answer, in order."""

ERROR: Final = ("error",)
AS_THE_PAGE: Final = {None: "NULL", "TRUE": "true", "FALSE": "false", "Infinity": "inf"}
VERSION: Final = "import importlib.metadata as m; print('Flink', m.version('apache-flink'))"


def stream(folder: Path, name: str, rows: Sequence[tuple[int, int]]) -> str:
    """Return the statement that creates a table over a file with a stream's rows, none of which is
    late; write the file."""
    file = folder / f"{name}.csv"
    file.write_text("".join(f"2026-01-01 00:00:{ts:02},{x}\n" for ts, x in rows))
    return (
        f"CREATE TABLE {name} (ts TIMESTAMP(3), x INT, WATERMARK FOR ts AS ts - INTERVAL '1' "
        f"MINUTE) WITH ('connector' = 'filesystem', 'path' = '{file.as_uri()}', 'format' = 'csv')"
    )


def answer(ran: Ran, folder: Path) -> tuple[str, ...]:
    """Return the rows as the page shows them."""
    assert not ran.refused, ran
    if ran.failed:
        return ERROR
    rows = read_answer(folder / ran.query, pa.schema([("v", pa.string())])).column(0).to_pylist()
    return tuple(sorted(AS_THE_PAGE.get(row, row) for row in rows))


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.skipif(bool(flink_is_missing()), reason=flink_is_missing())
def test_flink_answers_as_the_page_says(tmp_path: Path) -> None:
    program, around = find_flink(os.environ)
    version = subprocess.run(
        [program[0], "-c", VERSION], capture_output=True, text=True, check=True
    )
    assert version.stdout.startswith(FLINK)
    limits = Limits()
    texts = {
        f"q{n}": Text(
            f"SELECT cast(v AS STRING) AS v FROM (SELECT {sql}) AS answer(v)",
            written(tmp_path / f"q{n}"),
        )
        for n, (sql, _) in enumerate(ASKED)
    }
    tables = [stream(tmp_path, name, rows) for name, rows in FLINK_STREAMS.items()]
    work = Work({}, 1, tables, texts, DROPPED, limits.query)
    ask = partial(run_work, program, around, tmp_path, work, say=lambda _: None, limits=limits)
    found = {sql: answer(ran, tmp_path) for (sql, _), ran in zip(ASKED, trio.run(ask), strict=True)}
    assert found == dict(ASKED)
