"""Bytewax as fast as we can make it: Arrow filters the batches, or counts them by pane; its own
windows fold the panes. The module `bytewax_rows` has the rows as its documentation has them.

A window of Bytewax closes for a key when a later item of that key comes. So each batch tells all
sources its time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

from medusa.testnet.bench import systems

ADVANCE_US = systems.ADVANCE_S * 1_000_000
ALIGN = datetime(1970, 1, 1, tzinfo=UTC)
NAMES = [f"10.0.0.{number}" for number in range(systems.SOURCES)]

Pane = tuple[datetime, int, frozenset[int]]
"""A pane: when it begins, the number of its rows, their ports."""
Count = tuple[int, set[int]]


class Epochs:
    """The files as epochs; each is passed on when the results of the last one have come. Args:
    results: returns how many results an epoch of these rows has, at least.

    Attributes:
        seconds: of each epoch.
    """

    def __init__(self, files: Sequence[Path], results: Callable[[pa.Table], int]) -> None:
        self._files = iter(files)
        self._expected = results
        self._results = self._got = 0
        self._began = 0.0
        self.seconds: list[float] = []

    def take(self) -> list[pa.Table]:
        """The next epoch's rows, or none if it must wait. Raises: StopIteration: there are no
        more."""
        if self._got < self._results:
            return []
        file = next(self._files)
        self._began = time.perf_counter()
        rows = pq.read_table(file, columns=["ts", "src", "port", "bytes"], use_threads=False)
        self._got, self._results = 0, self._expected(rows)
        return [rows]

    def give(self, results: int) -> None:
        """Count results."""
        before, self._got = self._got, self._got + results
        if before < self._results <= self._got:
            self.seconds.append(time.perf_counter() - self._began)


class _Partition(StatelessSourcePartition[pa.Table]):  # type: ignore[misc]
    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs

    def next_batch(self) -> list[pa.Table]:
        return self._epochs.take()


class Source(DynamicSource[pa.Table]):  # type: ignore[misc]
    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs

    def build(self, *_: object) -> _Partition:
        return _Partition(self._epochs)


class _SinkPartition(StatelessSinkPartition[Any]):  # type: ignore[misc]
    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs

    def write_batch(self, items: list[Any]) -> None:
        self._epochs.give(len(items))


class Sink(DynamicSink[Any]):  # type: ignore[misc]
    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs

    def build(self, *_: object) -> _SinkPartition:
        return _SinkPartition(self._epochs)


class Bytewax(systems.System):
    """Bytewax with one worker, because Python would not run several of its threads at the same
    time."""

    def flow(self, query: str, epochs: Epochs) -> Dataflow:
        """The dataflow of a query."""
        return _flow(query, epochs)

    def results(self, query: str, rows: pa.Table) -> int:
        """How many results an epoch of these rows has, at least: a batch, or a row a source."""
        return 1 if query == systems.FILTER else systems.SOURCES

    def run(self, query: str, files: Sequence[Path]) -> None:
        self._run(query, files)

    def epochs(self, query: str, files: Sequence[Path]) -> Iterator[float]:
        yield from self._run(query, files)

    def _run(self, query: str, files: Sequence[Path]) -> list[float]:
        epochs = Epochs(files, partial(self.results, query))
        run_main(self.flow(query, epochs))
        if len(epochs.seconds) != len(files):
            raise systems.WrongAnswerError(f"{query}: results of {len(epochs.seconds)} epochs")
        return epochs.seconds


def _flow(query: str, epochs: Epochs) -> Dataflow:
    flow = Dataflow("others")
    rows = op.input("rows", flow, Source(epochs))
    if query == systems.FILTER:
        results: Any = op.map("low", rows, _low)
    else:
        windower = windower_of(query)
        clock = win.EventClock(_pane_time, wait_for_system_duration=timedelta(0))
        panes = op.flat_map("panes", rows, _panes)
        folded = win.fold_window("window", panes, clock, windower, empty, _add, merge)
        results = op.map("count", folded.down, count)
    op.output("results", results, Sink(epochs))
    return flow


def windower_of(query: str) -> win.Windower:
    """The query's windows."""
    size, advance = timedelta(seconds=systems.SIZE_S[query]), timedelta(seconds=systems.ADVANCE_S)
    return win.SlidingWindower(length=size, offset=advance, align_to=ALIGN)


def _low(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.less(rows["port"], systems.LOW_PORT))


def _pane_time(pane: Pane) -> datetime:
    return pane[0]


def _panes(rows: pa.Table) -> list[tuple[str, Pane]]:
    """The number of rows and their ports, by pane and source; then an item that advances the time
    for all sources."""
    starts = pc.divide(rows["ts"], ADVANCE_US)
    grouped = rows.append_column("pane", starts).group_by(["pane", "src"], use_threads=False)
    counted = grouped.aggregate([([], "count_all"), ("port", "distinct")]).sort_by("pane")
    panes = [
        (src, (_at(pane * ADVANCE_US), count, frozenset(ports)))
        for pane, src, count, ports in zip(
            *(counted[name].to_pylist() for name in ("pane", "src", "count_all", "port_distinct")),
            strict=True,
        )
    ]
    now = _at(rows["ts"][-1].as_py())
    return [*panes, *((name, (now, 0, frozenset())) for name in NAMES)]


def _at(us: int) -> datetime:
    return ALIGN + timedelta(microseconds=us)


def empty() -> Count:
    return 0, set()


def _add(count: Count, pane: Pane) -> Count:
    count[1].update(pane[2])
    return count[0] + pane[1], count[1]


def merge(one: Count, other: Count) -> Count:
    return one[0] + other[0], one[1] | other[1]


def count(result: tuple[str, tuple[int, Count]]) -> tuple[str, int, int, int]:
    src, (window, (rows, ports)) = result
    return src, window, rows, len(ports)


if __name__ == "__main__":
    systems.report(Bytewax(), Path(sys.argv[1]))
