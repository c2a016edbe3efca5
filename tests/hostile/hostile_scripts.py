"""Hostile SQL scripts, by families: each family yields (what it is, script)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

Script = tuple[str, str]

WINDOW: Final = "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
BOUND: Final = "t.stime BETWEEN s.stime - INTERVAL '1' MINUTE AND s.stime"


def nested() -> Iterator[Script]:
    """Scripts into which a recursive parser descends."""
    for depth in (33, 400, 8_000):
        yield f"{depth} parentheses", f"SELECT {'(' * depth}n{')' * depth} AS x FROM s"
        yield f"{depth} open parentheses", f"SELECT {'(' * depth}n FROM s"
        yield f"{depth} closing parentheses", f"SELECT n{')' * depth} FROM s"
        yield f"{depth} NOTs", f"SELECT n FROM s WHERE {'NOT ' * depth}n > 1"
        yield f"{depth} minus signs", f"SELECT {'- ' * depth}n AS x FROM s"
        yield f"{depth} calls", f"SELECT {'abs(' * depth}n{')' * depth} AS x FROM s"
        yield f"{depth} CASEs", f"SELECT {'CASE WHEN n > 1 THEN ' * depth}n{' END' * depth} FROM s"
        yield f"{depth} subqueries", f"{'SELECT * FROM (' * depth}SELECT n FROM s{')' * depth}"
        yield f"{depth} brackets", f"SELECT {'[' * depth}n{']' * depth} AS x FROM s"
        yield f"{depth} braces", f"SELECT {'{' * depth}n{'}' * depth} AS x FROM s"
        yield f"{depth} indices", f"SELECT n{'[0]' * depth} AS x FROM s"
        yield f"{depth} casts", f"SELECT n{'::int' * depth} AS x FROM s"
        yield f"{depth} types", f"SELECT cast(n AS {'array<' * depth}int{'>' * depth}) FROM s"
        yield f"{depth} lambdas", f"SELECT f({'x -> ' * depth}n) FROM s"
        yield f"{depth} intervals", f"SELECT n FROM s WHERE ts > {'INTERVAL ' * depth}'1' DAY"
        yield f"{depth} EXPLAINs", f"{'EXPLAIN ' * depth}SELECT n FROM s"
        yield f"{depth} IS NULLs", f"SELECT n FROM s WHERE n{' IS NULL' * depth}"
        yield f"{depth} BETWEENs", f"SELECT n FROM s WHERE n{' BETWEEN 1 AND 2' * depth}"
        yield f"{depth} LIKEs", f"SELECT n FROM s WHERE k{' LIKE k' * depth}"
        yield f"{depth} ESCAPEs", f"SELECT n FROM s WHERE k LIKE k{chr(32) + 'ESCAPE k' * depth}"
        yield f"{depth} INs", f"SELECT n FROM s WHERE n{' IN (1)' * depth}"
        yield (
            f"{depth} WITHs",
            f"{'WITH a AS (' * depth}SELECT n FROM s{') SELECT * FROM a' * depth}",
        )
        yield f"{depth} COLLATEs", f"SELECT k{' COLLATE x' * depth} AS x FROM s"
        yield (
            f"{depth} AT TIME ZONEs",
            f"SELECT ts{chr(32) + 'AT TIME ZONE k ' * depth} AS x FROM s",
        )
        yield f"{depth} comments", f"SELECT n FROM s {'/* ' * depth}{'*/ ' * depth}"


def long() -> Iterator[Script]:
    """Scripts over which a compiler loops."""
    for count in (257, 5_000, 100_000):
        numbers = range(count)
        names = ", ".join(f"n AS c{each}" for each in numbers)
        yield f"{count} columns", f"SELECT {names} FROM s"
        yield f"{count} literals", f"SELECT n FROM s WHERE n IN ({', '.join(map(str, numbers))})"
        yield f"{count} sums", f"SELECT {' + '.join(['n'] * count)} AS x FROM s"
        yield f"{count} ANDs", f"SELECT n FROM s WHERE {' AND '.join(['n > 1'] * count)}"
        yield f"{count} bars", f"SELECT {' || '.join(['k'] * count)} AS x FROM s"
        yield (
            f"{count} groups of ORs",
            f"SELECT n FROM s WHERE {' AND '.join(['(n > 1 OR n < 1)'] * count)}",
        )
        yield (
            f"{count} digits of a constant",
            f"SELECT percentile(v, {'9' * count}) AS x FROM {WINDOW} GROUP BY window_start",
        )
        yield (
            f"{count} digits of k_safety",
            f"CREATE STREAM z (a INT) WITH (k_safety = {'9' * count})",
        )
        yield f"{count} ORs", f"SELECT n FROM s WHERE {' OR '.join(f'n = {n}' for n in numbers)}"
        yield f"{count} arms", f"SELECT CASE {'WHEN n = 1 THEN 2 ' * count}END AS x FROM s"
        yield f"{count} arguments", f"SELECT coalesce({', '.join(['n'] * count)}) AS x FROM s"
        yield f"{count} sides", " UNION ALL ".join(["SELECT n FROM s"] * count)
        yield (
            f"{count} statements",
            ";".join(f"CREATE STREAM a{n} AS SELECT n FROM s" for n in numbers),
        )
        yield f"{count} semicolons", ";" * count
        yield f"{count} fields", f"CREATE STREAM z ({', '.join(f'f{n} INT' for n in numbers)})"
        yield f"{count} keys", f"CREATE STREAM z (a INT, PRIMARY KEY ({', '.join(['a'] * count)}))"
        yield (
            f"{count} options",
            f"CREATE STREAM z (a INT) WITH ({', '.join(['slack = 1'] * count)})",
        )
        yield (
            f"{count} CTEs",
            f"WITH {', '.join(f'a{n} AS (SELECT n FROM s)' for n in numbers)} SELECT * FROM a0",
        )
        yield (
            f"{count} groups",
            f"SELECT count(*) AS c FROM {WINDOW} GROUP BY window_start, "
            + ", ".join(f"n + {n}" for n in numbers),
        )
        yield (
            f"{count} aggregates",
            "SELECT "
            + ", ".join(f"sum(n) AS c{n}" for n in numbers)
            + f" FROM {WINDOW} GROUP BY window_start",
        )
        yield (
            f"{count} streams of a SPLIT",
            f"CREATE STREAM {', '.join(f'a{n}' for n in numbers)} AS SPLIT s BY "
            + ", ".join(f"n = {n}" for n in numbers),
        )
        yield f"{count} dots", f"SELECT {'.'.join(['a'] * count)} FROM s"
        yield f"{count} dots of a stream", f"SELECT * FROM {'.'.join(['a'] * count)}"
        yield f"{count} names", f"SELECT {'a ' * count} FROM s"
        yield f"{count} stars", f"SELECT {', '.join(['*'] * count)} FROM s"
        yield f"{count} characters of a name", f"SELECT n AS {'a' * count} FROM s"
        yield f"{count} characters of a text", f"SELECT '{'a' * count}' AS x FROM s"
        yield f"{count} quotes", f"SELECT '{chr(39) * 2 * count}' AS x FROM s"
        yield f"{count} digits", f"SELECT {'9' * count} AS x FROM s"
        yield f"{count} digits behind the point", f"SELECT 0.{'9' * count} AS x FROM s"
        yield f"{count} digits of an exponent", f"SELECT 1e{'9' * count} AS x FROM s"
        yield (
            f"{count} digits of an interval",
            f"SELECT n FROM s WHERE ts > ts - INTERVAL '{'9' * count}' SECOND",
        )
        yield f"{count} digits of a size", f"CREATE STREAM z (a VARCHAR({'9' * count}))"
        yield f"{count} blanks", f"SELECT{' ' * count}n FROM s"
        yield f"{count} lines", f"SELECT{chr(10) * count}x FROM s"
        yield f"{count} comments", f"SELECT n FROM s {'/* */' * count}"


def joined() -> Iterator[Script]:
    """Scripts that multiply rows, or keep all of them."""
    yield "cross join", "SELECT * FROM s CROSS JOIN t"
    yield "cross join by a comma", "SELECT s.n FROM s, t"
    yield "join without a bound", "SELECT s.n FROM s JOIN t ON s.k = t.k"
    yield "join bounded on one side", "SELECT s.n FROM s JOIN t ON s.k = t.k AND t.stime > s.stime"
    yield "join bounded by another field", "SELECT s.n FROM s JOIN t ON s.n BETWEEN t.n - 1 AND t.n"
    yield "join bounded by an OR", f"SELECT s.n FROM s JOIN t ON s.k = t.k OR {BOUND}"
    yield "join bounded by a NOT", f"SELECT s.n FROM s JOIN t ON NOT ({BOUND})"
    yield (
        "bound of a million years",
        (
            "SELECT s.n FROM s JOIN t ON t.stime BETWEEN s.stime - INTERVAL '366000000' DAY "
            "AND s.stime"
        ),
    )
    yield (
        "bound of many digits",
        (
            f"SELECT s.n FROM s JOIN t ON t.stime > s.stime - INTERVAL '{'9' * 12}' WEEK "
            f"AND t.stime < s.stime + INTERVAL '{'9' * 12}' WEEK"
        ),
    )
    yield (
        "bound that no pair meets",
        ("SELECT s.n FROM s JOIN t ON t.stime > s.stime AND t.stime < s.stime"),
    )
    yield (
        "within of a million years",
        (
            "CREATE STREAM z WITH (within = INTERVAL '366000000' DAY) AS "
            "SELECT s.n FROM s JOIN t ON s.k = t.k"
        ),
    )
    yield (
        "negative within",
        (
            "CREATE STREAM z WITH (within = INTERVAL '-1' DAY) AS "
            "SELECT s.n FROM s JOIN t ON s.k = t.k"
        ),
    )
    for count in (3, 40, 400, 2_000):
        chain = " ".join(
            f"JOIN s AS a{n} ON a{n}.stime BETWEEN a0.stime - INTERVAL '1' DAY AND a0.stime"
            for n in range(1, count)
        )
        yield f"a chain of {count} self-joins", f"SELECT a0.n FROM s AS a0 {chain}"
        crosses = " CROSS JOIN ".join(f"s AS a{n}" for n in range(count))
        yield f"{count} cross joins", f"SELECT a0.n FROM {crosses}"
        within = " CROSS JOIN ".join(f"s AS a{n}" for n in range(count))
        yield (
            f"{count} cross joins within",
            (f"CREATE STREAM z WITH (within = INTERVAL '366' DAY) AS SELECT a0.n FROM {within}"),
        )
        doubling = ", ".join(
            f"d{n + 1} AS (SELECT x.n FROM d{n} AS x JOIN d{n} AS y ON x.stime = y.stime)"
            for n in range(count)
        )
        yield (
            f"{count} doublings by joins",
            (f"WITH d0 AS (SELECT n FROM s), {doubling} SELECT * FROM d{count}"),
        )
        wider = ", ".join(f"d{n + 1} AS (SELECT a || a AS a FROM d{n})" for n in range(count))
        yield (
            f"{count} doublings of a text",
            (f"WITH d0 AS (SELECT k AS a FROM s), {wider} SELECT * FROM d{count}"),
        )
        unions = ", ".join(
            f"d{n + 1} AS (SELECT n FROM d{n} UNION ALL SELECT n + 1 AS n FROM d{n})"
            for n in range(count)
        )
        yield (
            f"{count} doublings by unions",
            (f"WITH d0 AS (SELECT n FROM s), {unions} SELECT * FROM d{count}"),
        )
        stars = ", ".join(
            f"d{n + 1} AS (SELECT x.*, y.n AS m{n} FROM d{n} AS x JOIN d{n} AS y "
            "ON x.stime = y.stime)"
            for n in range(count)
        )
        yield (
            f"{count} wider stars",
            f"WITH d0 AS (SELECT * FROM s), {stars} SELECT * FROM d{count}",
        )
    for method in ("NATURAL", "NATURAL LEFT", "POSITIONAL", "LEFT ASOF", "FULL ASOF", "LATERAL"):
        yield f"{method} JOIN", f"SELECT s.n FROM s {method} JOIN t ON s.k = t.k AND {BOUND}"
    yield "ASOF without a bound", "SELECT s.n FROM s ASOF JOIN t ON s.k = t.k"
    yield (
        "ASOF in the future",
        ("SELECT s.n FROM s ASOF JOIN t ON s.k = t.k AND t.stime BETWEEN s.stime AND s.stime"),
    )
    yield "temporal join", "SELECT s.n FROM s JOIN t FOR SYSTEM_TIME AS OF s.ts ON s.k = t.k"
    yield "USING a field that is not there", "SELECT s.n FROM s JOIN t USING (zz)"
    yield "a join in parentheses", f"SELECT * FROM (s JOIN t ON {BOUND})"
    yield "apply", "SELECT * FROM s CROSS APPLY t"


def endless() -> Iterator[Script]:
    """Scripts that need all rows of a stream."""
    yield "GROUP BY without a window", "SELECT k, count(*) AS c FROM s GROUP BY k"
    yield "an aggregate of all", "SELECT count(*) AS c FROM s"
    yield "HAVING of all", "SELECT 1 AS x FROM s HAVING count(*) > 1"
    yield "DISTINCT", "SELECT DISTINCT k FROM s"
    yield "DISTINCT ON", "SELECT DISTINCT ON (k) n FROM s"
    yield "ORDER BY", "SELECT n FROM s ORDER BY n"
    yield "LIMIT", "SELECT n FROM s LIMIT 3"
    yield "OFFSET", "SELECT n FROM s OFFSET 3"
    yield "FETCH", "SELECT n FROM s FETCH FIRST 3 ROWS ONLY"
    yield "TOP", "SELECT TOP 3 n FROM s"
    yield "UNION", "SELECT n FROM s UNION SELECT n FROM t"
    yield "EXCEPT", "SELECT n FROM s EXCEPT SELECT n FROM t"
    yield "INTERSECT", "SELECT n FROM s INTERSECT SELECT n FROM t"
    yield "MINUS", "SELECT n FROM s MINUS SELECT n FROM t"
    yield "GROUPING SETS", f"SELECT count(*) AS c FROM {WINDOW} GROUP BY GROUPING SETS ((k), ())"
    yield "ROLLUP", f"SELECT count(*) AS c FROM {WINDOW} GROUP BY ROLLUP (window_start, k)"
    yield "CUBE", f"SELECT count(*) AS c FROM {WINDOW} GROUP BY CUBE (window_start, k)"
    yield "WITH ROLLUP", f"SELECT count(*) AS c FROM {WINDOW} GROUP BY window_start WITH ROLLUP"
    yield "GROUP BY ALL", f"SELECT k, count(*) AS c FROM {WINDOW} GROUP BY ALL"
    yield "GROUP BY a number", f"SELECT k, count(*) AS c FROM {WINDOW} GROUP BY 1"
    yield "OVER", "SELECT sum(n) OVER (PARTITION BY k ORDER BY ts) AS x FROM s"
    yield "OVER of all", "SELECT sum(n) OVER () AS x FROM s"
    yield "a named window", "SELECT sum(n) OVER w AS x FROM s WINDOW w AS (ORDER BY ts)"
    yield "LAG", "SELECT lag(n) OVER (ORDER BY ts) AS x FROM s"
    yield "QUALIFY", "SELECT n FROM s QUALIFY row_number() OVER (ORDER BY ts) = 1"
    yield "an aggregate in WHERE", "SELECT n FROM s WHERE count(*) > 1"
    yield (
        "an aggregate of an aggregate",
        (f"SELECT sum(count(*)) AS x FROM {WINDOW} GROUP BY window_start"),
    )
    yield (
        "a window of a microsecond over a year",
        (
            "SELECT count(*) AS c FROM HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MICROSECOND, "
            "INTERVAL '366' DAY) GROUP BY window_start"
        ),
    )
    yield (
        "a window of a thousand years",
        (
            "SELECT count(*) AS c FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '366000' DAY) "
            "GROUP BY window_start"
        ),
    )
    for span in (
        "'0' SECOND",
        "'-1' SECOND",
        "'1e9' DAY",
        "'nan' DAY",
        "'' DAY",
        "1 DAY",
        "k DAY",
        "'1' FORTNIGHT",
        "'1' MONTH",
        "'1-2' YEAR TO MONTH",
        "'1'",
        "'0.0000001' SECOND",
        "'99999999999' WEEK",
    ):
        yield (
            f"a window of {span}",
            (
                f"SELECT count(*) AS c FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL {span}) "
                "GROUP BY window_start"
            ),
        )
    yield (
        "a window of another time",
        (
            "SELECT count(*) AS c FROM TUMBLE(TABLE s, DESCRIPTOR(n), INTERVAL '1' DAY) "
            "GROUP BY window_start"
        ),
    )
    yield (
        "a window of a window",
        (f"SELECT count(*) AS c FROM TUMBLE(TABLE {WINDOW}, DESCRIPTOR(ts), INTERVAL '1' DAY)"),
    )
    yield (
        "RECURSIVE",
        ("WITH RECURSIVE a AS (SELECT n FROM s UNION ALL SELECT n + 1 FROM a) SELECT * FROM a"),
    )
    yield "a CTE of itself", "WITH a AS (SELECT * FROM a) SELECT * FROM a"
    yield "a stream of itself", "CREATE STREAM a AS SELECT * FROM a"
    yield (
        "two streams of each other",
        (
            "CREATE QUERY q AS BEGIN CREATE STREAM a AS SELECT * FROM b; "
            "CREATE STREAM b AS SELECT * FROM a; END"
        ),
    )
    yield (
        "MATCH_RECOGNIZE",
        (
            "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY ts PATTERN ((a* b*)* c) "
            "DEFINE a AS n > 1, b AS n > 2)"
        ),
    )
    yield "PIVOT", "SELECT * FROM s PIVOT (sum(n) FOR k IN ('a', 'b'))"
    yield "UNPIVOT", "SELECT * FROM s UNPIVOT (x FOR y IN (n, v))"
    yield "TABLESAMPLE", "SELECT * FROM s TABLESAMPLE (10 PERCENT)"


def reaching_out() -> Iterator[Script]:
    """Scripts that would read files, run code or change the peer in Spark's own SQL."""
    for source in ("parquet", "csv", "json", "orc", "text", "binaryFile", "delta", "jdbc"):
        yield f"a file as {source}", f"SELECT * FROM {source}.`/etc/passwd`"
        yield f"a file as {source} of s3", f"SELECT * FROM {source}.`s3a://bucket/key`"
    for function in (
        "read_files('/etc')",
        "range(1000000000)",
        "explode(array(1, 2))",
        "java_method('a', 'b')",
        "values(1)",
        "generate_series(1, 1000000000)",
        "read_parquet('/etc/passwd')",
        "unnest(array[1])",
        "stack(9, 1)",
    ):
        yield f"FROM {function}", f"SELECT * FROM {function}"
        yield f"TABLE({function})", f"SELECT * FROM TABLE({function})"
    for call in (
        "java_method('java.lang.Runtime', 'exit', 1)",
        "reflect('java.lang.System', 'exit')",
        "try_reflect('java.lang.System', 'exit')",
        "input_file_name()",
        "rand()",
        "uuid()",
        "now()",
        "current_timestamp()",
        "current_user()",
        "version()",
        "sleep(1)",
        "raise_error('x')",
        "assert_true(false)",
        "spark_partition_id()",
        "monotonically_increasing_id()",
        "secret('a', 'b')",
        "repeat('a', 1000000000)",
        "lpad('a', 1000000000)",
        "rpad('a', 2147483647, 'b')",
        "space(1000000000)",
        "sequence(1, 1000000000)",
        "array_repeat('a', 1000000000)",
        "xpath('a', 'b')",
        "from_json('a', 'b')",
        "schema_of_json('a')",
        "load_file('a')",
        "pg_sleep(1)",
        "ai_query('a', 'b')",
        "http_get('a')",
        "transform(array(1), x -> x)",
        "aes_encrypt('a', 'b')",
        "bool_or(true)",
        "window(ts, '1 day')",
        "cast()",
        "count(DISTINCT n, k)",
        "sum(*)",
        "min()",
        "percentile(n, n)",
        "percentile(v, 1e999)",
        "percentile(v, 99999999999999999999999999999)",
        "string_agg(k, '" + "x" * 5_000 + "')",
        "extract(EPOCH FROM ts)",
        "extract(x FROM ts)",
        "date_trunc('x', ts)",
        "date_format(ts, '" + "y" * 500 + "')",
    ):
        yield f"SELECT {call[:40]}", f"SELECT {call} AS x FROM s"
        yield f"WHERE {call[:40]}", f"SELECT n FROM s WHERE {call} = 1"
        yield f"GROUP BY {call[:40]}", f"SELECT {call} AS x FROM {WINDOW} GROUP BY window_start"
    for statement in (
        "DROP STREAM s",
        "DROP TABLE s",
        "DROP DATABASE x CASCADE",
        "DELETE FROM s",
        "DELETE s",
        "INSERT INTO s VALUES (1)",
        "INSERT OVERWRITE DIRECTORY '/tmp' SELECT * FROM s",
        "UPDATE s SET n = 1",
        "MERGE INTO s USING t ON s.n = t.n WHEN MATCHED THEN DELETE",
        "TRUNCATE TABLE s",
        "ALTER TABLE s ADD COLUMNS (a INT)",
        "CREATE DATABASE x",
        "CREATE FUNCTION f AS 'a.B' USING JAR '/tmp/x.jar'",
        "CREATE TEMPORARY FUNCTION f AS 'a'",
        "CREATE VIEW v AS SELECT * FROM s",
        "CREATE OR REPLACE TABLE x AS SELECT 1",
        "CREATE TABLE x USING parquet LOCATION '/etc'",
        "CREATE TABLE x LIKE s",
        "CREATE EXTERNAL TABLE x (a INT) LOCATION '/etc'",
        "CREATE INDEX i ON s (n)",
        "SET spark.sql.ansi.enabled = false",
        "SET x = 1",
        "RESET",
        "USE x",
        "SHOW TABLES",
        "DESCRIBE s",
        "DESCRIBE FORMATTED s",
        "CACHE TABLE s",
        "UNCACHE TABLE s",
        "REFRESH TABLE s",
        "ANALYZE TABLE s COMPUTE STATISTICS",
        "LOAD DATA INPATH '/etc/passwd' INTO TABLE s",
        "ADD JAR '/tmp/x.jar'",
        "LIST JAR",
        "GRANT ALL ON s TO x",
        "REVOKE ALL ON s FROM x",
        "COPY s TO '/tmp/x'",
        "COPY INTO s FROM '/etc'",
        "EXPORT DATABASE 'x'",
        "ATTACH 'x' AS y",
        "PRAGMA x",
        "CALL f()",
        "EXECUTE IMMEDIATE 'SELECT 1'",
        "EXEC xp_cmdshell 'ls'",
        "DECLARE x INT",
        "BEGIN",
        "BEGIN TRANSACTION",
        "COMMIT",
        "ROLLBACK",
        "KILL 1",
        "VALUES (1)",
        "TABLE s",
        "FROM s SELECT n",
        "FROM s",
        "SELECT 1",
        "SELECT 1 AS x",
        "s",
        "COMMENT ON TABLE s IS 'x'",
        "LOCK TABLE s",
        "VACUUM s",
        "INSTALL httpfs",
        "!ls",
        "\\! ls",
        "REPAIR TABLE s",
        "MSCK REPAIR TABLE s",
        "SUMMARIZE s",
        "EXPLAIN",
        "EXPLAIN DROP STREAM s",
        "EXPLAIN ANALYZE SELECT n FROM s",
        "EXPLAIN EXTENDED SELECT n FROM s",
        "WITH",
        "WITH a",
        "WITH a AS",
        "WITH a AS (",
        "WITH a AS (DELETE FROM s) SELECT * FROM a",
        "WITH a AS (INSERT INTO s SELECT * FROM t) SELECT 1",
        "(DROP TABLE s)",
        "((SELECT n FROM s)",
        "SELECT n INTO x FROM s",
        "SELECT n FROM s INTO OUTFILE '/tmp/x'",
        "SELECT n FROM s FOR UPDATE",
        "SELECT n FROM s SETTINGS x = 1",
        "SELECT n FROM s FORMAT CSV",
    ):
        yield statement, statement
        yield f"{statement} behind a SELECT", f"CREATE STREAM a AS SELECT n FROM s; {statement}"
    for hint in ("BROADCAST(s)", "REPARTITION(1000000)", "COALESCE(1)", "SHUFFLE_REPLICATE_NL(s)"):
        yield f"hint {hint}", f"SELECT /*+ {hint} */ n FROM s"
    yield "LATERAL VIEW", "SELECT n, x FROM s LATERAL VIEW explode(split(k, ',')) e AS x"
    yield "LATERAL", "SELECT * FROM s, LATERAL (SELECT n FROM t)"
    yield "IN a SELECT", "SELECT n FROM s WHERE n IN (SELECT n FROM t)"
    yield "NOT IN a SELECT", "SELECT n FROM s WHERE n NOT IN (SELECT n FROM t)"
    yield "EXISTS", "SELECT n FROM s WHERE EXISTS (SELECT 1 FROM t WHERE t.n = s.n)"
    yield "a scalar subquery", "SELECT (SELECT max(n) FROM t) AS x FROM s"
    yield "ANY", "SELECT n FROM s WHERE n = ANY (SELECT n FROM t)"
    yield "ALL", "SELECT n FROM s WHERE n > ALL (SELECT n FROM t)"
    yield "a subquery in ON", "SELECT s.n FROM s JOIN t ON s.n = (SELECT max(n) FROM t)"
    yield "TRANSFORM", "SELECT TRANSFORM (n) USING 'cat' AS (x) FROM s"
    yield "an array", "SELECT array(1, 2) AS x FROM s"
    yield "a struct", "SELECT struct(n, k) AS x FROM s"
    yield "a map", "SELECT map(n, k) AS x FROM s"
    yield "a list", "SELECT [1, 2] AS x FROM s"
    yield "an object", "SELECT {'a': 1} AS x FROM s"
    yield "a path", "SELECT k:a.b[0] AS x FROM s"
    yield "a time of a table", "SELECT * FROM s TIMESTAMP AS OF '2020-01-01'"
    yield "a version of a table", "SELECT * FROM s VERSION AS OF 1"
    yield (
        "a parameter",
        "SELECT n FROM s WHERE n = ? AND k = :k AND v = $1 AND n = @x AND n = {{x}}",
    )
    yield "a variable", "SELECT ${spark.secret} AS x, @@version AS y FROM s"


