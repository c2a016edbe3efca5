"""What the papers let one expect of a detector with these settings among so many.

SWIM: Das, Gupta, Motivala, DSN 2002. Lifeguard: Dadgar, Phillips, Currey, arXiv 1707.00788.
"""

from __future__ import annotations

import random
from math import e, log, log10
from typing import Final

from msgspec import Struct

from overlay.gossip.config import GossipConfig

DRAWS: Final = 20_001
"""Of a crash, for medians and percentiles: good for one percent of them."""
SEED: Final = 1707_00788
"""Predictions are the same each time."""


class Predicted(Struct, frozen=True):
    """
    Attributes:
        swim_suspect_mean_s: first suspicion by anybody, by SWIM: e/(e-1) periods (section 3.1).
        suspect_median_s: the same, from the moment of a crash anywhere within a period: until the
            first probe (exponential, mean one period), and one period more until it has failed.
        suspicion_min_s, suspicion_max_s: Lifeguard's bounds of how long a suspect stays one.
        detect_median_s, detect_p99_s: until somebody declares it dead: the suspicion's length falls
            from the longest to the shortest with each independent confirmation.
        spread_s: until gossip has reached everybody.
        disseminate_p99_s: until everybody knows it dead.
    """

    swim_suspect_mean_s: float
    suspect_median_s: float
    suspicion_min_s: float
    suspicion_max_s: float
    detect_median_s: float
    detect_p99_s: float
    spread_s: float
    disseminate_p99_s: float


def predict(nodes: int, config: GossipConfig) -> Predicted:
    """How soon a crash among so many is known, where nothing is lost and nobody slow."""
    period = config.probe_interval_s
    shortest = config.suspicion_mult * max(1.0, log10(max(nodes, 1))) * period
    longest = config.suspicion_max_mult * shortest
    enough = confirmations(nodes, config.suspicion_mult)
    rng = random.Random(SEED)
    found = sorted(
        rng.expovariate(1.0) * period
        + period
        + suspicion_length(shortest, longest, _arrivals(enough, period, rng))
        for _ in range(DRAWS)
    )
    spread = spread_rounds(nodes, config.gossip_fanout) * config.gossip_interval_s
    p99 = quantile(found, 0.99)
    return Predicted(
        swim_suspect_mean_s=round(e / (e - 1) * period, 3),
        suspect_median_s=round((log(2) + 1) * period, 3),
        suspicion_min_s=round(shortest, 3),
        suspicion_max_s=round(longest, 3),
        detect_median_s=round(quantile(found, 0.5), 3),
        detect_p99_s=round(p99, 3),
        spread_s=round(spread, 3),
        disseminate_p99_s=round(p99 + spread, 3),
    )


def confirmations(nodes: int, mult: int) -> int:
    """Independent suspicions beyond the first that make a suspicion as short as can be.

    memberlist's `SuspicionMult - 2`, and none where there are not so many who could confirm.
    """
    enough = mult - 2
    return enough if nodes - 2 >= enough > 0 else 0


def _arrivals(count: int, period: float, rng: random.Random) -> list[float]:
    """When confirmations come: each period one peer in the mean probes the dead one (SWIM 3.1)."""
    times, time = [], 0.0
    for _ in range(count):
        time += rng.expovariate(1.0) * period
        times.append(time)
    return times


def suspicion_length(shortest: float, longest: float, confirmed: list[float]) -> float:
    """How long a suspicion lasts whose confirmations come then, seconds after it began.

    Lifeguard, section IV-B: max(Min, Max - (Max - Min) * log(C + 1) / log(K + 1)).
    """
    if not confirmed:
        return shortest
    ends = longest
    for count, time in enumerate(confirmed, 1):
        if time >= ends:
            break
        share = log(count + 1) / log(len(confirmed) + 1)
        ends = min(ends, max(time, longest - share * (longest - shortest)))
    return ends


def spread_rounds(nodes: int, fanout: int) -> float:
    """Rounds until all have it, each who has it telling so many random others a round.

    It grows by the factor fanout + 1 until nearly all have it; the share of those without falls by
    e to the fanout a round from there (Pittel 1987 for a fanout of one: log2 N + ln N).
    """
    if nodes < 2:
        return 0.0
    return log(nodes) / log(fanout + 1) + log(nodes) / fanout


def quantile(ordered: list[float], share: float) -> float:
    """Of values in ascending order, between neighbours where the share falls between two."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
