from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.objects.schema import BEGINNING, END, Schema
from medusa.engine.operators.aggregate.step import AggregateStep
from medusa.engine.operators.filter import FilterStep
from medusa.engine.operators.shared.step import Interval, Step
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.windows import horizon_us, needs


def task(*steps: Step) -> Task:
    schema = Schema("s", ())
    return Task("t", "q", ("s",), steps, "t", (schema,), schema, frozenset())


def windowed(size: int, advance: int) -> Task:
    return task(AggregateStep(size, advance, (), ()))


spans = st.tuples(st.integers(1, 40), st.integers(1, 40)).map(lambda s: (max(s), min(s)))


@given(spans, st.integers(-200, 200), st.integers(0, 100))
def test_reads_exactly_the_windows_that_close(
    span: tuple[int, int], after: int, width: int
) -> None:
    size, advance = span
    upto = after + width
    closing = [k * advance for k in range(-500, 500) if after < k * advance + size - 1 <= upto]
    wanted = Interval(closing[0] - 1, closing[-1] + size - 1) if closing else None
    found = needs(windowed(size, advance), after, upto)
    assert found == wanted
    if found is not None:
        assert found.lo >= after - horizon_us(windowed(size, advance))


@given(spans, st.integers(-200, 200), st.integers(0, 100), st.integers(-200, 300))
def test_nothing_is_asked_for_before_the_first_tuple(
    span: tuple[int, int], after: int, width: int, first: int
) -> None:
    size, advance = span
    upto = after + width
    found = needs(windowed(size, advance), after, upto, first)
    closing = [
        k * advance
        for k in range(-900, 900)
        if after < k * advance + size - 1 <= upto and k * advance + size > first
    ]
    if closing:
        assert found == Interval(max(closing[0], first) - 1, closing[-1] + size - 1)
    else:
        assert found is None


def test_tumbling_minute() -> None:
    minute = windowed(60, 60)
    assert needs(minute, 0, 58) is None
    assert needs(minute, 0, 59) == Interval(-1, 59)
    assert needs(minute, 59, 59) is None
    assert needs(minute, 59, 118) is None
    assert needs(minute, 59, 180) == Interval(59, 179)
    assert needs(minute, -61, -1) == Interval(-61, -1)


def test_limits_stay_within_int64() -> None:
    for size, advance in ((60, 60), (60, 7), (1, 1)):
        each = windowed(size, advance)
        assert needs(each, BEGINNING, END) == Interval(BEGINNING, END)
        assert needs(each, END, END) is None
        assert needs(each, BEGINNING, BEGINNING) is None
        last = needs(each, 1000, END, 5)
        assert last is not None
        assert last.hi == END
        assert 1000 - size < last.lo <= 1000
        late = needs(each, BEGINNING, END, END - 1)
        assert late == Interval(END - 2, END)


def test_at_the_end_a_window_that_is_not_over_closes_too() -> None:
    assert needs(windowed(60, 60), 59, END, 3) == Interval(59, END)


def test_stateless_tasks_read_their_epoch() -> None:
    plain = task(FilterStep((), 0))
    assert needs(plain, BEGINNING, 5) == Interval(BEGINNING, 5)
    assert needs(plain, 5, 9) == Interval(5, 9)
    assert needs(plain, 5, 9, 8) == Interval(7, 9)
    assert needs(plain, 5, 9, 10) is None
    assert needs(plain, 5, 5) is None
    assert horizon_us(plain) == 0
