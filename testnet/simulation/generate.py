"""A random testnet from a seed.

Swarm testing (Groce et al., ISSTA 2012; TigerBeetle's `vopr`): the seed draws not only the times of
faults but also their kinds, the number of peers, the queries and their protection; so a thousand
seeds are a thousand different federations. Sizes are bounded so that a seed costs seconds.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations
from typing import Final

import msgspec

from medusa.engine.objects.availability import Availability, Mode, Recovery
from medusa.engine.objects.query import Filter
from medusa.engine.streams.revisions.corrections import Corrections
from medusa.testnet.simulation.faults import Cheat, draw_rates, schedule
from medusa.testnet.simulation.manifest import (
    ContractTable,
    Manifest,
    MoveTable,
    PosterTable,
    QueryTable,
    Settings,
    StreamTable,
    SubscriberTable,
    Weather,
)
from medusa.testnet.simulation.networks import draw_boxes, stays

PARTICIPANTS: Final = ("mit.edu", "utah.edu", "brown.edu", "rice.edu")

MOST_PEERS: Final = 6
"""Peers: simulated peers cost CPU each for every virtual second."""

WORKLOAD_S: Final = (8.0, 20.0)

ROWS_OF_ALL: Final = 600
"""Rows of all posters together."""

BOUNDS_S: Final = (1.0, 2.0, 4.0)
"""Bounds of results, seconds: shorter than some faults, and longer than others."""

TRADING: Final = 0.4
"""Share of the seeds with several participants in which they have contracts: a quarter of all."""

TRADING_SETTLE_S: Final = 180.0
"""A bill that was refused during the faults is sent again after `MarketTiming.retry_most_s`."""


def generate(seed: int) -> Manifest:
    """The manifest of a seed; the same on any machine."""
    rng = random.Random(f"manifest {seed}")
    count = rng.randint(1, 3)
    participants = {name: rng.choice((1, 2, 2, 3, 3)) for name in PARTICIPANTS[:count]}
    while sum(participants.values()) > MOST_PEERS:
        participants[max(participants, key=lambda name: participants[name])] -= 1
    if sum(participants.values()) < 2:
        participants[PARTICIPANTS[0]] = 2
    peers = Manifest(participants).peers
    workload_s = round(rng.uniform(*WORKLOAD_S), 1)
    streams = _streams(rng, participants, peers)
    queries = _queries(rng, participants, peers, streams)
    outputs = _outputs(queries)
    manifest = Manifest(
        participants,
        name=f"seed {seed}",
        workload_s=workload_s,
        settings=Settings(
            epoch_s=rng.choice((0.1, 0.2, 0.5, 1.0)),
            patience_s=rng.choice((2.0, 5.0, 10.0)),
        ),
        weather=_weather(rng),
        streams=streams,
        queries=queries,
        posters=_posters(rng, peers, streams, workload_s),
        subscribers=_subscribers(rng, peers, outputs),
        moves=_moves(rng, peers, queries, workload_s),
        faults=schedule(rng, peers, draw_rates(rng), workload_s * 0.8),
    )
    bounded = _bounded(random.Random(f"bounds {seed}"), manifest)
    return _trading(random.Random(f"contracts {seed}"), bounded)


def _bounded(rng: random.Random, manifest: Manifest) -> Manifest:
    """Add bounds, and subscribers for which they matter; drawn separately, so that all else stays
    the same."""
    queries = tuple(
        msgspec.structs.replace(
            table,
            availability=msgspec.structs.replace(
                table.availability, bound_s=rng.choice((0.0, 0.0, *BOUNDS_S))
            ),
        )
        for table in manifest.queries
    )
    subscribers = tuple(
        msgspec.structs.replace(table, corrections=rng.choice((None, *Corrections)))
        for table in manifest.subscribers
    )
    return msgspec.structs.replace(manifest, queries=queries, subscribers=subscribers)


def _trading(rng: random.Random, manifest: Manifest) -> Manifest:
    """Add contracts in a share of the seeds; drawn separately, so that all else stays the same."""
    participants = tuple(manifest.participants)
    if len(participants) < 2 or rng.random() > TRADING:
        return manifest
    workload_s = manifest.workload_s
    ends = (None, None, round(rng.uniform(0.3, 0.8) * workload_s, 2))
    contracts = tuple(
        ContractTable(
            one,
            other,
            price=rng.choice(((1_000, 1_000_000), (100_000, 1_000_000))),
            sublet=rng.random() < 0.7,
            revoked_s=rng.choice(ends),
        )
        for one, other in combinations(rng.sample(participants, len(participants)), 2)
    )
    # the owners of queries are short of capacity, and so are some others
    short = {table.at.partition("/")[0] for table in manifest.queries}
    capacities = {
        peer: rng.choice((0.005, 0.02, 0.1))
        for peer in manifest.peers
        if peer.partition("/")[0] in short or rng.random() < 0.2
    }
    if len(capacities) == len(manifest.peers):
        del capacities[rng.choice(manifest.peers)]
    cheats = [
        Cheat(round(rng.uniform(0.2, 0.5) * workload_s, 2), round(0.3 * workload_s, 2), peer)
        for peer in manifest.peers
        if rng.random() < 0.1
    ]
    return msgspec.structs.replace(
        manifest,
        settle_s=TRADING_SETTLE_S,
        settings=msgspec.structs.replace(
            manifest.settings,
            trade=True,
            settle_s=rng.choice((0.5, 1.0, 3.0)),
            job_cpu_s=0.05,
            row_cpu_s=rng.choice((0.005, 0.02)),
            capacities=capacities,
        ),
        contracts=contracts,
        faults=tuple(sorted((*manifest.faults, *cheats), key=lambda fault: fault.at_s)),
    )


def _weather(rng: random.Random) -> Weather:
    if rng.random() < 0.5:
        return Weather()
    return Weather(
        delay_s=rng.choice(((0.0002, 0.001), (0.001, 0.005), (0.002, 0.01))),
        loss=rng.choice((0.0, 0.0, 0.01, 0.05)),
        duplicate=rng.choice((0.0, 0.05)),
        reorder=rng.choice((0.0, 0.1)),
    )


def _streams(
    rng: random.Random, participants: dict[str, int], peers: Sequence[str]
) -> tuple[StreamTable, ...]:
    made = []
    for number in range(rng.randint(1, 3)):
        home = rng.choice(peers)
        owner = home.partition("/")[0]
        made.append(
            StreamTable(
                f"medusa://{owner}/s{number}",
                home,
                slack_s=rng.choice((0.0, 0.05, 0.5, 2.0)),
                # a majority of 2k + 1 voters decides the leader
                k_safety=rng.choice((0, 1)) if participants[owner] >= 3 else 0,
            )
        )
    return tuple(made)


def _availability(rng: random.Random, siblings: int) -> Availability:
    mode = rng.choice(list(Mode)) if siblings else Mode.NONE
    if mode is Mode.NONE:
        return Availability()
    if mode is Mode.AMNESIA:
        return Availability(mode, Recovery.GAP)
    recovery = rng.choice((Recovery.GAP, Recovery.ROLLBACK, *[Recovery.PRECISE] * 3))
    if mode is Mode.PASSIVE_STANDBY:
        return Availability(mode, recovery, checkpoint_s=rng.choice((0.3, 1.0)))
    return Availability(mode, recovery)


def _queries(
    rng: random.Random,
    participants: dict[str, int],
    peers: Sequence[str],
    streams: Sequence[StreamTable],
) -> tuple[QueryTable, ...]:
    made: list[QueryTable] = []
    for number in range(rng.randint(1, 3)):
        at = rng.choice(peers)
        owner = at.partition("/")[0]
        base = f"medusa://{owner}/q{number}"
        inputs = [stream.name for stream in streams]
        # filtered tuples are unchanged tuples
        lasts = [table.boxes[-1] for table in made]
        inputs += [last.outputs[0] for last in lasts if isinstance(last, Filter)]
        boxes = draw_boxes(rng, base, inputs)
        availability = _availability(rng, participants[owner] - 1)
        if stays(boxes) and availability.mode is not Mode.PASSIVE_STANDBY:
            availability = Availability()
        made.append(QueryTable(at, f"{base}/query", boxes, availability=availability))
    return tuple(made)


def _outputs(queries: Sequence[QueryTable]) -> list[str]:
    """The last stream of each query."""
    return [table.boxes[-1].outputs[-1] for table in queries]


def _posters(
    rng: random.Random, peers: Sequence[str], streams: Sequence[StreamTable], workload_s: float
) -> tuple[PosterTable, ...]:
    made = []
    for number in range(len(streams) + rng.randint(0, 2)):
        stream = streams[number % len(streams)]
        posts = rng.randint(5, 60)
        made.append(
            PosterTable(
                f"p{number}",
                stream.name,
                _of_one(rng.sample(list(peers), rng.randint(1, len(peers)))),
                posts=posts,
                rows=rng.choice((1, 1, 3, 10)),
                every_s=round(0.7 * workload_s / posts, 3),
                crashes=rng.choice((0, 0, 1, 2)),
            )
        )
    total = sum(poster.posts * poster.rows for poster in made)
    return tuple(made if total <= ROWS_OF_ALL else made[: len(streams)])


def _of_one(peers: Sequence[str]) -> tuple[str, ...]:
    """The peers of the first peer's participant: a poster has a token of this participant only."""
    owner = peers[0].partition("/")[0]
    return tuple(peer for peer in peers if peer.partition("/")[0] == owner)


def _subscribers(
    rng: random.Random, peers: Sequence[str], outputs: Sequence[str]
) -> tuple[SubscriberTable, ...]:
    return tuple(
        SubscriberTable(
            f"r{number}.{copy}",
            stream,
            tuple(rng.sample(list(peers), rng.randint(1, len(peers)))),
            stay_s=round(rng.uniform(1.0, 8.0), 1),
        )
        for number, stream in enumerate(outputs)
        for copy in range(rng.randint(1, 2))
    )


def _moves(
    rng: random.Random, peers: Sequence[str], queries: Sequence[QueryTable], workload_s: float
) -> tuple[MoveTable, ...]:
    made = []
    for table in queries:
        owner = table.at.partition("/")[0]
        siblings = [peer for peer in peers if peer.partition("/")[0] == owner]
        if len(siblings) > 1 and not stays(table.boxes) and rng.random() < 0.4:
            for _ in range(rng.randint(1, 3)):
                stream = table.boxes[-1].outputs[-1]
                at_s = round(rng.uniform(1.0, workload_s * 0.8), 2)
                made.append(MoveTable(at_s, stream, table.at, rng.choice(siblings)))
    return tuple(made)
