"""Draws networks, data and cuts, and the same networks as SQL for another engine. Expressions come
in pairs, in Medusa's language and in DuckDB's SQL, so that neither is derived from the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from random import Random

import pyarrow as pa
from epoch_matches import Computed, matches
from hypothesis import strategies as st
from reference_aggregates import later_sql
from reference_networks import generators

from medusa.engine.objects.query import (
    Aggregate,
    AggregateCall,
    Box,
    Cumulate,
    Filter,
    Join,
    JoinKind,
    Map,
    Match,
    Query,
    Rank,
    Sessions,
    Union,
)
from medusa.engine.objects.schema import END, Field, FieldType, Schema
from medusa.engine.operators.join.sides import AS_OF, ONE_SIDED
from medusa.engine.operators.typing import type_box
from medusa.testnet.simulation.networks import (
    CONSTANTS,
    FLOATS,
    INTEGERS,
    Networks,
    Words,
    functions_of,
)

F = FieldType
SOURCE_FIELDS = (
    Field("k", F.INT, nullable=True),
    Field("b", F.BYTE),
    Field("n", F.LONG, nullable=True),
    Field("s", F.STRING, nullable=True),
    Field("x", F.DOUBLE, nullable=True),
    Field("y", F.SINGLE),
    Field("t", F.BOOL, nullable=True),
    Field("moment", F.TIMESTAMP, nullable=True),
)
SOURCES = {name: Schema(name, SOURCE_FIELDS) for name in ("s0", "s1")}
SQL_TYPES = {F.BYTE: "TINYINT", F.INT: "INTEGER", F.LONG: "BIGINT", F.DOUBLE: "DOUBLE"}


@dataclass(frozen=True)
class Network:
    """A query, the schemas of its streams, and how each of its streams is computed, in order: by a
    SQL statement, or by plain Python."""

    query: Query
    schemas: Mapping[str, Schema]
    sql: Mapping[str, str | Computed]


def predicates(field: Field) -> list[tuple[str, str]]:
    f = field.name
    either = [(f"{f} is null", f"{f} IS NULL")]
    if field.type is F.STRING:
        return [
            *either,
            (f"{f} = 'x.y'", f"{f} = 'x.y'"),
            (f"lower({f}) in ('', 'x')", f"lower({f}) IN ('', 'x')"),
            (f"{f} like 'x%'", f"{f} LIKE 'x%'"),
            (f"length({f}) < 2", f"length({f}) < 2"),
            (f"{f} > 'X'", f"{f} > 'X'"),
            (f"{f} rlike '^x.|[0-9]$'", f"regexp_matches({f}, '^x.|[0-9]$')"),
            (f"split_index({f}, '.', 1) is null", f"string_split({f}, '.')[2] IS NULL"),
        ]
    if field.type is F.BOOL:
        return [*either, (f, f), (f"not {f}", f"NOT {f}")]
    if field.type is F.TIMESTAMP:
        return [
            *either,
            (f"{f} <= stime", f"epoch_us({f}) <= stime"),
            (f"second({f}) = 59", f"epoch_us({f}) < 0"),
            (f"{f} + interval '9' microseconds > stime", f"epoch_us({f}) + 9 > stime"),
        ]
    same = [
        *either,
        (f"{f} > 2", f"{f} > 2"),
        (f"{f} in (0, 1, null)", f"{f} IN (0, 1, NULL)"),
        (f"not {f} between -1 and 3", f"NOT {f} BETWEEN -1 AND 3"),
        (f"{f} > 2 or {f} < 0 and {f} is not null", f"{f} > 2 OR {f} < 0 AND {f} IS NOT NULL"),
        (
            f"1 / {f} < 0.5",
            f"CASE WHEN {f} = 0 THEN NULL ELSE 1.0::DOUBLE / {f}::DOUBLE END < 0.5::DOUBLE",
        ),
    ]
    if field.type in INTEGERS:
        same.append((f"{f} % 2 = 1", f"{f} % 2 = 1"))
        same.append((f"{f} * {f} > 5", f"TRY({f} * {f}) > 5"))
    return same


def projections(field: Field) -> list[tuple[str, str]]:
    f = field.name
    plain = [(f, f), (f"coalesce({f}, {f})", f)]
    if field.type is F.STRING:
        return [
            *plain,
            (f"concat({f}, '.', upper({f}))", f"{f} || '.' || upper({f})"),
            (f"substring({f}, 2, 3)", f"substring({f}, 2, 3)"),
            (f"length({f})", f"length({f})::INTEGER"),
            (f"md5(replace({f}, '.', '--'))", f"md5(replace({f}, '.', '--'))"),
            (f"nullif(right({f}, 1), 'x')", f"nullif(right({f}, 1), 'x')"),
            (
                f"regexp_extract({f}, '([0-9])[.]([0-9])', 2)",
                f"CASE WHEN regexp_matches({f}, '[0-9][.]') "
                f"THEN regexp_extract({f}, '([0-9])[.]([0-9])', 2) END",
            ),
        ]
    if field.type is F.TIMESTAMP:
        return [
            *plain,
            ("stime", "make_timestamptz(stime)"),
            (
                f"date_format({f}, 'yyyy-MM-dd HH:mm')",
                f"strftime(make_timestamp(epoch_us({f})), '%Y-%m-%d %H:%M')",
            ),
        ]
    if field.type is F.BOOL:
        return [*plain, (f"case when {f} then 1 else 0 end", f"CASE WHEN {f} THEN 1 ELSE 0 END")]
    if field.type in FLOATS:
        return [
            *plain,
            (f"- {f}", f"- {f}"),
            (f"{f} * 0", f"{f} * 0"),
            (f"floor({f})", f"TRY_CAST(floor({f}::DOUBLE) AS BIGINT)"),
            (f"greatest({f}, {f} + 1)", f"greatest({f}, {f} + 1)"),
        ]
    type_ = SQL_TYPES[field.type]
    return [
        *plain,
        (f"{f} + {f}", f"TRY({f} + {f})"),
        (f"- {f}", f"TRY(-{f})"),
        (f"cast({f} as byte)", f"TRY_CAST({f} AS TINYINT)"),
        (f"case when {f} > 1 then {f} end", f"CASE WHEN {f} > 1 THEN {f} END"),
        (f"abs({f})", f"TRY(abs({f}))::{type_}"),
        (f"bitxor({f}, {f} % 7)", f"xor({f}, ({f} % 7)::{type_})"),
    ]


def _texts(pairs: Callable[[Field], list[tuple[str, str]]]) -> Callable[[Field], list[str]]:
    return lambda field: [text for text, _ in pairs(field)]


PAIRED = Words(
    _texts(predicates), _texts(projections), CONSTANTS, equal=lambda type_: type_ not in FLOATS
)


def function_sql(each: AggregateCall, field: Field | None, order: str, width: int | None) -> str:
    """Write an aggregate function in DuckDB's SQL. width: of the panes in which floats are
    added."""
    if field is None:
        return "count(*)"
    f = field.name
    plain = {
        "approx_count_distinct": sketch_sql(field),
        "firstval": f"first({f} ORDER BY {order})",
        "lastval": f"last({f} ORDER BY {order})",
    }
    if each.function in plain:
        return plain[each.function]
    if each.function not in {"sum", "avg"}:
        return later_sql(each, field, width)
    total = f"sum({f}::HUGEINT)"
    if field.type in FLOATS:
        values = f"list({f}::DOUBLE ORDER BY {f}) FILTER ({f} IS NOT NULL)"
        total = f"list_reduce({values}, lambda a, b: a + b)"
        if width is not None:
            total = paned_sum_sql(f, width)
    if each.function == "avg":
        return f"{total}::DOUBLE / count({f})"
    return f"TRY_CAST({total} AS {'DOUBLE' if field.type in FLOATS else 'BIGINT'})"


def sketch_sql(field: Field) -> str:
    """Write a sketch with a function of `reference_sketch`, which gets each value once, in some
    order."""
    f = field.name
    kind = {F.STRING: "VARCHAR", F.SINGLE: "DOUBLE", F.DOUBLE: "DOUBLE"}.get(field.type, "BIGINT")
    value = f"epoch_us({f})" if field.type is F.TIMESTAMP else f"{f}::{kind}"
    return f"coalesce(sketch_{kind}(list(DISTINCT {value}) FILTER ({f} IS NOT NULL)), 0)"


def paned_sum_sql(f: str, width: int) -> str:
    """Write the sum of a pane's values in ascending order, and of these sums, pane after pane."""
    pane = f"stime - ((stime % {width}) + {width}) % {width}"
    each = f"struct_pack(pane := {pane}, own := {f}::DOUBLE, before := 0.0::DOUBLE)"
    values = f"list({each} ORDER BY {pane}, {f}) FILTER ({f} IS NOT NULL)"
    same = "struct_pack(pane := two.pane, own := one.own + two.own, before := one.before)"
    other = "struct_pack(pane := two.pane, own := two.own, before := one.before + one.own)"
    chosen = f"CASE WHEN one.pane = two.pane THEN {same} ELSE {other} END"
    both = f"list_reduce({values}, lambda one, two: {chosen})"
    return f"(struct_extract({both}, 'before') + struct_extract({both}, 'own'))"


