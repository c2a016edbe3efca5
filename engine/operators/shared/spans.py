"""Aggregates whose results have their begin and end: sessions, and cumulating windows."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from medusa.engine.objects.query import WINDOW_END, WINDOW_START
from medusa.engine.objects.schema import Field, FieldType, Schema, check_schema
from medusa.engine.operators.shared.aggregation import TypedAggregate, result_fields
from medusa.engine.operators.shared.operator import FieldScope


def spans_schema(
    name: str, groups: Sequence[Field], functions: Sequence[TypedAggregate], given: FieldScope
) -> Schema:
    """The schema of the output of spans. Raises: InvalidInputError: a field has two meanings."""
    times = (Field(WINDOW_START, FieldType.TIMESTAMP), Field(WINDOW_END, FieldType.TIMESTAMP))
    made = Schema(name, (*times, *groups, *result_fields(functions, given)))
    check_schema(made)
    key = (WINDOW_START, WINDOW_END, *(each.name for each in groups))
    return msgspec.structs.replace(made, key=key)
