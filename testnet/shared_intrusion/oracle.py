"""The right answers of `examples/intrusion`, in plain Python over all rows of both laboratories. It
shares no code with the engine, and reads the scripts' definitions only in words."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from medusa.testnet.shared_intrusion.generate import Beacon, Connection, Records, Threat

WINDOW_US: Final = 600_000_000
PATTERN_US: Final = 600_000_000
"""The longest time between the first of five connections and the last one."""
LEAST_GAP_US: Final = 1_000_000
IN_ROW: Final = 5
"""Connections that make a beacon."""

Listed = tuple[int, str, str, int, int]
"""An answer: window's start (microseconds), address, kind, hosts, connections."""
Beats = tuple[int, str, int, int, int]
"""An answer: window's start (microseconds), address, period (seconds), hosts, connections."""
Sighting = tuple[str, str, int, str, int, int]
"""An answer: laboratory, listed or beacon, window's start, address, hosts, connections."""
Campaign = tuple[int, str, int, int]
"""An answer: window's start, address, laboratories, connections."""


@dataclass(frozen=True)
class Right:
    """The right answers, each in ascending order; the first two by laboratory."""

    listed: dict[str, list[Listed]]
    beacons: dict[str, list[Beats]]
    sightings: list[Sighting]
    campaigns: list[Campaign]


def right_answers(records: Records) -> Right:
    """The right answers of the scripts over these records."""
    listed = {lab: _listed(rows, records.threats) for lab, rows in records.connections.items()}
    beacons = {lab: _beacons(rows) for lab, rows in records.connections.items()}
    sightings = [
        *((lab, "listed", at, to, n, c) for lab in listed for at, to, _, n, c in listed[lab]),
        *((lab, "beacon", at, to, n, c) for lab in beacons for at, to, _, n, c in beacons[lab]),
    ]
    return Right(listed, beacons, sorted(sightings), _campaigns(sightings))


def regular_pairs(rows: Sequence[Connection]) -> set[tuple[str, str]]:
    """The pairs of a host and an address with a beacon between them."""
    return {(source, address) for source, address, *_ in _in_rows(rows)}


def found_beacons(records: Records) -> set[Beacon]:
    """All beacons by the pattern: planted ones, and any by chance."""
    return {
        Beacon(lab, *pair)
        for lab, rows in records.connections.items()
        for pair in regular_pairs(rows)
    }


def listed_at(threats: Sequence[Threat], address: str, at: int) -> Threat | None:
    """The entry of an address at a moment, microseconds; None: it is not on the list at that
    moment."""
    entries = [each for each in threats if each.address == address and each.since <= at]
    newest = max(entries, key=lambda each: each.since, default=None)
    return None if newest is None or newest.deleted else newest


def _listed(rows: Sequence[Connection], threats: Sequence[Threat]) -> list[Listed]:
    hosts: dict[tuple[int, str, str], list[str]] = defaultdict(list)
    for row in rows:
        threat = listed_at(threats, row.dst_ip, row.ts)
        if threat is not None:
            hosts[_window(row.ts), row.dst_ip, threat.kind].append(row.src_ip)
    return sorted((*key, len(set(each)), len(each)) for key, each in hosts.items())


def _beacons(rows: Sequence[Connection]) -> list[Beats]:
    found: dict[tuple[int, str], list[tuple[str, int]]] = defaultdict(list)
    for source, address, since, until in _in_rows(rows):
        period_s = math.floor((until - since) / (IN_ROW - 1) / 1e6 + 0.5)
        found[_window(until), address].append((source, period_s))
    return sorted(
        (*key, statistics.median_low(p for _, p in each), len({s for s, _ in each}), len(each))
        for key, each in found.items()
    )


def _in_rows(rows: Sequence[Connection]) -> Iterator[tuple[str, str, int, int]]:
    """Each five connections in a row with regular gaps: host, address, first and last time."""
    times: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in rows:
        times[row.src_ip, row.dst_ip].append(row.ts)
    for pair, ascending in times.items():
        for begin in range(len(ascending) - IN_ROW + 1):
            five = ascending[begin : begin + IN_ROW]
            first, *others = [later - earlier for earlier, later in pairwise(five)]
            regular = all(abs(gap - first) * 10 <= first for gap in others)
            if first >= LEAST_GAP_US and regular and five[-1] - five[0] <= PATTERN_US:
                yield *pair, five[0], five[-1]


def _campaigns(sightings: Sequence[Sighting]) -> list[Campaign]:
    found: dict[tuple[int, str], list[tuple[str, int]]] = defaultdict(list)
    for lab, _, at, address, _, connections in sightings:
        found[at, address].append((lab, connections))
    counted = (
        (*key, len({lab for lab, _ in each}), sum(n for _, n in each))
        for key, each in found.items()
    )
    return sorted(each for each in counted if each[2] > 1)


def _window(ts: int) -> int:
    return ts // WINDOW_US * WINDOW_US