def order_sql(schema: Schema, *, source: bool) -> str:
    if source:
        return "stime, seq"
    return ", ".join(["stime", *(f"{each.name} NULLS LAST" for each in schema.fields)])


def names_sql(schema: Schema) -> str:
    return ", ".join(["stime", *(each.name for each in schema.fields)])


class Epochs(Networks):
    """Draws boxes, each with its SQL.

    Attributes:
        sql: what makes each stream. panes: the widths of panes, by box.
    """

    def __init__(self, rng: Random) -> None:
        super().__init__(rng, PAIRED)
        self.schemas: dict[str, Schema] = dict(SOURCES)
        self.boxes: list[Box] = []
        self.sql: dict[str, str | Computed] = {}
        self.panes: list[tuple[str, int]] = []

    def add(self) -> None:
        number = len(self.boxes)
        kinds = [Filter, Map, Union, Aggregate, Aggregate, Rank, Sessions, Cumulate]
        if sum(isinstance(box, Join | Match) for box in self.boxes) < MOST_JOINS:
            kinds += [Join, Join, Match]
        kind = self.rng.choice(kinds)
        self.keep(self.box(kind, f"box{number}", f"t{number}", self.schemas))

    def keep(self, box: Box) -> None:
        """Add a box with its SQL."""
        read = {name: self.schemas[name] for name in box.inputs}
        self.boxes.append(box)
        self.schemas.update(type_box(box, read).schemas)
        if not isinstance(box, Match):
            self.sql.update(statements(box, read, dict(self.panes).get(box.name)))

    def box(self, kind: type[Box], name: str, out: str, streams: Mapping[str, Schema]) -> Box:
        """Draw a box; for a pattern, also compute its matches in plain Python."""
        if kind is Match:
            source, schema = self.source(streams)
            match, self.sql[out] = matches(self.rng, name, out, schema, arrival=source in SOURCES)
            return match
        box = super().box(kind, name, out, streams)
        if isinstance(box, Aggregate) and self.coin():
            common = gcd(box.size_us, box.advance_us)
            widths = [n for n in range(1, common + 1) if common % n == 0]
            self.panes.append((name, self.rng.choice(widths)))
        return box


