"""A match as MATCH_RECOGNIZE."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from medusa.engine.expressions.printing import expression_sql, name_text
from medusa.engine.expressions.sql_texts import interval_sql, object_sql
from medusa.engine.objects.query import Contiguity, Match, Measure, PatternStep
from medusa.engine.operators.match.pattern import ANY_TUPLE, PREVIOUS, pattern_text

_NAMES: Final = {"firstval": "first", "lastval": "last"}
"""The functions that have another name in SQL."""


def match_sql(box: Match) -> str:
    """The SELECT of a match."""
    clauses = []
    if box.partition_by:
        clauses.append(f"PARTITION BY {', '.join(map(name_text, box.partition_by))}")
    if box.measures:
        clauses.append(f"MEASURES {', '.join(map(_measure, box.measures))}")
    seq = "SEQ " if box.contiguity is Contiguity.SKIP_TILL_NEXT_MATCH else ""
    clauses += [
        "ONE ROW PER MATCH",
        "AFTER MATCH SKIP TO NEXT ROW",
        f"PATTERN {seq}({pattern_text(box.steps)}) WITHIN {interval_sql(box.within_us)}",
    ]
    defined = [
        f"{name_text(step.variable)} AS {_condition(step)}"
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
    variable = f"{name_text(measure.variable)}." if measure.variable else ""
    field = name_text(measure.field) if measure.field else "*"
    return f"{name}({variable}{field}) AS {name_text(measure.output)}"


def _condition(step: PatternStep) -> str:
    """The condition of a variable; in SQL its unqualified fields belong to the tuple that it takes:
    `prev.x` is PREV(x), and `B.x` in the condition of B is LAST(B.x, 1)."""

    def navigated(node: exp.Expr) -> str | None:
        side = node.args.get("table") if isinstance(node, exp.Column) else None
        if side is None or side.name not in {PREVIOUS, step.variable}:
            return None
        field = name_text(node.name)
        if side.name == PREVIOUS:
            return f"prev({field})"
        return f"last({name_text(side.name)}.{field}, 1)"

    return expression_sql(step.condition, navigated)
