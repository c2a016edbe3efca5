"""The figures of a run: the sums over all its worlds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from msgspec import Struct

from medusa.overlay.gossip.config import GossipConfig
from medusa.overlay.gossip.config import Preset as Settings
from medusa.testnet.detection.predictions import Predicted, quantile
from medusa.testnet.detection.world import Crash, World

MOST_AT_ONCE: Final = 0.05
"""Share of the peers that crash in one world; for more crashes there are more worlds."""

Preset = Literal["local", "lan", "wan"]


@dataclass(frozen=True)
class Options:
    """The options of a run.

    Attributes:
        crashes: the number of crashes in all worlds. loss: the share of datagrams that are lost.
            slow: the share of the peers that are slowed tenfold.
        seconds: the least virtual time of a world.
        killed: a crash takes only the process, and its machine refuses connections.
        datagrams_only: no probe tries a connection, which repeats lost packets.
    """

    nodes: int = 1000
    crashes: int = 40
    loss: float = 0.0
    slow: float = 0.0
    seed: int = 1
    seconds: float = 0.0
    preset: Preset = "lan"
    killed: bool = False
    datagrams_only: bool = False

    @property
    def plain(self) -> bool:
        return not self.loss and not self.slow

    @property
    def config(self) -> GossipConfig:
        """The detectors' configuration."""
        return GossipConfig.of(Settings(self.preset))

    @property
    def worlds(self) -> int:
        """Number of worlds needed."""
        each = max(1, int(self.nodes * MOST_AT_ONCE))
        return -(-self.crashes // each) if self.crashes else 1


class Result(Struct, frozen=True):
    """The figures of a run. Times are virtual seconds from the crash on; None if no crash got so
    far.

    Attributes:
        worlds: the number of worlds over which the crashes were spread. simulated_s: the virtual
            time of all of them together.
        suspect_*: until a live peer suspects the crashed one; detect_*: until a peer declares it
            dead; disseminate_*: until the last peer knows; disseminate_healthy_*: until the last
            peer knows that is not slow itself. unknown: crashes that did not get that far.
            suspicions: how often a live peer was suspected, each suspecting peer counted.
        false_positives: live peers that some peer declared dead; false_positive_pairs: pairs of
            victim and observer. false_positives_by_healthy: victims with an observer that was not
            slow. false_positives_healthy: victims that were not slow. lifeguard_fp,
            lifeguard_fp_minus: as that paper counts: pairs whose victim was not slow; and pairs in
            which neither was slow.
        bytes_per_peer_per_s, messages_per_peer_per_s: sent in the quiet time, datagrams alone and
            without the headers of UDP and IP; busy_*: from the first crash to the end.
        predicted: the figures that the papers predict. checks: for each check, by name, whether it
            held.
        seconds: processor time on this machine. bytes_per_node: by how much the memory of this
            process grew, for each peer.
    """

    nodes: int
    preset: str
    seed: int
    loss: float
    slow: float
    crashes: int
    worlds: int
    simulated_s: float
    suspect_median_s: float | None
    suspect_p99_s: float | None
    detect_median_s: float | None
    detect_p99_s: float | None
    disseminate_median_s: float | None
    disseminate_p99_s: float | None
    disseminate_healthy_median_s: float | None
    disseminate_healthy_p99_s: float | None
    unknown: int
    suspicions: int
    false_positives: int
    false_positive_pairs: int
    false_positives_by_healthy: int
    false_positives_healthy: int
    lifeguard_fp: int
    lifeguard_fp_minus: int
    bytes_per_peer_per_s: float
    messages_per_peer_per_s: float
    busy_bytes_per_peer_per_s: float
    busy_messages_per_peer_per_s: float
    predicted: Predicted
    seconds: float
    bytes_per_node: int


@dataclass
class Traffic:
    """The traffic during a number of peer-seconds."""

    sent: int = 0
    datagrams: int = 0
    peer_seconds: float = 0.0

    def add(self, world: World, before: tuple[int, int, float]) -> None:
        sent, datagrams, then = before
        self.sent += world.traffic.sent - sent
        self.datagrams += world.traffic.datagrams - datagrams
        self.peer_seconds += (world.clock.now - then) * sum(world.tally.live)

    def rates(self) -> tuple[float, float]:
        """(bytes, datagrams) per peer and second."""
        if not self.peer_seconds:
            return 0.0, 0.0
        return round(self.sent / self.peer_seconds, 1), round(self.datagrams / self.peer_seconds, 3)


class Figures:
    """The sums over the worlds of a run."""

    def __init__(self) -> None:
        self.crashes: list[Crash] = []
        self.quiet = Traffic()
        self.busy = Traffic()
        self.simulated = 0.0
        self.suspicions = 0
        self.alarms = [0, 0]
        self.by_healthy = [0, 0]
        self.of_healthy = [0, 0]
        self.of_healthy_by_healthy = [0, 0]

    def add(self, world: World) -> None:
        tally = world.tally
        self.crashes += tally.crashes.values()
        self.simulated += world.clock.now
        self.suspicions += tally.suspicions
        everybody = bytearray(b"\1" * len(tally.live))
        for counts, victims, observers in (
            (self.alarms, everybody, everybody),
            (self.by_healthy, everybody, tally.healthy),
            (self.of_healthy, tally.healthy, everybody),
            (self.of_healthy_by_healthy, tally.healthy, tally.healthy),
        ):
            for place, count in enumerate(tally.alarms.among(victims, observers)):
                counts[place] += count

    def result(
        self, options: Options, predicted: Predicted, *, seconds: float, memory: int
    ) -> Result:
        """The result. seconds: of processor time; memory: bytes by which the process grew."""
        crashes = self.crashes
        times = {
            "suspect": _after(crashes, lambda crash: crash.suspected),
            "detect": _after(crashes, lambda crash: crash.declared),
            "disseminate": _after(crashes, lambda crash: crash.known),
            "disseminate_healthy": _after(crashes, lambda crash: crash.known_healthy),
        }
        quantiles = {
            f"{event}_{name}_s": _at(of_event, share)
            for event, of_event in times.items()
            for name, share in (("median", 0.5), ("p99", 0.99))
        }
        quiet, busy = self.quiet.rates(), self.busy.rates()
        return Result(
            nodes=options.nodes,
            preset=options.preset,
            seed=options.seed,
            loss=options.loss,
            slow=options.slow,
            crashes=len(crashes),
            worlds=options.worlds,
            simulated_s=round(self.simulated, 3),
            **quantiles,
            unknown=len(crashes) - len(times["disseminate"]),
            suspicions=self.suspicions,
            false_positives=self.alarms[0],
            false_positive_pairs=self.alarms[1],
            false_positives_by_healthy=self.by_healthy[0],
            false_positives_healthy=self.of_healthy[0],
            lifeguard_fp=self.of_healthy[1],
            lifeguard_fp_minus=self.of_healthy_by_healthy[1],
            bytes_per_peer_per_s=quiet[0],
            messages_per_peer_per_s=quiet[1],
            busy_bytes_per_peer_per_s=busy[0],
            busy_messages_per_peer_per_s=busy[1],
            predicted=predicted,
            seconds=round(seconds, 3),
            bytes_per_node=max(memory, 0) // options.nodes,
        )


def _after(crashes: list[Crash], when: Callable[[Crash], float | None]) -> list[float]:
    """Seconds from the crash until that event, ascending, for crashes with that event."""
    times = [(crash.at, when(crash)) for crash in crashes]
    return sorted(time - at for at, time in times if time is not None)


def _at(ordered: list[float], share: float) -> float | None:
    return round(quantile(ordered, share), 3) if ordered else None


def title_of(results: list[Result]) -> str:
    """A line with the options."""
    first, most = results[0], max(result.crashes for result in results)
    trouble = [f"{first.loss:.0%} loss"] if first.loss else []
    trouble += [f"{first.slow:.0%} slowed tenfold"] if first.slow else []
    said = ", ".join(trouble) or "plain network"
    return f"failure detector, {first.preset} preset, {said}, {most:,} crashes"


PLAIN_FACTOR: Final = 1.5
"""The most that a figure of a run without loss and slow peers may be, as a multiple of the papers'
prediction: they leave out that a round of probes has an order and that a period is divided into
steps."""
TROUBLED_FACTOR: Final = 2.5
"""The same multiple with loss or slow peers: slow peers send confirmations late, and learn late."""
BYTES_FACTOR: Final = 1.5
"""The most that the greatest bytes per peer and second may be, over the sizes of federations, as a
multiple of the least."""
FALSE_SHARE: Final = 0.001
"""Share of all peers that may be victims of a false alarm with loss alone, neither side slow."""


class Check(Struct, frozen=True):
    """holds: whether `value` is at most `limit`."""

    name: str
    value: float
    limit: float

    @property
    def holds(self) -> bool:
        return self.value <= self.limit


def checks_of(result: Result) -> list[Check]:
    """The checks of one run."""
    plain = not result.loss and not result.slow
    factor = PLAIN_FACTOR if plain else TROUBLED_FACTOR
    expected = result.predicted
    checks = [Check("crashes not known to everybody", result.unknown, 0)]
    for name, value, prediction in (
        ("median time to detection", result.detect_median_s, expected.detect_median_s),
        ("p99 time to detection", result.detect_p99_s, expected.detect_p99_s),
        # a peer that runs a tenth of the time learns it late
        ("p99 time to dissemination", result.disseminate_healthy_p99_s, expected.disseminate_p99_s),
    ):
        if value is not None:
            checks.append(Check(f"{name}, s", value, round(factor * prediction, 3)))
    # a slow peer may be declared dead, but slow peers must not cause others to be
    limit = 0 if plain else round(FALSE_SHARE * result.nodes * result.worlds, 3)
    return [*checks, Check("healthy peers taken for dead", result.false_positives_healthy, limit)]


def bytes_check(results: list[Result]) -> list[Check]:
    """The check that traffic is equal at all sizes; None for one size."""
    rates = [result.bytes_per_peer_per_s for result in results]
    if len(rates) < 2 or not min(rates):
        return []
    name = "most bytes per peer and second, of the least"
    return [Check(name, round(max(rates) / min(rates), 3), BYTES_FACTOR)]