def exploding() -> Iterator[Script]:
    """Patterns and texts whose evaluation would take for ever."""
    for pattern in (
        "(a+)+$",
        "(a*)*b",
        "(a|aa)+$",
        "(a|a?)+$",
        "(.*)*$",
        "((a+)+)+$",
        "(?=a)",
        "(?<!a)",
        "\\1",
        "(a)\\1",
        "a{1000000}",
        "(a{100}){100}",
        "(a{1,100}){1,100}",
        "((((((((((a",
        "[",
        "(",
        ")",
        "*",
        "+",
        "\\",
        "(?x)",
        "(?i)(?i)",
        "[[:alpha:]]",
        "\\p{L}",
        "[a-\\d]",
        "(?P<n>a)",
        "(?:)*",
        "^*",
        "a**",
        "a{,}",
        "a{2,1}",
        "[z-a]",
        "\\Q",
        "(?>a)",
        "a++",
    ):
        text = pattern.replace("'", "''")
        for call in (
            f"k RLIKE '{text}'",
            f"regexp_like(k, '{text}')",
            f"regexp_replace(k, '{text}', 'x') = k",
            f"regexp_extract(k, '{text}', 1) = k",
        ):
            yield call, f"SELECT n FROM s WHERE {call}"
    yield "a pattern that is a field", "SELECT n FROM s WHERE k RLIKE k"
    yield "a pattern of 100,000", f"SELECT n FROM s WHERE k RLIKE '{'a?' * 30_000}'"
    yield "LIKE with 30,000 signs", f"SELECT n FROM s WHERE k LIKE '{'%_' * 15_000}'"
    yield "LIKE with a lone escape", "SELECT n FROM s WHERE k LIKE '\\'"
    yield "SIMILAR TO", "SELECT n FROM s WHERE k SIMILAR TO 'a'"
    yield "ILIKE", "SELECT n FROM s WHERE k ILIKE 'a'"
    yield "GLOB", "SELECT n FROM s WHERE k GLOB 'a'"
    yield (
        "many replaces",
        "SELECT " + "replace(" * 30 + "k" + ", 'a', 'aaaaaaaa')" * 30 + " AS x FROM s",
    )
    yield "many concats", "SELECT " + "concat(" * 30 + "k" + ", k)" * 30 + " AS x FROM s"
    yield "a JSON path of 10,000 steps", f"SELECT json_value(k, '${'.a' * 10_000}') AS x FROM s"
    yield "division by zero", "SELECT n / 0 AS x, n % 0 AS y, 1 / 0 AS z FROM s"
    yield "an overflow", "SELECT 9223372036854775807 + 1 AS x FROM s"
    yield "the least long", "SELECT -9223372036854775808 AS x FROM s"
    yield "a long that is too long", "SELECT 9223372036854775808 AS x FROM s"
    yield "a power", "SELECT power(power(power(10, 300), 300), 300) AS x FROM s"
    yield "a cast that cannot be", "SELECT cast('abc' AS INT) AS x FROM s"
    yield "a date that is none", "SELECT TIMESTAMP '2020-13-45 99:99:99' AS x FROM s"
    yield "the year 10^9", "SELECT cast('999999999-01-01' AS TIMESTAMP) AS x FROM s"
    yield "an interval of much", "SELECT ts + INTERVAL '999999999999' WEEK AS x FROM s"
    yield "round to 10^9", "SELECT round(v, 1000000000) AS x FROM s"
    yield "substring to 10^18", "SELECT substring(k, 1, 1000000000000000000) AS x FROM s"


