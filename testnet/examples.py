"""The connections of `examples/`: `python -m medusa.testnet.examples examples/conns.csv` writes
them.

An hour and a half at one network, from 2018-03-24 14:00 UTC: hosts that open some forty connections
a minute together, and two that for some minutes open more than a hundred each.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

START: Final = 1_521_900_000
"""2018-03-24 14:00 UTC, seconds: fixed, so that the documentation can name times."""

MINUTES: Final = 90

QUIET: Final = (40, [f"10.0.{net}.{host}" for net in range(1, 5) for host in range(1, 51)])
"""Connections a minute, and their source addresses."""

BUSY: Final = {"10.0.0.9": (range(6, 10), 150), "10.0.0.7": (range(62, 68), 250)}
"""The busy addresses, with their minutes and the number of connections in each."""

PORTS: Final = (443, 443, 443, 53, 53, 80, 22, 123)


def connections(seed: int = 0) -> Iterator[tuple[float, str, int]]:
    """Each connection's time (seconds since 1970), source and port, by ascending time."""
    rng = random.Random(seed)
    for minute in range(MINUTES):
        count, hosts = QUIET
        sources = rng.choices(hosts, k=count)
        for source, (minutes, connections) in BUSY.items():
            sources += [source] * connections * (minute in minutes)
        at = sorted(rng.randrange(60_000_000) for _ in sources)
        rng.shuffle(sources)
        for micros, source in zip(at, sources, strict=True):
            yield START + minute * 60 + micros / 1e6, source, rng.choice(PORTS)


def write(path: Path) -> None:
    """Write the connections as CSV, with a header."""
    lines = [f"{ts:.6f},{source},{port}\n" for ts, source, port in connections()]
    path.write_text("ts,src_ip,dst_port\n" + "".join(lines))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
