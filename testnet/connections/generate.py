"""Seeded connection traffic of several networks, with the patterns that the intrusion query
detects.

Each participant sees the connections to its own servers. The mix has:

* clients of heavy-tailed activity that arrive as a Poisson process;
* probes and gateways that are busy at one network, or only over all networks together;
* port scanners, fast and slow;
* /24 networks of hosts that are quiet each, and together are not.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from medusa.testnet.connections.conn import ARROW

START: Final = 1_709_629_200.0
"""2024-03-05 09:00:00 UTC, seconds: fixed, so that a seed gives the same trace on any day."""

SPAN_S: Final = 1_200.0
"""Twenty minutes: twenty windows of the query."""

ROWS: Final = 200_000
"""Connections of all participants together."""

CLIENTS: Final = 4_000
ZIPF: Final = 0.85
"""Exponent of the clients' activity: a few make thousands of connections, most a handful."""

SERVERS: Final = 60
"""Servers of one participant."""

Flow = tuple[float, str, int, str, int, str, int, int, float]
"""A connection, in the schema's order."""

# port, protocol, share of connections, median bytes out and in, mean seconds
_SERVICES: Final = (
    (443, "tcp", 0.46, 1_800, 14_000, 4.0),
    (53, "udp", 0.24, 60, 180, 0.03),
    (80, "tcp", 0.11, 700, 9_000, 1.5),
    (22, "tcp", 0.04, 4_500, 6_000, 40.0),
    (25, "tcp", 0.04, 9_000, 900, 2.5),
    (123, "udp", 0.04, 48, 48, 0.02),
    (3306, "tcp", 0.03, 2_500, 7_500, 12.0),
    (8080, "tcp", 0.02, 900, 5_000, 1.0),
    (3389, "tcp", 0.02, 60_000, 300_000, 300.0),
)

_SCAN_SHARE: Final = 0.05
_CLUSTER_SHARE: Final = 0.12
_PROBE_SHARE: Final = 0.05


class _Traffic:
    """The addresses and the random generator of one run."""

    def __init__(self, seed: int, networks: int) -> None:
        self.rng = random.Random(seed)
        self.servers = [
            [f"198.{18 + network // 250}.{network % 250}.{host}" for host in range(1, SERVERS + 1)]
            for network in range(networks)
        ]
        self.clients = self._addresses(CLIENTS)
        self.activity = list(itertools.accumulate(1 / rank**ZIPF for rank in range(1, CLIENTS + 1)))
        self.shares = list(itertools.accumulate(service[2] for service in _SERVICES))

    def _addresses(self, count: int) -> list[str]:
        """Addresses of many networks: some /16 have many of them, most few."""
        blocks = [f"{self.rng.randint(11, 99)}.{self.rng.randint(0, 255)}" for _ in range(160)]
        weights = list(itertools.accumulate(1 / rank for rank in range(1, len(blocks) + 1)))
        chosen = self.rng.choices(blocks, cum_weights=weights, k=count)
        byte = self.rng.randrange
        return [f"{block}.{byte(256)}.{1 + byte(254)}" for block in chosen]

    def flow(self, network: int, at: float, source: str) -> Flow:
        """An ordinary connection to one of a network's servers."""
        rng = self.rng
        service = rng.choices(_SERVICES, cum_weights=self.shares)[0]
        port, proto, _, out, back, seconds = service
        # a client uses few servers, and all clients use the first ones
        server = self.servers[network][min(int(rng.expovariate(0.15)), SERVERS - 1)]
        return (
            at,
            source,
            rng.randrange(1_024, 65_536),
            server,
            port,
            proto,
            int(out * rng.lognormvariate(0.0, 1.0)),
            int(back * rng.lognormvariate(0.0, 1.3)),
            round(rng.expovariate(1 / seconds), 6),
        )

    def arrivals(self, start: float, seconds: float, count: float) -> Iterator[float]:
        """A Poisson process of an expected count."""
        at = start
        while (at := at + self.rng.expovariate(count / seconds)) < start + seconds:
            yield at

    def background(self, network: int, rows: float) -> list[Flow]:
        times = list(self.arrivals(START, SPAN_S, rows))
        sources = self.rng.choices(self.clients, cum_weights=self.activity, k=len(times))
        return [self.flow(network, at, source) for at, source in zip(times, sources, strict=True)]

    def scans(self, rows: float) -> list[tuple[int, Flow]]:
        """Scanners try the ports of a host at one network: some try many a second, some one a
        second."""
        flows: list[tuple[int, Flow]] = []
        while len(flows) < rows:
            source = f"203.0.113.{self.rng.randint(1, 254)}"
            network = self.rng.randrange(len(self.servers))
            target = self.rng.choice(self.servers[network])
            ports = self.rng.sample(range(1, 10_000), k=self.rng.choice((40, 120, 400)))
            start = START + self.rng.random() * SPAN_S * 0.9
            pace = self.rng.choice((0.02, 0.2, 1.0))
            arrivals = self.arrivals(start, pace * len(ports), len(ports))
            # the arrivals or the ports may run out first
            for at, port in zip(arrivals, ports, strict=False):
                source_port = self.rng.randrange(1_024, 65_536)
                flows.append((network, (at, source, source_port, target, port, "tcp", 0, 0, 0.0)))
        return flows

    def clusters(self, rows: float) -> list[tuple[int, Flow]]:
        """Hosts of one /24, none busy by itself, active together for some minutes."""
        flows: list[tuple[int, Flow]] = []
        while len(flows) < rows:
            # no client is in 100.64.0.0/10, so a cluster has its prefix alone
            prefix = f"100.{self.rng.randint(64, 127)}.{self.rng.randint(0, 255)}"
            hosts = [f"{prefix}.{host}" for host in self.rng.sample(range(1, 255), k=60)]
            seconds = self.rng.uniform(120.0, 300.0)
            start = START + self.rng.random() * (SPAN_S - seconds)
            for at in self.arrivals(start, seconds, 8 * seconds):
                network = self.rng.randrange(len(self.servers))
                flows.append((network, self.flow(network, at, self.rng.choice(hosts))))
        return flows

    def probes(self, rows: float) -> list[tuple[int, Flow]]:
        """Sources that every network sees: some are busy only over all networks together."""
        flows: list[tuple[int, Flow]] = []
        sources = [f"192.0.2.{host}" for host in range(1, 9)]
        for rank, source in enumerate(sources, 1):
            count = rows / rank / sum(1 / other for other in range(1, len(sources) + 1))
            for at in self.arrivals(START, SPAN_S, count):
                network = self.rng.randrange(len(self.servers))
                flows.append((network, self.flow(network, at, source)))
        return flows


def generate(seed: int, networks: int, rows: int = ROWS) -> list[pa.Table]:
    """One trace for each network, each by ascending ts; about `rows` connections in all.

    The same arguments give the same traces, on any day.
    """
    traffic = _Traffic(seed, networks)
    special = (
        traffic.scans(rows * _SCAN_SHARE)
        + traffic.clusters(rows * _CLUSTER_SHARE)
        + traffic.probes(rows * _PROBE_SHARE)
    )
    share = max(rows - len(special), 1) / networks
    flows = [traffic.background(network, share) for network in range(networks)]
    for network, flow in special:
        flows[network].append(flow)
    return [_table(sorted(part)) for part in flows]


def _table(flows: Sequence[Flow]) -> pa.Table:
    columns = zip(*flows, strict=True) if flows else [()] * len(ARROW)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ARROW, strict=True)]
    return pa.table(arrays, schema=ARROW)
