"""Which windows are folded from panes, and how far back their tasks read."""

from __future__ import annotations

import msgspec
import pytest
from field_texts import fields_of
from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.expressions.aggregates import call_of
from medusa.engine.language.check import MAX_BOXES, check_query
from medusa.engine.language.folding import with_panes
from medusa.engine.objects.definitions import ANY, Policy, StreamDefinition, StreamEntry
from medusa.engine.objects.query import Aggregate, Filter, Query
from medusa.engine.objects.schema import BEGINNING, Schema
from medusa.engine.operators.aggregate.step import AggregateStep, Form
from medusa.engine.operators.shared.panes import pane_us, panes_name
from medusa.engine.spark.training import every_function
from medusa.engine.tasks.explaining import explain
from medusa.engine.tasks.network import Network
from medusa.engine.tasks.plan import Task, plan
from medusa.engine.tasks.windows import first_whole, horizon_us, needed_after, whole_after
from medusa.overlay.errors import InvalidInputError

S = 1_000_000
HOUR, DAY = 3_600 * S, 86_400 * S

SOURCE = Schema("medusa://mit.edu/s", fields_of("src string(20), n long?, x double"))
EVERY = tuple(
    msgspec.structs.replace(each, output=f"of_{each.output}") for each in every_function("n")
)


def query(size: int, advance: int, name: str = "out") -> Query:
    output = f"medusa://mit.edu/{name}"
    return Query(
        "medusa://mit.edu/q", (Aggregate("w", SOURCE.name, output, size, advance, ("src",), EVERY),)
    )


def tasks_of(query: Query) -> dict[str, Task]:
    made = plan(query, check_query(query, {SOURCE.name: SOURCE}))
    return {task.name: task for task in made}


@pytest.mark.parametrize(
    ("size", "advance", "width"),
    [
        (10 * S, 10 * S, None),  # a short window without overlap
        (60 * S, 60 * S, None),
        (60 * S, 30 * S, None),
        (60 * S, 20 * S, 10 * S),
        (600 * S, 600 * S, 10 * S),
        (600 * S, 10 * S, 10 * S),
        (HOUR, 7 * S, S),
        (3 * S, S, S),
        (DAY, 60 * S, 60 * S),
        (DAY, DAY, 60 * S),
        (DAY, 90 * S, 45 * S),
        (7 * DAY, DAY, 600 * S),
        (366 * DAY, 366 * DAY, DAY),
        (30, 10, 10),
        (600 * S + 1, 600 * S + 1, None),  # no useful pane width divides the sizes
        (90_000, 1, 1),
        (200_000, 1, None),  # there would be nearly as many panes as tuples
    ],
)
def test_windows_that_overlap_or_are_long_are_folded(
    size: int, advance: int, width: int | None
) -> None:
    assert pane_us(size, advance) == width


@given(st.integers(1, 400), st.integers(1, 400))
def test_panes_divide_size_and_advance(parts: int, advance: int) -> None:
    size = parts * advance
    width = pane_us(size, advance)
    assert width is None or (size % width == 0 and advance % width == 0 and width < size)


def test_the_peer_decides_the_panes_of_a_query() -> None:
    decided = with_panes(query(600 * S, 10 * S), MAX_BOXES)
    assert decided.panes == (("w", 10 * S),)
    assert with_panes(decided, MAX_BOXES) == decided
    assert with_panes(query(10 * S, 10 * S), MAX_BOXES).panes == ()
    assert with_panes(query(600 * S, 10 * S, "x" * 230), MAX_BOXES).panes == (), "no name is left"
    assert with_panes(query(600 * S, 10 * S), 1).panes == (), "no room for another task"


def aggregates_of(task: Task) -> list[AggregateStep]:
    return [step for step in task.steps if isinstance(step, AggregateStep)]


def test_a_folded_window_is_two_tasks_with_the_same_result() -> None:
    plain, folded = query(600 * S, 10 * S), with_panes(query(600 * S, 10 * S), MAX_BOXES)
    tasks = tasks_of(folded)
    assert [step.form for task in tasks.values() for step in aggregates_of(task)] == [
        Form.PARTIAL,
        Form.COMBINED,
    ]
    ((output, before),) = tasks_of(plain).items()
    assert tasks[output].output_schema == before.output_schema
    assert tasks[output].inputs == (panes_name(output),)
    assert tasks[panes_name(output)].inputs == before.inputs
    # the partial results of all functions except the set, and a row for each value of the set
    names = [field.name for field in tasks[panes_name(output)].output_schema.fields]
    assert names[0] == "src"
    assert len(names) == len(set(names))


