"""Queries printed as SQL, XML and Python are read as the same queries."""

from __future__ import annotations

from collections.abc import Collection

import epoch_networks
import msgspec
import pytest
from drawn_availabilities import availabilities
from field_texts import fields_of
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from printed_queries import MIT, inputs_for, meaning, named, read_sql, run
from reference_networks import SOURCES, TABLES, queries, queries_of_tables

from examples import LARGE_DATA
from medusa.engine.expressions.grammar import KEYWORDS
from medusa.engine.language.document import Document
from medusa.engine.language.python.printing import query_as_python
from medusa.engine.language.same_query import is_same
from medusa.engine.language.sql.dialect import Medusa
from medusa.engine.language.sql.printing import (
    document_as_sql,
    query_as_sql,
    schema_as_sql,
    stream_as_sql,
)
from medusa.engine.language.sql.script import Script
from medusa.engine.language.xml.writing import document_as_xml, query_as_xml
from medusa.engine.objects.definitions import Idle, StreamDefinition
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
    PatternStep,
    Query,
    Rank,
    Sessions,
    Top,
    Totals,
    TupleWindows,
    Union,
    order_by,
    streams_read,
    streams_written,
)
from medusa.engine.objects.schema import BEGINNING, END, RESERVED, Field, FieldType, Schema
from medusa.engine.objects.view import Last, Range, Recent, View
from medusa.engine.reading import read_document
from medusa.engine.scalars.rows import FUNCTIONS
from medusa.overlay.errors import InvalidInputError

F = FieldType
SLOW = settings(max_examples=30, suppress_health_check=LARGE_DATA)

FIELDS = fields_of("ts timestamp, a int?, b long, c string?, d double, p bool, select int")
S, T = f"{MIT}s", f"{MIT}t"
INPUTS = {S: Schema(S, FIELDS, "ts"), T: Schema(T, FIELDS)}


@st.composite
def whole_queries(draw: st.DrawFn) -> Query:
    """Draw any query, with outputs, readers, an availability, or a read of past tuples."""
    query = named(draw(queries()))
    streams = sorted(streams_written(query))
    some = st.lists(st.sampled_from(streams), unique=True, max_size=3)
    readers = st.lists(st.sampled_from(["utah.edu", "brown.edu", "*"]), unique=True)
    outputs = draw(some)
    shown = [each for each in streams if each in outputs or each not in streams_read(query)]
    restricted = st.lists(st.sampled_from(shown), unique=True, max_size=3) if shown else st.just([])
    past = draw(st.booleans())
    return msgspec.structs.replace(
        query,
        outputs=tuple(outputs),
        readers=tuple((stream, tuple(draw(readers))) for stream in draw(restricted)),
        availability=query.availability if past else draw(availabilities()),
        after=draw(st.sampled_from([BEGINNING, 0, 1_521_903_600_000_001])),
        until=draw(st.sampled_from([END, 32_503_680_000_123_457])) if past else END,
        version=draw(st.integers(0, 9)),
    )


def everywhere(query: Query, inputs: dict[str, Schema], tables: Collection[str] = ()) -> None:
    """Print the query in each language, and read it again. tables: those among the inputs."""
    expected = meaning(query, inputs)
    sql = query_as_sql(query, inputs, tables)
    by_sql = read_sql(sql, inputs, tables)
    assert meaning(by_sql, inputs) == expected
    # printed in the parser's words: `not a in` becomes `a not in`
    again = query_as_sql(by_sql, inputs, tables)
    assert query_as_sql(read_sql(again, inputs, tables), inputs, tables) == again
    (by_xml,) = read_document(query_as_xml(query)).queries
    assert meaning(by_xml, inputs) == expected
    assert query_as_sql(by_xml, inputs, tables) == sql
    by_python = run(query_as_python(query))
    assert sorted(map(repr, by_python.boxes)) == sorted(map(repr, query.boxes))
    assert meaning(by_python, inputs) == expected
    (there_and_back,) = read_document(query_as_xml(run(query_as_python(by_sql)))).queries
    assert meaning(there_and_back, inputs) == expected


