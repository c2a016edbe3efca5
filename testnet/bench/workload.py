"""The tuples that the path benchmarks move: generated connections, for as long as wanted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from testnet.generate import SPAN_S, generate

BATCH_ROWS: Final = 16_384
"""Rows in one post, some 1.5 MB of Arrow."""


def batches(rows: int) -> Iterator[pa.Table]:
    """So many connections by ascending ts: the same day again and again, later each time."""
    (day,) = generate(0, networks=1, rows=BATCH_ROWS * 8)
    # A scan may go on beyond the span.
    day = day.filter(pc.less(day.column("ts"), day.column("ts")[0].as_py() + SPAN_S))
    day = day.slice(0, BATCH_ROWS * 7)
    done, turn = 0, 0
    while True:
        ts = pc.add(day.column("ts"), turn * SPAN_S)
        later = day.set_column(0, day.schema.field("ts"), ts)
        for start in range(0, day.num_rows, BATCH_ROWS):
            piece = later.slice(start, min(BATCH_ROWS, rows - done))
            if piece.num_rows:
                yield piece
            done += piece.num_rows
            if done >= rows:
                return
        turn += 1
