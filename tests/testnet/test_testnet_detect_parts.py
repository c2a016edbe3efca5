"""The parts of the simulation of the failure detector: the network, slow machines, counts of
crashes and false alarms, and the papers' predictions."""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import e, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.testnet.detection.predictions import predict, quantile, spread_rounds, suspicion_length
from medusa.testnet.detection.world import Tally
from medusa.testnet.virtual.clock import Clock
from medusa.testnet.virtual.messages import LINKS, SLOWNESS, TURN_S, Link, Network, Starved

# -- network ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [0.0, 0.1, 0.5])
def test_network_loses_its_share(loss: float) -> None:
    network = Network(LINKS["lan"], loss, random.Random(1))
    delays = [network.delay() for _ in range(20_000)]
    lost = sum(delay is None for delay in delays)
    assert lost == network.lost
    assert network.carried + network.lost == 20_000
    assert lost / 20_000 == pytest.approx(loss, abs=0.012)


@pytest.mark.parametrize("preset", sorted(LINKS))
def test_delays_are_never_short_and_have_their_mean(preset: str) -> None:
    link = LINKS[preset]
    network = Network(link, 0.0, random.Random(1))
    delays = [network.delay() or 0.0 for _ in range(20_000)]
    assert min(delays) >= link.least
    assert sum(delays) / 20_000 == pytest.approx(link.least + link.more, rel=0.03)
    # the time beyond the least is exponential: its 99th percentile is 4.6 times its mean
    assert sorted(delays)[19_800] == pytest.approx(link.least + log(100) * link.more, rel=0.1)


def test_datagrams_overtake_each_other() -> None:
    clock, network = Clock(), Network(Link(0.001, 0.01), 0.0, random.Random(1))
    arrived: list[int] = []
    for number in range(50):
        delay = network.delay()
        assert delay is not None
        clock.after(delay, arrived.append, number)
    clock.run(10.0)
    assert sorted(arrived) == list(range(50))
    assert arrived != list(range(50))


def test_streams_lose_nothing_but_take_longer() -> None:
    plain = Network(LINKS["lan"], 0.0, random.Random(1))
    lossy = Network(LINKS["lan"], 0.5, random.Random(1))
    took = sum(plain.stream_delay() for _ in range(2000))
    assert sum(lossy.stream_delay() for _ in range(2000)) > 1.5 * took
    assert lossy.carried == 2000


# -- overloaded machines ---------------------------------------------------------------------------


@given(st.integers(0, 1000), st.lists(st.floats(0, 100), min_size=1, max_size=40))
def test_starved_machine_does_nothing_early_and_keeps_the_order(
    seed: int, times: list[float]
) -> None:
    machine = Starved(random.Random(seed))
    times.sort()
    done = [machine.turn(time) for time in times]
    assert done == sorted(done)
    assert all(then >= time for time, then in zip(times, done, strict=True))
    # All work is done within a turn: asking again then does not postpone it.
    machine = Starved(random.Random(seed))
    for time in times:
        then = machine.turn(time)
        assert machine.turn(then) == then


def test_starved_machine_runs_a_tenth_of_the_time() -> None:
    machine = Starved(random.Random(1))
    step, count = 0.01, 2_000_000
    at_once = waits = 0.0
    worst = 0.0
    for number in range(0, count, 20):
        time = number * step
        wait = machine.turn(time) - time
        at_once += not wait
        waits += wait
        worst = max(worst, wait)
    looks = count / 20
    assert at_once / looks == pytest.approx(1 / SLOWNESS, rel=0.1)
    # Since pauses are exponential, an arrival in a pause has, on average, a whole mean pause after
    # it.
    assert waits / looks == pytest.approx((1 - 1 / SLOWNESS) * TURN_S * (SLOWNESS - 1), rel=0.1)
    assert worst > 8


# -- books -----------------------------------------------------------------------------------------


def test_the_times_of_a_crash_run_from_first_suspicion_to_last_peer() -> None:
    tally = Tally(4)
    tally.crash(0, 10.0)
    tally.suspect(1, 0, 12.0)
    tally.suspect(2, 0, 13.0)
    tally.dead(1, 0, 15.0)
    tally.dead(2, 0, 16.0)
    tally.dead(2, 0, 16.5)
    assert tally.unknown == 1
    tally.dead(3, 0, 17.0)
    crash = tally.crashes[0]
    assert (crash.suspected, crash.declared, crash.known) == (12.0, 15.0, 17.0)
    assert tally.unknown == 0
    assert not tally.alarms.pairs


def test_a_crash_is_known_without_peers_that_crashed_themselves() -> None:
    tally = Tally(3)
    tally.crash(0, 1.0)
    tally.dead(1, 0, 2.0)
    tally.crash(2, 3.0)
    assert tally.crashes[0].known == 3.0
    assert tally.unknown == 1


def test_a_peer_that_believes_a_crashed_one_alive_must_learn_the_crash_again() -> None:
    tally = Tally(3)
    tally.crash(0, 1.0)
    tally.dead(1, 0, 2.0)
    tally.dead(2, 0, 3.0)
    tally.alive(1, 0, 4.0)
    assert tally.unknown == 1
    tally.dead(1, 0, 5.0)
    assert tally.crashes[0].known == 5.0