def test_boxes_before_a_window_join_its_panes_and_boxes_after_it_stay() -> None:
    output = "medusa://mit.edu/busy"
    network = Query(
        "medusa://mit.edu/q",
        (
            Filter("some", SOURCE.name, (f"{output}/some",), ("n > 3",)),
            Aggregate("w", f"{output}/some", f"{output}/all", 600 * S, 10 * S, (), EVERY),
            Filter("busy", f"{output}/all", (output,), ("of_count > 3",)),
        ),
        panes=(("w", 10 * S),),
    )
    tasks = tasks_of(network)
    assert list(tasks) == [f"{output}/all/panes", output]
    assert [len(task.steps) for task in tasks.values()] == [2, 2]


def test_the_input_is_kept_for_a_pane_and_the_panes_for_a_window() -> None:
    folded = tasks_of(with_panes(query(600 * S, 10 * S), MAX_BOXES))
    panes, result = folded.values()
    assert horizon_us(panes) == 10 * S - 1
    assert horizon_us(result) == 590 * S
    (plain,) = tasks_of(query(600 * S, 10 * S)).values()
    assert horizon_us(plain) == 600 * S - 1
    assert needed_after(panes, HOUR) == HOUR - 10 * S + 1


@given(
    width=st.integers(1, 20),
    advance=st.integers(1, 6),
    size=st.integers(1, 6),
    begins=st.integers(-200, 200),
)
def test_a_folded_window_is_whole_where_one_of_tuples_is(
    width: int, advance: int, size: int, begins: int
) -> None:
    box = query(width * advance * size, width * advance)
    (plain,) = tasks_of(box).values()
    folded = Query(box.name, box.boxes, panes=(("w", width),))
    panes, result = tasks_of(folded).values()
    assert whole_after(result, whole_after(panes, begins)) == whole_after(plain, begins)
    assert plain.windows is not None
    assert result.windows is not None
    begun = whole_after(panes, begins)
    assert first_whole(result.windows, begun) == first_whole(plain.windows, begins)
    assert whole_after(result, BEGINNING) == BEGINNING


@pytest.mark.parametrize(
    ("panes", "reason"),
    [
        ((("w", 7 * S),), "must be multiples of that"),
        ((("w", 0),), "must be multiples of that"),
        ((("v", S),), "no aggregate"),
        ((("w", S), ("w", 10 * S)), "named twice"),
    ],
)
def test_panes_that_do_not_fit_are_refused(panes: tuple[tuple[str, int], ...], reason: str) -> None:
    box = query(600 * S, 10 * S)
    with pytest.raises(InvalidInputError, match=reason):
        check_query(Query(box.name, box.boxes, panes=panes), {SOURCE.name: SOURCE})


def test_panes_have_the_readers_of_the_input() -> None:
    """Readers that the output declares may read the output alone."""
    box = with_panes(query(600 * S, 10 * S), MAX_BOXES)
    given = StreamDefinition(
        SOURCE.name, SOURCE.name, readers=("utah.edu",), declassify=("mit.edu",)
    )
    output = "medusa://mit.edu/out"
    network = Network(box, {SOURCE.name: StreamEntry(given, SOURCE)}, readers={output: (ANY,)})
    entries = {
        task.output: network.entry_of(task.output, task.output_schema, "")
        for task in network.tasks()
    }
    assert entries[output].stream.label == ()
    policy = Policy(SOURCE.name, ("utah.edu",), ("mit.edu",))
    assert entries[panes_name(output)].stream.label == (policy,)


def test_the_plan_is_explained() -> None:
    box = with_panes(query(600 * S, 10 * S), MAX_BOXES)
    entry = StreamEntry(StreamDefinition(SOURCE.name, SOURCE.name), SOURCE)
    found = explain(Network(box, {SOURCE.name: entry}))
    assert [task.keeps_s for task in found.tasks] == [9.999999, 590.0]
    functions = ", ".join(f"{call_of(each)} as {each.output}" for each in EVERY)
    assert found.tasks[0].steps == (f"w: partial results of panes of 10 s by src: {functions}",)
    windows = "w: windows of 600 s every 10 s by src, of 60 panes each"
    assert found.tasks[1].steps == (f"{windows}: {functions}",)
    assert found.windows[0].pane_s == 10.0
    assert "not in each of 60 windows" in found.windows[0].why
    plain = explain(Network(query(10 * S, 10 * S), {SOURCE.name: entry}))
    assert plain.windows[0].pane_s is None
    assert plain.windows[0].why.startswith("made of its tuples: panes pay")
    fine = explain(Network(query(6_000 * S, 10 * S + 1_000), {SOURCE.name: entry}))
    assert "no common divisor that makes 100,000 panes or fewer" in fine.windows[0].why
    late = explain(Network(query(600 * S, 10 * S), {SOURCE.name: entry}), since=5)
    assert late.since == 5
    assert "decided when the query was created" in late.windows[0].why
