"""A task names the input for which it waits, and the result that waits."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.language.check import check_query
from medusa.engine.objects.query import (
    Aggregate,
    AggregateCall,
    Box,
    Filter,
    Join,
    JoinKind,
    Query,
    Union,
)
from medusa.engine.objects.schema import BEGINNING, END, Field, FieldType, Schema
from medusa.engine.tasks.plan import Task, plan
from medusa.engine.tasks.waiting import Held, Waiting, cause_of, waiting
from medusa.engine.tasks.windows import needs

SCHEMA = (Field("k", FieldType.INT),)
SOURCES = {name: Schema(name, SCHEMA) for name in ("a", "b")}
COUNT = (AggregateCall("count", None, "n"),)


def task_of(*boxes: Box) -> Task:
    query = Query("q", boxes)
    *_, last = plan(query, SOURCES | check_query(query, SOURCES))
    return last


def window(source: str, size: int, advance: int) -> Aggregate:
    return Aggregate("w", source, "out", size, advance, (), COUNT)


JOIN: Final = Join("j", "a", "b", "out", JoinKind.LEFT, 9, 0, "true", (("k", "left.k"),))


@pytest.mark.parametrize(
    ("box", "inputs", "output", "found"),
    [
        (Union("u", ("a", "b"), "out"), {"a": 9, "b": 5}, 5, ("b", 5, Held.UNION, 9)),
        (JOIN, {"a": 3, "b": 8}, 3, ("a", 3, Held.JOIN, 8)),
        (JOIN, {"a": 3, "b": END}, 3, ("a", 3, Held.JOIN, END)),
        (JOIN, {"a": 8, "b": 8}, 8, ("a", 8, Held.NOTHING, BEGINNING)),
        (window("a", 60, 60), {"a": 70}, 70, ("a", 70, Held.WINDOW, 119)),
        (window("a", 60, 20), {"a": 79}, 79, ("a", 79, Held.WINDOW, 99)),
        (window("a", 60, 60), {"a": -1}, -1, ("a", -1, Held.WINDOW, 59)),
        (window("a", 60, 60), {"a": BEGINNING}, BEGINNING, ("a", BEGINNING, Held.NOTHING, None)),
        (Filter("f", "a", ("out",), ("k > 1",)), {"a": 7}, 7, ("a", 7, Held.NOTHING, None)),
        (window("a", 60, 60), {"a": 70}, 69, None),
        (JOIN, {"a": 8, "b": 9}, 7, None),
    ],
)
def test_a_task_names_the_input_and_what_waits_for_it(
    box: Box, inputs: dict[str, int], output: int, found: tuple[str, int, Held, int | None] | None
) -> None:
    made = waiting(task_of(box), output, inputs, 12.0)
    if found is None:
        assert made is None
        return
    stream, at, held, until = found
    assert made == Waiting(stream, at, 12.0, held, BEGINNING if until is None else until)


@given(st.integers(1, 40), st.integers(1, 50), st.integers(-100, 100))
def test_the_window_that_waits_is_the_next_one_whose_result_comes(
    size: int, advance: int, at: int
) -> None:
    task = task_of(window("a", size, advance))
    made = waiting(task, at, {"a": at}, 0.0)
    assert made is not None
    assert made.until > at
    assert needs(task, at, made.until) is not None, "its window closes there"
    assert made.until == at + 1 or needs(task, at, made.until - 1) is None, "and none before"


def test_the_cause_is_at_the_end_of_the_chain() -> None:
    counts = Waiting("panes", 40, 2.0, Held.WINDOW, 59)
    panes = Waiting("both", 40, 3.0, Held.WINDOW, 44)
    both = Waiting("conns", 40, 12.0, Held.UNION, 90)
    tasks = {"counts": counts, "panes": panes, "both": both, "busy": Waiting("counts", 39, 1.0)}
    assert cause_of("busy", tasks) == Waiting("conns", 40, 12.0, Held.WINDOW, 59)
    assert cause_of("both", tasks) == both
    assert cause_of("other", tasks) is None
    circle = {"x": Waiting("y", 1, 1.0), "y": Waiting("x", 1, 1.0)}
    assert cause_of("x", circle) is not None, "an answer of nonsense ends, too"