@SLOW
@given(whole_queries())
def test_each_language_gives_the_query_back(query: Query) -> None:
    everywhere(query, inputs_for(query, SOURCES))


@SLOW
@given(queries_of_tables())
def test_so_do_networks_of_tables(drawn: Query) -> None:
    query = named(drawn)
    inputs = inputs_for(query, {**SOURCES, **TABLES})
    everywhere(query, inputs, {f"{MIT}{name}" for name in TABLES})


@SLOW
@given(epoch_networks.networks())
def test_so_do_networks_of_every_function_and_join(network: epoch_networks.Network) -> None:
    query = named(network.query)
    everywhere(query, inputs_for(query, epoch_networks.SOURCES))


@pytest.mark.parametrize(
    "text",
    [
        "ts + interval '5' minute > stime - INTERVAL '5 seconds'",
        "interval 2 day + ts = ts",
        "extract(hour from ts) = hour(ts)",
        "timestampdiff(hour, ts, stime) > 1",
        "position('a' in c || 'x') = 1",
        "position(c, 'in') > 0",
        "cast(b as byte) = cast(null as int)",
        "cast(cast(c as double) as single) > 0 and cast(p as bool)",
        "cast(b as timestamp) = ts and cast(a as string) || '' = cast(cast(a as short) as string)",
        "a is distinct from b and b is not distinct from a",
        "c rlike 'x.*' and not c rlike '^y' and rlike(c, 'z')",
        "c not rlike 'x'",
        "c not like 'a\\%%' or not c like '_'",
        "' in ' || c not in (c, ' in ') and a not between 1 and 2",
        "not not p = true",
        "- - a = - -1 and -(-a) <> - b",
        "a == 1 or a != 2 or a <> 3",
        "(a + 1) * (2 - b) / 3 % 4 > 1e3",
        "d > .5 and d < 1.5e-3 and b > 9223372036854775807",
        "case a when 1 then p when 2 then null else false end",
        "case when p then case when not p then p end end",
        "coalesce(if(p, a, null), nullif(b, 2), 0) in (1, 2, 3)",
        "p and (p and p) or (p or p) and not (p or p)",
        '"select" = 1 and select + 1 < 3',
        "c = 'it''s \"quoted\" \\ -- no comment /* */ ; é'",
        "left(c, 2) = right(c, 1) or replace(c, 'a', 'b') = ''",
        "a is null or a is not null and not a is null",
    ],
)
def test_every_form_of_an_expression_has_one_in_sql(text: str) -> None:
    boxes: list[Box] = [
        Filter("f", S, (f"{MIT}f",), (text,)),
        Filter("g", S, (f"{MIT}g", f"{MIT}h"), (text,), pass_on_false=True),
        Map("m", S, f"{MIT}m", (("x", text), ("y", "1"))),
        Aggregate("w", S, f"{MIT}w", 9, 3, ("a",), (AggregateCall("bool_or", text, "x"),)),
    ]
    everywhere(Query(f"{MIT}q", tuple(boxes)), {S: INPUTS[S]})


def test_every_function_is_one_in_sql() -> None:
    taken = 0
    fields = {"a": F.INT, "c": F.STRING, "d": F.DOUBLE, "ts": F.TIMESTAMP}
    constants = ["'hour'", "'x'", "2", "0.5", "'1.2.3.4/8'", "'$.a'", "'yyyy'"]
    for name in sorted(FUNCTIONS):
        for operands in _operands([*fields, *constants]):
            text = f"{name}({', '.join(operands)})"
            query = Query(f"{MIT}q", (Map("m", S, f"{MIT}m", (("x", text),)),))
            try:
                meaning(query, {S: INPUTS[S]})
            except InvalidInputError:
                continue
            everywhere(query, {S: INPUTS[S]})
            taken += 1
            break
    assert taken > 0.9 * len(FUNCTIONS)


def _operands(words: list[str]) -> list[tuple[str, ...]]:
    ones = [(word,) for word in words]
    twos = [(*one, word) for one in ones for word in words]
    first = ("c", "a", "ts", "d", "'x'", "'hour'", "p")
    threes = [(one, *two) for one in first for two in twos]
    return [*ones, *twos, *threes]


