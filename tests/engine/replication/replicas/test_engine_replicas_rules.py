"""The rules of a takeover, without a peer: when, from which boundary, and by whom."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.objects.definitions import StreamDefinition, StreamEntry
from medusa.engine.objects.query import Aggregate, AggregateCall, Box, Filter, Query
from medusa.engine.objects.schema import BEGINNING, END, Field, FieldType, Schema
from medusa.engine.operators.shared.step import Interval
from medusa.engine.replication.copies.positions import needed, reached
from medusa.engine.replication.replicas.primaries import preferred
from medusa.engine.replication.replicas.watch import (
    DOUBT_S,
    Ask,
    Detected,
    Doubt,
    Lag,
    SignOfLife,
    TakeOver,
    Tick,
    Watch,
)
from medusa.engine.streams.config import Timing
from medusa.engine.tasks.network import Network
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.windows import needs
from medusa.overlay.gossip.events import Health

TIMING = Timing()

# -- the watch -------------------------------------------------------------------------------------


@pytest.mark.parametrize("health", [Health.DEAD, Health.LEFT])
def test_a_dead_or_leaving_primary_is_succeeded_at_once(health: Health) -> None:
    assert [type(e) for e in Watch(0.0, 0.0, TIMING).handle(Detected(health), 0.1)] == [TakeOver]


@pytest.mark.parametrize("health", [Health.ALIVE, Health.SUSPECT])
def test_a_suspicion_is_not_enough(health: Health) -> None:
    assert Watch(0.0, 0.0, TIMING).handle(Detected(health), 0.1) == []


def test_a_silent_primary_is_doubted_then_asked_but_not_succeeded_without_a_bound() -> None:
    watch = Watch(0.0, 0.0, TIMING)
    assert watch.handle(Tick(), 1.0) == []
    assert watch.handle(Tick(), 2.0) == [Doubt()]
    assert watch.handle(Tick(), 5.1) == [Doubt(), Ask()]
    assert watch.handle(Tick(), 6.0) == [Doubt()]  # once every five seconds
    assert watch.handle(Tick(), 3600.0) == [Doubt(), Ask()]
    assert watch.handle(SignOfLife(), 3600.5) == []
    assert watch.handle(Tick(), 3601.0) == []


def test_a_restarted_secondary_asks_soon_whether_it_still_is_one() -> None:
    watch = Watch(0.0, 100.0, TIMING, resumed=True)
    assert watch.handle(Tick(), 100.0 + DOUBT_S) == []
    assert Ask() in watch.handle(Tick(), 100.1 + DOUBT_S)
    assert watch.silent
    assert Ask() not in watch.handle(Tick(), 100.2 + DOUBT_S)
    watch.handle(SignOfLife(), 103.0)
    assert not watch.silent
    assert Ask() not in watch.handle(Tick(), 103.0 + TIMING.ask_s)
    assert Ask() in watch.handle(Tick(), 103.1 + TIMING.ask_s)


@given(
    ours=st.lists(st.integers(0, 50), min_size=1, max_size=40).map(sorted),
    theirs=st.lists(st.integers(-1, 50), min_size=1, max_size=40).map(sorted),
)
def test_a_lead_lasts_since_we_had_tuples_that_the_other_peer_lacks(
    ours: list[int], theirs: list[int]
) -> None:
    lag, reached = Lag(), dict[int, float]()
    for now, (boundary, other) in enumerate(zip(ours, theirs, strict=False)):
        lag.note(boundary, float(now))
        reached.setdefault(boundary, float(now))
        since = [at for ours_then, at in reached.items() if ours_then > other]
        assert lag.over(other, float(now)) == (now - min(since) if since else 0.0)


def test_a_bound_is_the_longest_silence() -> None:
    watch = Watch(3.0, 0.0, TIMING)
    assert watch.handle(Tick(), 2.9) == [Doubt()]
    assert [type(e) for e in watch.handle(Tick(), 3.1)] == [TakeOver]


def test_a_primary_that_speaks_but_stalls_is_succeeded_after_the_bound() -> None:
    watch = Watch(2.0, 0.0, TIMING)
    assert watch.handle(SignOfLife(behind_us=5_000_000), 1.0) == []
    assert watch.handle(SignOfLife(behind_us=5_000_000), 2.0) == []
    assert [type(e) for e in watch.handle(SignOfLife(behind_us=6_000_000), 3.1)] == [TakeOver]


def test_a_primary_that_catches_up_in_between_is_not_taken_over() -> None:
    watch = Watch(2.0, 0.0, TIMING)
    for second in range(1, 20):
        assert watch.handle(SignOfLife(behind_us=5_000_000 * (second % 2)), float(second)) == []


@given(
    st.lists(st.tuples(st.floats(0.0, 1.0), st.sampled_from(["heard", "tick"])), max_size=60),
    st.sampled_from([0.0, 2.0, 10.0]),
)
def test_a_primary_with_frequent_signs_of_life_is_never_succeeded(
    steps: Sequence[tuple[float, str]], bound_s: float
) -> None:
    watch, now, heard_at = Watch(bound_s, 0.0, TIMING), 0.0, 0.0
    for pause, kind in steps:
        now += pause
        if kind == "heard" or now - heard_at > 1.4:
            heard_at = now
            effects = watch.handle(SignOfLife(), now)
        else:
            effects = watch.handle(Tick(), now)
        assert not [e for e in effects if isinstance(e, TakeOver)]


# -- positions -------------------------------------------------------------------------------------

SCHEMA = Schema("medusa://mit.edu/v", (Field("t", FieldType.LONG), Field("v", FieldType.INT)), "t")


def name(path: str) -> str:
    return f"medusa://mit.edu/{path}"


def chain(sizes: Sequence[int]) -> tuple[Task, ...]:
    """Return windows over windows; 0: a filter."""
    boxes: list[Box] = []
    stream = name("s0")
    for number, size in enumerate(sizes, 1):
        made = name(f"s{number}")
        if size:
            count = AggregateCall("count", None, "n")
            boxes.append(Aggregate(f"b{number}", stream, made, size, size, (), (count,)))
        else:
            boxes.append(Filter(f"b{number}", stream, (made,), ("true",)))
        stream = made
    outputs = tuple(name(f"s{number}") for number in range(1, len(sizes)))
    entry = StreamEntry(StreamDefinition(name("s0"), SCHEMA.name), SCHEMA)
    return Network(Query(name("q"), tuple(boxes), outputs), {name("s0"): entry}).tasks()


SIZES = st.lists(st.sampled_from([0, 1, 7, 100]), min_size=1, max_size=4)


@given(SIZES, st.integers(0, 10_000))
def test_the_needed_boundaries_cover_all_that_the_tasks_read(sizes: list[int], safe: int) -> None:
    """The oracle is the intervals that the runners ask for."""
    tasks = chain(sizes)
    need = needed(tasks, {task.output: safe for task in tasks})
    for task in tasks:
        assert need[task.output] <= safe
        interval = needs(task, need[task.output], need[task.output] + 1_000_000)
        assert isinstance(interval, Interval)
        for stream in task.inputs:
            assert interval.lo >= need[stream]


@given(SIZES)
def test_the_ends_of_time_stand_for_themselves(sizes: list[int]) -> None:
    tasks = chain(sizes)
    for end in (BEGINNING, END):
        assert set(needed(tasks, {task.output: end for task in tasks}).values()) == {end}
        assert set(reached(tasks, {name("s0"): end}).values()) == {end}


@given(SIZES, st.integers(0, 10_000))
def test_after_amnesia_every_window_is_whole(sizes: list[int], at: int) -> None:
    tasks = chain(sizes)
    boundaries = {name("s0"): at} | reached(tasks, {name("s0"): at})
    for task in tasks:
        interval = needs(task, boundaries[task.output], boundaries[task.output] + 1_000_000)
        assert interval is not None
        assert all(interval.lo >= boundaries[stream] for stream in task.inputs)


# -- choices ---------------------------------------------------------------------------------------


PEERS = [bytes([number]) * 20 for number in range(1, 9)]


def test_the_requested_peer_is_preferred_then_peers_with_room() -> None:
    asked = PEERS[3]
    busy = set(PEERS[:4])
    order = preferred("q", PEERS, asked.hex(), busy.__contains__)
    assert order[0] == asked
    assert set(order[1:5]) == set(PEERS[4:])
    assert sorted(order) == PEERS


def test_secondaries_spread_and_stay_when_a_peer_leaves() -> None:
    def first(query: int, peers: Sequence[bytes]) -> bytes:
        return preferred(f"q{query}", peers, "", lambda _: False)[0]

    chosen = [first(query, PEERS) for query in range(400)]
    assert all(25 <= chosen.count(peer) <= 85 for peer in PEERS)  # 50 connections each, on average
    left = PEERS[:-1]
    moved = [q for q in range(400) if first(q, left) != chosen[q]]
    assert all(chosen[q] == PEERS[-1] for q in moved)
