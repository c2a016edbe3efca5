"""Expressions over the pairs of a join, with other names for its sides and their fields."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from medusa.engine.expressions.printing import expression_sql, name_text

Sides = Mapping[str, tuple[str, Mapping[str, str]]]
"""For each side of a join, by name: its new name, and the new names of its fields; fields that are
missing here keep theirs."""


def renamed(text: str, sides: Sides) -> str:
    """The expression with these names; nothing else of it changes.

    Raises:
        InvalidInputError: the text is no expression.
    """

    def turned(node: exp.Expr) -> str | None:
        if not isinstance(node, exp.Column):
            return None
        side, field = node.table, node.name
        if not side:
            side, _, field = field.partition(".")
        if not field or side not in sides:
            return None
        new, names = sides[side]
        return f"{new}.{name_text(names.get(field, field))}"

    return expression_sql(text, turned)
