"""A join as SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlglot import Token, TokenType

from medusa.engine.language.sql.writing import (
    conjuncts_in,
    conjuncts_of,
    interval_sql,
    name_sql,
    object_sql,
    outermost,
    tokens_sql,
    without_parentheses,
)
from medusa.engine.objects.query import Join, JoinKind
from medusa.engine.objects.schema import Schema
from medusa.engine.operators.shared.sql import items_sql, times_of

_JOINS: Final = {
    JoinKind.INNER: "JOIN",
    JoinKind.LEFT: "LEFT JOIN",
    JoinKind.RIGHT: "RIGHT JOIN",
    JoinKind.FULL: "FULL JOIN",
    JoinKind.SEMI: "LEFT SEMI JOIN",
    JoinKind.ANTI: "LEFT ANTI JOIN",
    JoinKind.ASOF: "ASOF JOIN",
    JoinKind.LEFT_ASOF: "ASOF LEFT JOIN",
}

_SIDES: Final = ("left", "right")


def join_sql(box: Join, schemas: Mapping[str, Schema]) -> str:
    """The SELECT of a join."""
    right = object_sql(box.right)
    conditions = _conditions(box, schemas)
    if box.table:
        right = f"{right} FOR SYSTEM_TIME AS OF left.stime"
        conditions = conditions or ["TRUE"]
    else:
        bounds = f"{_moved(-box.before_us)} AND {_moved(box.after_us)}"
        conditions.append(f"right.stime BETWEEN {bounds}")
    tables = (
        f"FROM {object_sql(box.left)} AS {name_sql(_SIDES[0])} "
        f"{_JOINS[box.kind]} {right} AS {name_sql(_SIDES[1])}"
    )
    on = "\n      AND ".join(conditions)
    return f"SELECT {items_sql(box.expressions)}\n    {tables}\n    ON {on}"


def _conditions(box: Join, schemas: Mapping[str, Schema]) -> list[str]:
    """The parts of the predicate, in as many parentheses as keep each of them one condition."""
    if box.predicate.strip().lower() == "true":
        return []
    times = times_of(schemas[box.left]) | times_of(schemas[box.right])
    found = []
    for tokens in conjuncts_of(box.predicate):
        inner = without_parentheses(tokens)
        missing = _parentheses(inner, times) - (len(tokens) - len(inner)) // 2
        found.append(f"{'(' * missing}{tokens_sql(tokens)}{')' * missing}")
    return found


def _parentheses(inner: Sequence[Token], times: set[str]) -> int:
    """Return how many parentheses a condition of ON needs: in one pair a comparison of times is no
    bound of the join, and BETWEEN and OR are unchanged; in two pairs so is AND."""
    if len(conjuncts_in(inner)) > 1:
        return 2
    kinds = outermost(inner)
    names = {each.text for each in inner if each.token_type is TokenType.IDENTIFIER}
    return 1 if names & times or kinds & {TokenType.OR, TokenType.BETWEEN} else 0


def _moved(microseconds: int) -> str:
    """The stime of the left tuple, earlier or later."""
    if microseconds == 0:
        return "left.stime"
    sign = "+" if microseconds > 0 else "-"
    return f"left.stime {sign} {interval_sql(abs(microseconds))}"
