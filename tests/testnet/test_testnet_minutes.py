"""The bench of moves: its posts, and the stalls in a consumer's arrivals."""

from __future__ import annotations

import pyarrow as pa
import pytest
import trio

from medusa.testnet.bench.__main__ import met
from medusa.testnet.bench.minutes import (
    EPOCH_S,
    MINUTE_S,
    MINUTE_US,
    MOVE_AT,
    Act,
    Minutes,
    Run,
    Schedule,
    answers_of,
)
from medusa.testnet.bench.moving import against, stalls

ROWS = 20_000
MINUTES = Minutes.make(ROWS)


@pytest.mark.parametrize("of", [1, 7, 60])
def test_the_parts_of_a_minute_are_the_minute(of: int) -> None:
    parts = [MINUTES.part(3, of, number) for number in range(of)]
    whole = pa.concat_tables(parts)
    times = whole.column("time_us").to_pylist()
    assert len(times) == ROWS
    assert times == sorted(times)
    assert times[0] >= 3 * MINUTE_US
    assert times[-1] < 4 * MINUTE_US
    step = MINUTE_US // ROWS
    for number, part in enumerate(parts):
        low, *_, high = part.column("time_us").to_pylist()
        assert abs(low - (3 * of + number) * MINUTE_US / of) <= step
        assert high - low <= MINUTE_US / of


def test_every_minute_has_the_same_rows_and_answers_of_its_own() -> None:
    assert Minutes.make(ROWS).first.equals(MINUTES.first)
    first, third = MINUTES.answers(0), MINUTES.answers(2)
    assert [row[1:] for row in first] == [row[1:] for row in third]
    assert {row[0] for row in third} == {2 * MINUTE_US}
    both = pa.concat_tables([MINUTES.part(2, 1, 0), MINUTES.part(0, 1, 0)])
    assert answers_of(both) == sorted(first + third)
    assert sum(conns for _, _, conns, _, _ in first) == ROWS
    assert any(ports < conns for _, _, conns, ports, _ in first), "distinct is not just a count"


def run_with(gaps: dict[int, float], acts: list[Act], began: float = 1_000.0) -> Run:
    """Return a run with an epoch a second, and one longer gap at the end of some minutes."""
    seen = [began]
    last = began + (len(acts) + 1) * MINUTE_S
    due = {began + (k + MOVE_AT) * MINUTE_S: gap for k, gap in gaps.items()}
    while seen[-1] < last:
        reached = [at for at in due if at <= seen[-1] + EPOCH_S]
        seen.append(seen[-1] + (due.pop(reached[0]) if reached else EPOCH_S))
    return Run(began, seen, acts)


ACTS = [Act.WARM_UP, Act.OUT, Act.HOME, Act.QUIET, Act.OUT, Act.HOME, Act.QUIET]


def test_a_stall_is_the_excess_of_a_gap_over_quiet_minutes() -> None:
    gaps = {0: 5.0, 1: 3.5, 2: 2.0, 3: 1.5, 4: 2.5, 5: 1.25, 6: 1.5}
    run = run_with(gaps, ACTS)
    assert run.gap_s == EPOCH_S
    assert run.longest(Act.QUIET) == [1.5, 1.5]
    assert run.stalls(Act.OUT) == [2.0, 1.0]
    assert run.stalls(Act.HOME) == [0.5, 0.0], "none is negative"


def test_a_gap_that_begins_before_the_move_counts() -> None:
    began = 0.0
    at = MOVE_AT * MINUTE_S
    seen = [at - 1.5, at - 0.5, at + 3.0, at + 4.0, at + 4.5, at + 6.0, at + 9.0]
    run = Run(began, seen, [Act.OUT])
    assert run.longest(Act.OUT) == [3.5]


async def test_moves_begin_at_every_phase_of_an_epoch(autojump_clock: object) -> None:
    schedule = Schedule(trio.current_time())
    phases = []
    for minute in range(10):
        await schedule.until_move(minute)
        began = schedule.began + (minute + MOVE_AT) * MINUTE_S
        phases.append((trio.current_time() - began) / EPOCH_S)
        await schedule.until_seen(minute)
    assert all(0 <= phase < 1 for phase in phases)
    assert max(b - a for a, b in zip(sorted(phases), sorted(phases)[1:], strict=False)) < 0.25


def test_entries_compare_with_the_reference_and_with_an_epoch() -> None:
    ours = run_with({1: 2.5, 2: 1.25, 3: 1.0, 4: 2.5, 5: 1.25, 6: 1.0}, ACTS)
    theirs = run_with({0: 4.0, 1: 1.0}, [Act.OUT, Act.QUIET])
    compared, (out, home) = against(ours, theirs), stalls(ours)
    assert (compared["value"], compared["reference"], compared["ratio"]) == (1500.0, 3000.0, 0.5)
    assert (out["value"], out["unit"], home["value"]) == (1.5, "epochs", 0.25)
    assert all(met(entry) for entry in (compared, out, home))
    slow = run_with({1: 4.5, 2: 1.0, 3: 1.0, 4: 4.5, 5: 1.0, 6: 1.0}, ACTS)
    assert [met(entry) for entry in (against(slow, theirs), *stalls(slow))] == [False, False, True]
