"""The same rows and queries on Medusa's engine and on other systems, one after the other.

The bench skips by name each system that is not installed. `pip install 'medusa-federation[bench]'`
installs the systems that can share an environment with PySpark; `medusa.testnet.kit.environments`
installs the others.

* The queries: half of the rows pass a filter; count and distinct ports of each source, every 10 s,
  of the last 10 or 600 seconds.
* Throughput: 1.5 million rows, 2,500 a second of stime, as six files; the median of three rounds on
  a warm JVM.
* Latency: 250 rows a second of stime, as epochs of 2,500 rows; each closes a window. The clock runs
  from the appearance of the file to the result.
* All get the same rows: Flink, whose package reads no Parquet, as CSV, all others as Parquet.
* Medusa is there twice: with its default profile, which uses little memory, and with `throughput`,
  which has Java's optimising compiler, as Structured Streaming and Flink have. Its answers to the
  small epochs are compared with Arrow's.
* Bytewax is there twice: with its operators over rows, and with panes that a program for this
  query counts in Arrow, by hand, before its windows add them up.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv

from medusa.engine.streams.log.epochs import EpochWriter
from medusa.overlay.errors import UnavailableError
from medusa.testnet.bench import Entry, entry
from medusa.testnet.bench.flows import SCHEMA, flows
from medusa.testnet.bench.systems import Measured
from medusa.testnet.kit.environments import ENVIRONMENTS, FLINK, Package, interpreter

ROOT: Final = Path(__file__).parents[3]
SPARK: Final = Package("pyspark", "pyspark")


@dataclass(frozen=True)
class Other:
    """A system.

    Attributes:
        module: a module of `medusa.testnet.bench.systems`. package: the package that the module
            imports, if it is optional.
    """

    name: str
    module: str
    package: Package = SPARK


BYTEWAX: Final = Package(
    "bytewax",
    "bytewax",
    ("bytewax>=0.21,<0.22", "pyarrow"),
    f"pip install 'medusa-federation[bench]', or set {ENVIRONMENTS}=1",
)

SYSTEMS: Final = (
    Other("medusa", "medusa"),
    Other("medusa, throughput", "medusa_throughput"),
    Other("structured streaming", "structured_streaming"),
    Other("flink", "flink", FLINK),
    Other("bytewax", "bytewax_rows", BYTEWAX),
    Other("bytewax over Arrow", "bytewax", BYTEWAX),
    Other("duckdb", "duckdb", Package("duckdb", "duckdb", ("duckdb", "pyarrow"))),
)


@dataclass(frozen=True)
class Shape:
    """Files of rows, each of an epoch. rate: rows a second of stime."""

    name: str
    files: int
    rows: int
    rate: float


LARGE: Final = Shape("large", 6, 250_000, 2_500)
SMALL: Final = Shape("small", 70, 2_500, 250)
"""A file is 10 s. So the last ten files close windows of 600 s for which all rows are there."""


def measure() -> Iterator[Entry]:
    """Measure all systems that are installed; some ten minutes."""
    ours: Mapping[str, Measured] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for shape in (LARGE, SMALL):
            write(folder, shape)
        for system in SYSTEMS:
            python = interpreter(system.package, os.environ)
            if python is None:
                yield entry(f"skipped: {system.package.missing}", None, "")
                continue
            theirs = {each.query: each for each in run(system, python, folder)}
            for measured in theirs.values():
                yield from figures(system.name, measured, ours.get(measured.query))
            ours = ours or theirs


def figures(name: str, measured: Measured, ours: Measured | None) -> Iterator[Entry]:
    """The figures of one query on one system; the reference is Medusa's."""
    reference = {} if ours is None else _values(ours)
    for (what, unit), value in _values(measured).items():
        title = f"{name}, {measured.query}: {what}"
        yield entry(title, value, unit, None, reference.get((what, unit)))


def _values(measured: Measured) -> dict[tuple[str, str], float]:
    latencies = measured.latencies_ms
    return {
        ("throughput", "rows/s"): measured.rows_per_s,
        ("CPU of a row", "us"): measured.cpu_us,
        ("latency of an epoch, median", "ms"): statistics.median(latencies),
        ("latency of an epoch, p99", "ms"): percentile(latencies, 0.99),
        ("memory", "MB"): measured.memory_mb,
    }


def percentile(values: Sequence[float], part: float) -> float:
    """The value that so large a part of the values do not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def write(folder: Path, shape: Shape) -> None:
    """Write rows as epoch files and as CSV. The last row of each file is the first of the next
    window, so that the file closes one; a file's name has its boundary and its rows."""
    made = folder / shape.name
    made.mkdir()
    for number in range(shape.files):
        first = 1 + number * shape.rows
        rows = flows(first, shape.rows, shape.rate)
        stem = f"{rows['ts'][-1].as_py():016}-{shape.rows}"
        seq = pa.array(np.arange(first, first + shape.rows))
        source = pa.table([rows["ts"], seq, *rows.columns], schema=SCHEMA.source)
        writer = EpochWriter(made, source.schema, compress=False, durable=False)
        writer.write(source)
        writer.finish()
        writer.commit(made / f"{stem}.parquet")
        options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none")
        pyarrow.csv.write_csv(rows, made / f"{stem}.csv", options)


def run(system: Other, python: Path, folder: Path) -> list[Measured]:
    """Measure a system in a process of its own.

    Raises:
        UnavailableError: the process failed; its errors are above.
    """
    command = [str(python), "-m", f"medusa.testnet.bench.systems.{system.module}", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=False)
    if done.returncode:
        raise UnavailableError(f"{system.name} ended with {done.returncode}")
    return [msgspec.json.decode(line, type=Measured) for line in done.stdout.splitlines()]
