"""Aggregate functions: their constants in documents, their types, and the fields of panes."""

from __future__ import annotations

import math

import pytest
from aggregated_values import OUTPUT, SOURCE, query, tasks
from field_texts import fields_of
from hypothesis import example, given
from hypothesis import strategies as st

from medusa.engine.aggregates.constants import SEPARATOR_LIMIT, millionths
from medusa.engine.expressions.aggregates import call_of, check_call, function_of
from medusa.engine.language.check import check_query
from medusa.engine.language.xml.writing import query_as_xml
from medusa.engine.objects.query import Aggregate, AggregateCall
from medusa.engine.operators.aggregate.step import AggregateStep, panes_fields
from medusa.engine.operators.shared.panes import has_room
from medusa.engine.operators.typing import type_box
from medusa.engine.reading import read_document
from medusa.overlay.errors import InvalidInputError

# -- constants ------------------------------------------------------------------------------------

CALLS = st.one_of(
    st.builds(
        AggregateCall,
        st.sampled_from(["percentile", "approx_percentile"]),
        st.sampled_from(["n", "coalesce(n, 0)", "x * (1 + n)"]),
        st.just("o"),
        st.integers(0, 1_000_000).map(lambda n: n / 1_000_000) | st.integers(0, 1),
        st.booleans(),
    ),
    st.builds(
        AggregateCall,
        st.just("string_agg"),
        st.sampled_from(["s", "s || ', '", "concat(s, '(', ''''''',')"]),
        st.just("o"),
        st.text(max_size=SEPARATOR_LIMIT).filter(str.isprintable),
        st.booleans(),
    ),
    st.builds(
        AggregateCall,
        st.sampled_from(["top_k", "histogram"]),
        st.sampled_from(["n", "case when t then n else -1 end"]),
        st.just("o"),
        st.integers(1, 1_000),
    ),
)


@given(CALLS)
@example(AggregateCall("string_agg", "s", "o", "',"))
@example(AggregateCall("percentile", "n", "o", 0.000001))
def test_constants_are_written_and_read_again(each: AggregateCall) -> None:
    made = query(each)
    (again,) = read_document(f"<medusa>{query_as_xml(made)}</medusa>", "medusa://mit.edu/").queries
    assert again == made
    check_query(made, {SOURCE.name: SOURCE})


@pytest.mark.parametrize(
    ("text", "function", "parameter"),
    [
        ("percentile(n, 0.50)", "percentile", 0.5),
        ("percentile_cont( n ,1)", "percentile", 1),
        ("string_agg(s,'it''s, ')", "string_agg", "it's, "),
        ("variance(n)", "var_samp", None),
        ("stddev(n)", "stddev_samp", None),
        ("every(t)", "bool_and", None),
        ("some(t)", "bool_or", None),
        ("listagg(s, ',')", "string_agg", ","),
        ("percentile_disc(n  DESC , 0.5)", "percentile_disc", 0.5),
    ],
)
def test_a_document_gives_function_and_constant(
    text: str, function: str, parameter: float | str | None
) -> None:
    (made,) = read_document(document(text), "medusa://mit.edu/").queries
    (box,) = made.boxes
    assert isinstance(box, Aggregate)
    (each,) = box.functions
    assert (each.function, each.parameter) == (function, parameter)
    assert (each.argument or "").strip() in {"n", "s", "t"}
    check_query(made, {SOURCE.name: SOURCE})


