"""Bytewax as its documentation shows it: items are rows, and for each row a Python function runs in
its filter and adds the row to each of its windows."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from pathlib import Path

import bytewax.operators as op
import bytewax.operators.windowing as win
import pyarrow as pa
import pyarrow.compute as pc
from bytewax.dataflow import Dataflow

from medusa.testnet.bench.systems import FILTER, LOW_PORT, SLIDING, SOURCES, report
from medusa.testnet.bench.systems import bytewax as arrow

Row = tuple[int, str, int, int]
"""A row: its time in microseconds, the source, the port, the bytes."""
Keyed = tuple[str, tuple[datetime, int]]
"""A keyed item: the source; the time and the port. `TIME` in place of a port only advances the
time."""

TIME = -1


class BytewaxRows(arrow.Bytewax):
    """Bytewax with one worker, row by row."""

    slow: tuple[str, ...] = (SLIDING,)

    def flow(self, query: str, epochs: arrow.Epochs) -> Dataflow:
        flow = Dataflow("others")
        batches = op.input("rows", flow, arrow.Source(epochs))
        if query == FILTER:
            results = op.filter("low", op.flat_map("split", batches, _rows), _low)
        else:
            clock = win.EventClock(_time, wait_for_system_duration=timedelta(0))
            keyed = op.flat_map("split", batches, _keyed)
            folded = win.fold_window(
                "window", keyed, clock, arrow.windower_of(query), arrow.empty, _add, arrow.merge
            )
            results = op.map("count", folded.down, arrow.count)
        op.output("results", results, arrow.Sink(epochs))
        return flow

    def results(self, query: str, rows: pa.Table) -> int:
        if query == FILTER:
            return int(pc.sum(pc.less(rows["port"], LOW_PORT)).as_py())
        return SOURCES


def _rows(batch: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _low(row: Row) -> bool:
    return row[2] < LOW_PORT


def _keyed(batch: pa.Table) -> list[Keyed]:
    """Each row, keyed by source; then an item that advances the time for all sources."""
    rows = _rows(batch)
    now = arrow.ALIGN + timedelta(microseconds=rows[-1][0])
    told = [(src, (arrow.ALIGN + timedelta(microseconds=at), port)) for at, src, port, _ in rows]
    return [*told, *((name, (now, TIME)) for name in arrow.NAMES)]


def _time(item: tuple[datetime, int]) -> datetime:
    return item[0]


def _add(found: arrow.Count, item: tuple[datetime, int]) -> arrow.Count:
    if item[1] == TIME:
        return found
    found[1].add(item[1])
    return found[0] + 1, found[1]


if __name__ == "__main__":
    report(BytewaxRows(), Path(sys.argv[1]))
