"""Generated traffic for tests to which its amount does not matter."""

from __future__ import annotations

from pathlib import Path

from medusa.testnet.connections.generate import generate
from medusa.testnet.connections.traces import write_trace

ROWS = 50_000
"""The number of rows: they give a hundred answers, some of each kind; a demonstration has four
times as many rows."""


def few_connections(folder: Path, seed: int, networks: int) -> tuple[Path, ...]:
    """Write a trace for each network into files of the folder."""
    paths = tuple(folder / f"{number}.parquet" for number in range(networks))
    for path, table in zip(paths, generate(seed, networks, ROWS), strict=True):
        write_trace(path, [table])
    return paths