def test_the_time_until_healthy_peers_know_does_not_wait_for_slow_peers() -> None:
    tally = Tally(4)
    tally.healthy[3] = 0
    tally.crash(0, 1.0)
    for observer, time in ((1, 2.0), (2, 3.0), (3, 9.0)):
        tally.dead(observer, 0, time)
    assert (tally.crashes[0].known_healthy, tally.crashes[0].known) == (3.0, 9.0)


def test_false_alarms_are_counted_by_the_slow_side() -> None:
    tally = Tally(4)
    for victim, observer in ((1, 0), (1, 2), (3, 2), (3, 2)):
        tally.dead(observer, victim, 1.0)
    everybody, healthy = bytearray(b"\1\1\1\1"), bytearray(b"\0\1\1\1")
    assert tally.alarms.among(everybody, everybody) == (2, 3)
    assert tally.alarms.among(healthy, healthy) == (2, 2)
    assert tally.alarms.among(everybody, bytearray(b"\1\0\0\0")) == (1, 1)
    assert {victim for victim, _ in tally.alarms.pairs} == {1, 3}


@settings(max_examples=50)
@given(st.integers(0, 10_000))
def test_books_agree_with_a_recount(seed: int) -> None:
    rng = random.Random(seed)
    tally, believed, gone = Tally(6), set[tuple[int, int]](), set[int]()
    for step in range(60):
        live = [node for node in range(6) if node not in gone]
        if rng.random() < 0.1 and len(live) > 2:
            victim = rng.choice(live)
            tally.crash(victim, step)
            gone.add(victim)
        elif gone:
            observer, subject = rng.choice([n for n in live if n not in gone]), rng.choice([*gone])
            if rng.random() < 0.8:
                tally.dead(observer, subject, step)
                believed.add((observer, subject))
            else:
                tally.alive(observer, subject, step)
                believed.discard((observer, subject))
        missing = {
            subject
            for subject in gone
            for observer in range(6)
            if observer not in gone and (observer, subject) not in believed
        }
        assert tally.unknown == len(missing)


# -- predictions -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    probe_interval_s: float = 1.0
    gossip_interval_s: float = 0.2
    gossip_fanout: int = 3
    suspicion_mult: int = 4
    suspicion_max_mult: int = 6


def test_predictions_are_the_papers() -> None:
    predicted = predict(1000, Settings())
    assert predicted.swim_suspect_mean_s == pytest.approx(e / (e - 1), abs=0.001)
    # memberlist: 4 * log10(1000) * 1 s, and six times that.
    assert predicted.suspicion_min_s == 12
    assert predicted.suspicion_max_s == 72
    # Probed after ln 2 in the median, suspected a period later, confirmed twice meanwhile.
    assert predicted.detect_median_s == pytest.approx(12 + 1 + log(2), abs=0.05)


def test_small_federations_get_no_shorter_suspicion() -> None:
    assert predict(3, Settings()).suspicion_min_s == predict(10, Settings()).suspicion_min_s == 4


def test_times_scale_with_the_period_and_grow_with_the_logarithm() -> None:
    fast, slow = predict(100, Settings()), predict(100, Settings(probe_interval_s=5.0))
    assert slow.detect_median_s == pytest.approx(5 * fast.detect_median_s, rel=0.01)
    steps = [predict(10**power, Settings()).detect_median_s for power in (2, 3, 4)]
    assert steps[2] - steps[1] == pytest.approx(steps[1] - steps[0], abs=0.05)


@pytest.mark.parametrize(
    ("confirmed", "length"),
    [
        ([], 4.0),  # no peer could confirm: memberlist takes the shortest timeout
        ([1.0, 2.0], 4.0),
        ([1.0, 9.0], 9.0),
        ([1.0, 50.0], 24 - 20 * log(2) / log(3)),
        ([30.0, 40.0], 24.0),
    ],
)
def test_confirmations_shorten_a_suspicion(confirmed: list[float], length: float) -> None:
    assert suspicion_length(4.0, 24.0, confirmed) == pytest.approx(length)


@pytest.mark.parametrize("nodes", [100, 1000])
def test_gossip_spreads_in_the_rounds_predicted(nodes: int) -> None:
    rng, fanout = random.Random(1), 3
    rounds = []
    for _ in range(30):
        knows, count = {0}, 0
        while len(knows) < nodes:
            count += 1
            knows |= {other for _ in knows for other in rng.sample(range(nodes), fanout)}
        rounds.append(count)
    mean = sum(rounds) / len(rounds)
    assert mean == pytest.approx(spread_rounds(nodes, fanout), rel=0.3)


def test_quantiles_lie_between_neighbours() -> None:
    assert quantile([1.0], 0.99) == 1.0
    assert quantile([1.0, 2.0], 0.5) == 1.5
    assert quantile([float(value) for value in range(101)], 0.99) == pytest.approx(99)
