"""Logs of streams as files, for the property tests of epochs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from medusa.engine.objects.schema import BEGINNING
from medusa.engine.streams.log.epochs import seal_footer


def write(table: pa.Table, folder: Path, name: str, boundaries: Sequence[int]) -> list[Path]:
    """Write the stream's log: a file for each interval, none for an empty one."""
    paths = []
    for number, (after, upto) in enumerate(itertools.pairwise([BEGINNING, *boundaries])):
        stime = table["stime"]
        part = table.filter(pc.and_(pc.greater(stime, after), pc.less_equal(stime, upto)))
        if part.num_rows:
            paths.append(folder / f"{name.replace('/', '_')}_{number}.parquet")
            pq.write_table(part, paths[-1])
            seal_footer(paths[-1])
    return paths


def printed(table: pa.Table) -> list[str]:
    """Print rows as text, in which NaN equals NaN, and other values are equal if their bits are."""
    micros = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    normal = [
        pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column
        for column in micros
    ]
    return [repr(row) for row in zip(*(column.to_pylist() for column in normal), strict=True)]
