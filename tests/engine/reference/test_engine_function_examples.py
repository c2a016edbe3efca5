"""The example of each function is what the reference answers, and DuckDB, unless the row says that
DuckDB differs."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import duckdb
import pytest

from medusa.engine.aggregates.rows import AGGREGATES
from medusa.engine.evaluation.expressions import evaluate
from medusa.engine.expressions.aggregates import function_of
from medusa.engine.expressions.typer import parse_expression
from medusa.engine.objects.schema import FieldType
from medusa.engine.operators.shared.aggregation import TypedAggregate
from medusa.engine.operators.shared.reference_windows import folded
from medusa.engine.scalars.examples import Example
from medusa.engine.scalars.rows import FAMILIES, FUNCTIONS, SIGNS

ROWS = [row for family in FAMILIES for row in family.rows]
SCALAR_EXAMPLES = [each for row in ROWS for each in row.examples]
TYPES = {bool: FieldType.BOOL, int: FieldType.LONG, float: FieldType.DOUBLE, str: FieldType.STRING}
DUCKDB = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}


def type_of(values: tuple[object, ...]) -> type:
    return next(type(each) for each in values if each is not None)


def asked(statement: str) -> object:
    with duckdb.connect() as database:
        (found,) = database.execute(f"SELECT {statement}").fetchone() or ()
    if isinstance(found, datetime):
        return (found.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
            microseconds=1
        )
    return found


def sql_of(example: Example) -> str:
    """Return DuckDB's statement."""
    text = example.duckdb or example.text
    if not example.values:
        return text
    kind = DUCKDB[type_of(example.values)]
    rows = ", ".join(f"(CAST({_literal(value)} AS {kind}))" for value in example.values)
    return f"{text} FROM (VALUES {rows}) AS v(x)"


def _literal(value: object) -> str:
    return "NULL" if value is None else repr(value)


def computed(example: Example) -> object:
    """Return the reference's answer."""
    if not example.values:
        return evaluate(parse_expression(example.text, {}), {})
    type_ = TYPES[type_of(example.values)]
    call = function_of(example.text, "o")
    argument = parse_expression(call.argument or "", {"x": type_})
    function = AGGREGATES[call.function]
    typed = TypedAggregate(function, argument, "o", FieldType.LONG, call.parameter)
    return folded(typed, [{"stime": 0, "x": value} for value in example.values])


EXAMPLES = [*SCALAR_EXAMPLES, *(row.example for row in AGGREGATES.values())]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.text)
def test_an_example_is_the_answer_of_the_engines(example: Example) -> None:
    found = computed(example)
    assert (type(found), found) == (type(example.result), example.result)
    if example.differs:
        return
    other = asked(sql_of(example))
    if isinstance(found, float) and isinstance(other, int | float):
        assert other == pytest.approx(found, rel=1e-15)
    else:
        assert other == found


def test_every_function_has_its_words() -> None:
    """Each row has a sentence, a call of its own name, and an example that calls it."""
    for row in ROWS:
        assert row.gives.endswith("."), row.name
        assert row.examples, row.name
        assert row.call.startswith(f"{row.name}("), row.name
        named = f"{row.name}("
        assert any(named in each.text for each in row.examples), row.name
    for row in AGGREGATES.values():
        assert row.gives.endswith("."), row.name
        assert re.match(rf"{row.name}\(x[,)]", row.example.text), row.name
    names = [row.name for row in ROWS] + [name for row in ROWS for name in row.other_names]
    names += [name for row in AGGREGATES.values() for name in (row.name, *row.other_names)]
    assert len(names) == len({*names})
    assert FUNCTIONS.isdisjoint(row.name for row in SIGNS)
