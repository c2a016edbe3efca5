"""Forms of SQL that become expressions: the texts they become, and their values."""

from __future__ import annotations

import pytest
from reference_interpreter import evaluate

from engine.language.parse_expression import parse_expression
from engine.language.sql.script import Script
from engine.objects.query import Map
from engine.objects.schema import Field, FieldType, Schema

S = Schema(
    "medusa://mit.edu/s",
    (Field("k", FieldType.STRING, nullable=True), Field("n", FieldType.LONG, nullable=True)),
)


def value(expression: str, row: dict[str, object]) -> object:
    """The value of an expression of SQL over a row."""
    document = Script(f"SELECT {expression} AS v FROM s", "medusa://mit.edu").complete(
        {S.name: S}, {}
    )
    ((box,),) = (query.boxes for query in document.queries)
    assert isinstance(box, Map)
    ((_, text),) = box.expressions
    return evaluate(parse_expression(text, {f.name: f.type for f in S.fields}), {"stime": 0, **row})


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("position('b' IN k)", 2),
        ("POSITION('b', k)", 2),
        ("position(lower('B') IN k || 'b') + 1", 3),
        ("position('z' IN k) = 0 AND n IN (1, 7)", True),
        ("k LIKE 'a!_c' ESCAPE '!'", False),
        ("k NOT LIKE 'a!_c' ESCAPE '!'", True),
        ("NOT k LIKE 'a_c' ESCAPE '!' AND n = 7", False),
        ("k LIKE 'a\\_c'", False),
        ("'a_c' LIKE 'a\\_c'", True),
    ],
)
def test_a_form_of_sql_has_its_value(expression: str, expected: object) -> None:
    assert value(expression, {"k": "abc", "n": 7}) == expected
