#!/bin/sh
# sqlglot 30.30.0 loses the order of WITHIN GROUP on the way to Spark, and exactness with it: DuckDB's
# percentile_cont(0.25) WITHIN GROUP (ORDER BY x DESC) becomes PERCENTILE_APPROX(x, 0.25), which
# Spark computes ascending, and as an approximation that is always one of the values. No warning is
# logged. On the way back to DuckDB the order stays.
#
# Seen, over 1..5:
#   DuckDB, as written: 4.0
#   to Spark:           SELECT PERCENTILE_APPROX(x, 0.25) FROM t
#   Spark to DuckDB:    SELECT QUANTILE_CONT(x, 0.25 ORDER BY x DESC) FROM t
# Consequence: do not let sqlglot translate percentiles between engines of a comparison.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet --disable-pip-version-check install 'sqlglot==30.30.0' 'duckdb==2.0.1'
"$folder/venv/bin/python" - <<'PYTHON'
import io
import logging

import duckdb
import sqlglot

WRITTEN = "SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY x DESC) FROM t"

warnings = io.StringIO()
logging.basicConfig(stream=warnings)
right = duckdb.sql(f"WITH t AS (SELECT unnest(range(1, 6)) AS x) {WRITTEN}").fetchall()[0][0]
(spark,) = sqlglot.transpile(WRITTEN, read="duckdb", write="spark")
(back,) = sqlglot.transpile(WRITTEN, read="spark", write="duckdb")
print("DuckDB, as written:", right)
print("to Spark:          ", spark)
print("Spark to DuckDB:   ", back)
assert right == 4.0, "DuckDB's answer has changed"
assert spark == "SELECT PERCENTILE_APPROX(x, 0.25) FROM t", "the translation has changed"
assert back == "SELECT QUANTILE_CONT(x, 0.25 ORDER BY x DESC) FROM t", "the way back has changed"
assert not warnings.getvalue(), "sqlglot warns now"
PYTHON
