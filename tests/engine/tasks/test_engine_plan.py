from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_networks import SOURCES, cuts, queries, rows

from medusa.engine.language.check import check_query
from medusa.engine.objects.query import (
    Aggregate,
    AggregateCall,
    Box,
    Filter,
    Map,
    Query,
    Union,
    streams_written,
)
from medusa.engine.objects.schema import BEGINNING
from medusa.engine.operators.aggregate.step import AggregateStep
from medusa.engine.operators.filter import FilterStep
from medusa.engine.operators.map import MapStep
from medusa.engine.reference.interpreter import run_query, run_task
from medusa.engine.tasks.plan import plan
from medusa.engine.tasks.windows import horizon_us, needs

COUNT = (AggregateCall("count", None, "n"),)


def window(name: str, source: str, target: str, groups: tuple[str, ...] = ()) -> Aggregate:
    return Aggregate(name, source, target, 10, 10, groups, COUNT)


def planned(
    *boxes: Box, keep: frozenset[str] = frozenset(), outputs: tuple[str, ...] = ()
) -> dict[str, Any]:
    query = Query("q", boxes, outputs)
    return {task.name: task for task in plan(query, check_query(query, SOURCES), keep)}


@settings(max_examples=250)
@given(queries(), rows(), rows(), cuts, st.data())
def test_tasks_over_any_cut_give_what_the_network_gives(
    query: Query,
    first: list[dict[str, Any]],
    second: list[dict[str, Any]],
    cut: list[int],
    data: st.DataObject,
) -> None:
    schemas = check_query(query, SOURCES)
    keep = data.draw(st.frozensets(st.sampled_from(sorted(streams_written(query)))))
    expected = run_query(query, {"s0": first, "s1": second}, schemas)
    for stream, found in expected.items():
        required = [
            field.name for field in schemas.get(stream, SOURCES["s0"]).fields if not field.nullable
        ]
        assert all(row[name] is not None for row in found for name in required)
    logs = {"s0": first, "s1": second}
    tasks = plan(query, schemas, keep)
    for task in tasks:
        assert sum(isinstance(step, AggregateStep) for step in task.steps) <= 1
        assert task.steps or len(task.inputs) > 1
        made: list[dict[str, Any]] = []
        after = BEGINNING
        stimes = [row["stime"] for name in task.inputs for row in logs[name]]
        least = min(stimes, default=None)
        for upto in cut:
            interval = needs(task, after, upto, least)
            if interval is not None:
                assert after == BEGINNING or interval.lo >= after - horizon_us(task)
                made += run_task(task, logs, after, upto, interval)
            after = upto
        logs[task.output] = made
        assert made == expected[task.output]
    read = {stream for box in query.boxes for stream in box.inputs}
    assert (streams_written(query) - read) | keep <= {task.name for task in tasks}
    assert [task.name for task in tasks] == [task.output for task in tasks]


@settings(max_examples=50)
@given(queries())
def test_tasks_come_after_what_they_read_and_cover_the_query(query: Query) -> None:
    tasks = plan(query, check_query(query, SOURCES))
    ready = set(SOURCES)
    for task in tasks:
        assert set(task.inputs) <= ready
        assert task.source_inputs == set(task.inputs) & SOURCES.keys()
        ready.add(task.output)


def test_stateless_boxes_fuse_around_one_aggregate() -> None:
    tasks = planned(
        Filter("f", "s0", ("x",), ("a > 1",)),
        Map("m", "x", "y", (("k", "c"),)),
        window("w", "y", "z", ("k",)),
        Filter("g", "z", ("out",), ("n > 1",)),
    )
    assert list(tasks) == ["out"]
    kinds = [type(step) for step in tasks["out"].steps]
    assert kinds == [FilterStep, MapStep, AggregateStep, FilterStep]
    assert tasks["out"].source_inputs == {"s0"}
    assert horizon_us(tasks["out"]) == 9


def test_cuts_between_aggregates_at_fan_outs_unions_and_ports() -> None:
    tasks = planned(
        window("w1", "s0", "x"),
        window("w2", "x", "y"),
        Filter("ports", "y", ("p", "q"), ("n > 1",), pass_on_false=True),
        Filter("more", "p", ("r",), ("n > 2",)),
        Union("u", ("q", "r"), "out"),
    )
    assert list(tasks) == ["x", "y", "q", "r", "out"]
    assert tasks["q"].inputs == tasks["r"].inputs == ("y",)
    assert [step.port for step in tasks["q"].steps] == [1]
    assert [step.port for step in tasks["r"].steps] == [0, 0]
    assert tasks["out"].inputs == ("q", "r")
    assert tasks["out"].steps == ()


@pytest.mark.parametrize("how", ["keep", "outputs"])
def test_streams_asked_for_are_written_down(how: str) -> None:
    boxes = (Map("m", "s0", "x", (("k", "c"),)), Filter("f", "x", ("y",), ("k is null",)))
    if how == "keep":
        tasks = planned(*boxes, keep=frozenset({"x"}))
    else:
        tasks = planned(*boxes, outputs=("x",))
    assert list(tasks) == ["x", "y"]


def test_union_of_one_stream_orders_like_any_derived_stream() -> None:
    tasks = planned(Union("u", ("s0",), "x"), window("w", "x", "y"))
    assert [type(step) for step in tasks["y"].steps] == [MapStep, AggregateStep]


def test_sources_are_distinguished_from_streams_of_other_queries() -> None:
    query = Query("q", (Union("u", ("s0", "s1"), "x"),))
    (task,) = plan(query, check_query(query, SOURCES), sources=frozenset({"s1", "other"}))
    assert task.source_inputs == {"s1"}
