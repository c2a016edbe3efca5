from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from epoch_matches import matches
from field_texts import fields_of
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_networks import SOURCES, cuts, generators, rows

from examples import examples
from medusa.engine.evaluation.job import Job
from medusa.engine.language.check import check_query
from medusa.engine.language.xml.writing import query_as_xml
from medusa.engine.objects.query import Contiguity, Match, Measure, PatternStep, Query
from medusa.engine.objects.schema import BEGINNING, END, Schema
from medusa.engine.operators.match.automaton import most_tuples
from medusa.engine.operators.match.pattern import (
    MAX_TUPLES,
    conditioned,
    pattern_text,
    read_pattern,
)
from medusa.engine.operators.match.reference import matched
from medusa.engine.operators.match.step import MatchStep
from medusa.engine.operators.typing import type_box
from medusa.engine.reading import read_document
from medusa.engine.reference.interpreter import Row, canonical, run_task
from medusa.engine.tasks.plan import plan
from medusa.engine.tasks.windows import horizon_us, needs
from medusa.overlay.errors import InvalidInputError

PRICES = Schema("prices", fields_of("name string, price int?"))
COUNT = Measure("count", "", "", "n")
SKIP = Contiguity.SKIP_TILL_NEXT_MATCH


def match(
    pattern: str,
    conditions: dict[str, str] | None = None,
    within_us: int = 1_000,
    measures: tuple[Measure, ...] = (COUNT,),
    contiguity: Contiguity = Contiguity.STRICT,
) -> Match:
    given = conditions or {}
    steps = conditioned(read_pattern(pattern), tuple(given), tuple(given.values()))
    return Match("m", "prices", "found", ("name",), steps, within_us, measures, contiguity)


def step_of(box: Match) -> MatchStep:
    step = type_box(box, {"prices": PRICES}).steps["found"]
    assert isinstance(step, MatchStep)
    return step


def found(box: Match, *prices: int | None, apart_us: int = 10) -> list[tuple[Any, ...]]:
    """Return (stime, measures) of each match over prices with these distances in time."""
    given = [
        {"stime": n * apart_us, "seq": n, "name": "x", "price": price}
        for n, price in enumerate(prices)
    ]
    made = matched(step_of(box), given, Job(["name", "price"], BEGINNING))
    return sorted((row["stime"], *list(row.values())[2:]) for row in made)


# -- the meaning of patterns -----------------------------------------------------------------------

FALLS = {"B": "price < prev.price"}
TURNS = {**FALLS, "C": "price > prev.price"}
WHOLE = (
    Measure("firstval", "A", "price", "first"),
    Measure("count", "B", "", "falls"),
    Measure("lastval", "B", "price", "low"),
    Measure("lastval", "", "price", "last"),
)


def test_a_match_begins_with_each_tuple_that_can_be_its_first() -> None:
    box = match("A B+ C", TURNS, measures=WHOLE)
    assert found(box, 5, 4, 3, 6, 6, 2, 9) == [(30, 4, 1, 3, 6), (30, 5, 2, 3, 6), (60, 6, 1, 2, 9)]


def test_a_greedy_variable_waits_for_the_tuple_that_ends_it() -> None:
    box = match("A B+", FALLS)
    assert found(box, 5, 4, 3, 6) == [(30, 2), (30, 3)]
    assert found(match("A B+?", FALLS), 5, 4, 3, 6) == [(10, 2), (20, 2)]


def test_a_greedy_variable_at_the_end_waits_for_the_bound_if_nothing_ends_it() -> None:
    assert found(match("A B+", FALLS, 100), 5, 4, 3) == [(100, 3), (110, 2)]


def test_the_first_variable_takes_as_many_tuples_as_it_can() -> None:
    both = {"A": "price > 0", "B": "price > 0", "C": "price < 0"}
    number = (Measure("count", "A", "", "a"), Measure("count", "B", "", "b"))
    assert found(match("A+ B+ C", both, 40, number), 1, 1, 1, -1)[-1] == (30, 2, 1)
    assert found(match("A+? B+ C", both, 40, number), 1, 1, 1, -1)[-1] == (30, 1, 2)


