"""Faults as a schedule: kinds, times, and durations. Every fault has a heal.

The schedule is data, drawn beforehand; `medusa.testnet.simulation.scenario` carries it out.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Struct

LONGEST_S: Final = 6.0
"""Longest drawn fault, seconds: well beyond the detector's time on the local preset."""

LEAPS_S: Final = (-3_000.0, 45.0, 3_600.0, 8_640_000.0)
"""Leaps of a clock, seconds: back by more than the age that a datagram may have; ahead by so little
that other peers still accept this peer's times; ahead by more than they accept; and ahead by a
hundred days."""


class _Fault(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """
    Attributes:
        at_s: when the fault begins, seconds from the start of the workload. for_s: its duration,
            seconds.
    """

    at_s: float
    for_s: float


class Crash(_Fault, frozen=True, tag="crash"):
    """The peer dies as by kill -9, and is started again.

    Attributes:
        power: the machine's power fails: unsynced data is lost as well.
    """

    peer: str
    power: bool = False


class Stop(_Fault, frozen=True, tag="stop"):
    """The peer ends in order, as on SIGTERM, and is started again."""

    peer: str


class Clog(_Fault, frozen=True, tag="clog"):
    """Nothing gets from one peer to another until it is healed; then all of it arrives."""

    source: str
    target: str


class Noise(_Fault, frozen=True, tag="noise"):
    """A share of all datagrams is lost, and a share of all is doubled."""

    loss: float
    duplicate: float = 0.0


class Partition(_Fault, frozen=True, tag="partition"):
    """The named peers and all others do not receive each other's messages.

    Attributes:
        symmetric: else the others do not receive the named peers' messages, but the named peers
            receive theirs.
    """

    peers: tuple[str, ...]
    symmetric: bool = True


class Drift(_Fault, frozen=True, tag="drift"):
    """A peer's wall clock goes wrong.

    Attributes:
        rate: seconds that the clock gains a second. step_s: by how much it jumps when the fault
            begins.
    """

    peer: str
    rate: float = 0.0
    step_s: float = 0.0


class Forge(_Fault, frozen=True, tag="forge"):
    """A member lies: it sends another a statement that the founder has admitted a participant. No
    peer may believe it, so there is nothing to heal."""

    peer: str
    victim: str
    participant: str = "impostor.example.org"


class Admit(_Fault, frozen=True, tag="admit"):
    """A change that must reach all peers, and no fault: a peer admits a participant."""

    peer: str
    participant: str


class Cheat(_Fault, frozen=True, tag="cheat"):
    """A peer pays its bills under forged signatures, and records nothing. No peer may accept them;
    healed, it pays correctly."""

    peer: str


Fault = Crash | Stop | Clog | Noise | Partition | Drift | Forge | Admit | Cheat


def named_peers(fault: Fault) -> tuple[str, ...]:
    """The peers that the fault names."""
    match fault:
        case Crash() | Stop() | Drift() | Admit() | Cheat():
            return (fault.peer,)
        case Clog():
            return (fault.source, fault.target)
        case Forge():
            return (fault.peer, fault.victim)
        case Partition():
            return fault.peers
        case Noise():
            return ()


@dataclass(frozen=True)
class FaultRates:
    """How often each kind comes, faults a minute; 0: never."""

    crash: float = 0.0
    power: float = 0.0
    stop: float = 0.0
    clog: float = 0.0
    noise: float = 0.0
    partition: float = 0.0
    one_way: float = 0.0
    drift: float = 0.0
    forge: float = 0.0
    admit: float = 0.0


def draw_rates(rng: random.Random) -> FaultRates:
    """Swarm testing: a seed leaves most kinds out, so that the others have more effect.

    Groce et al., Swarm Testing, ISSTA 2012.
    """
    kinds = list(FaultRates.__dataclass_fields__)
    chosen = rng.sample(kinds, k=rng.randint(1, 5))
    return FaultRates(**{kind: rng.uniform(4.0, 25.0) for kind in chosen})


def schedule(
    rng: random.Random,
    peers: Sequence[str],
    rates: FaultRates,
    span_s: float,
    *,
    spared: Iterable[str] = (),
) -> tuple[Fault, ...]:
    """Faults over `span_s` seconds as Poisson processes, by time; all are healed by its end.

    Args:
        spared: peers that are neither killed nor stopped.
    """
    mortal = [peer for peer in peers if peer not in set(spared)]
    found: list[Fault] = []
    for kind in FaultRates.__dataclass_fields__:
        per_s = getattr(rates, kind) / 60
        at = rng.expovariate(per_s) if per_s else span_s
        while at < span_s:
            for_s = min(rng.uniform(0.1, LONGEST_S), span_s - at)
            drawn = _drawn(rng, kind, peers, mortal)
            if drawn is not None:
                found.append(
                    msgspec.structs.replace(drawn, at_s=round(at, 3), for_s=round(for_s, 3))
                )
            at += rng.expovariate(per_s)
    return _one_life_each(sorted(found, key=lambda fault: fault.at_s))


def _drawn(
    rng: random.Random, kind: str, peers: Sequence[str], mortal: Sequence[str]
) -> Fault | None:
    """Draw a fault of a kind, without its times; None: it is impossible here."""
    if kind in {"crash", "power", "stop"}:
        if not mortal:
            return None
        peer = rng.choice(mortal)
        return Stop(0, 0, peer) if kind == "stop" else Crash(0, 0, peer, kind == "power")
    if kind == "drift":
        rate = round(rng.uniform(-0.01, 0.01), 4)
        step_s = round(rng.choice((0.0, rng.uniform(-2.0, 2.0), rng.choice(LEAPS_S))), 2)
        return Drift(0, 0, rng.choice(list(peers)), rate, step_s)
    if kind == "noise":
        return Noise(0, 0, round(rng.uniform(0.05, 0.4), 2), 0.1)
    if kind == "admit":
        return Admit(0, 0, peers[0], f"lab{rng.randrange(10**6)}.example.org")
    return _between(rng, kind, peers) if len(peers) > 1 else None


def _between(rng: random.Random, kind: str, peers: Sequence[str]) -> Fault:
    """Draw a fault that needs several peers."""
    if kind == "forge":
        return Forge(0, 0, *rng.sample(list(peers), 2))
    if kind == "clog":
        return Clog(0, 0, *rng.sample(list(peers), 2))
    cut = tuple(rng.sample(list(peers), rng.randint(1, len(peers) // 2)))
    return Partition(0, 0, cut, kind == "partition")


def _one_life_each(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """The faults without those that would kill a peer that is already down."""
    down_until: dict[str, float] = {}
    state: list[Fault] = []
    for fault in faults:
        if isinstance(fault, Crash | Stop):
            if fault.at_s <= down_until.get(fault.peer, -1.0):
                continue
            down_until[fault.peer] = fault.at_s + fault.for_s
        state.append(fault)
    return tuple(state)
