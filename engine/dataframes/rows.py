"""The rows that a job reads, and those that it makes."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medusa.engine.dataframes.columns import SPARK_TYPES, quoted
from medusa.engine.expressions.typed import Expression
from medusa.engine.objects.schema import SEQ, STIME, Field, Schema


def merged_fields(schemas: Sequence[Schema]) -> tuple[Field, ...]:
    """The fields of the first schema; a field is nullable if it is nullable in any schema."""
    return tuple(
        Field(each[0].name, each[0].type, nullable=any(field.nullable for field in each))
        for each in zip(*(schema.fields for schema in schemas), strict=True)
    )


def row_schema(fields: Sequence[Field], *, with_seq: bool) -> T.StructType:
    """The schema of the rows that a job reads."""
    columns = [T.StructField(STIME, T.LongType())]
    if with_seq:
        columns.append(T.StructField(SEQ, T.LongType()))
    return T.StructType([*columns, *(T.StructField(f.name, SPARK_TYPES[f.type]) for f in fields)])


def fields_made(outputs: Sequence[tuple[str, Expression]]) -> tuple[Field, ...]:
    """Return the fields of expressions; the order of tuples treats all of them as nullable."""
    return tuple(Field(name, each.type, nullable=True) for name, each in outputs)


def shaped(frame: DataFrame, fields: Sequence[Field]) -> DataFrame:
    """The frame with its stime and these columns; a column that it lacks is null."""
    known = set(frame.columns)
    columns = (
        quoted(each.name)
        if each.name in known
        else F.lit(None).cast(SPARK_TYPES[each.type]).alias(each.name)
        for each in fields
    )
    return frame.select(quoted(STIME), *columns)