def texts() -> Iterator[Script]:
    """Texts on which a tokenizer stumbles."""
    for end in (
        "'",
        '"',
        "`",
        "/*",
        "--",
        "$$",
        "$a$",
        "r'",
        "x'",
        "b'",
        "E'",
        "N'",
        "U&'",
        "'''",
        "''''",
        "\\",
        "'\\",
        "\\'",
        "/*/",
        "*/",
        "/*+",
        "--+",
        "{{",
        "{%",
        "{#",
        "#",
        "@",
        "?",
        ":",
        "::",
        "->",
        "->>",
        "=>",
        ":=",
        "<=>",
        "||",
        "&&",
        "^",
        "~",
        "!",
        "!=",
        "..",
        "...",
        "::::",
    ):
        yield f"{end} at the end", f"SELECT n FROM s WHERE k = {end}"
        yield f"{end} alone", end
        yield f"{end} as a column", f"SELECT {end} FROM s"
    for sign in (
        "\x00",
        "\x07",
        "\x0b",
        "\x1b[31m",
        "\x7f",
        "\x85",
        "\u00a0",
        "\u200b",
        "\u202e",
        "\u2028",
        "\ufeff",
        "\ufffe",
        "\uffff",
        "\ud800",
        "\U0001f600",
        "\U000e0041",
        "ﬀ",
        "ſ",
        "K",
        "İ",
        "ı",
        "е",
        "；",
        "（",
        "’",
        "´",
        "e\u0301" * 500,
        "\u0300" * 5_000,
    ):
        shown = ascii(sign)[:20]
        yield f"{shown} as a name", f"SELECT {sign} FROM s"
        yield f"{shown} in a name", f"SELECT n{sign} FROM s"
        yield f"{shown} in a keyword", f"SEL{sign}ECT n FROM s"
        yield f"{shown} as a blank", f"SELECT{sign}n FROM s"
        yield f"{shown} in a text", f"SELECT '{sign}' AS x FROM s"
        yield f"{shown} in quotes", f'SELECT n AS "{sign}" FROM s'
        yield f"{shown} in a stream's name", f'CREATE STREAM "{sign}" AS SELECT n FROM s'
        yield f"{shown} in a comment", f"SELECT n FROM s -- {sign}\n WHERE zz = 1"
    for word in (
        "select",
        "from",
        "where",
        "group",
        "by",
        "create",
        "stream",
        "table",
        "begin",
        "end",
        "case",
        "when",
        "null",
        "true",
        "and",
        "or",
        "not",
        "in",
        "as",
        "interval",
        "left",
        "right",
        "stime",
        "window_start",
        "window_end",
        "union",
        "all",
        "distinct",
        "values",
        "window",
        "over",
        "partition",
        "cast",
        "extract",
        "explain",
        "split",
        "with",
        "on",
        "using",
        "join",
        "array",
    ):
        yield f"{word} as a column", f"SELECT {word} FROM s"
        yield f"{word} as a name", f"SELECT n AS {word} FROM s"
        yield f'"{word}" as a name', f'SELECT n AS "{word}" FROM s'
        yield f"{word} as a table", f"SELECT {word}.n FROM s AS {word}"
        yield f"{word} as a stream", f"CREATE STREAM {word} AS SELECT n FROM s"
        yield f"{word} as a CTE", f"WITH {word} AS (SELECT n FROM s) SELECT * FROM {word}"
        yield f"{word} as a call", f"SELECT {word}(n) AS x FROM s"
        yield f"{word} as a field", f"CREATE STREAM z ({word} INT)"
    for name in (
        "../../etc",
        "a/b",
        "a/../b",
        "/",
        ".",
        "..",
        "a//b",
        "medusa://",
        "medusa://x",
        "medusa:///y",
        "medusa://X/y",
        "medusa://x/" + "y" * 300,
        "http://x/y",
        "a b",
        "",
        " ",
        "%2e%2e",
        "a\\b",
        "late",
        "a/late",
        "a/panes",
        "schema",
        "C:\\x",
        "a;b",
        "a'b",
        'a""b',
        "a\nb",
    ):
        yield f"stream {name[:40]!a}", f'CREATE STREAM "{name}" AS SELECT n FROM s'
        yield f"FROM {name[:40]!a}", f'SELECT n FROM "{name}"'
        yield f"field {name[:40]!a}", f'CREATE STREAM z ("{name}" INT)'
        yield f"schema {name[:40]!a}", f'CREATE STREAM z USING "{name}"'


