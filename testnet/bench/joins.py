"""Joins of two streams on Medusa and on Structured Streaming, one after the other, over the same
files: Nexmark's bids, each with the auction that it bids on.

* An interval join finds the auction if it began at most ten seconds before the bid. A join as of
  finds the newest auction of the bid's id within a hundred seconds; Structured Streaming computes
  it as a join within these bounds, because each auction occurs once. A join with a table finds the
  auction as of the time of the bid; Structured Streaming computes it as a join without a bound for
  the auction's age, and keeps all auctions and no bids.
* Catch-up: a million events, 2,500 a second of stime, as four epochs; the median of three rounds on
  a warm JVM. Small epochs: 2,500 events, a second of stime.
* State: of Medusa, the epoch files of both inputs that the next epoch reads again; of Structured
  Streaming, its state store's files on disk.
* Both check how many pairs they make.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from medusa.testnet.bench import Entry, entry
from medusa.testnet.bench.bids import LARGE, SMALL, write
from medusa.testnet.bench.others import Other, run
from medusa.testnet.bench.systems import Measured

OURS: Final = Other("medusa", "medusa_joins")
THEIRS: Final = Other("structured streaming", "streaming_joins")


def measure() -> Iterator[Entry]:
    """Measure both systems; some twelve minutes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for shape in (LARGE, SMALL):
            write(folder, shape)
        ours, theirs = (run(each, Path(sys.executable), folder) for each in (OURS, THEIRS))
    for one, other in zip(ours, theirs, strict=True):
        yield from figures(one, other)


def figures(ours: Measured, theirs: Measured) -> Iterator[Entry]:
    """The figures of one join; the reference is Structured Streaming's."""
    reference = _values(theirs)
    for (what, unit, goal), value in _values(ours).items():
        name = f"{ours.query}: {what}"
        yield entry(name, value, unit, goal, reference[what, unit, goal])


def _values(measured: Measured) -> dict[tuple[str, str, str], float]:
    return {
        ("throughput of a catch-up", "rows/s", "> 1"): measured.rows_per_s,
        ("CPU of a row of a catch-up", "us", "< 1"): measured.cpu_us,
        ("CPU of a row of small epochs", "us", "< 1"): measured.small_cpu_us,
        ("latency of an epoch, median", "ms", "< 1"): statistics.median(measured.latencies_ms),
        ("state", "MB", "< 1"): measured.state_mb,
    }
