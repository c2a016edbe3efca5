"""A join as SQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from medusa.engine.expressions.nodes import chain
from medusa.engine.expressions.parsing import tree_of
from medusa.engine.expressions.printing import name_text, printed
from medusa.engine.expressions.sql_texts import interval_sql, object_sql
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
        f"FROM {object_sql(box.left)} AS {name_text(_SIDES[0])} "
        f"{_JOINS[box.kind]} {right} AS {name_text(_SIDES[1])}"
    )
    on = "\n      AND ".join(conditions)
    return f"SELECT {items_sql(box.expressions)}\n    {tables}\n    ON {on}"


def _conditions(box: Join, schemas: Mapping[str, Schema]) -> list[str]:
    """The conditions of the predicate, each in enough parentheses to stay one condition."""
    if box.predicate.strip().lower() == "true":
        return []
    times = times_of(schemas[box.left]) | times_of(schemas[box.right])
    found = []
    tree = tree_of(box.predicate)
    for node in chain(tree) if isinstance(tree, exp.And) else [tree]:
        missing = _parentheses(node, times)
        found.append(f"{'(' * missing}{printed(node)}{')' * missing}")
    return found


def _parentheses(node: exp.Expr, times: set[str]) -> int:
    """Return how many more parentheses a condition of ON needs: in one pair a comparison of times
    is not read as a bound of the join, and BETWEEN and OR stay whole; in two pairs AND stays whole,
    too."""
    inner, has = node, 0
    while isinstance(inner, exp.Paren):
        inner, has = inner.this, has + 1
    if isinstance(inner, exp.And):
        return max(2 - has, 0)
    names = {each.name for each in inner.find_all(exp.Column)}
    needs = bool(names & times) or isinstance(inner, (exp.Or, exp.Between))
    return max(needs - has, 0)


def _moved(microseconds: int) -> str:
    """The stime of the left tuple, moved by that time."""
    if microseconds == 0:
        return "left.stime"
    sign = "+" if microseconds > 0 else "-"
    return f"left.stime {sign} {interval_sql(abs(microseconds))}"
