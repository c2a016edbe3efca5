"""Forms of SQL become expressions: the tests compare the texts and the values."""

from __future__ import annotations

import pytest
from field_texts import fields_of

from medusa.engine.evaluation.expressions import evaluate
from medusa.engine.expressions.typer import parse_expression
from medusa.engine.language.sql.script import Script
from medusa.engine.objects.query import Map
from medusa.engine.objects.schema import FieldType, Schema
from medusa.overlay.errors import InvalidInputError

S = Schema("medusa://mit.edu/s", fields_of("k string?, n long?"))


def value(expression: str, row: dict[str, object]) -> object:
    """Return the value of an expression of SQL over a row."""
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
        ("trim(BOTH ' ' FROM ' a ') || trim(BOTH FROM ' b ') || TRIM(' ' FROM ' c ')", "abc"),
        ("trim(LEADING ' ' FROM ' a ') || trim(trailing FROM ' b ')", "a  b"),
        ("trim(trim(LEADING FROM '  a ') || ' ') || trim(k)", "aabc"),
        ("substring(k FROM 2 FOR 1) || substring(k FROM 3) || substring(k FOR 2)", "bcab"),
        ("substring(k, 2, 1) || substring(k, 3)", "bc"),
        ("substring(k || 'd' FROM position('b' IN k) FOR length(k) - 1)", "bc"),
        ("substring(k FROM 0 FOR 2)", "ab"),
        ("k LIKE 'a!_c' ESCAPE '!'", False),
        ("k NOT LIKE 'a!_c' ESCAPE '!'", True),
        ("NOT k LIKE 'a_c' ESCAPE '!' AND n = 7", False),
        ("k LIKE 'a\\_c'", False),
        ("'a_c' LIKE 'a\\_c'", True),
    ],
)
def test_a_form_of_sql_has_its_value(expression: str, expected: object) -> None:
    assert value(expression, {"k": "abc", "n": 7}) == expected


TRIMS = "trim takes blanks off: trim(both ' ' from s); for other signs say regexp_replace(s, "


@pytest.mark.parametrize(
    ("expression", "reason", "at"),
    [
        ("trim(BOTH 'x' FROM k)", TRIMS, "BOTH"),
        ("trim('x' FROM k)", TRIMS, "'x'"),
        ("trim(LEADING k FROM k)", TRIMS, "LEADING"),
        ("trim(BOTH ' ')", TRIMS, "BOTH"),
        ("substring(k SIMILAR 'a' ESCAPE '#')", "substring takes a text and places", "SIMILAR"),
        ("substring(k, 2 FOR 1)", "substring takes a text and places", "FOR"),
        ("substring(k FROM 2, 3)", "substring takes a text and places", ","),
        ("substring(k FROM 2) OVER (ORDER BY n)", "`OVER` is not part of the language", "OVER"),
    ],
)
def test_a_form_of_sql_that_is_no_function_is_refused(
    expression: str, reason: str, at: str
) -> None:
    """The error says, at the word, what to write instead."""
    with pytest.raises(InvalidInputError) as refused:
        value(expression, {"k": "abc", "n": 7})
    column = len("SELECT ") + expression.index(at) + 1
    assert str(refused.value).startswith(reason)
    assert str(refused.value).endswith(f", at line 1, column {column}")


@pytest.mark.parametrize(
    ("expression", "place"),
    [
        ("trim(both 'x' from k)", 6),
        ("trim('x' from k)", 6),
        ("trim(leading k from k)", 6),
        ("trim(both ' ')", 6),
    ],
)
def test_an_expression_trims_blanks_alone(expression: str, place: int) -> None:
    """As in SQL, trim with other characters is refused."""
    with pytest.raises(InvalidInputError) as refused:
        parse_expression(expression, {"k": FieldType.STRING})
    assert str(refused.value).partition(": ")[2].startswith(TRIMS)
    assert str(refused.value).endswith(f", at character {place}")


@pytest.mark.parametrize(
    "expression",
    [
        "trim(both)",
        "trim(both || 'a')",
        "substring(from from 2)",
        "substring(for, 2)",
        "trim(from)",
    ],
)
def test_a_field_may_be_called_like_a_word_of_a_form(expression: str) -> None:
    """A word of a form is a field's name where an operand stands."""
    fields = dict.fromkeys(("both", "from", "for"), FieldType.STRING)
    assert parse_expression(expression, fields).type is FieldType.STRING
