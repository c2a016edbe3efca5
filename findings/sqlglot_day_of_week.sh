#!/bin/sh
# sqlglot 30.30.0 does not translate the numbers of weekdays between Spark and DuckDB. Spark's
# dayofweek counts from Sunday = 1 and its weekday from Monday = 0; both functions of DuckDB count
# from Sunday = 0; the names go over as they are. DuckDB's isodow (Monday = 1 to Sunday = 7) becomes
# (DAYOFWEEK(d) % 7) + 1 for Spark, which gives 2 for a Sunday and 1 for a Saturday.
#
# Seen, of Sunday 2026-11-29 (Spark: dayofweek 1, weekday 6; isodow is 7):
#   Spark's dayofweek in DuckDB: 0
#   Spark's weekday in DuckDB:   0
#   DuckDB's isodow for Spark:   SELECT ((DAYOFWEEK(d) % 7) + 1) of a Sunday: 2 instead of 7
# Consequence: name the weekday by arithmetic on days since 1970-01-01, a Thursday, in both engines.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet --disable-pip-version-check install 'sqlglot==30.30.0' 'duckdb==2.0.1'
"$folder/venv/bin/python" - <<'PYTHON'
import duckdb
import sqlglot

A_SUNDAY = "(SELECT DATE '2026-11-29' AS d)"
SPARKS_DAYOFWEEK_OF_SUNDAY = 1


def value(sql):
    return duckdb.sql(sql).fetchall()[0][0]


def in_duckdb(expression):
    (sql,) = sqlglot.transpile(f"SELECT {expression} FROM {A_SUNDAY}", read="spark", write="duckdb")
    return value(sql)


dayofweek, weekday = in_duckdb("dayofweek(d)"), in_duckdb("weekday(d)")
(isodow,) = sqlglot.transpile("SELECT isodow(d)", read="duckdb", write="spark")
formula = isodow.removeprefix("SELECT ").replace("DAYOFWEEK(d)", str(SPARKS_DAYOFWEEK_OF_SUNDAY))
of_sunday = value(f"SELECT {formula}")
right = value(f"SELECT isodow(d) FROM {A_SUNDAY}")
print("Spark's dayofweek in DuckDB:", dayofweek)
print("Spark's weekday in DuckDB:  ", weekday)
print("DuckDB's isodow for Spark:  ", isodow, "of a Sunday:", of_sunday, "instead of", right)
assert (dayofweek, weekday) == (0, 0), "the translation from Spark has changed"
assert (of_sunday, right) == (2, 7), "the translation to Spark has changed"
PYTHON