JOIN = Join("j", S, T, f"{MIT}j", JoinKind.INNER, 5, 7, "left.a = right.a", (("x", "left.a"),))


@pytest.mark.parametrize(
    "predicate",
    [
        "true",
        "left.ts < right.stime and left.a = right.a",
        "left.ts = right.ts",
        "(left.a = right.a and left.b = right.b) and left.c = right.c",
        "(left.a = right.a and left.b = right.b)",
        "left.a = right.a or left.b = right.b and left.p",
        "left.a between 1 and right.b and right.a = left.a",
        "left.ts between right.ts and right.stime",
        'left."select" = right.select',
        "right.stime >= left.stime - interval '2' second and left.p",
        "case when left.p and right.p then true else left.a = 1 end and right.p",
        "not (left.p or right.p) and not left.a = right.a",
    ],
)
@pytest.mark.parametrize("kind", [JoinKind.INNER, JoinKind.FULL, JoinKind.SEMI])
def test_a_joins_predicate_is_no_bound_and_a_bound_no_predicate(
    predicate: str, kind: JoinKind
) -> None:
    box = msgspec.structs.replace(JOIN, predicate=predicate, kind=kind)
    for bounds in ((5, 7), (-2, 3), (3_600_000_000, -1), (0, 0)):
        whole = msgspec.structs.replace(box, before_us=bounds[0], after_us=bounds[1])
        everywhere(Query(f"{MIT}q", (whole,)), INPUTS)


def test_a_comparison_of_time_fields_is_no_bound_whatever_their_types() -> None:
    inputs = {
        S: Schema(S, (Field("at", F.DOUBLE), Field("a", F.INT)), "at"),
        T: Schema(T, (Field("on", F.INT), Field("a", F.INT)), "on"),
    }
    for predicate in ("left.at < right.on", "left.at = right.on and left.a = right.a"):
        box = msgspec.structs.replace(JOIN, predicate=predicate)
        everywhere(Query(f"{MIT}q", (box,)), inputs)


def test_a_join_of_a_stream_with_itself_and_as_of() -> None:
    one = {S: INPUTS[S]}
    everywhere(Query(f"{MIT}q", (msgspec.structs.replace(JOIN, right=S),)), one)
    for kind in (JoinKind.ASOF, JoinKind.LEFT_ASOF):
        for before, after in ((9, 0), (9, -3), (0, 0), (0, 9), (-1, 9)):
            box = msgspec.structs.replace(JOIN, kind=kind, before_us=before, after_us=after)
            everywhere(Query(f"{MIT}q", (box,)), INPUTS)


def test_boxes_that_do_the_same_stay_two() -> None:
    twice = AggregateCall("count", None, "n")
    boxes = (
        Filter("one", S, (f"{MIT}a",), ("a > 1",)),
        Filter("two", S, (f"{MIT}b",), ("a > 1",)),
        Filter("three", S, (f"{MIT}c",), ("a > 1",)),
        Union("same", (f"{MIT}a",), f"{MIT}d"),
        Union("again", (f"{MIT}a",), f"{MIT}e"),
        Aggregate("w", S, f"{MIT}w", 2, 2, (), (twice, msgspec.structs.replace(twice, output="m"))),
    )
    everywhere(Query(f"{MIT}q", boxes), {S: INPUTS[S]})


def test_a_window_may_be_grouped_by_the_time_and_be_over_windows() -> None:
    count = AggregateCall("count", None, "window_end")
    newest = AggregateCall("max", "window_start", "latest")
    boxes = (
        Aggregate("w", S, f"{MIT}w", 60_000_000, 60_000_000, ("ts", "b"), (count,)),
        Aggregate("v", f"{MIT}w", f"{MIT}v", 90, 30, ("ts", "window_end"), (newest,)),
        Aggregate("u", f"{MIT}v", f"{MIT}u", 90, 90, (), (newest,)),
    )
    everywhere(Query(f"{MIT}q", boxes), {S: INPUTS[S]})


COUNT = AggregateCall("count", None, "n")