def test_a_match_is_no_longer_than_its_bound() -> None:
    assert found(match("A B", FALLS, 10), 5, 4) == [(10, 2)]
    assert found(match("A B", FALLS, 9), 5, 4) == []


def test_a_condition_refers_to_the_last_tuple_of_another_variable() -> None:
    box = match("A B+ C", {"B": "price < A.price", "C": "price > A.price and B.price < 3"})
    assert found(box, 5, 4, 2, 6) == [(30, 3), (30, 4)]
    assert found(box, 5, 2, 4, 4) == []


def test_other_tuples_may_lie_between_the_tuples_of_a_sequence() -> None:
    conditions = {"A": "price = 1", "B": "price = 2", "C": "price = 3"}
    assert found(match("A B C", conditions), 1, 7, 2, 2, 7, 3) == []
    assert found(match("A B C", conditions, contiguity=SKIP), 1, 7, 2, 2, 7, 3) == [(50, 3)]


def test_a_negated_variable_must_not_come_between() -> None:
    conditions = {"A": "price = 1", "N": "price = 9", "B": "price = 2"}
    box = match("A !N B", conditions, contiguity=SKIP)
    assert found(box, 1, 7, 2) == [(20, 2)]
    assert found(box, 1, 9, 2) == []


def test_a_negated_variable_at_the_end_must_not_come_within_the_bound() -> None:
    box = match("A !N", {"A": "price = 1", "N": "price = 9"}, 25, contiguity=SKIP)
    assert found(box, 1, 7, 7, 9) == [(25, 1)]
    assert found(box, 1, 7, 9) == []


def test_beacons() -> None:
    beacon = "cast(stime as long) - cast(prev.stime as long) between 50 and 70"
    box = match("A B{3}", {"B": beacon}, 300)
    assert found(box, *range(5), apart_us=60) == [(180, 4), (240, 4)]
    assert found(box, *range(5), apart_us=40) == []


def test_no_more_tuples_are_looked_at_than_the_limit() -> None:
    prices = [MAX_TUPLES - n for n in range(MAX_TUPLES + 5)]
    falls = {"A": f"price = {MAX_TUPLES}", **FALLS}
    assert found(match("A B+", falls, 10**6), *prices) == [((MAX_TUPLES - 1) * 10, MAX_TUPLES)]
    ends = {"A": "price = 1", "N": "price = 9"}
    box = match("A !N", ends, 10**6, contiguity=SKIP)
    assert found(box, 1, *[7] * MAX_TUPLES) == []
    assert most_tuples(step_of(match("A B? C{2,5}"))) == 7


# -- any cut ---------------------------------------------------------------------------------------


@settings(max_examples=examples(150, soak=3000))
@given(data=st.data(), given_rows=rows(), chosen=cuts)
def test_any_cut_gives_the_matches_that_trying_every_way_gives(
    data: st.DataObject, given_rows: list[Row], chosen: list[int]
) -> None:
    schema = SOURCES["s0"]
    box, computed = data.draw(st.composite(_drawn)(schema))
    query = Query("q", (box,))
    schemas = check_query(query, SOURCES)
    (task,) = plan(query, schemas)
    assert horizon_us(task) == box.within_us
    made = []
    for after, upto in itertools.pairwise([BEGINNING, *chosen]):
        interval = needs(task, after, upto)
        if interval is not None:
            made += run_task(task, {"s0": given_rows}, after, upto, interval)
    assert made == canonical(computed.rows(given_rows), schemas["t"])


def _drawn(draw: st.DrawFn, schema: Schema) -> Any:
    return matches(draw(generators), "m", "t", schema, arrival=True)


# -- texts -----------------------------------------------------------------------------------------


