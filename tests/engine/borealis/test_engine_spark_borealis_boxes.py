"""Each supported box of Borealis: Spark in epochs and the interpreter give DuckDB's answer to the
same query in other words."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from borealis_boxes import BUFFERS, ORDERED, TABLE, document, read, table_box, whole
from computed_documents import Row, answers, by_interpreted_tasks, by_interpreter, by_spark, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from medusa.engine.spark.session import Spark

SECOND = 1_000_000


def data(seed: int = 1) -> dict[str, list[Row]]:
    rng = random.Random(seed)
    return {
        "s": [
            {
                "time": time,
                "k": rng.choice("abc"),
                "x": rng.randrange(-5, 20),
                "y": rng.choice([0.5, -1.25, 8.0]),
            }
            for time in sorted(rng.randrange(-20, 100) for _ in range(90))
        ],
        "u": [
            {"seen": time, "k": rng.choice("abd"), "z": rng.randrange(9)}
            for time in sorted(rng.sample(range(-20, 100), 60))
        ],
        "fleet": [
            {"since": time, "k": rng.choice("abd"), "z": rng.randrange(9)}
            for time in sorted(rng.sample(range(-20, 100), 40))
        ],
    }


CUTS = [5 * SECOND, 33 * SECOND - 1, 34 * SECOND, 200 * SECOND]

FUNCTIONS = {
    "aggregate-function.0": "count()",
    "aggregate-function-output-name.0": "n",
    "aggregate-function.1": "sum(x)",
    "aggregate-function-output-name.1": "total",
    "aggregate-function.2": "avg(x)",
    "aggregate-function-output-name.2": "mean",
    "aggregate-function.3": "max(y)",
    "aggregate-function-output-name.3": "top",
    "group-by": "k",
}
RESULTS = "count(*), sum(x)::INT, trunc(avg(x))::INT, max(y)"


def windows_sql(size: int, advance: int) -> str:
    return f"""SELECT (start + {size}) * 1000000 - 1, k, start, {RESULTS}
        FROM s, range(-200, 200) AS starts(start)
        WHERE start % {advance} = 0 AND time >= start AND time < start + {size} GROUP BY ALL"""


LATCHED = """SELECT (w.start + 20) * 1000000 - 1, w.k, w.start, count(*), sum(x)::INT, max(y)
    FROM (SELECT DISTINCT k, time - ((time % 20) + 20) % 20 AS start FROM s) w
    JOIN s ON s.k = w.k AND s.time < w.start + 20 GROUP BY ALL"""

PAIRED = "t.k = u.k AND u.seen BETWEEN t.time - 7 AND t.time + 7"
RESAMPLED = f"""SELECT (max(greatest(time, seen)) + 7) * 1000000, t.k, t.time, count(*), sum(z)
    FROM (SELECT DISTINCT * FROM s) t JOIN u ON {PAIRED} GROUP BY t.time, t.k, t.x, t.y"""

PAIRS = {
    "predicate": "left.k = right.k or left.x &lt; right.z and right.stime &lt; left.stime",
    "out-field.0": "left.x",
    "out-field-name.0": "x",
    "out-field.1": "right.z + left.time - right.seen",
    "out-field-name.1": "z",
}


def by_tuples(left: str, right: str) -> str:
    """Say whether the earlier tuple of a pair is still in its buffer (if both have one time, the
    left tuple is the earlier).

    Args:
        left: the condition for a right tuple `r` and an earlier left tuple `l`.
        right: the condition for the other pairs.
    """
    return f"""SELECT greatest(time, seen) * 1000000, x, z + time - seen
        FROM (SELECT *, row_number() OVER (ORDER BY time, rowid) AS n,
              (SELECT count(*) FROM u WHERE seen < time) AS others FROM s) l
        JOIN (SELECT *, row_number() OVER (ORDER BY seen, rowid) AS n,
              (SELECT count(*) FROM s WHERE time <= seen) AS others FROM u) r
        ON (l.k = r.k OR x < z AND seen < time)
        AND CASE WHEN time <= seen THEN {left} ELSE {right} END"""


BY_TUPLES = [
    (
        name,
        {
            "left-order-by": left,
            "left-buffer-size": left_size,
            "left-order-on-field": "time",
            "right-order-by": right,
            "right-buffer-size": right_size,
            "right-order-on-field": "seen",
        },
        by_tuples(*words),
    )
    for name, (left, left_size), (right, right_size), words in (
        ("tuples", ("TUPLES", "7"), ("TUPLES", "3"), ("l.n > r.others - 7", "r.n > l.others - 3")),
        (
            "right-tuples",
            ("VALUES", "4"),
            ("TUPLES", "3"),
            ("seen - time <= 4", "r.n > l.others - 3"),
        ),
        (
            "left-tuples",
            ("TUPLES", "5"),
            ("VALUES", "2.5"),
            ("l.n > r.others - 5", "time - seen <= 2.5"),
        ),
    )
]

CASES: dict[str, tuple[str, str]] = {
    "filter": (
        document("filter", {"predicate": "x > 3", "pass-on-false-port": "1"}, outputs="out rest"),
        "SELECT time * 1000000, time, k, x, y FROM s WHERE x > 3",
    ),
    "revisionfilter": (
        document("revisionfilter", {"expression.0": "x > 3", "processing-mode": "UPSTREAM"}),
        "SELECT time * 1000000, time, k, x, y FROM s WHERE x > 3",
    ),
    "revisionmap": (
        document("revisionmap", {"expression.0": "x + 1", "output-field-name.0": "x1"}),
        "SELECT time * 1000000, x + 1 FROM s",
    ),
    "revisionaggregate": (
        document("revisionaggregate", {**FUNCTIONS, **ORDERED, "window-size": "10"}),
        windows_sql(10, 10),
    ),
    "bsort": (
        document("bsort", {"order-on": "time", "slack": "0", "group-by": "k"}),
        "SELECT time * 1000000, time, k, x, y FROM s",
    ),
    "aggregate": (
        document("aggregate", {**FUNCTIONS, **ORDERED, "window-size": "20", "advance": "5"}),
        windows_sql(20, 5),
    ),
    "aggregate-advance-over-size": (
        document("aggregate", {**FUNCTIONS, **ORDERED, "window-size": "5", "advance": "20"}),
        windows_sql(5, 20),
    ),
    "tumble": (
        document("tumble", {**FUNCTIONS, **ORDERED, "window-size": "20"}),
        windows_sql(20, 20),
    ),
    "slide": (document("slide", {**FUNCTIONS, **ORDERED, "window-size": "4"}), windows_sql(4, 1)),
    "xsection": (document("xsection", {**FUNCTIONS, **ORDERED}), windows_sql(1, 1)),
    "latch": (
        document(
            "latch",
            {
                "aggregate-function.0": "count()",
                "aggregate-function-output-name.0": "n",
                "aggregate-function.1": "sum(x)",
                "aggregate-function.2": "max(y)",
                "group-by": "k",
                **ORDERED,
                "window-size": "20",
            },
        ),
        LATCHED,
    ),
    "resample": (
        document(
            "resample",
            {
                "aggregate-function.0": "count()",
                "aggregate-function.1": "sum(z)",
                "window-size": "7",
                "group-by": "k",
                "left-order-by": "VALUES",
                "left-order-on-field": "time",
                "right-order-by": "VALUES",
                "right-order-on-field": "seen",
            },
            inputs="s u",
        ),
        RESAMPLED,
    ),
    "join": (
        document(
            "join",
            {
                "predicate": "left.k = right.k",
                **BUFFERS,
                "out-field.0": "left.x",
                "out-field-name.0": "x",
                "out-field.1": "right.z",
                "out-field-name.1": "z",
            },
            inputs="s u",
        ),
        """SELECT greatest(time, seen) * 1000000, x, z FROM s JOIN u ON s.k = u.k
           AND u.seen BETWEEN s.time - 8 AND s.time + 3""",
    ),
    **{
        f"join-{name}": (document("join", {**PAIRS, **buffers}, inputs="s u"), words)
        for name, buffers, words in BY_TUPLES
    },
    "sjoin-of-all-fields": (
        whole("""          <box name="m" type="map"><in stream="u"/><out stream="v"/>
            <parameter name="expression.0" value="seen"/>
            <parameter name="output-field-name.0" value="seen"/>
            <parameter name="expression.1" value="k"/>
            <parameter name="output-field-name.1" value="kind"/></box>
          <box name="b" type="sjoin"><in stream="s"/><in stream="v"/><out stream="out"/>
            <parameter name="predicate" value="left.k = right.kind"/>
            <parameter name="left-order-by" value="VALUES"/>
            <parameter name="left-buffer-size" value="0"/>
            <parameter name="right-order-by" value="VALUES"/>
            <parameter name="right-order-on-field" value="seen"/>
            <parameter name="right-buffer-size" value="5"/></box>"""),
        """SELECT time * 1000000, time, s.k, x, y, seen, u.k FROM s JOIN u ON s.k = u.k
           AND u.seen BETWEEN s.time - 5 AND s.time""",
    ),
    "waitfor": (
        document("waitfor", {"predicate": "left.k = right.k", "timeout": "6"}, inputs="s u"),
        """SELECT (time + 6) * 1000000, time, k, x, y FROM s WHERE EXISTS (
           SELECT 1 FROM u WHERE u.k = s.k AND seen BETWEEN time AND time + 6)""",
    ),
    "delay": (
        document("delay", {"delay": "2.5"}),
        "SELECT time * 1000000 + 2500000, time, k, x, y FROM s",
    ),
}


def over_table(*boxes: str) -> str:
    """Return a document with the table `fleet`."""
    return whole("".join(boxes), TABLE)


SELECT = table_box(
    "select",
    "s",
    "select input.time, k, fleet.z + input.x as zx from fleet where k = input.k and z > 2",
    '<out stream="out"/>',
)

NEWEST = """SELECT time * 1000000, time, k, z + x FROM (SELECT s.*, (
    SELECT CASE WHEN gone THEN NULL ELSE z END FROM ({}) c WHERE c.k = s.k AND c.t <= s.time
    ORDER BY t DESC, gone DESC LIMIT 1) AS z FROM s) WHERE z > 2"""

CASES |= {
    "table-select": (
        over_table(SELECT).replace('name="fleet_tuple"', 'name="fleet_tuple" time="since"'),
        NEWEST.format("SELECT since AS t, k, z, false AS gone FROM fleet"),
    ),
    "table-insert-select": (
        over_table(
            table_box("insert", "u", "insert into fleet values (input.seen, input.k, input.z)"),
            SELECT,
        ),
        NEWEST.format("SELECT seen AS t, k, z, false AS gone FROM u"),
    ),
    "table-insert-delete-select": (
        over_table(
            SELECT,
            table_box("insert", "u", "insert into fleet values (input.seen, input.k, input.z)"),
            """<box name="low" type="filter"><in stream="s"/><out stream="low"/>
               <parameter name="expression.0" value="x &lt; -2"/></box>""",
            table_box("delete", "low", "delete from fleet where fleet.k = input.k"),
        ),
        NEWEST.format(
            """SELECT seen AS t, k, z, false AS gone FROM u UNION ALL
            SELECT time, k, NULL, true FROM s WHERE x < -2"""
        ),
    ),
}


def case(name: str, seed: int) -> tuple[str, dict[str, list[Row]], list[tuple[Any, ...]]]:
    """The document, the rows of its sources, and DuckDB's answer."""
    text, statement = CASES[name]
    given = data(seed)
    expected = answers(given, {"out": statement})["out"]
    if not name.startswith("table") or "insert" in text:
        del given["fleet"]
    return text, given, expected


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=examples(4, soak=100))
@given(
    seed=st.integers(2, 10**6),
    cuts=st.sets(st.integers(-30 * SECOND, 130 * SECOND) | st.integers(-30, 130), max_size=8),
)
def test_any_cut_into_epochs_gives_the_answer_of_duckdb(
    name: str, seed: int, cuts: set[int]
) -> None:
    text, rows, expected = case(name, seed)
    boundaries = sorted({cut * SECOND - 1 if abs(cut) < 200 else cut for cut in cuts})
    made = by_interpreted_tasks(read(text), rows, [*boundaries, 300 * SECOND])["out"]
    assert rows_of(made) == expected


@pytest.mark.parametrize("name", CASES)
@pytest.mark.spark
def test_each_box_gives_duckdbs_answer(name: str, spark: Spark, tmp_path: Path) -> None:
    text, rows, expected = case(name, seed=1)
    assert len(expected) > 3
    made = by_spark(spark, tmp_path, read(text), rows, CUTS)["out"]
    assert rows_of(made) == expected
    assert by_interpreter(read(text), rows)["out"] == expected