# -- the same in DuckDB's SQL ----------------------------------------------------------------------


def statements(box: Box, read: Mapping[str, Schema], width: int | None) -> dict[str, str]:
    """Write a box in DuckDB's SQL: a statement for each output. width: of its panes."""
    schema = read[box.inputs[0]]
    match box:
        case Filter():
            return filters_sql(box, schema)
        case Map():
            pairs = dict(pair for field in schema.fields for pair in projections(field))
            columns = ", ".join(f"{pairs[text]} AS {name}" for name, text in box.expressions)
            made = f"SELECT stime, {columns} FROM {box.input}"
        case Union():
            parts = [f"SELECT {names_sql(schema)} FROM {stream}" for stream in box.inputs]
            made = " UNION ALL ".join(parts)
        case Rank():
            made = rank_sql(box, schema)
        case Join():
            made = join_sql(box, read[box.right])
        case Aggregate():
            columns = [f"w + {box.size_us} - 1 AS stime", "make_timestamptz(w) AS window_start"]
            columns += folded_sql(box, schema, width)
            keys = ["w", *box.group_by]
            made = windows_sql(box.input, box.size_us, box.advance_us, columns, keys)
        case Sessions():
            made = sessions_sql(box, folded_sql(box, schema, None))
        case Cumulate():
            made = cumulate_sql(box, folded_sql(box, schema, None))
        case _:
            raise AssertionError(f"{box.name}: no SQL of that kind is drawn here")
    return {box.output: made}