def test_a_time_that_is_grouped_by_is_no_window() -> None:
    by_time = ("ts", "a")
    last, end = (order_by(name, descending=True) for name in ("ts", "window_end"))
    boxes: list[Box] = [
        Rank(
            "instants",
            S,
            f"{MIT}i",
            1,
            by_time,
            (order_by("ts", descending=True), order_by("b")),
            2,
            "place",
        ),
        Rank("minutes", S, f"{MIT}m", 60_000_000, by_time, (order_by("b"),), 2),
        Top("best", S, f"{MIT}b", by_time, (last,), 1),
        Totals("sums", S, f"{MIT}s2", by_time, (COUNT,)),
        Sessions("visits", S, f"{MIT}v", 5, 9, by_time, (COUNT,)),
        Cumulate("so_far", S, f"{MIT}f", 5, 10, by_time, (COUNT,)),
        Rank("of_windows", f"{MIT}v", f"{MIT}w", 30, ("window_start",), (end,), 1),
        Rank("at_ends", f"{MIT}v", f"{MIT}x", 1, ("window_end", "ts"), (), 3, "window_time"),
        Totals("of_starts", f"{MIT}f", f"{MIT}y", ("window_end", "window_start"), (COUNT,)),
        Sessions("again", f"{MIT}x", f"{MIT}z", 5, 10, ("window_time",), (COUNT,)),
        Cumulate("on", f"{MIT}z", f"{MIT}u", 5, 10, ("window_time",), (COUNT,)),
    ]
    everywhere(Query(f"{MIT}q", tuple(boxes)), {S: INPUTS[S]})


def test_windows_of_tuples_have_only_the_times_of_their_groups() -> None:
    newest = AggregateCall("lastval", "stime", "window_time")
    most = AggregateCall("max", "window_start", "window_start")
    of_time = ("window_end", "window_start", "ts")
    boxes: list[Box] = [
        Sessions("visits", S, f"{MIT}v", 5, 9, ("ts", "a"), (COUNT,)),
        TupleWindows("all", S, f"{MIT}b", 10, 10, (), (COUNT,)),
        TupleWindows("so_far", S, f"{MIT}c", 10, 10, ("ts",), (newest,), True),
        TupleWindows("apart", f"{MIT}v", f"{MIT}d", 2, 7, of_time, (newest, COUNT)),
        TupleWindows("again", f"{MIT}d", f"{MIT}e", 100, 1, ("window_time",), (most,), True, "n"),
        TupleWindows("ones", f"{MIT}e", f"{MIT}g", 1, 1, (), (most,), number="window_end"),
        Aggregate("of_them", f"{MIT}e", f"{MIT}f", 60, 60, ("window_time",), (COUNT,)),
    ]
    everywhere(Query(f"{MIT}q", tuple(boxes)), {S: INPUTS[S]})


def test_the_number_of_each_row_is_a_window_of_one_row() -> None:
    inputs = {S: INPUTS[S]}
    select = "ROW_NUMBER() OVER (PARTITION BY c ORDER BY ts) AS x"
    query = read_sql(f"CREATE QUERY mit.edu.q AS SELECT ts, a, {select} FROM mit.edu.s", inputs)
    assert "FROM TUMBLE(TABLE" in query_as_sql(query, inputs)
    everywhere(query, inputs)


@pytest.mark.parametrize(
    "select",
    [
        "avg(b) OVER (PARTITION BY c ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS x",
        "b - min(b) FILTER (WHERE p) OVER (PARTITION BY a % 2 ORDER BY ts ROWS 2 PRECEDING) AS x",
    ],
)
def test_aggregates_of_the_last_rows_are_windows_of_rows(select: str) -> None:
    inputs = {S: INPUTS[S]}
    query = read_sql(f"CREATE QUERY mit.edu.q AS SELECT ts, a, {select} FROM mit.edu.s", inputs)
    assert "ROWS, PARTIAL)" in query_as_sql(query, inputs)
    everywhere(query, inputs)