def test_a_pattern_is_read() -> None:
    assert read_pattern("A B+? !N C{2,}  D{3} E{,4}") == (
        PatternStep("A"),
        PatternStep("B", least=1, most=None, reluctant=True),
        PatternStep("N", negated=True),
        PatternStep("C", least=2, most=None),
        PatternStep("D", least=3, most=3),
        PatternStep("E", least=0, most=4),
    )


@given(
    st.lists(
        st.builds(
            PatternStep,
            st.sampled_from(["A", "b_1", "Zz"]),
            least=st.integers(0, 3),
            most=st.none() | st.integers(3, 9),
            reluctant=st.booleans(),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_a_pattern_is_read_as_it_is_written(steps: list[PatternStep]) -> None:
    assert read_pattern(pattern_text(steps)) == tuple(steps)


@pytest.mark.parametrize(
    ("pattern", "conditions", "contiguity", "reason"),
    [
        ("A (B)", {}, Contiguity.STRICT, r"wrong at '\(B\)'"),
        ("A{}", {}, Contiguity.STRICT, "says no number"),
        ("A{3,2}", {}, Contiguity.STRICT, "from 3 to 2"),
        ("A{0}", {}, Contiguity.STRICT, "from 0 to 0"),
        ("A* B?", {}, Contiguity.STRICT, "fits no tuples at all"),
        ("A B A", {}, Contiguity.STRICT, "twice"),
        ("A prev", {}, Contiguity.STRICT, "not the name of a variable"),
        ("A !N B", {}, Contiguity.STRICT, "skip_till_next_match"),
        ("!N A", {}, SKIP, "begins with a tuple"),
        ("A B? !N", {}, SKIP, "may take no tuple"),
        ("A !N+ B", {}, SKIP, "no quantifier"),
        ("A B{257}", {}, Contiguity.STRICT, "count to 258"),
        (" ".join(f"V{n}" for n in range(33)), {}, Contiguity.STRICT, "at most 32"),
        ("A B", {"C": "true"}, Contiguity.STRICT, "not in the pattern"),
        ("A B", {"A": "B.price > 1"}, Contiguity.STRICT, "there is no field 'B.price'"),
        ("A B", {"B": "A.price"}, Contiguity.STRICT, "condition of B"),
    ],
)
def test_invalid_patterns_are_refused(
    pattern: str, conditions: dict[str, str], contiguity: Contiguity, reason: str
) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        type_box(match(pattern, conditions, contiguity=contiguity), {"prices": PRICES})


@pytest.mark.parametrize(
    ("measure", "reason"),
    [
        (Measure("sum", "B", "name", "x"), "sum does not take string"),
        (Measure("sum", "B", "", "x"), "sum does not take nothing"),
        (Measure("median", "B", "price", "x"), "median is no measure"),
        (Measure("sum", "C", "price", "x"), "'C' is not in the pattern"),
        (Measure("sum", "B", "cost", "x"), "there is no field 'cost'"),
        (Measure("count", "N", "", "x"), "!N takes no tuples"),
        (Measure("count", "", "", "name"), "name"),
    ],
)
def test_invalid_measures_are_refused(measure: Measure, reason: str) -> None:
    box = match("A !N B", measures=(measure,), contiguity=SKIP)
    with pytest.raises(InvalidInputError, match=reason):
        type_box(box, {"prices": PRICES})


@pytest.mark.parametrize("within_us", [0, -1, END])
def test_a_match_needs_a_bound(within_us: int) -> None:
    with pytest.raises(InvalidInputError, match="within"):
        type_box(match("A", within_us=within_us), {"prices": PRICES})


def test_a_match_is_the_same_after_it_is_written_as_xml() -> None:
    conditions = {"A": "price > 0", "C": "price > A.price"}
    box = match("A B{2,}? !N C", conditions, 1_500_000, (*WHOLE, COUNT), SKIP)
    box = msgspec.structs.replace(box, input="medusa://x.y/prices", output="medusa://x.y/q/found")
    query = Query("medusa://x.y/q", (box,))
    assert read_document(query_as_xml(query)).queries[0].boxes == (box,)
