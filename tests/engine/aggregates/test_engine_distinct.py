"""The sketch of `approx_count_distinct`: hashes, estimates, and rows of panes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

import pytest
from field_texts import fields_of
from reference_sketch import counted, improved_raw

from medusa.engine.aggregates.distinct import APPROX_COUNT_DISTINCT, RANK_BITS, REGISTERS, place
from medusa.engine.language.check import check_query
from medusa.engine.objects.query import Aggregate, AggregateCall, Query
from medusa.engine.objects.schema import END, FieldType, Schema
from medusa.engine.operators.aggregate.step import AggregateStep, Form, panes_fields
from medusa.engine.operators.shared.step import Interval
from medusa.engine.reference.interpreter import run_task
from medusa.engine.tasks.plan import Task, plan

OUTPUT = "medusa://mit.edu/out"
STANDARD_ERROR = 1.04 / math.sqrt(REGISTERS)
F = FieldType
SOURCE = Schema("s", fields_of("g int?, n long?, s string?, x double?"))


def estimate(ranks: dict[int, int]) -> object:
    return APPROX_COUNT_DISTINCT.of([*ranks.items()])


def merged(places: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The greatest rank of each register."""
    found: dict[int, int] = {}
    for register, rank in places:
        found[register] = max(rank, found.get(register, 0))
    return found


def test_equal_values_of_all_widths_have_one_place() -> None:
    assert place(1) == place(True)
    assert place(0.0) == place(-0.0)
    assert place(math.nan) == place(-math.nan) == place(math.inf - math.inf)
    assert place("") != place("0") != place(0)
    register, rank = 0x9ED50FD59358D232 >> 52, 2  # the hash of the long 1 ends in 0010
    assert place(1) == (register, rank)


@pytest.mark.parametrize("n", [0, 1, 2, 10, 100, 1_000, 4_096, 10_000, 20_000, 50_000])
def test_the_estimate_is_as_good_as_promised(n: int) -> None:
    for values in (range(n), [f"10.0.{each // 256}.{each % 256}" for each in range(n)]):
        found = estimate(merged(map(place, values)))
        assert abs(found - n) <= 3 * STANDARD_ERROR * n
        assert found == counted(list(values)), "as the papers have it"


def test_small_sets_are_all_but_exact() -> None:
    for n in range(60):
        assert abs(estimate(merged(place(k * 977) for k in range(n))) - n) <= 2


def test_any_registers_give_what_the_paper_gives() -> None:
    """The sum has enough terms for every number of registers without a rank, and is exact."""
    rng = random.Random(7)
    for n in (*range(40), *range(40, REGISTERS, 23), REGISTERS - 1, REGISTERS):
        ranks = {k: min(1 + int(rng.expovariate(0.6)), 1 + RANK_BITS) for k in range(n)}
        assert estimate(ranks) == improved_raw([ranks.get(k, 0) for k in range(REGISTERS)])
    assert estimate(dict.fromkeys(range(REGISTERS), 1 + RANK_BITS)) > 10**15


def test_the_estimate_does_not_depend_on_order_and_parts() -> None:
    rng = random.Random(3)
    values = [rng.randrange(3_000) for _ in range(5_000)]
    expected = estimate(merged(map(place, values)))
    for _ in range(5):
        rng.shuffle(values)
        at = rng.randrange(len(values))
        parts = [merged(map(place, values[:at])), merged(map(place, values[at:]))]
        assert estimate(merged(pair for part in parts for pair in part.items())) == expected


def tasks(functions: tuple[AggregateCall, ...], pane: int | None = 10) -> list[Task]:
    box = Aggregate("w", "s", OUTPUT, 60, 20, ("g",), functions)
    query = Query("q", (box,), panes=() if pane is None else (("w", pane),))
    return list(plan(query, check_query(query, {"s": SOURCE})))


def approximate(argument: str, output: str) -> AggregateCall:
    return AggregateCall("approx_count_distinct", argument, output)


def test_a_pane_has_a_row_for_each_register() -> None:
    partial, combined = tasks((approximate("n", "a"), AggregateCall("count", None, "c")))
    (step,) = partial.steps
    assert isinstance(step, AggregateStep)
    assert step.form is Form.PARTIAL
    assert [(each.name, each.type) for each in panes_fields(step)] == [
        ("g", F.INT),
        ("pv0", F.SHORT),
        ("pr0", F.BYTE),
        ("p1", F.LONG),
        ("pformer", F.BOOL),
    ]
    rows = [{"stime": 0, "g": 1, "n": n % 20_000, "seq": n} for n in range(25_000)]
    panes = run_task(partial, {"s": rows}, -1, 9, Interval(-1, 9))
    assert 4_000 < len(panes) <= REGISTERS
    (found,) = run_task(combined, {partial.output: panes}, 40, 59, Interval(-1, 59))
    assert found["c"] == 25_000
    assert abs(found["a"] / 20_000 - 1) <= 3 * STANDARD_ERROR


def test_sketches_of_one_argument_are_one() -> None:
    """Several arguments, and the exact set beside the sketch, have parts of their own."""
    partial, _ = tasks((approximate("n", "a"), approximate("n", "b")))
    (step,) = partial.steps
    assert isinstance(step, AggregateStep)
    assert [each.name for each in panes_fields(step)] == ["g", "pv0", "pr0", "pformer"]
    exact = AggregateCall("count_distinct", "n", "c")
    partial, _ = tasks((exact, approximate("n", "a"), approximate("s", "b")))
    (step,) = partial.steps
    assert isinstance(step, AggregateStep)
    assert [each.name for each in panes_fields(step)] == [
        "g",
        "ppart",
        "pv0",
        "pv1",
        "pv2",
        "pr1",
        "pr2",
        "pformer",
    ]


def test_folded_windows_have_the_estimate_of_windows_of_tuples() -> None:
    functions = (
        approximate("n", "a"),
        approximate("s", "b"),
        approximate("x", "c"),
        AggregateCall("avg", "x", "d"),
        AggregateCall("count_distinct", "n", "e"),
    )
    rng = random.Random(5)
    rows = [
        {
            "stime": stime,
            "seq": stime,
            "g": rng.choice([None, 1]),
            "n": rng.choice([None, rng.randrange(500)]),
            "s": rng.choice([None, "", str(rng.randrange(500))]),
            "x": rng.choice([None, 0.0, -0.0, rng.randrange(500) / 8]),
        }
        for stime in range(200)
    ]
    (whole,) = tasks(functions, None)
    expected = run_task(whole, {"s": rows}, -100, 300, Interval(-200, 300))
    partial, combined = tasks(functions)
    panes = run_task(partial, {"s": rows}, -100, END, Interval(-200, 300))
    assert run_task(combined, {partial.output: panes}, -100, 300, Interval(-200, 300)) == expected
    assert {type(row["a"]) for row in expected} == {int}