def test_a_place_that_is_no_output_has_a_name_of_its_own() -> None:
    named_place = (Field("Place", F.INT), Field("place_", F.LONG))
    schema = Schema(S, (*FIELDS, *named_place), "ts")
    boxes: list[Box] = [
        Rank("r", S, f"{MIT}r", 60, (), (order_by("place_", descending=True),), 1),
        Top("t", S, f"{MIT}t", ("Place",), (order_by("place_", descending=True),), 1),
    ]
    everywhere(Query(f"{MIT}q", tuple(boxes)), {S: schema})


def test_a_map_that_changes_nothing_stays_one() -> None:
    same = tuple((each.name, f'"{each.name}"') for each in FIELDS)
    everywhere(Query(f"{MIT}q", (Map("m", S, f"{MIT}m", same),)), {S: INPUTS[S]})


def test_patterns_name_what_they_refer_to() -> None:
    steps = (
        PatternStep("A", "prev.b is null or a > 1"),
        PatternStep("select", "select.b < b and prev.c = A.c and A.ts < stime", 2, 5, True),
        PatternStep("N", "n_is = left(c, 1) or A.c is null", negated=True),
        PatternStep("Last", "coalesce(Last.b, prev.b, 0) = b", 0, None),
    )
    measures = (
        *(Measure(each, "select", "b", f"m_{each}") for each in ("sum", "avg")),
        Measure("firstval", "A", "stime", "order"),
        Measure("lastval", "", "c", "prev"),
        Measure("count", "", "", "n"),
        Measure("count", "A", "", "case"),
        Measure("count", "Last", "c", "m"),
    )
    fields = (*FIELDS, Field("n_is", F.STRING))
    for contiguity in Contiguity:
        chosen = tuple(
            each for each in steps if contiguity is not Contiguity.STRICT or not each.negated
        )
        box = Match("m", S, f"{MIT}m", ("a", "ts"), chosen, 9_000_000, measures, contiguity)
        everywhere(Query(f"{MIT}q", (box,)), {S: Schema(S, fields, "ts")})


def test_sql_reads_the_rows_of_tables_and_not_their_changes() -> None:
    totals = Totals("sums", S, f"{MIT}sums", ("a",), (COUNT,))
    busy = Filter("busy", f"{MIT}sums", (f"{MIT}busy",), ("n > 1",))
    query = Query(f"{MIT}q", (totals, busy))
    with pytest.raises(InvalidInputError, match=r"box 'busy' reads the changes of .*/sums"):
        query_as_sql(query, {S: INPUTS[S]})
    assert is_same(run(query_as_python(query)), query, {S: INPUTS[S]})
    assert read_document(query_as_xml(query)).queries == (query,)
    stream = Query(f"{MIT}q", (Filter("f", S, (f"{MIT}f",), ("a > 1",)),))
    with pytest.raises(InvalidInputError, match="reads the changes"):
        query_as_sql(stream, {S: INPUTS[S]}, {S})


WORDS = sorted(
    {*KEYWORDS, *(w.lower() for w in Medusa.Tokenizer.KEYWORDS if w.isidentifier())}
    | {"class", "lambda", "None", "self", "fields", "Window_Start", "left", "right", "interval"}
    | {"extract", "timestampdiff", "position", "rlike", "descriptor", "temporary", "begin", "split"}
)
NAMES = st.sampled_from(WORDS) | st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,9}", fullmatch=True)
BOXES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=9).filter(str.isprintable)
PARTS = st.sampled_from(["select", "1", "a.b", "-", "from", "x-y", "as", "temporary", "Query", "_"])


