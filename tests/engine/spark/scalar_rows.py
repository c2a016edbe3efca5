"""Odd rows, and expressions over them, computed by Spark, the interpreter and DuckDB."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import Phase, settings
from hypothesis import strategies as st
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from examples import ONE_FIXTURE, examples
from medusa.engine.dataframes.columns import column
from medusa.engine.evaluation.expressions import Row, evaluate
from medusa.engine.expressions.typed import Expression
from medusa.engine.expressions.typer import parse_expression
from medusa.engine.objects.schema import STIME, FieldType
from medusa.engine.spark.session import Spark

FIELDS = {
    "s": FieldType.STRING,
    "p": FieldType.STRING,
    "n": FieldType.INT,
    "m": FieldType.INT,
    "b": FieldType.LONG,
    "c": FieldType.LONG,
    "x": FieldType.DOUBLE,
    "t": FieldType.TIMESTAMP,
    "u": FieldType.TIMESTAMP,
}

ARROW = {
    FieldType.STRING: pa.string(),
    FieldType.INT: pa.int32(),
    FieldType.LONG: pa.int64(),
    FieldType.DOUBLE: pa.float64(),
    FieldType.TIMESTAMP: pa.int64(),
}

LONGS = st.sampled_from(
    [0, 1, -1, 2**31, -(2**31), 2**63 - 1, -(2**63), 2**62, 10**15, -(10**15)]
) | st.integers(-(2**63), 2**63 - 1)

INTS = st.sampled_from([0, 1, -1, 2, 31, 32, 63, 64, 2**31 - 1, -(2**31)]) | st.integers(-9, 40)

MOMENTS = (
    LONGS
    | st.integers(-62_135_596_800_000_000 - 10**9, 253_402_300_799_999_999 + 10**9)
    | st.integers(0, 2 * 10**15)
    | st.integers(-200_000, 200_000).map(lambda days: days * 86_400_000_000)
)

ALPHABET = "ab.cA/&=:- 0129éßİ€😀\n\t\r\x00\x0b\u0301\u2028\uffff$\\%'\""

WORDS = st.text(st.sampled_from(ALPHABET), max_size=12) | st.text(
    st.characters(exclude_categories=("Cs",)), max_size=8
)

DOUBLES = st.floats() | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324])


def rows(texts: st.SearchStrategy[str] = WORDS) -> st.SearchStrategy[list[Row]]:
    parts = st.sampled_from(["", "a", "b", ".", "é", "😀", "ab", "aa", " "]) | texts
    fields = {
        "s": texts,
        "p": parts,
        "n": INTS,
        "m": INTS,
        "b": LONGS,
        "c": LONGS,
        "x": DOUBLES,
        "t": MOMENTS,
        "u": MOMENTS,
    }
    given = {name: each | st.none() for name, each in fields.items()}
    return st.lists(st.fixed_dictionaries(given), min_size=20, max_size=60)


def table(found: Sequence[Row]) -> pa.Table:
    """Return the rows as a table, with timestamps as longs."""
    schema = pa.schema([(name, ARROW[type_]) for name, type_ in FIELDS.items()])
    return pa.Table.from_pylist([{STIME: 0, **row} for row in found], schema)


def by_spark(
    spark: Spark,
    found: Sequence[Row],
    texts: Sequence[str],
    column_of: Callable[[Expression], Column] = column,
) -> list[list[Any]]:
    """Return the values of each text in Spark. Timestamps are microseconds."""
    expressions = [parse_expression(text, FIELDS) for text in texts]
    moments = [name for name, type_ in FIELDS.items() if type_ is FieldType.TIMESTAMP]

    def job(session: SparkSession) -> pa.Table:
        frame = session.createDataFrame(table(found))
        frame = frame.withColumns({name: F.timestamp_micros(name) for name in moments})
        made = [column_of(expression) for expression in expressions]
        columns = [
            (F.unix_micros(each) if expression.type is FieldType.TIMESTAMP else each).alias(f"m{n}")
            for n, (each, expression) in enumerate(zip(made, expressions, strict=True))
        ]
        return frame.select(*columns).toArrow()

    made = spark.run(job)
    return [made.column(n).to_pylist() for n in range(len(texts))]


def by_interpreter(found: Sequence[Row], texts: Sequence[str]) -> list[list[Any]]:
    expressions = [parse_expression(text, FIELDS) for text in texts]
    return [[evaluate(expression, row) for row in found] for expression in expressions]


def by_duckdb(found: Sequence[Row], statements: Sequence[str]) -> list[list[Any]]:
    """Return the values of each SQL expression in DuckDB, in which `t` and `u` are timestamps."""
    given = table(found)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("given", given)
        select = ", ".join(f"{sql} AS m{n}" for n, sql in enumerate(statements))
        made = connection.sql(
            "WITH rows AS (SELECT * REPLACE (make_timestamp(t) AS t, make_timestamp(u) AS u) "
            f"FROM given) SELECT {select} FROM rows"
        ).to_arrow_table()
    return [made.column(n).to_pylist() for n in range(len(statements))]


def bits(value: Any) -> Any:
    """Return equal texts for values of equal bits, except that NaN is NaN, and -0.0 is 0.0, as in a
    map's outputs."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("<d", value + 0.0)
    if isinstance(value, datetime):
        epoch = datetime(1970, 1, 1, tzinfo=UTC if value.tzinfo else None)
        return (int, (value - epoch) // timedelta(microseconds=1))
    return type(value), value


def check(spark: Spark, found: Sequence[Row], texts: Sequence[str]) -> list[list[Any]]:
    """Return the values; check that Spark and the interpreter give the same."""
    made, wanted = by_spark(spark, found, texts), by_interpreter(found, texts)
    for text, ours, theirs in zip(texts, made, wanted, strict=True):
        for row, one, other in zip(found, ours, theirs, strict=True):
            assert bits(one) == bits(other), (text, row, one, other)
    return made


def check_like(
    texts: Sequence[str], found: Sequence[Row], made: list[list[Any]], wanted: list[list[Any]]
) -> None:
    """Check that the values are those of an oracle."""
    for text, ours, theirs in zip(texts, made, wanted, strict=True):
        for row, one, other in zip(found, ours, theirs, strict=True):
            assert bits(one) == bits(other), (text, row, one, other)


def odd(few: int, *, soak: int) -> settings:
    """Return the settings of a property over odd rows: each example costs one or more Spark
    jobs."""
    return settings(
        max_examples=examples(few, soak=soak),
        phases=(Phase.explicit, Phase.generate),  # finding a smaller example takes as many jobs
        suppress_health_check=ONE_FIXTURE,
    )


Oracle = Callable[..., Any]


def check_oracles(spark: Spark, found: list[Row], oracles: dict[str, Oracle]) -> None:
    """Check oracles whose parameters are fields; an oracle is asked where none of them is null."""

    def value(oracle: Oracle, row: Row) -> Any:
        names = oracle.__code__.co_varnames[: oracle.__code__.co_argcount]
        values = [row[name] for name in names]
        return None if any(each is None for each in values) else oracle(*values)

    texts = [*oracles]
    wanted = [[value(oracle, row) for row in found] for oracle in oracles.values()]
    check_like(texts, found, check(spark, found, texts), wanted)


def check_duckdb(spark: Spark, found: list[Row], pairs: dict[str, str]) -> None:
    texts = [*pairs]
    made = check(spark, found, texts)
    check_like(texts, found, made, by_duckdb(found, [*pairs.values()]))