def defined() -> Iterator[Script]:
    """Definitions with parts that are wrong, missing, repeated or too large."""
    for fields in (
        "",
        "a",
        "a INT,",
        "a INT b INT",
        "a INT a INT",
        "a INT, a INT",
        "a FOO",
        "a INT(5)",
        "a STRING(0)",
        "a STRING(-1)",
        "a STRING(1.5)",
        "a STRING(99999999999999999999)",
        "a STRING('x')",
        "a STRING()",
        "a STRING(5, 6)",
        "a VARCHAR(MAX)",
        "a DECIMAL(10, 2)",
        "a INT NOT",
        "a INT NOT NULL NULL",
        "a INT UNIQUE",
        "a INT DEFAULT 1",
        "a INT CHECK (a > 1)",
        "a INT REFERENCES b",
        "a INT PRIMARY",
        "PRIMARY KEY (a)",
        "a INT, PRIMARY KEY (b)",
        "a INT, PRIMARY KEY ()",
        "a INT, PRIMARY KEY (a), PRIMARY KEY (a)",
        "stime TIMESTAMP",
        "a INT, WATERMARK FOR b AS b",
        "a INT, WATERMARK FOR a AS b",
        "a STRING, WATERMARK FOR a AS a",
        "a TIMESTAMP, WATERMARK FOR a AS a - a",
        "a TIMESTAMP, WATERMARK FOR a AS a + INTERVAL '1' SECOND",
        "a TIMESTAMP, WATERMARK FOR a AS a - INTERVAL '-1' SECOND",
        "a TIMESTAMP, WATERMARK FOR a AS a - INTERVAL '999999999999' WEEK",
        "a TIMESTAMP, WATERMARK FOR a AS a, WATERMARK FOR a AS a",
        "WATERMARK",
        "WATERMARK FOR",
        "a AS b",
        "a ARRAY<INT>",
        "a STRUCT<b: INT>",
        "a MAP<INT, INT>",
        "LIKE s",
        "* INT",
    ):
        yield f"fields {fields}", f"CREATE STREAM z ({fields})"
        yield f"schema {fields}", f"CREATE SCHEMA z ({fields})"
        yield f"table {fields}", f"CREATE TABLE z ({fields})"
    for option in (
        "",
        "slack",
        "slack =",
        "= 1",
        "slack 1",
        "slack = 1 slack = 2",
        "slack = 1, slack = 2",
        "zz = 1",
        "slack = 'x'",
        "slack = -1",
        "slack = n",
        "slack = (SELECT 1)",
        "slack = NULL",
        "slack = 1e400",
        "slack = INTERVAL '1' MONTH",
        "slack = INTERVAL '999999999999' WEEK",
        "history = -5",
        "history = 1e99",
        "idle = 'x'",
        "idle = 1",
        "readers = 1",
        "readers = '../x'",
        "readers = '" + "a " * 2_000 + "'",
        "k_safety = -1",
        "k_safety = 'x'",
        "k_safety = 99999999999",
        "max_ahead = 'x'",
        "max_ahead = -1",
        "max_ahead = true",
        "leader = 'x'",
        "declassify = 5",
        "within = 'x'",
        "ha = 'x'",
        "ha = 1",
        "recovery = 'x'",
        "bound = -1",
        "bound = 'x'",
        "bound = 99999999999",
        "checkpoint = 1e-9",
        "secondary = 'x'",
        "version = 'x'",
        "version = 1.5",
        "from = 'x'",
        "until = 'x'",
        "from = 5, until = 4",
        "box = ''",
        "box = '" + "b" * 300 + "'",
        "'slack' = 1",
        "a.b = 1",
    ):
        yield f"options of a source: {option[:40]}", f"CREATE STREAM z (a INT) WITH ({option})"
        yield (
            f"options of a stream: {option[:40]}",
            f"CREATE STREAM z WITH ({option}) AS SELECT n FROM s",
        )
        yield (
            f"options of a query: {option[:40]}",
            (f"CREATE QUERY q WITH ({option}) AS BEGIN CREATE STREAM z AS SELECT n FROM s; END"),
        )
    for body in (
        "",
        "BEGIN",
        "BEGIN END",
        "BEGIN; END",
        "BEGIN SELECT n FROM s; END",
        "END",
        "BEGIN CREATE STREAM z (a INT); END",
        "BEGIN CREATE SCHEMA z (a INT); END",
        "BEGIN CREATE STREAM z AS SELECT n FROM s",
        "BEGIN BEGIN END END",
        "BEGIN CREATE QUERY r AS BEGIN CREATE STREAM z AS SELECT n FROM s; END; END",
        "BEGIN CREATE STREAM z AS SELECT n FROM s; CREATE STREAM z AS SELECT n FROM s; END",
        "BEGIN CREATE STREAM s AS SELECT n FROM s; END",
        "BEGIN DROP STREAM s; END",
        "BEGIN CREATE TEMPORARY STREAM z AS SELECT n FROM s; END",
        "SELECT n FROM s",
    ):
        yield f"query {body}", f"CREATE QUERY q AS {body}"
        yield f"query without AS {body}", f"CREATE QUERY q {body}"
    for split in (
        "",
        "s",
        "s BY",
        "s BY n",
        "s BY n > 1",
        "s BY n > 1, n > 2",
        "s BY n > 1 ELSE",
        "s BY n > 1 ELSE ELSE",
        "s BY n > 1, ELSE",
        "zz BY n > 1",
        "(SELECT n FROM s) BY n > 1",
        "s BY count(*) > 1",
        "s BY (SELECT 1) = 1",
        "s BY n > 1, n > 2 ELSE n > 3",
    ):
        yield f"SPLIT {split}", f"CREATE STREAM a, b AS SPLIT {split}"
        yield f"SPLIT to one {split}", f"CREATE STREAM a AS SPLIT {split}"
    for statement in (
        "CREATE",
        "CREATE STREAM",
        "CREATE STREAM z",
        "CREATE STREAM z AS",
        "CREATE STREAM z,",
        "CREATE STREAM z USING",
        "CREATE STREAM z USING zz",
        "CREATE STREAM a, b (x INT)",
        "CREATE STREAM a, b AS SELECT n FROM s",
        "CREATE STREAM a, a AS SPLIT s BY n > 1 ELSE",
        "CREATE SCHEMA z",
        "CREATE SCHEMA z USING s",
        "CREATE SCHEMA z AS SELECT n FROM s",
        "CREATE TABLE z",
        "CREATE TABLE z (a INT)",
        "CREATE TABLE z AS SELECT n FROM s",
        "CREATE STREAM s AS SELECT n FROM s",
        "CREATE STREAM z (a INT) AS SELECT n FROM s",
        "CREATE STREAM z (a INT) USING s",
        "CREATE IF NOT EXISTS STREAM z (a INT)",
        "CREATE STREAM IF NOT EXISTS z (a INT)",
        "CREATE OR REPLACE STREAM z (a INT)",
        "CREATE STREAM z AS SELECT n FROM s AS SELECT n FROM s",
        "CREATE QUERY",
        "CREATE QUERY q",
        "SELECT n FROM s; SELECT n FROM s",
        "CREATE STREAM answer AS SELECT n FROM s; SELECT n FROM s",
        "SELECT",
        "SELECT FROM s",
        "SELECT n",
        "SELECT n FROM",
        "SELECT n FROM s WHERE",
        "SELECT n FROM s GROUP",
        "SELECT n FROM s GROUP BY",
        "SELECT n n n FROM s",
        "SELECT n, FROM s",
        "SELECT n AS FROM s",
        "SELECT n FROM s s s",
        "SELECT * AS x FROM s",
        "SELECT *, n FROM s",
        "SELECT s.*, s.* FROM s",
        "SELECT zz.* FROM s",
        "SELECT s FROM s",
        "SELECT * EXCEPT (n) FROM s",
        "SELECT * REPLACE (1 AS n) FROM s",
        "SELECT * EXCEPT n FROM s",
        "SELECT 's' FROM s",
        "SELECT NULL FROM s",
        "SELECT NULL AS x FROM s",
        "SELECT true FROM s",
        "SELECT n FROM s AS a(b, c)",
        "SELECT n FROM (s)",
        "SELECT n FROM ((s))",
        "SELECT n FROM ()",
        "SELECT n FROM (SELECT n FROM s) WHERE n IS UNKNOWN",
        "SELECT n IS 5 FROM s",
        "SELECT n FROM s WHERE n",
        "SELECT n FROM s WHERE k",
        "SELECT n FROM s WHERE NULL",
        "SELECT n FROM s WHERE n = 'x'",
        "SELECT n FROM s WHERE k = 1",
        "SELECT n + k AS x FROM s",
        "SELECT n FROM s WHERE ts > 5",
        "SELECT n FROM s WHERE ts > 'yesterday'",
        "SELECT n FROM s WHERE (n, k) = (1, 'a')",
        "SELECT (n, k) AS x FROM s",
        "SELECT n FROM s WHERE n IN ()",
        "SELECT n FROM s WHERE n BETWEEN 1",
        "SELECT @n FROM s",
        "SELECT CASE END FROM s",
        "SELECT CASE n END FROM s",
        "SELECT CASE WHEN n THEN 1 END FROM s",
        "SELECT cast(n AS) FROM s",
        "SELECT cast(n AS zz) FROM s",
        "SELECT cast(n AS STRING(5)) FROM s",
        "SELECT try_cast(n AS INT) FROM s",
        "SELECT n :: INT FROM s",
        "SELECT n DIV 2 AS x FROM s",
        "SELECT n & 1 AS x FROM s",
        "SELECT n << 1 AS x FROM s",
        "SELECT ~n AS x FROM s",
        "SELECT n ** 2 AS x FROM s",
        "SELECT n ^ 2 AS x FROM s",
        "SELECT n // 2 AS x FROM s",
    ):
        yield statement, statement


FAMILIES: Final = (nested, long, joined, endless, reaching_out, exploding, texts, defined)