@SLOW
@given(
    st.lists(NAMES, min_size=4, max_size=4, unique_by=str.lower),
    st.lists(BOXES, min_size=4, max_size=4, unique=True),
    st.lists(PARTS, min_size=6, max_size=6, unique_by=str.lower),
    st.sampled_from(["mit.edu", "3com.com", "x", "select.from-where.as"]),
)
def test_odd_names_are_kept(
    names: list[str], boxes: list[str], parts: list[str], participant: str
) -> None:
    one, two, three, four = (f'"{each}"' for each in names)
    read, a, b, c, d, query_name = (f"medusa://{participant}/{part}" for part in parts)
    fields = tuple(Field(name, F.LONG) for name in names)
    schema = Schema(read, fields)
    assume(not {name.lower() for name in names} & RESERVED)
    assert schema_as_sql(schema).startswith("CREATE SCHEMA ")
    query = Query(
        query_name,
        (
            Map(boxes[0], read, a, tuple((name, f"{one} + {two}") for name in names)),
            Filter(boxes[1], a, (b, d), (f"{three} > {four}", f"{one} is null")),
            Aggregate(boxes[2], b, c, 7, 7, (names[0],), (AggregateCall("sum", two, "n"),)),
            Join(
                boxes[3],
                a,
                c,
                f"{query_name}/{parts[0]}",
                JoinKind.LEFT,
                1,
                2,
                f"left.{one} = right.n and right.{one} > 1",
                tuple((name, f"left.{name}") for name in names),
            ),
        ),
        readers=((d, ("x",)),),
    )
    try:
        meaning(query, {read: schema})
    except InvalidInputError:
        return  # two fields have one name
    everywhere(query, {read: schema})


@SLOW
@given(
    st.lists(NAMES, min_size=3, max_size=3, unique_by=str.lower),
    st.lists(NAMES, min_size=2, max_size=2, unique_by=str.lower),
    st.lists(PARTS, min_size=9, max_size=9, unique_by=str.lower),
    st.sampled_from(Contiguity),
)
def test_odd_names_are_kept_by_all_boxes(
    names: list[str], variables: list[str], parts: list[str], contiguity: Contiguity
) -> None:
    one, two, three = names
    assume(not {name.lower() for name in names} & RESERVED)
    assume(not {name.lower() for name in (*names, *variables)} & {"n", "prev", "stime"})
    read, *streams = (f"medusa://x/{part}" for part in parts)
    schema = Schema(read, tuple(Field(name, F.LONG) for name in names))
    count = (msgspec.structs.replace(COUNT, argument=f'"{one}"'),)
    order = (order_by(two, descending=True), order_by(three))
    first, last = variables
    steps = (
        PatternStep(first, f'"{one}" > prev."{two}" or "{first}"."{three}" = 1', 1, None),
        PatternStep(last, f'"{one}" = "{first}"."{two}"'),
    )
    measures = (Measure("lastval", first, two, two), Measure("sum", "", three, three))
    query = Query(
        "medusa://x/query",
        (
            Sessions("a", read, streams[0], 5, 9, (one, two), count),
            Cumulate("b", read, streams[1], 5, 10, (two,), count),
            Rank("c", read, streams[2], 60, (two,), order, 3, "n"),
            Rank("d", read, streams[3], 1, (three, one), order, 2),
            Totals("e", read, streams[4], (three, two), count),
            Top("f", read, streams[5], (one,), order, 2, "n"),
            Match("g", read, streams[6], (one,), steps, 10, measures, contiguity),
            TupleWindows("h", read, streams[7], 9, 2, (two, one), count, True, "n"),
        ),
    )
    try:
        meaning(query, {read: schema})
    except InvalidInputError:
        return  # a field has the name of a window's field, or a variable has the name of a side
    everywhere(query, {read: schema})


@pytest.mark.parametrize(
    "change",
    [
        {"name": f"{MIT}other"},
        {"version": 1},
        {"after": 3},
        {"outputs": ()},
        {"readers": ((f"{MIT}a", ("utah.edu",)),)},
    ],
)
def test_queries_that_differ_are_not_the_same(change: dict[str, object]) -> None:
    query = Query(
        f"{MIT}q",
        (
            Filter("f", S, (f"{MIT}a",), ("a > 1",)),
            Aggregate("w", f"{MIT}a", f"{MIT}b", 4, 2, (), (AggregateCall("count", None, "n"),)),
        ),
        outputs=(f"{MIT}a",),
    )
    inputs = {S: INPUTS[S]}
    assert is_same(query, msgspec.structs.replace(query, boxes=query.boxes[::-1]), inputs)
    assert not is_same(query, msgspec.structs.replace(query, **change), inputs)
    for number, box in enumerate(
        (
            msgspec.structs.replace(query.boxes[0], predicates=("a > 2",)),
            msgspec.structs.replace(query.boxes[1], size_us=2),
        )
    ):
        boxes = [*query.boxes]
        boxes[number] = box
        assert not is_same(query, msgspec.structs.replace(query, boxes=tuple(boxes)), inputs)
    spaced = msgspec.structs.replace(query.boxes[0], predicates=("( a>1 )",))
    assert is_same(query, msgspec.structs.replace(query, boxes=(spaced, query.boxes[1])), inputs)