def folded_sql(
    box: Aggregate | Sessions | Cumulate, schema: Schema, width: int | None
) -> list[str]:
    """Write the columns of groups and functions. width: of panes."""
    order = order_sql(schema, source=box.input in SOURCES)
    types = {field.name: field for field in schema.fields}
    return [
        *box.group_by,
        *(
            f"{function_sql(each, types.get(each.argument or ''), order, width)} AS {each.output}"
            for each in box.functions
        ),
    ]


def filters_sql(box: Filter, schema: Schema) -> dict[str, str]:
    pairs = dict(pair for field in schema.fields for pair in predicates(field))
    chosen = [pairs[text] for text in box.predicates]
    found = {}
    for port, stream in enumerate(box.outputs):
        conditions = [f"({sql}) IS NOT TRUE" for sql in chosen[:port]]
        conditions += [f"({sql}) IS TRUE" for sql in chosen[port : port + 1]]
        where = " AND ".join(conditions)
        found[stream] = f"SELECT {names_sql(schema)} FROM {box.input} WHERE {where}"
    return found


def rank_sql(box: Rank, schema: Schema) -> str:
    size = box.size_us
    window = f"stime - ((stime % {size}) + {size}) % {size} + {size - 1}"
    terms = [
        f"{by.field} {'DESC' if by.descending else 'ASC'} "
        f"NULLS {'FIRST' if by.nulls_first else 'LAST'}"
        for by in box.order_by
    ]
    terms.append(order_sql(schema, source=box.input in SOURCES))
    number = (
        f"row_number() OVER (PARTITION BY {', '.join((window, *box.partition_by))} "
        f"ORDER BY {', '.join(terms)})"
    )
    columns = [f"{window} AS stime", *(field.name for field in schema.fields)]
    if box.place:
        columns.append(f"{number} AS {box.place}")
    return f"SELECT {', '.join(columns)} FROM {box.input} QUALIFY {number} <= {box.most}"


def cumulate_sql(box: Cumulate, columns: Sequence[str]) -> str:
    step, size = box.step_us, box.size_us
    start = f"stime - ((stime % {size}) + {size}) % {size}"
    windows = (
        f"SELECT * FROM (SELECT *, {start} AS w, {start} + (i + 1) * {step} AS e "
        f"FROM {box.input}, range({size // step}) r(i)) WHERE stime < e"
    )
    made = ["e - 1 AS stime", "make_timestamptz(w) AS window_start"]
    made += ["make_timestamptz(e) AS window_end", *columns]
    keys = ", ".join(["w", "e", *box.group_by])
    return f"SELECT {', '.join(made)} FROM ({windows}) GROUP BY {keys}"


