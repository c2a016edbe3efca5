"""Connections of two laboratories, seeded or recorded, and a list of hostile addresses of a third
participant.

Among seeded connections there are, at each laboratory:

* connections to addresses that are on the list all the time, to one that is added in the middle,
  and to one that is removed;
* beacons: a host that calls one address at regular intervals. One such address is called from both
  laboratories;
* rows that only resemble beacons: calls at irregular intervals, and slower ones than the pattern's
  bound allows.

`python -m medusa.testnet.shared_intrusion.generate examples/intrusion` writes the examples' files.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from medusa.overlay.errors import InvalidInputError
from medusa.testnet.connections.traces import open_trace

START_US: Final = 1_709_629_200_000_000
"""2024-03-05 09:00 UTC, microseconds: fixed, so that the documentation can name times."""

SPAN_US: Final = 3_600_000_000
"""An hour: six windows of ten minutes."""

UPDATE_US: Final = START_US + 35 * 60_000_000
"""When the list changes: in the middle of a window."""

LABS: Final = ("lab-a", "lab-b")

CONNECTIONS: Final = 20_000
"""Ordinary connections of one laboratory."""

EXAMPLE_CONNECTIONS: Final = 800
"""Ordinary connections of one laboratory in the examples' files."""

HOSTS: Final = 40
SERVERS: Final = 200
LISTED_CALLS: Final = 6
"""Connections of one laboratory to each address that is on the list all the time."""
CHANGED_CALLS: Final = 24
"""Connections of one laboratory to each of the two addresses whose entry changes."""

_MICROS: Final = 1_000_000
_PORTS: Final = (443, 443, 443, 53, 53, 80, 22, 123)
_PERIODS_S: Final = (15, 30, 45, 60, 90, 120)
_JITTER: Final = 0.02
"""The jitter of a beacon's gaps, either way: any two of them differ by less than a tenth."""
KINDS: Final = ("botnet", "phishing", "scanner")
"""The kinds of threats."""

LISTED: Final = tuple(f"198.51.100.{host}" for host in range(1, 9))
"""The addresses that are on the list all the time."""
ADDED: Final = "198.51.100.200"
"""The address that is put on the list at `UPDATE_US`."""
REMOVED: Final = "198.51.100.201"
"""The address that is removed from the list at `UPDATE_US`."""
CALLED_BY_BOTH: Final = "203.0.113.77"
"""The address that beacons of both laboratories call."""


class Connection(NamedTuple):
    """A connection. ts: microseconds."""

    ts: int
    src_ip: str
    dst_ip: str
    dst_port: int | None
    bytes_out: int | None


class Threat(NamedTuple):
    """An entry of the list. since: microseconds. deleted: whether the address is no longer a
    threat."""

    address: str
    kind: str
    since: int
    deleted: bool = False


class Beacon(NamedTuple):
    """A planted beacon."""

    lab: str
    src_ip: str
    dst_ip: str


@dataclass(frozen=True)
class Records:
    """All records.

    Attributes:
        threats: the rows of the list of threats, ascending by `since`.
        connections: the connections of each laboratory, ascending by `ts`.
        beacons: the beacons that were planted among the connections.
        update_us: when the list changes. added: the address that is put on the list then.
    """

    threats: tuple[Threat, ...]
    connections: dict[str, tuple[Connection, ...]]
    beacons: tuple[Beacon, ...]
    update_us: int = UPDATE_US
    added: str = ADDED


def generate(seed: int, connections: int = CONNECTIONS) -> Records:
    """The records of a seed, the same on any day.

    Args:
        connections: ordinary ones of each laboratory.
    """
    rng = random.Random(seed)
    found: dict[str, tuple[Connection, ...]] = {}
    beacons: list[Beacon] = []
    for number, lab in enumerate(LABS, 1):
        traffic = _Traffic(rng, lab, number)
        traffic.add_ordinary(connections)
        traffic.add_listed()
        beacons += traffic.add_beacons()
        traffic.add_resembling()
        found[lab] = traffic.sorted()
    return Records(_threats(rng), found, tuple(beacons))


def _threats(rng: random.Random) -> tuple[Threat, ...]:
    before = sorted(START_US - rng.randrange(1, SPAN_US) for _ in range(len(LISTED) + 1))
    entries = [
        Threat(address, rng.choice(KINDS), since)
        for address, since in zip((*LISTED, REMOVED), before, strict=True)
    ]
    removed = entries[-1]._replace(since=UPDATE_US, deleted=True)
    return (*entries, Threat(ADDED, "botnet", UPDATE_US), removed)


