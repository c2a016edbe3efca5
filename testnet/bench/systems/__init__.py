"""The systems of the part `others`: a module for each, a program that measures one of them.

    python -m medusa.testnet.bench.systems.NAME FOLDER

FOLDER has the rows (`medusa.testnet.bench.others` writes them): `large/` for throughput, `small/`
for latency, a file for each epoch. Each line of the output is one `Measured` as JSON.

This module imports the standard library alone: a system may be in an environment of its own.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")

FILTER: Final = "filter"
TUMBLING: Final = "10-s window"
SLIDING: Final = "600-s window by 10 s"
QUERIES: Final = (FILTER, TUMBLING, SLIDING)
SIZE_S: Final = {TUMBLING: 10, SLIDING: 600}
ADVANCE_S: Final = 10
"""Count and distinct ports of each source, every 10 s, of the last 10 or 600."""
LOW_PORT: Final = 64
"""The filter lets rows with a lower port pass, half of them."""
SOURCES: Final = 100

ROUNDS: Final = 3
"""Rounds that count; one before them warms up."""
WARM_EPOCHS: Final = 20
"""The number of small epochs before the measured ones."""
PATIENCE_S: Final = 60.0
"""Seconds after which a system gets no further round, nor further small epochs."""
SAMPLE_S: Final = 0.2


class WrongAnswerError(Exception):
    """A system gave another number of result rows than it must."""


@dataclass
class Measured:
    """One query on one system.

    Attributes:
        rows_per_s, cpu_us: medians of rounds; CPU microseconds a row of all its processes.
        latencies_ms: the latencies of small epochs, from the arrival of the file to the result.
            memory_mb: the greatest memory of all its processes together. small_cpu_us: CPU
            microseconds a row of the small epochs. state_mb: the state that it kept at the end of
            the small epochs; 0: it was not measured.
    """

    query: str
    rows_per_s: float
    cpu_us: float
    latencies_ms: list[float] = field(default_factory=list)
    memory_mb: float = 0.0
    state_mb: float = 0.0
    small_cpu_us: float = 0.0


class System(ABC):
    """A system under measurement.

    Attributes:
        kind: the format of its files. slow: queries that get only the first large file, since all
            would take it many minutes. queries: the queries with which it is measured. state_bytes:
            the state that it keeps after the last of `epochs`; 0: it is not measured.
    """

    kind = "parquet"
    queries: tuple[str, ...] = QUERIES
    state_bytes = 0
    slow: tuple[str, ...] = ()

    @abstractmethod
    def run(self, query: str, files: Sequence[Path]) -> None:
        """Compute the query over the files, in their order, as fast as possible."""

    @abstractmethod
    def epochs(self, query: str, files: Sequence[Path]) -> Iterator[float]:
        """Pass the files to the system one after the other, each after the result of the last;
        yields the seconds of each."""


def measure(system: System, folder: Path) -> Iterator[Measured]:
    """Measure all queries."""
    large = sorted((folder / "large").glob(f"*.{system.kind}"))
    small = sorted((folder / "small").glob(f"*.{system.kind}"))
    for query in system.queries:
        files = large[:1] if query in system.slow else large
        rows = sum(map(_rows, files))
        with Memory() as memory:
            rounds = list(patient(_timed(system, query, files) for _ in range(1 + ROUNDS)))
            seconds, used = [], [cpu_s()]
            for each in patient(system.epochs(query, small)):
                seconds.append(each)
                used.append(cpu_s())
        counted = rounds[1:] or rounds
        warm = WARM_EPOCHS if len(seconds) > WARM_EPOCHS else 0
        latencies = [1e3 * each for each in seconds[warm:]]
        small_rows = sum(map(_rows, small[warm : len(seconds)]))
        wall_s, round_cpu_s = (statistics.median(each) for each in zip(*counted, strict=True))
        yield Measured(
            query,
            rows / wall_s,
            1e6 * round_cpu_s / rows,
            latencies,
            memory.most / 2**20,
            state_mb=system.state_bytes / 2**20,
            small_cpu_us=1e6 * (used[-1] - used[warm]) / small_rows,
        )


def _rows(file: Path) -> int:
    return int(file.stem.rpartition("-")[2])


def patient(items: Iterator[T], clock: Callable[[], float] = time.perf_counter) -> Iterator[T]:
    """The items, until `PATIENCE_S` have passed; at least one. A slow system may complete only the
    rounds that should warm it up: then the callers count these."""
    until = clock() + PATIENCE_S
    for item in items:
        yield item
        if clock() > until:
            return


def _timed(system: System, query: str, files: Sequence[Path]) -> tuple[float, float]:
    began, before = time.perf_counter(), cpu_s()
    system.run(query, files)
    return time.perf_counter() - began, cpu_s() - before


def tree() -> list[int]:
    """Process ids of this process and all below it."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with suppress(OSError):
                parents.setdefault(int(_stat(int(entry))[1]), []).append(int(entry))
    found = [os.getpid()]
    for pid in found:  # the list grows meanwhile
        found += parents.get(pid, [])
    return found


def cpu_s() -> float:
    """CPU seconds of this process and all below it, ended children included."""
    ticks = 0
    for pid in tree():
        with suppress(OSError):
            ticks += sum(map(int, _stat(pid)[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name: state, parent..."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


class Memory:
    """Samples the resident memory of this process and all below it during a block.

    Attributes:
        most: bytes.
    """

    def __init__(self) -> None:
        self.most = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        while not self._ended.wait(SAMPLE_S):
            pages = 0
            for pid in tree():
                with suppress(OSError):
                    pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            self.most = max(self.most, pages * page)


def report(system: System, folder: Path) -> None:
    """Print a line for each query; standard output has only these lines."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for measured in measure(system, folder):
        print(json.dumps(asdict(measured)), file=lines, flush=True)
    sys.stdout.flush()
