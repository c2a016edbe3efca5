"""The examples of scalar functions are what Spark answers."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from medusa.engine.dataframes.columns import column
from medusa.engine.expressions.typer import parse_expression
from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.rows import FAMILIES
from medusa.engine.spark.session import Spark

pytestmark = pytest.mark.spark


def test_examples_are_what_spark_answers(spark: Spark) -> None:
    examples = [each for family in FAMILIES for row in family.rows for each in row.examples]
    expressions = [parse_expression(each.text, {}) for each in examples]

    def job(session: SparkSession) -> list[object]:
        columns = [
            F.unix_micros(column(each)) if each.type is FieldType.TIMESTAMP else column(each)
            for each in expressions
        ]
        (row,) = session.range(1).select(*columns).collect()
        return list(row)

    found = spark.run(job)
    for example, value in zip(examples, found, strict=True):
        assert (type(value), value) == (type(example.result), example.result), example.text
