"""Joins: the fields that their expressions see, and the equalities of their predicates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from medusa.engine.expressions.typed import Expression, Operation, fields_in
from medusa.engine.objects.query import Join, JoinKind
from medusa.engine.objects.schema import DELETED, STIME, Field, FieldType, Schema
from medusa.overlay.errors import InvalidInputError

LEFT: Final = "left."
RIGHT: Final = "right."
"""The prefixes of fields in the expressions of a join."""

AS_OF: Final = frozenset({JoinKind.ASOF, JoinKind.LEFT_ASOF})

ONE_SIDED: Final = frozenset({JoinKind.SEMI, JoinKind.ANTI})
"""Kinds of joins whose results have fields of the left stream alone."""

KEEPS_LEFT: Final = frozenset({JoinKind.LEFT, JoinKind.FULL, JoinKind.LEFT_ASOF})
"""Kinds of joins that emit left tuples that are in no pair, too."""

OF_TABLES: Final = frozenset({JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI})
"""The kinds of joins with a table."""

KEEPS_RIGHT: Final = frozenset({JoinKind.RIGHT, JoinKind.FULL})


def paired(box: Join, left: Schema, right: Schema) -> Schema:
    """The fields of pairs; if a side may be missing, its fields are nullable."""
    sides = ((LEFT, left, box.kind in KEEPS_RIGHT), (RIGHT, right, box.kind in KEEPS_LEFT))
    fields = [
        msgspec.structs.replace(
            field, name=f"{prefix}{field.name}", nullable=field.nullable or missing
        )
        for prefix, schema, missing in sides
        for field in (*schema.fields, Field(STIME, FieldType.TIMESTAMP))
    ]
    return Schema(box.output, tuple(fields))


def table_of(box: Join, right: Schema) -> tuple[tuple[str, ...], str]:
    """The key of the table that a join reads, and its field for deletions; empty: it reads none.

    Raises:
        InvalidInputError: the right stream is no table, or this kind of join reads no table.
    """
    if not box.table:
        return (), ""
    if not right.key:
        raise InvalidInputError(f"{box.right} is no table: its schema has no key")
    if box.left == box.right:
        raise InvalidInputError("a table is not joined with itself")
    if box.kind not in OF_TABLES or box.before_us or box.after_us:
        kinds = ", ".join(sorted(OF_TABLES))
        raise InvalidInputError(f"a join with a table is {kinds}, without bounds of time")
    return right.key, DELETED if right.deletes else ""


def left_alone(schema: Schema) -> Schema:
    """The fields of pairs without those of the right side."""
    fields = tuple(each for each in schema.fields if each.name.startswith(LEFT))
    return msgspec.structs.replace(schema, fields=fields)


def check_sides(expression: Expression) -> None:
    """Refuse `stime` without a side. Raises: InvalidInputError: the expression has it."""
    if STIME in fields_in(expression):
        raise InvalidInputError(f"{STIME} is of both sides: say left.{STIME} or right.{STIME}")


def equalities(predicate: Expression) -> tuple[tuple[Expression, Expression], ...] | None:
    """The (left, right) values that a predicate asks to be equal; None: it has other conditions,
    too, or none at all."""
    found = []
    for each in _conjuncts(predicate):
        pair = _equality(each)
        if pair is None:
            return None
        found.append(pair)
    return tuple(found)


def necessary_equalities(predicate: Expression) -> Iterator[tuple[Expression, Expression]]:
    """The (left, right) values that a predicate asks to be equal, whatever other conditions it
    has."""
    for each in _conjuncts(predicate):
        pair = _equality(each)
        if pair is not None:
            yield pair


def has_equality(predicate: Expression) -> bool:
    """Whether the predicate asks for equal values of both sides, so that few tuples have to be
    compared."""
    return any(True for _ in necessary_equalities(predicate))


def _conjuncts(predicate: Expression) -> Iterator[Expression]:
    if isinstance(predicate, Operation) and predicate.operator == "and":
        for each in predicate.operands:
            yield from _conjuncts(each)
    else:
        yield predicate


def _equality(condition: Expression) -> tuple[Expression, Expression] | None:
    if not isinstance(condition, Operation) or condition.operator != "=":
        return None
    one, other = condition.operands
    sides = [{name.partition(".")[0] for name in fields_in(each)} for each in (one, other)]
    if sides == [{"left"}, {"right"}]:
        return one, other
    if sides == [{"right"}, {"left"}]:
        return other, one
    return None