def sessions_sql(box: Sessions, columns: Sequence[str]) -> str:
    """Write sessions in DuckDB's SQL, step by step: the beginning of each, those that are too long,
    their parts, and the time at which each part is known. Helper columns begin with z."""
    by = f"PARTITION BY {', '.join(box.group_by)}" if box.group_by else ""
    session = ", ".join([*box.group_by, "z_number"])
    longest, gap = box.longest_us, box.gap_us
    block = f"stime - ((stime % {longest}) + {longest}) % {longest}"
    marked = (
        f"SELECT *, coalesce(stime - lag(stime) OVER ({by} ORDER BY stime) > {gap}, true) "
        f"AS z_begins FROM {box.input}"
    )
    numbered = (
        f"SELECT *, count(*) FILTER (z_begins) OVER ({by} ORDER BY stime) AS z_number, "
        f"{block} AS z_block FROM ({marked})"
    )
    whole = f"PARTITION BY {session}"
    long = (
        f"SELECT *, min(stime) OVER ({whole}) AS z_first, max(stime) OVER ({whole}) AS z_last "
        f"FROM ({numbered})"
    )
    parts = (
        f"SELECT *, CASE WHEN z_last - z_first > {longest} THEN z_block END AS z_part FROM ({long})"
    )
    later = "RANGE BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING"
    known = (
        f"SELECT *, min(stime) FILTER (stime - z_first > {longest}) OVER ({whole}) AS z_known, "
        f"min(stime) OVER ({whole} ORDER BY z_part {later}) AS z_behind, "
        f"max(z_part) OVER ({whole}) AS z_end, min(z_part) OVER ({whole}) AS z_begin "
        f"FROM ({parts})"
    )
    over = f"WHEN z_part IS NULL OR z_part = z_end THEN z_last + {gap}"
    spans = (
        f"SELECT *, CASE {over} WHEN z_part = z_begin THEN z_known ELSE z_behind END AS z_at, "
        f"CASE {over} ELSE z_part + {longest} END AS z_over FROM ({known})"
    )
    made = ["any_value(z_at) AS stime", "make_timestamptz(min(stime)) AS window_start"]
    made += ["make_timestamptz(any_value(z_over)) AS window_end", *columns]
    return f"SELECT {', '.join(made)} FROM ({spans}) GROUP BY {session}, z_part"


def join_sql(box: Join, right: Schema) -> str:
    """Write the join in DuckDB's SQL. right: the schema of its right input."""
    condition = in_duckdb(box.predicate)
    columns = ", ".join(f"{in_duckdb(text)} AS {name}" for name, text in box.expressions)
    bound = f"r.stime BETWEEN l.stime - {box.before_us} AND l.stime + {box.after_us}"
    on = f"ON {condition} AND {bound}"
    left_at = f"l.stime + {max(box.after_us, 0)}"
    right_at = f"r.stime + {max(box.before_us, 0)}"
    stime = (
        f"CASE WHEN r.stime IS NULL THEN {left_at} WHEN l.stime IS NULL THEN {right_at} "
        "ELSE greatest(l.stime, r.stime) END AS stime"
    )
    if box.kind in ONE_SIDED:
        joined = f"{box.left} l {box.kind} JOIN {box.right} r {on}"
        return f"SELECT {left_at} AS stime, {columns} FROM {joined}"
    if box.kind not in AS_OF:
        return f"SELECT {stime}, {columns} FROM {box.left} l {box.kind} JOIN {box.right} r {on}"
    # among right tuples of one stime, the last one counts if the join looks back, else the first
    word = "DESC NULLS FIRST" if box.after_us <= 0 else "ASC NULLS LAST"
    ties = ["seq"] if box.right in SOURCES else [each.name for each in right.fields]
    order = ", ".join(f"r.{each} {word}" for each in ties)
    numbered = f"(SELECT *, row_number() OVER () AS number FROM {box.left}) l"
    kind = "LEFT" if box.kind is JoinKind.LEFT_ASOF else "INNER"
    return (
        f"SELECT {stime}, {columns} FROM {numbered} {kind} JOIN {box.right} r {on} QUALIFY "
        f"row_number() OVER (PARTITION BY l.number ORDER BY abs(r.stime - l.stime), {order}) = 1"
    )


def in_duckdb(text: str) -> str:
    return text.replace("left.", "l.").replace("right.", "r.")