SCHEMAS = st.builds(
    lambda fields, time, key, nullable_key: Schema(
        f"{MIT}schema",
        tuple(
            msgspec.structs.replace(
                each, nullable=each.nullable and (nullable_key or each.name not in key)
            )
            for each in fields
        ),
        time,
        key,
    ),
    st.just(
        (
            *(
                Field(f"f_{type_}", type_, 7 if type_ is F.STRING else None, nullable=True)
                for type_ in FieldType
            ),
            Field("order", F.LONG),
            Field("t", F.DOUBLE),
        )
    ),
    st.sampled_from([None, "order", "t"]),
    st.sampled_from([(), ("f_int",), ("f_string", "order")]),
    st.booleans(),
)
MEMBERS = st.lists(st.sampled_from(["utah.edu", "x", "*"]), unique=True).map(tuple)
STREAMS = st.builds(
    StreamDefinition,
    name=st.just(S),
    schema=st.just(f"{MIT}schema"),
    slack_us=st.integers(0, 10**10),
    history_us=st.sampled_from([0, 3_600_000_000, 86_400_000_000 * 3650]),
    idle=st.sampled_from(Idle),
    readers=MEMBERS,
    writers=MEMBERS,
    leader=st.sampled_from(["", "ab" * 20]),
    k_safety=st.integers(0, 3),
    declassify=MEMBERS,
    max_ahead_us=st.none() | st.integers(0, 10**10),
    idle_timeout_us=st.integers(0, 10**10),
    table=st.booleans(),
)


@SLOW
@given(SCHEMAS, STREAMS, queries())
def test_so_do_schemas_and_streams(schema: Schema, stream: StreamDefinition, drawn: Query) -> None:
    query = named(drawn)
    inputs = inputs_for(query, SOURCES)
    table = stream.table and bool(schema.key)
    stream = msgspec.structs.replace(stream, name=f"{MIT}mine", table=table)
    document = Document((schema,), (stream,), (query,))
    sql = document_as_sql(document, inputs)
    by_sql = Script(sql, None).complete(inputs, {})
    assert (by_sql.schemas, by_sql.streams) == ((schema,), (stream,))
    assert meaning(by_sql.queries[0], inputs) == meaning(query, inputs)
    by_xml = read_document(document_as_xml(document))
    assert by_xml == document
    assert schema_as_sql(schema) in sql
    assert stream_as_sql(stream) in sql


def test_xml_has_views_and_sql_says_that_it_has_none() -> None:
    views = (
        View(f"{MIT}v", S, Last(3)),
        View(f"{MIT}w", f"{MIT}f", Recent(1_500_000), frozen=True, order_on="ts"),
        View(f"{MIT}x", S, Range(0, 9), frozen=True),
    )
    query = Query(f"{MIT}q", (Filter("f", S, (f"{MIT}f",), ("a > 1",)),))
    document = Document((), (), (query,), views)
    again = read_document(document_as_xml(document))
    assert sorted(again.views, key=lambda each: each.name) == list(views)
    assert again.queries == (query,)
    with pytest.raises(InvalidInputError, match=r"mit\.edu/v: SQL has no views"):
        document_as_sql(document, INPUTS)