class _Traffic:
    """The connections of one laboratory.

    Args:
        number: the number of its network.
    """

    def __init__(self, rng: random.Random, lab: str, number: int) -> None:
        self._rng = rng
        self._lab = lab
        self._hosts = [f"10.{number}.0.{host}" for host in range(1, HOSTS + 1)]
        self._servers = [f"192.0.2.{host}" for host in range(1, SERVERS + 1)]
        self._shares = list(itertools.accumulate(1 / rank for rank in range(1, SERVERS + 1)))
        self._made: dict[int, Connection] = {}
        self._callers = rng.sample(self._hosts, k=len(_PERIODS_S) + 2)

    def sorted(self) -> tuple[Connection, ...]:
        return tuple(self._made[ts] for ts in sorted(self._made))

    def add_ordinary(self, count: int) -> None:
        servers = self._rng.choices(self._servers, cum_weights=self._shares, k=count)
        for server in servers:
            self._add(self._any_time(), self._rng.choice(self._hosts), server)

    def add_listed(self) -> None:
        for address in (*LISTED, ADDED, REMOVED):
            changes = address in {ADDED, REMOVED}
            for _ in range(CHANGED_CALLS if changes else LISTED_CALLS):
                self._add(self._any_time(), self._rng.choice(self._hosts), address)

    def add_beacons(self) -> Iterator[Beacon]:
        for number, (period, host) in enumerate(zip(_PERIODS_S, self._callers, strict=False)):
            address = f"203.0.113.{number + 1 + 10 * int(self._lab == LABS[1])}"
            if period == 30:
                address = CALLED_BY_BOTH
            self._call(host, address, period, _JITTER, self._rng.randint(8, 20))
            yield Beacon(self._lab, host, address)

    def add_resembling(self) -> None:
        irregular, slow = self._callers[len(_PERIODS_S) :]
        self._call(irregular, "203.0.113.200", 60, 0.6, 30)
        self._call(slow, "203.0.113.201", 200, _JITTER, 15)

    def _call(self, host: str, address: str, period_s: float, jitter: float, count: int) -> None:
        """Calls with gaps of a period, give or take a share of it, from an hour's beginning on."""
        at = START_US + self._rng.randrange(300 * _MICROS)
        for _ in range(count):
            self._add(at, host, address)
            at += int(period_s * _MICROS * self._rng.uniform(1 - jitter, 1 + jitter))

    def _any_time(self) -> int:
        return START_US + self._rng.randrange(SPAN_US)

    def _add(self, ts: int, host: str, address: str) -> None:
        # rows with the same time are avoided: their order is not tested here
        while ts in self._made:
            ts += 1
        rng = self._rng
        bytes_out = int(1_000 * rng.lognormvariate(0.0, 1.0))
        self._made[ts] = Connection(ts, host, address, rng.choice(_PORTS), bytes_out)


DRAWN_FROM: Final = 200
"""The list is drawn from this many of the addresses that are called most."""


def recorded(traces: Sequence[Path], seed: int) -> Records:
    """The records of two traces, in any of the formats of `medusa.testnet.connections.traces`.

    A connection without a destination is left out. The list is drawn by the seed. It changes in the
    middle: the address called most is put on it, the next one is taken off.

    Args:
        traces: the traces of each laboratory.

    Raises:
        InvalidInputError: a trace cannot be read, or the traces have too few addresses.
    """
    found = {lab: _connections(path) for lab, path in zip(LABS, traces, strict=True)}
    calls = Counter(row.dst_ip for rows in found.values() for row in rows)
    if len(calls) < len(LISTED) + 2:
        raise InvalidInputError(
            f"the traces have {len(calls)} destinations: the list takes {len(LISTED) + 2}"
        )
    times = [row.ts for rows in found.values() for row in (rows[:1] + rows[-1:])]
    before_us, update_us = min(times) - 1, (min(times) + max(times)) // 2
    # among equally frequent addresses the least, so that a seed always gives the same list
    ordered = sorted(calls, key=lambda address: (-calls[address], address))
    added, removed, *others = ordered[:DRAWN_FROM]
    rng = random.Random(seed)
    listed = [*rng.sample(others, k=len(LISTED)), removed]
    threats = [Threat(address, rng.choice(KINDS), before_us) for address in listed]
    off = threats[-1]._replace(since=update_us, deleted=True)
    changed = (*threats, Threat(added, KINDS[0], update_us), off)
    return Records(changed, found, (), update_us, added)


def _connections(path: Path) -> tuple[Connection, ...]:
    columns = ("ts", "src_ip", "dst_ip", "dst_port", "bytes_out")
    return tuple(
        Connection(round(ts * _MICROS), source, address, port, size)
        for batch in open_trace(path).batches()
        for ts, source, address, port, size in zip(
            *(batch.column(name).to_pylist() for name in columns), strict=True
        )
        if address is not None
    )


def connection_table(rows: Sequence[Connection]) -> pa.Table:
    """Rows to post to a laboratory's stream `conns`."""
    ts, sources, addresses, ports, sizes = zip(*rows, strict=True) if rows else ((),) * 5
    return pa.table(
        {
            "ts": pa.array(ts, pa.timestamp("us", "UTC")),
            "src_ip": pa.array(sources, pa.string()),
            "dst_ip": pa.array(addresses, pa.string()),
            "dst_port": pa.array(ports, pa.int32()),
            "bytes_out": pa.array(sizes, pa.int64()),
        }
    )


def threat_table(rows: Sequence[Threat]) -> pa.Table:
    """Rows to post to the table `threats`."""
    addresses, kinds, since, deleted = zip(*rows, strict=True) if rows else ((),) * 4
    return pa.table(
        {
            "address": pa.array(addresses, pa.string()),
            "kind": pa.array(kinds, pa.string()),
            "since": pa.array(since, pa.timestamp("us", "UTC")),
            "deleted": pa.array(deleted, pa.bool_()),
        }
    )


def write(folder: Path) -> None:
    """Write the examples' files: the list, and a short trace of each laboratory."""
    records = generate(0, EXAMPLE_CONNECTIONS)
    lines = [
        f"{each.address},{each.kind},{_moment(each.since)},{str(each.deleted).lower()}\n"
        for each in records.threats
    ]
    (folder / "threats.csv").write_text("address,kind,since,deleted\n" + "".join(lines))
    for lab, rows in records.connections.items():
        lines = [f"{_moment(ts)},{','.join(map(str, rest))}\n" for ts, *rest in rows]
        header = "ts,src_ip,dst_ip,dst_port,bytes_out\n"
        (folder / f"{lab}.csv").write_text(header + "".join(lines))


def _moment(micros: int) -> str:
    at = datetime.fromtimestamp(micros // _MICROS, UTC).replace(microsecond=micros % _MICROS)
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
