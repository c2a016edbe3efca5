"""The rows of a job: their schema, and the canonical order of its results."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from engine.objects.schema import SEQ, STIME, Field, Schema
from engine.spark.columns import SPARK_TYPES


def merged_fields(schemas: Sequence[Schema]) -> tuple[Field, ...]:
    """The fields of the first schema; one is nullable if it is in any."""
    return tuple(
        Field(each[0].name, each[0].type, nullable=any(field.nullable for field in each))
        for each in zip(*(schema.fields for schema in schemas), strict=True)
    )


def row_schema(fields: Sequence[Field], *, with_seq: bool) -> T.StructType:
    """The rows that a job reads."""
    columns = [T.StructField(STIME, T.LongType())]
    if with_seq:
        columns.append(T.StructField(SEQ, T.LongType()))
    return T.StructType([*columns, *(T.StructField(f.name, SPARK_TYPES[f.type]) for f in fields)])


def without_negative_zeros(table: pa.Table) -> pa.Table:
    """The table with 0.0 for -0.0."""
    for number, field in enumerate(table.schema):
        if pa.types.is_floating(field.type):
            plain = pc.add(table.column(number), pa.scalar(0.0, field.type))
            table = table.set_column(number, field, plain)
    return table


def is_strict(table: pa.Table) -> bool:
    """Whether each stime is greater than the one before: then the order is canonical."""
    stime = table.column(STIME).combine_chunks()
    return len(stime) < 2 or bool(pc.all(pc.less(stime[:-1], stime[1:])).as_py())


def canonical(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows in the schema's types, by stime, then payload; NaN after numbers, nulls last."""
    table = without_negative_zeros(table.cast(schema))
    if is_strict(table):
        return table
    keys = [(name, "ascending") for name in table.column_names]
    return table.take(pc.sort_indices(table, sort_keys=keys))