MOST_JOINS = 2
"""The largest number of joins: more of them multiply their rows too much."""


@st.composite
def networks(draw: st.DrawFn, most: int = 4) -> Network:
    """Draw a query over `SOURCES`, of up to `most` boxes."""
    drawn = Epochs(draw(generators))
    for _ in range(drawn.rng.randint(1, most)):
        drawn.add()
    boxes = tuple(drawn.some(drawn.boxes, len(drawn.boxes)))
    return Network(Query("q", boxes, panes=tuple(drawn.panes)), drawn.schemas, drawn.sql)


@st.composite
def joins_as_of(draw: st.DrawFn) -> Network:
    """Draw a query of one as-of join that looks back or forward."""
    drawn = Epochs(draw(generators))
    drawn.keep(drawn.join("box", "t", SOURCES, tuple(AS_OF)))
    return Network(Query("q", tuple(drawn.boxes)), drawn.schemas, drawn.sql)


def every_function(size: int, advance: int, width: int | None) -> Network:
    """Draw a box for each type of field, with all functions for the type. width: of panes."""
    boxes, sql, schemas = [], {}, dict(SOURCES)
    for field in (each for each in SOURCE_FIELDS if each.name not in {"k", "y"}):
        functions = [
            AggregateCall(function, field.name, f"{function}_{number}", with_)
            for function in functions_of(field)
            for number, with_ in enumerate(CONSTANTS.get(function, (None,))[1:3] or (None,))
        ]
        out = f"of{field.name}"
        boxes.append(Aggregate(out, "s0", out, size, advance, (), tuple(functions)))
        schemas.update(type_box(boxes[-1], SOURCES).schemas)
        columns = [f"w + {size} - 1 AS stime", "make_timestamptz(w) AS window_start"]
        columns += [
            f"{function_sql(each, field, 'stime, seq', width)} AS {each.output}"
            for each in functions
        ]
        sql[out] = windows_sql("s0", size, advance, columns, ["w"])
    panes = () if width is None else tuple((box.name, width) for box in boxes)
    return Network(Query("q", tuple(boxes), panes=panes), schemas, sql)


def windows_sql(
    source: str, size: int, advance: int, columns: Sequence[str], keys: Sequence[str]
) -> str:
    start = f"stime - ((stime % {advance}) + {advance}) % {advance} - i * {advance}"
    windows = f"SELECT *, {start} AS w FROM {source}, range({-(-size // advance)}) r(i)"
    return (
        f"SELECT {', '.join(columns)} FROM ({windows}) "
        f"WHERE w > stime - {size} GROUP BY {', '.join(keys)}"
    )


VALUES = {
    "k": st.none() | st.integers(-3, 5) | st.sampled_from([2**31 - 1, -(2**31)]),
    "b": st.integers(-3, 5) | st.sampled_from([127, -128]),
    "n": st.none() | st.integers(-3, 5) | st.sampled_from([2**63 - 1, -(2**63)]),
    "s": st.none() | st.sampled_from(["", "x", "X", "x.y", "é.1.2", "\U0001f600"]),
    "x": st.none()
    | st.integers(-8, 8).map(lambda n: n / 8)
    | st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 1e300, -1e300, 0.1, 1e16]),
    "y": st.integers(-8, 8).map(lambda n: n / 8) | st.sampled_from([math.nan, -0.0, 0.1]),
    "t": st.none() | st.booleans(),
    "moment": st.none() | st.integers(-50, 50),
}


@st.composite
def sources(draw: st.DrawFn, most: int = 25) -> pa.Table:
    """Draw a source stream in order."""
    row = st.fixed_dictionaries({"stime": st.integers(-40, 60), **VALUES})
    found = sorted(draw(st.lists(row, max_size=most)), key=lambda each: each["stime"])
    numbered = [{**each, "seq": number} for number, each in enumerate(found)]
    return pa.Table.from_pylist(numbered, schema=SOURCES["s0"].source)


cuts = st.lists(st.integers(-80, 100), max_size=4).map(lambda c: [*sorted(set(c)), END])
