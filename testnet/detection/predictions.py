"""Predictions of the papers for a detector with given settings in a network of given size.

SWIM: Das, Gupta, Motivala, DSN 2002. Lifeguard: Dadgar, Phillips, Currey, arXiv 1707.00788.
"""

from __future__ import annotations

import random
from math import e, log, log10
from typing import Final

from msgspec import Struct

from medusa.overlay.gossip.config import GossipConfig

DRAWS: Final = 20_001
"""Simulated crashes for medians and percentiles: accurate to one percent."""
SEED: Final = 1707_00788
"""Fixed, so that predictions are the same each time."""


class Predicted(Struct, frozen=True):
    """Predicted times, seconds.

    Attributes:
        swim_suspect_mean_s: first suspicion by any peer, by SWIM: e/(e-1) periods (section 3.1).
        suspect_median_s: the same, from the moment of a crash anywhere within a period: until the
            first probe (exponential, mean one period), and one period more until it has failed.
        suspicion_min_s, suspicion_max_s: Lifeguard's bounds of a suspicion's duration.
        detect_median_s, detect_p99_s: the time until some peer declares it dead: the suspicion's
            length falls from the longest to the shortest with each independent confirmation.
        spread_s: the time until gossip has reached every peer.
        disseminate_p99_s: the time until every peer knows it dead.
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
    """The time until a crash among `nodes` peers is known, without loss and slow peers."""
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
    """Independent suspicions beyond the first that shorten a suspicion to its shortest.

    memberlist's `SuspicionMult - 2`, and none if fewer peers could confirm.
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
    """The length in seconds of a suspicion with confirmations at these times after its start.

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
    """Rounds until all peers know, if each that knows informs `fanout` random others in a round.

    The number grows by the factor fanout + 1 until nearly all know; from there the share of the
    others falls by e to the fanout in each round (Pittel 1987 for a fanout of one: log2 N + ln N).
    """
    if nodes < 2:
        return 0.0
    return log(nodes) / log(fanout + 1) + log(nodes) / fanout


def quantile(ordered: list[float], share: float) -> float:
    """A quantile of ascending values, interpolated between neighbours."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
