"""Parameters of the failure detector, with memberlist's formulas: speed against network load."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

AWARENESS_MAX: Final = 8
"""The greatest Lifeguard local health score: waits are at most nine times as long."""

QUORUM: Final = 2
"""Distinct participants whose claims together declare a peer dead for peers that have not probed it
themselves. One hostile participant, with however many peers, is never enough."""

PUSH_PULL_SCALE: Final = 32
"""Number of peers above which push-pulls become rarer: the interval grows with the logarithm, so
that the network's load stays level as the federation grows."""


class Preset(StrEnum):
    """How fast news spreads, and at which cost: one preset for each kind of network."""

    LOCAL = "local"
    LAN = "lan"
    WAN = "wan"

    @property
    def interval_s(self) -> float:
        """Seconds between push-pulls of the membership when nothing is new."""
        return {Preset.LOCAL: 0.5, Preset.LAN: 5.0, Preset.WAN: 30.0}[self]


@dataclass(frozen=True, slots=True)
class GossipConfig:
    """
    Attributes:
        probe_interval_s: the time between the starts of two probes; one peer is probed at a time.
        probe_timeout_s: the time until a direct ping counts as lost; about the 99th percentile of
            the round-trip time.
        indirect_checks: the number of other peers that then ping the silent peer for us.
        suspicion_mult: the shortest suspicion, in probe intervals, is this times log10 of the
            number of peers.
        suspicion_max_mult: the longest suspicion, without confirmation, as a multiple of the
            shortest.
        gossip_interval_s, gossip_fanout: the time between two rounds of gossip, and the number of
            peers that get it in each.
        gossip_to_dead_s: how long a dead peer gets the claims about itself, so that it can refute
            them.
        retransmit_mult: a claim is passed on this times log10 of the number of peers.
        push_pull_interval_s: the time between two push-pulls with a random peer. At each of them
            one dead peer is pinged, so that the halves of a partition find each other again.
        gone_s: the duration of the suspicion of a silent peer whose machine refuses connections to
            its port. Such a peer is not merely slow, so a short suspicion is enough.
    """

    probe_interval_s: float
    probe_timeout_s: float
    indirect_checks: int
    suspicion_mult: int
    suspicion_max_mult: int
    gossip_interval_s: float
    gossip_fanout: int
    gossip_to_dead_s: float
    retransmit_mult: int
    push_pull_interval_s: float
    gone_s: float

    def __post_init__(self) -> None:
        assert 0 < self.probe_timeout_s < self.probe_interval_s
        assert 0 < self.gossip_interval_s <= self.probe_interval_s
        assert self.suspicion_mult >= 1
        assert self.suspicion_max_mult >= 1
        assert self.indirect_checks >= 0
        assert min(self.gossip_fanout, self.retransmit_mult) >= 1
        assert min(self.push_pull_interval_s, self.gossip_to_dead_s, self.gone_s) > 0

    @classmethod
    def of(cls, preset: Preset) -> GossipConfig:
        """The parameters for a kind of network."""
        return PRESETS[preset]

    def suspicion_s(self, peers: int) -> tuple[float, float]:
        """Shortest and longest suspicion in seconds, in a network of `peers` living peers."""
        shortest = self.suspicion_mult * max(1.0, math.log10(max(1, peers))) * self.probe_interval_s
        return shortest, shortest * self.suspicion_max_mult

    def confirmations(self, voices: int) -> int:
        """Independent confirmations that shorten a suspicion to its shortest, if `voices` peers
        (the suspect included) could answer. 0: it is the shortest from the start."""
        wanted = self.suspicion_mult - 2
        return wanted if 0 < wanted <= voices - 2 else 0

    def retransmits(self, peers: int) -> int:
        """Return how often each peer passes a claim on."""
        return self.retransmit_mult * math.ceil(math.log10(peers + 1))

    def push_pull_s(self, peers: int) -> float:
        """Seconds between two push-pulls of one peer."""
        if peers <= PUSH_PULL_SCALE:
            return self.push_pull_interval_s
        scale = math.ceil(math.log2(peers) - math.log2(PUSH_PULL_SCALE)) + 1
        return self.push_pull_interval_s * scale


PRESETS: Final = {
    # Peers on one machine, for the testnet; these values do not come from memberlist. A round trip
    # takes under a millisecond, so 0.1 s without an answer means a busy process or a dead one. The
    # kernel breaks a killed process's connections and its port refuses: detecting that takes
    # probe_timeout_s + gone_s, 0.3 s. Without that evidence (a stopped or starved process)
    # suspicion lasts 1 s to 4 s: on two cores with a few JVMs a peer may not run for some hundred
    # milliseconds.
    Preset.LOCAL: GossipConfig(
        probe_interval_s=0.2,
        probe_timeout_s=0.1,
        indirect_checks=2,
        suspicion_mult=5,
        suspicion_max_mult=4,
        gossip_interval_s=0.05,
        gossip_fanout=3,
        gossip_to_dead_s=5.0,
        retransmit_mult=3,
        push_pull_interval_s=2.0,
        gone_s=0.2,
    ),
    # memberlist's DefaultLANConfig; gone_s is ours
    Preset.LAN: GossipConfig(
        probe_interval_s=1.0,
        probe_timeout_s=0.5,
        indirect_checks=3,
        suspicion_mult=4,
        suspicion_max_mult=6,
        gossip_interval_s=0.2,
        gossip_fanout=3,
        gossip_to_dead_s=30.0,
        retransmit_mult=4,
        push_pull_interval_s=30.0,
        gone_s=1.0,
    ),
    # memberlist's DefaultWANConfig; gone_s is ours
    Preset.WAN: GossipConfig(
        probe_interval_s=5.0,
        probe_timeout_s=3.0,
        indirect_checks=3,
        suspicion_mult=6,
        suspicion_max_mult=6,
        gossip_interval_s=0.5,
        gossip_fanout=4,
        gossip_to_dead_s=60.0,
        retransmit_mult=4,
        push_pull_interval_s=60.0,
        gone_s=5.0,
    ),
}


def suspicion_timeout(shortest: float, longest: float, wanted: int, confirmed: int) -> float:
    """Seconds from its start until a suspicion counts as proven (Lifeguard, 4.2: dogpile).

    The time falls with the logarithm of the independent confirmations, so that the first
    confirmations count most: max - ln(c + 1) / ln(k + 1) * (max - min).

    Args:
        wanted: the confirmations k that shorten it to `shortest`; 0: no others can be expected.
        confirmed: the confirmations c so far, the first accuser not counted.
    """
    if wanted < 1:
        return shortest
    share = math.log(confirmed + 1) / math.log(wanted + 1)
    return max(shortest, longest - share * (longest - shortest))
