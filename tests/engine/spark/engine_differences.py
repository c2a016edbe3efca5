"""Where engines answer differently: the rows of the table in docs/reference/functions.md.

The tests ask Spark and DuckDB for their answers, and Flink where it is installed; all answers of
Flink here are those of Flink 2.3.0, in November 2026. A row that needs more than one expression
names the test that shows Medusa's answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FLINK: Final = "Flink 2.3"

UNKNOWN: Final = "–"
"""The answer of an engine that has no such function."""


@dataclass(frozen=True)
class Difference:
    """A row of the table.

    Attributes:
        case: the case in words, for the page.
        medusa, flink, spark, duckdb: what each answers, in words of the page.
        sql: the expression that Medusa computes; or an aggregate over the `values` x of a window.
        refused: the reason for which Medusa refuses the expression.
        spark_sql, duckdb_sql: what Spark and DuckDB compute, if not `sql`; None: the engine is not
        asked. flink_sql: what Flink computes, with its relation. The values are columns of this
        relation, since Flink's planner computes some expressions of constants otherwise. None:
        Flink is not asked. test: a test that shows Medusa's answer, where it is no expression:
        `file.py::name`.
    """

    case: str
    medusa: str
    flink: str = UNKNOWN
    spark: str = UNKNOWN
    duckdb: str = UNKNOWN
    sql: str = ""
    values: tuple[object, ...] = ()
    refused: str = ""
    spark_sql: str | None = ""
    duckdb_sql: str | None = ""
    flink_sql: str | None = None
    test: str = ""

    @property
    def row(self) -> str:
        """The row as the page has it."""
        cells = (self.case, self.medusa, self.flink, self.spark, self.duckdb)
        return f"| {' | '.join(cells)} |"


_NAN: Final = "cast('NaN' AS DOUBLE)"
_OFFSET: Final = "cast('2026-01-01 10:00:00+01:00' AS TIMESTAMP)"
_FINE: Final = "cast('2026-01-01 09:59:59.9999999' AS TIMESTAMP)"

DIFFERENCES: Final = (
    Difference(
        "`7 / 2` of integers is a double",
        medusa="3.5",
        flink="3",
        spark="3.5",
        duckdb="3.5",
        sql="7 / 2",
        flink_sql="a / b FROM (VALUES (7, 2)) AS t(a, b)",
    ),
    Difference(
        "`7 / 0` is null, as every result that there is not",
        medusa="NULL",
        flink="error",
        spark="error",
        duckdb="inf",
        sql="7 / 0",
        flink_sql="a / b FROM (VALUES (7, 0)) AS t(a, b)",
    ),
    Difference(
        "`2147483647 + 1` of `INT`s does not fit",
        medusa="NULL",
        flink="-2147483648",
        spark="error",
        duckdb="error",
        sql="2147483647 + 1",
        flink_sql="a + b FROM (VALUES (2147483647, 1)) AS t(a, b)",
    ),
    Difference(
        "`avg(x)` of the integers 1 and 2",
        medusa="1.5",
        flink="1",
        spark="1.5",
        duckdb="1.5",
        sql="avg(x)",
        values=(1, 2),
        flink_sql="avg(x) FROM (VALUES 1, 2) AS t(x)",
    ),
    Difference(
        "`greatest(1, NULL)`, `least`: nulls are skipped",
        medusa="1",
        flink="NULL",
        spark="1",
        duckdb="1",
        sql="greatest(1, NULL)",
        flink_sql="greatest(a, b) FROM (VALUES (1, cast(NULL AS INT))) AS t(a, b)",
    ),
    Difference(
        "`'a_c' LIKE 'a\\_c'`: a backslash makes `_` and `%` plain, unless `ESCAPE` names another",
        medusa="true",
        flink="false",
        spark="true",
        duckdb="false",
        sql="'a_c' LIKE 'a\\_c'",
        spark_sql="'a_c' LIKE r'a\\_c'",
        flink_sql="a LIKE b FROM (VALUES ('a_c', 'a\\_c')) AS t(a, b)",
    ),
    Difference(
        "NaN `= NaN`",
        medusa="true",
        flink="false",
        spark="true",
        duckdb="true",
        sql=f"{_NAN} = {_NAN}",
        flink_sql="cast(a AS DOUBLE) = cast(b AS DOUBLE) FROM (VALUES ('NaN', 'NaN')) AS t(a, b)",
    ),
    Difference(
        "NaN `> 5`: NaN is greater than every number, in comparisons, orders, `max` and `greatest`",
        medusa="true",
        flink="false",
        spark="true",
        duckdb="true",
        sql=f"{_NAN} > 5",
        flink_sql="cast(a AS DOUBLE) > 5 FROM (VALUES 'NaN') AS t(a)",
    ),
    Difference(
        "`sign` of NaN, though NaN is greater than every number",
        medusa="NaN",
        flink="NaN",
        spark="NaN",
        duckdb="0",
        sql=f"sign({_NAN})",
        flink_sql="sign(cast(a AS DOUBLE)) FROM (VALUES 'NaN') AS t(a)",
    ),
    Difference(
        "`floor` and `ceil` of NaN, which is no `LONG`",
        medusa="NULL",
        flink="NaN",
        spark="0",
        duckdb="NaN",
        sql=f"floor({_NAN})",
        flink_sql="floor(cast(a AS DOUBLE)) FROM (VALUES 'NaN') AS t(a)",
    ),
    Difference(
        "`-1 * 0.0`: results never have -0.0",
        medusa="0.0",
        flink="-0.0",
        spark="-0.0",
        duckdb="-0.0",
        sql="-1 * 0.0e0",
        flink_sql="a * b FROM (VALUES (-1, 0.0e0)) AS t(a, b)",
    ),
    Difference(
        "`cast(9.223372036854776e18 AS LONG)`, 2^63",
        medusa="NULL",
        flink="9223372036854775807",
        spark="9223372036854775807",
        duckdb="error",
        sql="cast(9.223372036854776e18 AS LONG)",
        flink_sql="cast(a AS BIGINT) FROM (VALUES 9.223372036854776e18) AS t(a)",
    ),
    Difference(
        "`cast(1e39 AS FLOAT)` is beyond the greatest",
        medusa="NULL",
        flink="inf",
        spark="inf",
        duckdb="error",
        sql="cast(1e39 AS FLOAT)",
        flink_sql="cast(a AS FLOAT) FROM (VALUES 1e39) AS t(a)",
    ),
    Difference(
        "`cast('1d' AS DOUBLE)`, `'0x1p3'`: a text is a number as SQL writes one",
        medusa="NULL",
        flink="1.0",
        spark="1.0",
        duckdb="error",
        sql="cast('1d' AS DOUBLE)",
        flink_sql="cast(a AS DOUBLE) FROM (VALUES '1d') AS t(a)",
    ),
    Difference(
        "`cast('1e400' AS DOUBLE)` is beyond the greatest",
        medusa="NULL",
        flink="inf",
        spark="inf",
        duckdb="inf",
        sql="cast('1e400' AS DOUBLE)",
        flink_sql="cast(a AS DOUBLE) FROM (VALUES '1e400') AS t(a)",
    ),
    Difference(
        "`cast('1.5' AS INT)` is no integer",
        medusa="NULL",
        flink="1",
        spark="error",
        duckdb="2",
        sql="cast('1.5' AS INT)",
        flink_sql="cast(a AS INT) FROM (VALUES '1.5') AS t(a)",
    ),
    Difference(
        "`cast('Apache' AS VARCHAR(3))` has as many characters, as SQL:2016 says",
        medusa="Apa",
        flink="Apa",
        spark="Apache",
        duckdb="Apache",
        sql="cast('Apache' AS VARCHAR(3))",
        flink_sql="cast(a AS VARCHAR(3)) FROM (VALUES 'Apache') AS t(a)",
    ),
    Difference(
        "`substring('abc' FROM 0 FOR 2)`: the first place is 1, and 0 is taken for it",
        medusa="ab",
        flink="ab",
        spark="ab",
        duckdb="a",
        sql="substring('abc' FROM 0 FOR 2)",
        flink_sql="substring(a FROM b FOR 2) FROM (VALUES ('abc', 0)) AS t(a, b)",
    ),
    Difference(
        "a time with an offset, `cast('2026-01-01 10:00:00+01:00' AS TIMESTAMP)`, is that moment",
        medusa="2026-01-01 09:00:00",
        flink="error",
        spark="2026-01-01 09:00:00",
        duckdb="2026-01-01 10:00:00",
        sql=_OFFSET,
        spark_sql=f"date_format({_OFFSET}, 'yyyy-MM-dd HH:mm:ss')",
        flink_sql="cast(a AS TIMESTAMP) FROM (VALUES '2026-01-01 10:00:00+01:00') AS t(a)",
    ),
    Difference(
        "a time without one, `cast('2026-01-01 10:00:00' AS TIMESTAMP)`, is in UTC",
        medusa="2026-01-01 10:00:00",
        flink="no moment",
        spark="the session's zone",
        duckdb="no moment",
        sql="cast('2026-01-01 10:00:00' AS TIMESTAMP)",
        spark_sql=None,
        duckdb_sql=None,
    ),
    Difference(
        "what is finer than a microsecond, `cast('2026-01-01 09:59:59.9999999' AS TIMESTAMP)`, is "
        "cut off",
        medusa="2026-01-01 09:59:59",
        flink="2026-01-01 09:59:59",
        spark="2026-01-01 09:59:59",
        duckdb="2026-01-01 09:59:59",
        sql=_FINE,
        spark_sql=f"date_format({_FINE}, 'yyyy-MM-dd HH:mm:ss')",
        flink_sql="date_format(cast(a AS TIMESTAMP), 'yyyy-MM-dd HH:mm:ss') "
        "FROM (VALUES '2026-01-01 09:59:59.9999999') AS t(a)",
    ),
    Difference(
        "`timestampdiff(HOUR, ...)` from 10:59 to 11:01: whole units, towards zero",
        medusa="0",
        flink="0",
        spark="0",
        duckdb="1",
        sql="timestampdiff(HOUR, TIMESTAMP '2026-01-01 10:59:00', TIMESTAMP '2026-01-01 11:01:00')",
        duckdb_sql="date_diff('hour', TIMESTAMP '2026-01-01 10:59', TIMESTAMP '2026-01-01 11:01')",
        flink_sql="timestampdiff(HOUR, cast(a AS TIMESTAMP), cast(b AS TIMESTAMP)) "
        "FROM (VALUES ('2026-01-01 10:59:00', '2026-01-01 11:01:00')) AS t(a, b)",
    ),
    Difference(
        "`timestampdiff(MONTH, ...)` from January 31 to February 28: a month has no fixed length",
        medusa="refused",
        flink="1",
        spark="0",
        duckdb="1",
        sql="timestampdiff(MONTH, TIMESTAMP '2026-01-31', TIMESTAMP '2026-02-28')",
        refused="a month has no fixed length",
        duckdb_sql="date_diff('month', TIMESTAMP '2026-01-31', TIMESTAMP '2026-02-28')",
        flink_sql="timestampdiff(MONTH, cast(a AS TIMESTAMP), cast(b AS TIMESTAMP)) "
        "FROM (VALUES ('2026-01-31 00:00:00', '2026-02-28 00:00:00')) AS t(a, b)",
    ),
    Difference(
        "a JSON member that is null, `json_value('{\"a\":null}', '$.a')`",
        medusa="NULL",
        flink="NULL",
        spark="NULL",
        duckdb="NULL",
        sql="json_value('{\"a\":null}', '$.a')",
        spark_sql="get_json_object('{\"a\":null}', '$.a')",
        duckdb_sql="json_extract_string('{\"a\":null}', '$.a')",
        flink_sql="json_value(a, '$.a') FROM (VALUES '{\"a\":null}') AS t(a)",
    ),
    Difference(
        "a JSON number with an exponent, `1e2`, is as it is written; a cast reads it",
        medusa="1e2",
        flink="1E+2",
        spark="100.0",
        duckdb="100.0",
        sql="json_value('{\"a\":1e2}', '$.a')",
        spark_sql="get_json_object('{\"a\":1e2}', '$.a')",
        duckdb_sql="json_extract_string('{\"a\":1e2}', '$.a')",
        flink_sql="json_value(a, '$.a') FROM (VALUES '{\"a\":1e2}') AS t(a)",
    ),
    Difference(
        "a JSON number without one is an exact decimal; a negative zero, `-0.0`, keeps its sign",
        medusa="-0.0",
        flink="0.0",
        spark="-0.0",
        duckdb="-0.0",
        sql="json_value('{\"a\":-0.0}', '$.a')",
        spark_sql="get_json_object('{\"a\":-0.0}', '$.a')",
        duckdb_sql="json_extract_string('{\"a\":-0.0}', '$.a')",
        flink_sql="json_value(a, '$.a') FROM (VALUES '{\"a\":-0.0}') AS t(a)",
    ),
    Difference(
        "`stddev_pop(x)` of 2 and Infinity",
        medusa="NaN",
        flink="NaN",
        spark="NaN",
        duckdb="NaN",
        sql="stddev_pop(x)",
        values=(2.0, float("inf")),
        flink_sql="stddev_pop(cast(x AS DOUBLE)) FROM (VALUES '2', 'Infinity') AS t(x)",
    ),
    Difference(
        "`var_pop(x)` of one NaN",
        medusa="NaN",
        flink="NaN",
        spark="NaN",
        duckdb="0.0",
        sql="var_pop(x)",
        values=(float("nan"),),
        flink_sql="var_pop(cast(x AS DOUBLE)) FROM (VALUES 'NaN') AS t(x)",
    ),
    Difference(
        "`stddev_samp(x)` of one value, NaN or not",
        medusa="NULL",
        flink="NULL",
        spark="NULL",
        duckdb="NULL",
        sql="stddev_samp(x)",
        values=(float("nan"),),
        flink_sql="stddev_samp(cast(x AS DOUBLE)) FROM (VALUES 'NaN') AS t(x)",
    ),
    Difference(
        "`hash64('a')` is XXH64 with the seed 42; that with the seed 0 is another",
        medusa="-8582455328737087284",
        spark="-8582455328737087284",
        sql="hash64('a')",
        spark_sql="xxhash64('a')",
        duckdb_sql=None,
    ),
)


@dataclass(frozen=True)
class OrderOfRows:
    """A row of the second table: the order of rows, and what goes by it.

    Attributes:
        of, medusa, others: the case, what Medusa does, and what the others do, in words for the
            page.
        test: a test that shows Medusa's answer: `file.py::name`.
        flink: what Flink computes of `FLINK_STREAMS`, and its answer: the rows, in order.
    """

    of: str
    medusa: str
    others: str
    test: str
    flink: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def row(self) -> str:
        """The row as the page has it."""
        return f"| {self.of} | {self.medusa} | {self.others} |"


FLINK_STREAMS: Final = {
    "equal": ((0, 1), (5, 9), (5, 3), (5, 7), (4, 5)),
    "steps": ((0, 1), (1, 2), (10, 3), (11, 4)),
    "merged": ((0, 1), (16, 2), (8, 3), (24, 4)),
    "matched": ((0, 1), (1, 2), (2, 2), (3, 1)),
}
"""The seconds `ts` and the values `x` of the streams that Flink reads, in the order of their
arrival."""

# In an order by a plain column, Flink 2.3 does not retract a row that a better one replaces: so the
# best row comes first.
_FIRST: Final = "x FROM (SELECT x, ROW_NUMBER() OVER (ORDER BY {}) AS n FROM {}) WHERE n = 1"
_LISTS: Final = "listagg(cast(x AS STRING)) FROM {} GROUP BY window_start, window_end"
_MATCHES: Final = (
    "n FROM matched MATCH_RECOGNIZE (ORDER BY ts MEASURES count(B.x) AS n "
    "AFTER MATCH SKIP PAST LAST ROW PATTERN {} DEFINE A AS A.x = 1, B AS B.x = 2{})"
)

ORDERS: Final = (
    OrderOfRows(
        "nulls in an order",
        "first in `ASC`, last in `DESC`; `NULLS FIRST` and `NULLS LAST` say otherwise",
        "the same in Flink and Spark; DuckDB has them last",
        "tests/engine/language/sql/test_engine_sql_windows.py::test_the_first_of_each_window",
        flink=(
            (_FIRST.format("x ASC", "(VALUES cast(NULL AS INT), 1) AS t(x)"), ("NULL",)),
            (_FIRST.format("x DESC", "(VALUES 1, cast(NULL AS INT)) AS t(x)"), ("1",)),
        ),
    ),
    OrderOfRows(
        "`ROW_NUMBER() OVER (... ORDER BY ts DESC) = 1`, equal times",
        "the row that came last",
        "the same in Flink if `ts` is its time attribute, else the first; of a batch, any of them",
        "tests/engine/language/sql/test_engine_sql_tops.py::test_the_last_arrival_of_equal_times_is_the_newest",
        flink=(
            (_FIRST.format("ts DESC", "equal"), ("7",)),
            (_FIRST.format("cast(ts AS STRING) DESC", "equal WHERE x > 1"), ("9",)),
        ),
    ),
    OrderOfRows(
        "`string_agg` (`listagg`), `array_agg`",
        "by the values, ascending unless it says `DESC`",
        "Flink: of `HOP` the newest slice first, of merged sessions in no order",
        "tests/engine/language/sql/test_engine_sql_windows.py::test_percentiles_have_the_order_of_within_group",
        flink=(
            (
                _LISTS.format(
                    "HOP(TABLE steps, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND)"
                ),
                ("1,2", "3,4", "3,4,1,2"),
            ),
            (
                _LISTS.format("SESSION(TABLE merged, DESCRIPTOR(ts), INTERVAL '10' SECOND)"),
                ("2,1,3,4",),
            ),
        ),
    ),
    OrderOfRows(
        "`WITHIN` of a pattern, rows exactly so far apart",
        "a match: `WITHIN` is a bound like `BETWEEN`",
        "Flink: no match; take a microsecond from the bound",
        "tests/engine/language/sql/test_engine_sql_matches.py::test_rows_exactly_within_are_a_match",
        flink=(
            (_MATCHES.format("(A B) WITHIN INTERVAL '1' SECOND", ""), ()),
            (_MATCHES.format("(A B) WITHIN INTERVAL '1.001' SECOND", ""), ("1",)),
        ),
    ),
    OrderOfRows(
        "`B?`, `B*`, `B{1,2}` in a pattern",
        "greedy, and given back if the rest needs it, as SQL:2016 says; `B??`, `B*?` take as few "
        "as they can",
        "Flink: `?` is always reluctant, so `A B?` never takes a B; `B*` and `B{1,2}` never give a "
        "row back, so `A B* C` misses matches",
        "tests/engine/language/sql/test_engine_sql_matches.py::test_quantifiers_are_greedy_and_give_back",
        flink=(
            (_MATCHES.format("(A B?)", ""), ("0", "0")),
            (_MATCHES.format("(A B* C)", ", C AS C.x = 1"), ("2",)),
            (_MATCHES.format("(A B* C)", ", C AS C.x = 2"), ()),
            (_MATCHES.format("(A B{1,2} C)", ", C AS C.x = 2"), ()),
        ),
    ),
    OrderOfRows(
        "`ASOF`, several rows of the other stream at one time",
        "back: the last that came; forward: the first",
        "Spark and DuckDB: by the order that rows happen to have",
        "tests/engine/spark/test_engine_spark_epochs.py::test_a_join_as_of_looks_back_or_forward_at_any_cut",
    ),
    OrderOfRows(
        "`FOR SYSTEM_TIME AS OF`, several rows of a key at one time",
        "the last that came",
        "Spark: by the order that rows happen to have",
        "tests/engine/spark/test_engine_spark_tables.py::test_a_table_is_joined_as_of_each_tuple_whatever_is_cut_and_folded",
    ),
)
