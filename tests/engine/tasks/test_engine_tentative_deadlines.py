"""The moments at which results are due although an input is missing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.objects.schema import END
from medusa.engine.tasks.fork import AHEAD, ALPHA, GRACE, Deadlines

X = 2.0
LIVE = 0.5
LATER = 10.0
SECOND = 1_000_000


def two(covered: int = 0) -> Deadlines:
    """Return two inputs that have both reached 0 at time 0."""
    deadlines = Deadlines(("a", "b"), X, LIVE)
    for name in ("a", "b"):
        deadlines.advanced(name, 0, 0.0, tentative=False)
    deadlines.covered(covered)
    return deadlines


def test_tuples_of_a_stable_input_wait_for_most_of_the_bound() -> None:
    deadlines = two()
    deadlines.advanced("a", SECOND, 1.0, tentative=False)
    assert deadlines.due(1.0 + ALPHA * X - 0.01) is None
    assert deadlines.due(1.0 + ALPHA * X) == SECOND
    assert deadlines.next_at() == 1.0 + ALPHA * X


def test_nothing_is_due_once_there_are_results() -> None:
    deadlines = two()
    deadlines.advanced("a", SECOND, 1.0, tentative=False)
    deadlines.covered(SECOND)
    assert deadlines.due(100.0) is None
    assert deadlines.next_at() == float("inf")


def test_tentative_tuples_have_waited_already_and_wait_only_for_a_moment() -> None:
    deadlines = two()
    deadlines.advanced("a", SECOND, LATER, tentative=True)
    assert deadlines.due(LATER) is None  # the other input may be tentative as well, and come now
    assert deadlines.due(LATER + GRACE * X) == SECOND


def test_tuples_tentative_at_every_input_are_due_at_once() -> None:
    deadlines = two()
    deadlines.advanced("a", SECOND, LATER, tentative=True)
    deadlines.advanced("b", SECOND, LATER + 0.01, tentative=True)
    assert deadlines.due(LATER + 0.01) == SECOND


def test_tentative_tuples_wait_for_an_input_that_comes_at_its_pace() -> None:
    deadlines = two()
    deadlines.advanced("b", SECOND // 2, LATER, tentative=False)
    deadlines.advanced("a", SECOND, LATER + 0.1, tentative=True)
    assert deadlines.due(LATER + LIVE - 0.01) is None
    assert deadlines.due(LATER + LIVE) == SECOND
    deadlines.advanced("b", SECOND, LATER + 0.2, tentative=False)
    assert deadlines.due(LATER + 0.2) == SECOND


def test_a_single_input_that_is_tentative_is_never_waited_for() -> None:
    deadlines = Deadlines(("a",), X, LIVE)
    deadlines.advanced("a", 0, 0.0, tentative=False)
    deadlines.covered(0)
    deadlines.advanced("a", SECOND, 0.1, tentative=True)
    assert deadlines.due(0.1) == SECOND


def test_epochs_due_almost_at_the_same_time_go_together() -> None:
    deadlines = two()
    deadlines.advanced("a", SECOND, 1.0, tentative=False)
    deadlines.advanced("b", SECOND + 1, 1.0 + AHEAD * X / 2, tentative=False)
    assert deadlines.due(1.0 + ALPHA * X) == SECOND + 1


def test_an_input_that_has_ended_makes_nothing_due_and_is_waited_for_no_more() -> None:
    deadlines = two()
    deadlines.advanced("b", END, 1.0, tentative=False)
    assert deadlines.next_at() == float("inf")
    deadlines.advanced("a", SECOND, LATER, tentative=True)
    assert deadlines.due(LATER) == SECOND


arrivals = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]), st.floats(0.0, 0.7), st.integers(1, SECOND), st.booleans()
    ),
    max_size=60,
)


@given(arrivals)
def test_no_stable_arrival_waits_beyond_its_share_and_none_is_hurried(
    steps: list[tuple[str, float, int, bool]],
) -> None:
    """A fork drives it: every arrival is covered `ALPHA` of the bound after it came; stable ones
    alone are never covered much earlier."""
    deadlines = Deadlines(("a", "b", "c"), X, LIVE)
    came: dict[int, float] = {}
    now, covered, reached, stable_only = 0.0, 0, dict.fromkeys("abc", 0), True

    def run_until(until: float) -> None:
        nonlocal covered, now
        while (at := deadlines.next_at()) <= until:
            now = at = max(at, now)
            upto = deadlines.due(at)
            assert upto is not None
            assert upto > covered
            first = min(came.pop(boundary) for boundary in list(came) if boundary <= upto)
            assert at <= first + max(ALPHA * X, LIVE + GRACE * X) + 0.01
            assert not stable_only or at >= first + (ALPHA - AHEAD) * X - 0.01
            covered = upto
            deadlines.covered(upto)

    for name, wait, step, tentative in steps:
        until = now + wait
        run_until(until)
        now = until
        stable_only = stable_only and not tentative
        boundary = reached[name] + step
        reached[name] = boundary
        deadlines.advanced(name, boundary, now, tentative=tentative)
        if boundary > covered:
            came.setdefault(boundary, now)
    run_until(now + 100.0)
    assert covered >= max(reached.values(), default=0)
