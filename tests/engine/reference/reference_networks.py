"""Random well-typed queries, data and cuts for properties."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st
from msgspec import structs

from medusa.engine.aggregates.rows import AGGREGATES
from medusa.engine.objects.query import (
    Aggregate,
    AggregateCall,
    Box,
    Contiguity,
    Cumulate,
    Filter,
    Join,
    JoinKind,
    Map,
    Match,
    Measure,
    OrderBy,
    PatternStep,
    Query,
    Rank,
    Sessions,
    Top,
    Totals,
    TupleWindows,
    Union,
    order_by,
)
from medusa.engine.objects.schema import DELETED, END, Field, FieldType, Schema
from medusa.engine.operators.join.sides import AS_OF, OF_TABLES, ONE_SIDED
from medusa.engine.operators.typing import type_box

F = FieldType

SOURCE_FIELDS = (
    Field("a", F.INT, nullable=True),
    Field("b", F.LONG),
    Field("c", F.STRING, nullable=True),
    Field("d", F.DOUBLE),
)

SOURCES = {name: Schema(name, SOURCE_FIELDS) for name in ("s0", "s1")}

NUMERIC = (F.INT, F.LONG, F.DOUBLE)


def predicates(draw: st.DrawFn, schema: Schema) -> str:
    field = draw(st.sampled_from(schema.fields))
    name = field.name
    if field.type is F.STRING:
        choices = [
            f"{name} = 'x.y'",
            f"lower({name}) in ('', 'x')",
            f"{name} is null",
            f"length({name}) < 2",
        ]
    elif field.type is F.TIMESTAMP:
        choices = [f"{name} <= stime", f"{name} is not null"]
    else:
        choices = [
            f"{name} > 2",
            f"not {name} between -1 and 3",
            f"{name} % 2 = 1",
            f"{name} * {name} / 3 < 1.5",
            f"{name} is null or {name} = 0",
        ]
    return draw(st.sampled_from(choices))


def projections(draw: st.DrawFn, field: Field) -> str:
    name = field.name
    if field.type is F.STRING:
        choices = [
            name,
            f"substring_index({name}, '.', 1)",
            f"length({name})",
            f"{name} || '.' || lower({name})",
        ]
    elif field.type is F.TIMESTAMP:
        choices = [name, "stime"]
    else:
        choices = [
            name,
            f"{name} + 1",
            f"case when {name} > 1 then {name} end",
            f"coalesce({name}, 2)",
            f"- {name}",
        ]
    return draw(st.sampled_from(choices))


def aggregates(draw: st.DrawFn, schema: Schema, number: int) -> AggregateCall:
    field = draw(st.sampled_from(schema.fields))
    allowed = [name for name, row in AGGREGATES.items() if field.type in row.takes]
    function = draw(st.sampled_from(allowed))
    argument = None if function == "count" and draw(st.booleans()) else field.name
    down = AGGREGATES[function].ordered and draw(st.booleans())
    constant = AGGREGATES[function].constant
    with_ = CONSTANTS.get(function, constant and constant.value)
    return AggregateCall(function, argument, f"agg_{number}", with_, down)


CONSTANTS: dict[str, float | str] = {
    "percentile": 0.9,
    "approx_percentile": 0.5,
    "histogram": 2,
    "string_agg": ", '",
    "top_k": 2,
}


def joins(draw: st.DrawFn, number: int, schemas: dict[str, Schema]) -> Join:
    left, right = (draw(st.sampled_from(sorted(schemas))) for _ in range(2))
    kind = draw(st.sampled_from(list(JoinKind)))
    before = draw(st.sampled_from([0, 3, 8, -2]))
    after = draw(st.sampled_from([0, 2, 5]))
    if kind in AS_OF:
        before, after = draw(st.sampled_from([(8, 0), (3, -1), (0, 0), (0, 5), (-1, 5), (-2, 2)]))
    before = max(before, -after)
    same = [
        f"left.{one.name} = right.{two.name}"
        for one in schemas[left].fields
        for two in schemas[right].fields
        if one.type == two.type
    ]
    texts = draw(st.lists(st.sampled_from(same), max_size=2, unique=True)) if same else []
    if not texts and kind in AS_OF:
        kind = JoinKind.LEFT
    sides = {"left": left} if kind in ONE_SIDED else {"left": left, "right": right}
    fields = [
        f"{side}.{each.name}" for side, name in sides.items() for each in schemas[name].fields
    ]
    chosen = draw(st.lists(st.sampled_from(fields), min_size=1, max_size=4, unique=True))
    return Join(
        f"box{number}",
        left,
        right,
        f"t{number}",
        kind,
        before,
        after,
        " and ".join(texts) or "true",
        tuple((f"j{n}", field) for n, field in enumerate(chosen)),
    )


def matches(draw: st.DrawFn, number: int, source: str, schema: Schema) -> Match:
    counts = st.sampled_from([(1, 1), (0, 1), (1, None), (2, 3)])
    steps = [PatternStep("A", predicates(draw, schema))]
    for name in "BC"[: draw(st.integers(0, 2))]:
        least, most = draw(counts)
        steps.append(PatternStep(name, predicates(draw, schema), least, most, draw(st.booleans())))
    field = draw(st.sampled_from(schema.fields)).name
    keys = draw(st.lists(st.sampled_from([f.name for f in schema.fields]), max_size=1))
    partition = tuple(key for key in keys if not key.startswith("p"))
    measures = (
        Measure("firstval", "A", field, "p0"),
        Measure("count", "", "", "p1"),
        Measure("max", steps[-1].variable, field, "p2"),
    )
    within = draw(st.sampled_from([2, 10]))
    contiguity = draw(st.sampled_from(list(Contiguity)))
    return Match(
        f"box{number}",
        source,
        f"t{number}",
        partition,
        tuple(steps),
        within,
        measures,
        contiguity,
    )


KINDS = ("join", "match", "rank", "aggregate", "aggregate", "sessions", "cumulate")


def boxes(draw: st.DrawFn, number: int, schemas: dict[str, Schema]) -> Box:
    name, out = f"box{number}", f"t{number}"
    source = draw(st.sampled_from(sorted(schemas)))
    schema = schemas[source]
    match draw(st.sampled_from(["filter", "map", "union", *KINDS])):
        case "filter":
            texts = tuple(predicates(draw, schema) for _ in range(draw(st.integers(1, 3))))
            false = draw(st.booleans())
            outputs = tuple(f"{out}_{port}" for port in range(len(texts) + false))
            return Filter(name, source, outputs, texts, false)
        case "map":
            state = draw(st.lists(st.sampled_from(schema.fields), min_size=1, unique=True))
            pairs = tuple((f"m{n}", projections(draw, field)) for n, field in enumerate(state))
            return Map(name, source, out, pairs)
        case "union":
            shape = [(field.name, field.type) for field in schema.fields]
            alike = [n for n, s in schemas.items() if [(f.name, f.type) for f in s.fields] == shape]
            chosen = draw(st.lists(st.sampled_from(alike), min_size=1, max_size=3, unique=True))
            return Union(name, tuple(chosen), out)
        case "join":
            return joins(draw, number, schemas)
        case "match":
            return matches(draw, number, source, schema)
        case kind:
            return windows(draw, kind, number, source, schema)


def windows(draw: st.DrawFn, kind: str, number: int, source: str, schema: Schema) -> Box:
    name, out = f"box{number}", f"t{number}"
    match kind:
        case "rank":
            fields = st.lists(st.sampled_from(schema.fields), max_size=2, unique=True)
            partition = tuple(field.name for field in draw(fields))
            order = orders(draw, draw(fields))
            size, most = draw(st.sampled_from([1, 7, 30])), draw(st.integers(1, 3))
            place = draw(st.sampled_from(["", f"place_{number}"]))
            return Rank(name, source, out, size, partition, order, most, place)
        case _:
            size = draw(st.sampled_from([1, 7, 10, 30]))
            advance = draw(st.sampled_from([size, max(1, size // 2), max(1, size // 3)]))
            groups = [f.name for f in schema.fields if not f.name.startswith(("window_", "agg_"))]
            chosen = (
                draw(st.lists(st.sampled_from(groups), max_size=2, unique=True)) if groups else []
            )
            functions = tuple(aggregates(draw, schema, n) for n in range(draw(st.integers(1, 2))))
            if kind == "sessions":
                gap = draw(st.sampled_from([1, 3, 7]))
                longest = gap * draw(st.integers(1, 5))
                return Sessions(name, source, out, gap, longest, tuple(chosen), functions)
            if kind == "cumulate":
                most = size * draw(st.integers(1, 4))
                return Cumulate(name, source, out, size, most, tuple(chosen), functions)
            return Aggregate(name, source, out, size, advance, tuple(chosen), functions)


def orders(draw: st.DrawFn, fields: Iterable[Field]) -> tuple[OrderBy, ...]:
    """Draw an order by these fields; the place of nulls may be open."""
    drawn = st.tuples(st.booleans(), st.none() | st.booleans())
    return tuple(
        order_by(each.name, descending=down, nulls_first=first)
        for each, (down, first) in ((each, draw(drawn)) for each in fields)
    )


@st.composite
def queries(draw: st.DrawFn) -> Query:
    """Draw a query over `SOURCES`."""
    schemas = dict(SOURCES)
    made: list[Box] = []
    for number in range(draw(st.integers(1, 7))):
        box = boxes(draw, number, schemas)
        made.append(box)
        schemas.update(type_box(box, {stream: schemas[stream] for stream in box.inputs}).schemas)
    return Query("q", tuple(draw(st.permutations(made))))


TABLES = {
    "k0": Schema("k0", (*SOURCE_FIELDS, Field(DELETED, F.BOOL, nullable=True)), key=("b",)),
    "k1": Schema("k1", SOURCE_FIELDS, key=("c", "a")),
}
"""The tables that `queries_of_tables` read besides `SOURCES`."""


def totals(draw: st.DrawFn, number: int, source: str, schema: Schema, *, changes: bool) -> Totals:
    names = [f.name for f in schema.fields if not f.name.startswith("agg_") and f.name != DELETED]
    groups = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    functions = [AggregateCall("count", None, "agg_n")]
    for each in draw(st.lists(st.sampled_from(schema.fields), max_size=3)):
        known = ["count", *([] if changes else ["count_distinct"])]
        known += [] if changes or each.type is F.BOOL else ["min", "max"]
        known += ["sum", "avg"] if each.type in NUMERIC else []
        function = draw(st.sampled_from(known))
        functions.append(AggregateCall(function, each.name, f"agg_{len(functions)}"))
    out = f"t{number}"
    return Totals(f"box{number}", source, out, tuple(groups), tuple(functions), changes)


def tops(draw: st.DrawFn, number: int, source: str, schema: Schema) -> Top:
    fields = st.lists(st.sampled_from(schema.fields), min_size=1, max_size=2, unique=True)
    partition = tuple(field.name for field in draw(fields))
    order = orders(draw, draw(fields))
    most = draw(st.integers(1, 3))
    place = f"place_{number}" if most > 1 or draw(st.booleans()) else ""
    return Top(f"box{number}", source, f"t{number}", partition, order, most, place)


def tuple_windows(draw: st.DrawFn, number: int, source: str, schema: Schema) -> TupleWindows:
    fields = st.lists(st.sampled_from(schema.fields), max_size=2, unique=True)
    groups = tuple(field.name for field in draw(fields))
    functions = tuple(
        structs.replace(aggregates(draw, schema, n), output=f"tuples_{number}_{n}")
        for n in range(draw(st.integers(1, 3)))
    )
    size = draw(st.sampled_from([1, 2, 10, 1_000]))
    advance = draw(st.sampled_from([size, max(1, size // 7), min(size + 1, 1_000)]))
    number_field = draw(st.sampled_from(["", f"number_{number}"]))
    parts = (size, advance, groups, functions, draw(st.booleans()), number_field)
    return TupleWindows(f"box{number}", source, f"t{number}", *parts)


def table_joins(draw: st.DrawFn, number: int, left: str, right: str, both: Any) -> Join:
    join = joins(draw, number, {left: both[left]})
    kind = draw(st.sampled_from(sorted(OF_TABLES)))
    sides = {"left": left} if kind in ONE_SIDED else {"left": left, "right": right}
    fields = [f"{side}.{each.name}" for side, name in sides.items() for each in both[name].fields]
    chosen = draw(st.lists(st.sampled_from(fields), min_size=1, max_size=4, unique=True))
    same = [
        f"left.{one.name} = right.{two.name}"
        for one in both[left].fields
        for two in both[right].fields
        if one.type == two.type
    ]
    texts = draw(st.lists(st.sampled_from([*same, "left.stime >= right.stime"]), max_size=2))
    outputs = tuple((f"j{n}", field) for n, field in enumerate(chosen))
    on = " and ".join(texts) or "true"
    return structs.replace(
        join,
        right=right,
        kind=kind,
        before_us=0,
        after_us=0,
        predicate=on,
        expressions=outputs,
        table=True,
    )


def maps_of_tables(draw: st.DrawFn, number: int, source: str, schema: Schema) -> Map:
    """Draw a map that keeps the key, which alone distinguishes the rows of a table."""
    kept = [*schema.key, *([DELETED] if schema.deletes else [])]
    more = draw(st.lists(st.sampled_from([f for f in schema.fields if f.name != DELETED])))
    pairs = [(f"m{n}", name) for n, name in enumerate(schema.key)]
    pairs += [(f"m{n}", projections(draw, field)) for n, field in enumerate(more, len(pairs))]
    pairs += [(DELETED, DELETED)] if schema.deletes else []
    assert {text for _, text in pairs} >= set(kept)
    return Map(f"box{number}", source, f"t{number}", tuple(draw(st.permutations(pairs))))


@st.composite
def queries_of_tables(draw: st.DrawFn) -> Query:
    """Draw a query over `SOURCES` and `TABLES` that keeps and reads tables; also with count
    windows, which Medusa computes from a table."""
    streams, tables = dict(SOURCES), dict(TABLES)
    made: list[Box] = []
    for number in range(draw(st.integers(1, 6))):
        stream, table = (draw(st.sampled_from(sorted(each))) for each in (streams, tables))
        kind = draw(
            st.sampled_from(["stream", "tuples", "totals", "top", "changes", "map", "join"])
        )
        box: Box
        match kind:
            case "stream":
                box = boxes(draw, number, streams)
            case "tuples":
                box = tuple_windows(draw, number, stream, streams[stream])
            case "totals":
                box = totals(draw, number, stream, streams[stream], changes=False)
            case "top":
                box = tops(draw, number, stream, streams[stream])
            case "changes":
                box = totals(draw, number, table, tables[table], changes=True)
            case "map":
                box = maps_of_tables(draw, number, table, tables[table])
            case _:
                box = table_joins(draw, number, stream, table, streams | tables)
        made.append(box)
        both = streams | tables
        typed = type_box(box, {name: both[name] for name in box.inputs})
        (streams if kind in {"stream", "tuples", "join"} else tables).update(typed.schemas)
    return Query("q", tuple(draw(st.permutations(made))))


@st.composite
def rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw the rows of one source stream, in order."""
    payload = st.fixed_dictionaries(
        {
            "stime": st.integers(-40, 60),
            "a": st.none() | st.integers(-3, 5),
            "b": st.integers(-3, 5) | st.sampled_from([2**63 - 1, -(2**63)]),
            "c": st.none() | st.sampled_from(["", "x", "X", "x.y", "é.1.2"]),
            "d": st.integers(-8, 8).map(lambda n: n / 4),
        }
    )
    found: list[dict[str, Any]] = draw(st.lists(payload, max_size=25))
    found.sort(key=lambda row: row["stime"])
    return [{**row, "seq": number} for number, row in enumerate(found)]


cuts = st.lists(st.integers(-120, 150), max_size=6).map(lambda c: [*sorted(set(c)), END])