def test_a_printed_query_reads_as_a_person_would_write_it() -> None:
    query = Query(
        f"{MIT}web",
        (
            Filter("web", S, (f"{MIT}web/conns",), ("b=80  AND not a is null",)),
            Aggregate(
                "counts",
                f"{MIT}web/conns",
                f"{MIT}web/counts",
                60_000_000,
                10_000_000,
                ("c",),
                (AggregateCall("count", None, "conns"),),
            ),
        ),
    )
    assert query_as_sql(query, {S: INPUTS[S]}) == (
        "CREATE QUERY mit.edu.web AS BEGIN\n"
        "  CREATE TEMPORARY STREAM mit.edu.\"web/conns\" WITH (box = 'web') AS\n"
        "    SELECT * FROM mit.edu.s WHERE b = 80 AND a IS NOT NULL;\n"
        '  CREATE STREAM mit.edu."web/counts" AS\n'
        "    SELECT window_start, c, count(*) AS conns\n"
        "    FROM HOP(TABLE mit.edu.\"web/conns\", DESCRIPTOR(ts), INTERVAL '10' SECOND, "
        "INTERVAL '1' MINUTE)\n"
        "    GROUP BY window_start, c;\n"
        "END;\n"
    )
    assert query_as_python(query) == (
        "import medusa\n\n"
        's = medusa.stream("medusa://mit.edu/s")\n'
        'conns = s.filter("b=80  AND not a is null").named("medusa://mit.edu/web/conns", '
        'box="web")\n'
        'counts = conns.window("1 minute", "10 seconds").group_by("c").aggregate('
        'conns="count()").named("medusa://mit.edu/web/counts")\n'
        'query = medusa.query("medusa://mit.edu/web", counts)\n'
    )


def test_so_are_windows_of_tuples() -> None:
    functions = (AggregateCall("avg", "b", "mean"),)
    tens = TupleWindows("tens", S, f"{MIT}tens", 10, 10, ("c",), functions)
    last = TupleWindows("last", S, f"{MIT}last", 10, 1, ("c",), functions, True, "place")
    query = Query(f"{MIT}q", (tens, last))
    assert query_as_sql(query, {S: INPUTS[S]}) == (
        "CREATE QUERY mit.edu.q AS BEGIN\n"
        "  CREATE STREAM mit.edu.tens AS\n"
        "    SELECT c, avg(b) AS mean\n"
        "    FROM TUMBLE(TABLE mit.edu.s, 10 ROWS)\n"
        "    GROUP BY c;\n"
        "  CREATE STREAM mit.edu.last AS\n"
        "    SELECT c, avg(b) AS mean, ROW_NUMBER() AS place\n"
        "    FROM HOP(TABLE mit.edu.s, 1 ROWS, 10 ROWS, PARTIAL)\n"
        "    GROUP BY c;\n"
        "END;\n"
    )
    assert query_as_python(query) == (
        "import medusa\n\n"
        's = medusa.stream("medusa://mit.edu/s")\n'
        'tens = s.tuple_windows(10).group_by("c").aggregate(mean="avg(b)")'
        '.named("medusa://mit.edu/tens")\n'
        'last = s.tuple_windows(10, 1, partial=True).group_by("c").numbered("place")'
        '.aggregate(mean="avg(b)")'
        '.named("medusa://mit.edu/last")\n'
        'query = medusa.query("medusa://mit.edu/q", tens, last)\n'
    )


def test_each_stream_has_its_outputs() -> None:
    split = Filter("s", S, tuple(f"{MIT}{each}" for each in "abc"), ("p", "a > 1"), True)
    reading = [Union(f"u{each}", (f"{MIT}{each}",), f"{MIT}u{each}") for each in "ab"]
    query = Query(
        f"{MIT}q",
        (split, *reading),
        outputs=(f"{MIT}b",),
        readers=((f"{MIT}c", ("utah.edu",)), (f"{MIT}ua", ())),
    )
    assert {name for box in query.boxes for name in box.outputs} == streams_written(query)
    everywhere(query, {S: INPUTS[S]})


def test_readers_of_a_stream_that_is_no_output_have_no_form_in_xml() -> None:
    boxes = (Filter("f", S, (f"{MIT}a",), ("p",)), Union("u", (f"{MIT}a",), f"{MIT}b"))
    query = Query(f"{MIT}q", boxes, readers=((f"{MIT}a", ("utah.edu",)),))
    inputs = {S: INPUTS[S]}
    assert read_sql(query_as_sql(query, inputs), inputs).readers == query.readers
    with pytest.raises(InvalidInputError, match="cannot be written as XML"):
        query_as_xml(query)
