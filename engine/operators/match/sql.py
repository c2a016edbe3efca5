"""A match as MATCH_RECOGNIZE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlglot import Token, TokenType

from medusa.engine.language.expression_tokens import FUNCTION, tokens_of
from medusa.engine.language.sql.writing import interval_sql, name_sql, object_sql, tokens_sql
from medusa.engine.objects.query import Contiguity, Match, Measure, PatternStep
from medusa.engine.operators.match.pattern import ANY_TUPLE, PREVIOUS, pattern_text

_NAMES: Final = {"firstval": "first", "lastval": "last"}
"""The functions that SQL calls otherwise."""


def match_sql(box: Match) -> str:
    """The SELECT of a match."""
    clauses = []
    if box.partition_by:
        clauses.append(f"PARTITION BY {', '.join(map(name_sql, box.partition_by))}")
    if box.measures:
        clauses.append(f"MEASURES {', '.join(map(_measure, box.measures))}")
    seq = "SEQ " if box.contiguity is Contiguity.SKIP_TILL_NEXT_MATCH else ""
    clauses += [
        "ONE ROW PER MATCH",
        "AFTER MATCH SKIP TO NEXT ROW",
        f"PATTERN {seq}({pattern_text(box.steps)}) WITHIN {interval_sql(box.within_us)}",
    ]
    defined = [
        f"{name_sql(step.variable)} AS {_condition(step)}"
        for step in box.steps
        if step.condition != ANY_TUPLE
    ]
    if defined:
        separator = ",\n        "
        clauses.append(f"DEFINE {separator.join(defined)}")
    inside = "".join(f"\n      {each}" for each in clauses)
    return f"SELECT * FROM {object_sql(box.input)} MATCH_RECOGNIZE ({inside}\n    )"


def _measure(measure: Measure) -> str:
    name = _NAMES.get(measure.function, measure.function)
    variable = f"{name_sql(measure.variable)}." if measure.variable else ""
    field = name_sql(measure.field) if measure.field else "*"
    return f"{name}({variable}{field}) AS {name_sql(measure.output)}"


def _condition(step: PatternStep) -> str:
    """The condition of a variable; in SQL its own fields are those of the tuple that it takes."""
    tokens = tokens_of(step.condition)[1:-1]
    made: list[Token] = []
    index = 0
    while index < len(tokens):
        field = tokens[index : index + 3]
        if len(field) == 3 and field[1].text == ".":
            made += _navigated(field, step.variable)
            index += 3
        else:
            made.append(tokens[index])
            index += 1
    return tokens_sql(made)


def _navigated(field: Sequence[Token], own: str) -> Sequence[Token]:
    """`prev.x` as PREV(x), and `B.x` in the condition of B as LAST(B.x, 1)."""
    first = field[0]
    if first.text == PREVIOUS:
        return [*_called(first, "prev"), field[2], _sign(first, ")")]
    if first.text != own:
        return field
    one = Token(TokenType.NUMBER, "1", first.line, first.col, first.start, first.end)
    return [*_called(first, "last"), *field, _sign(first, ","), one, _sign(first, ")")]


def _called(at: Token, name: str) -> list[Token]:
    word = Token(TokenType.IDENTIFIER, FUNCTION + name, at.line, at.col, at.start, at.end)
    return [word, _sign(at, "(")]


def _sign(at: Token, text: str) -> Token:
    return Token(_SIGNS[text], text, at.line, at.col, at.start, at.end)


_SIGNS: Final = {"(": TokenType.L_PAREN, ")": TokenType.R_PAREN, ",": TokenType.COMMA}
