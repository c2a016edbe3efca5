"""The log of a table drops rows that no reader needs, and keeps the newest of each key."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.objects.schema import BEGINNING, Field, FieldType, Schema
from medusa.engine.streams.log.folding import newest
from medusa.engine.streams.log.retention import Hold
from medusa.engine.streams.log.stream_log import StreamLog

SCHEMA = Schema("t", (Field("k", FieldType.INT), Field("v", FieldType.LONG)), key=("k",)).derived


def rows(*found: tuple[int, int, int]) -> pa.Table:
    names = ("stime", "k", "v")
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in found], SCHEMA)


def opened(folder: Path) -> StreamLog:
    log = StreamLog.open(folder, SCHEMA, history_us=0)
    log.upkeep.table_key = ("k",)
    return log


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9))))
def test_the_last_tuple_of_each_key_stays_in_its_place(pairs: list[tuple[int, int]]) -> None:
    table = rows(*((number, key, value) for number, (key, value) in enumerate(pairs)))
    last = {key: (number, key, value) for number, (key, value) in enumerate(pairs)}
    found = [tuple(row.values()) for row in newest(table, ("k",)).to_pylist()]
    assert found == sorted(last.values())


async def test_tuples_that_every_reader_has_passed_are_folded(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    for at in range(1, 41):
        log.append(at, rows((at, at % 4, at)))
    reader = Hold("task", "reader")
    log.retention.hold(reader, 20)
    assert await log.upkeep.compact() == 20
    assert log.start == BEGINNING
    kept = opened(tmp_path / "log").reader.read(BEGINNING)
    assert kept is not None
    assert [row["v"] for row in kept.table.to_pylist()][:5] == [17, 18, 19, 20, 21]
    assert log.files.rows == 4 + 20
    log.retention.release(reader)
    assert await log.upkeep.compact() > 0
    again = opened(tmp_path / "log")
    assert again.boundary == 40
    assert again.files.rows == log.files.rows < 4 + 20


async def test_nothing_of_a_table_is_dropped(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    for at in range(1, 5):
        log.append(at, rows((at, at, at)))
    assert log.upkeep.retain(0.0) == 0
    assert log.files.rows == 4
    assert await log.upkeep.compact() in {0, 3}
    assert log.files.rows == 4, "every row is the newest of its key"