def document(call: str) -> str:
    parameters = {"aggregate-function.0": call.replace("<", "&lt;"), "window-size": "60"}
    return (
        '<medusa><query name="medusa://mit.edu/q"><box name="w" type="aggregate">'
        f'<input port="1" stream="{SOURCE.name}"/><output port="1" stream="{OUTPUT}"/>'
        + "".join(f'<param name="{name}" value="{value}"/>' for name, value in parameters.items())
        + "</box></query></medusa>"
    )


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("percentile(n)", "percentile needs a number from 0 to 1 with at most six decimals"),
        ("percentile(n, 95)", "at most six decimals, like 0\\.95$"),
        ("percentile(n, 0.1234567)", "at most six decimals"),
        ("percentile(n, x)", "'x' is not a number like 0.5"),
        ("percentile(n, -0.5)", "'-0.5' is not a number"),
        ("percentile(n, 'half')", "percentile needs a number"),
        ("top_k(n, 0)", "top_k needs a whole number from 1 to 1,000"),
        ("top_k(n, 2.5)", "top_k needs a whole number"),
        ("top_k(n, 1001)", "top_k needs a whole number"),
        ("histogram(n, 0)", "histogram needs a whole number"),
        ("string_agg(s)", "string_agg needs a text of at most 64 printable characters"),
        (f"string_agg(s, '{'-' * 65}')", "at most 64"),
        ("string_agg(n, ',')", "string_agg does not take long"),
        ("top_k(x, 3)", "top_k does not take double"),
        ("array_agg(x)", "array_agg does not take double"),
        ("bool_and(n)", "bool_and does not take long"),
        ("median(s)", "median does not take string"),
        ("median(n, 0.5)", "','|unexpected|not"),
        ("mode(n)", "there is no aggregate 'mode'"),
        ("sum(n desc)", "expression 'n desc': "),
        ("percentile(n desc desc, 0.5)", "expression 'n desc': "),
    ],
)
def test_invalid_input_is_refused(call: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        check_query(
            read_document(document(call), "medusa://mit.edu/").queries[0], {SOURCE.name: SOURCE}
        )


@pytest.mark.parametrize(
    "each",
    [
        AggregateCall("median", "n", "o", 0.5),
        AggregateCall("percentile", "n", "o", math.nan),
        AggregateCall("percentile", "n", "o", math.inf),
        AggregateCall("top_k", "n", "o", "3"),
        AggregateCall("string_agg", "s", "o", "\n"),
        AggregateCall("string_agg", "s", "o", 3),
        AggregateCall("median", "n", "o", descending=True),
    ],
)
def test_constants_from_elsewhere_are_refused(each: AggregateCall) -> None:
    with pytest.raises(InvalidInputError):
        check_call(each)


def test_a_field_called_desc_is_no_order() -> None:
    """A constant that ends with the field's name stands in parentheses."""
    for descending in (False, True):
        each = AggregateCall("array_agg", "1 + desc", "o", None, descending)
        again = function_of(call_of(each), "o")
        assert again.argument in {"1 + desc", "(1 + desc)"}
        assert again.descending == descending


@given(st.integers(0, 1_000_000))
def test_a_fraction_is_its_millionths(n: int) -> None:
    each = AggregateCall("percentile", "n", "o", n / 1_000_000)
    check_call(each)
    assert millionths(each.parameter) == n
    assert "e" not in call_of(each).split(",")[1]


def test_the_fields_of_results() -> None:
    functions = (
        AggregateCall("percentile_disc", "s", "a", 0.5),
        AggregateCall("string_agg", "s", "b", ","),
        AggregateCall("percentile_disc", "n", "c", 0.5),
        AggregateCall("median", "n", "d"),
        AggregateCall("bool_or", "t", "e"),
    )
    (box,) = query(*functions).boxes
    fields = type_box(box, {SOURCE.name: SOURCE}).schemas[OUTPUT].fields
    assert fields[1:] == fields_of("a string(20)?, b string?, c long?, d double?, e bool?")


# -- panes ----------------------------------------------------------------------------------------


def partial_fields(*functions: AggregateCall) -> list[str]:
    partial, _ = tasks(*functions, pane=10)
    (step,) = partial.steps
    assert isinstance(step, AggregateStep)
    return [each.name for each in panes_fields(step)]


def test_functions_share_the_tuples_of_their_values() -> None:
    percentiles = [AggregateCall("percentile", "n", f"p{p}", p / 100) for p in (50, 95, 99)]
    median, disc = (
        AggregateCall("median", "n", "m"),
        AggregateCall("percentile_disc", "n", "d", 0.5),
    )
    top_ = AggregateCall("top_k", "n", "t", 3)
    assert partial_fields(*percentiles, median, disc, top_) == ["pv0", "pr0", "pformer"]
    sketch = AggregateCall("approx_percentile", "n", "a", 0.5)
    assert partial_fields(median, sketch) == ["ppart", "pv0", "pv1", "pr0", "pr1", "pformer"]
    narrow, wide = (AggregateCall("histogram", "n", f"h{w}", w) for w in (1, 10))
    assert partial_fields(narrow, wide) == ["ppart", "pv0", "pv1", "pr0", "pr1", "pformer"]


def test_a_variance_has_three_fields_of_floats_and_nine_of_integers() -> None:
    of_x, of_n = (AggregateCall("var_pop", field, "v") for field in "xn")
    assert len(partial_fields(of_x)) == 3 + 1
    assert len(partial_fields(of_n)) == 9 + 1
    many = tuple(AggregateCall("var_pop", "n", f"v{n}") for n in range(29))
    (small,), (large,) = query(*many[:-1]).boxes, query(*many).boxes
    assert isinstance(small, Aggregate)
    assert isinstance(large, Aggregate)
    assert has_room(small)
    assert not has_room(large), "261 fields"
