from __future__ import annotations

import msgspec
import pytest
from field_texts import fields_of
from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.aggregates.rows import AGGREGATES
from medusa.engine.language.check import MAX_BOXES, check_query
from medusa.engine.objects.query import (
    Aggregate,
    AggregateCall,
    Box,
    Cumulate,
    Filter,
    Map,
    Query,
    Rank,
    Sessions,
    Union,
    order_by,
)
from medusa.engine.objects.schema import Field, FieldType, Schema, check_schema
from medusa.engine.operators.typing import type_box
from medusa.overlay.errors import InvalidInputError

F = FieldType

CONN = Schema(
    "conn", fields_of("ts double, src string(40), port int?, bytes long, tiny byte, ok bool?"), "ts"
)
OTHER = Schema("other", (Field("x", F.INT),))
INPUTS = {"in": CONN, "other": OTHER}
COUNT = AggregateCall("count", None, "n")


def window(*functions: AggregateCall, **changes: object) -> Aggregate:
    box = Aggregate("w", "in", "out", 60, 60, ("src",), functions or (COUNT,))
    return msgspec.structs.replace(box, **changes)


def test_filters_keep_the_schema() -> None:
    box = Filter("f", "in", ("a", "b"), ("port > 1",), pass_on_false=True)
    made = type_box(box, INPUTS).schemas
    assert {name: schema.fields for name, schema in made.items()} == dict.fromkeys(
        "ab", CONN.fields
    )
    assert [schema.name for schema in made.values()] == ["a", "b"]
    assert made["a"].time == "ts"


def test_maps_type_name_and_nullability_of_fields() -> None:
    expressions = {
        "address": "src",
        "maybe": "port",
        "double_port": "port * 2",
        "known": "coalesce(port, 0)",
        "unknown": "port is null",
        "text": "substring_index(src, '.', 3)",
        "moment": "stime",
        "order": "ts",
        "kind": "case when port < 1024 then 'low' else 'high' end",
        "sometimes": "case when port < 1024 then 'low' end",
        "nothing": "cast(null as byte)",
        "ratio": "bytes / 2",
    }
    made = type_box(Map("m", "in", "out", tuple(expressions.items())), INPUTS).schemas["out"]
    assert made.fields == fields_of(
        "address string(40), maybe int?, double_port int?, known int, unknown bool, "
        "text string, moment timestamp, order double, kind string, sometimes string?, "
        "nothing byte?, ratio double?"
    )
    assert made.time == "order"


def test_unions_take_the_widest_of_each_field() -> None:
    narrow = Schema("a", (Field("x", F.INT), Field("s", F.STRING, 4), Field("u", F.STRING, 4)))
    wide = Schema("b", fields_of("x int?, s string(9), u string"))
    made = type_box(Union("u", ("a", "b"), "out"), {"a": narrow, "b": wide}).schemas["out"]
    assert made.fields == fields_of("x int?, s string(9), u string")


def test_aggregates_types() -> None:
    calls = [
        ("count", "port", Field("f", F.LONG)),
        ("count_distinct", "port", Field("f", F.LONG)),
        ("approx_count_distinct", "port", Field("f", F.LONG)),
        ("approx_count_distinct", "ok", Field("f", F.LONG)),
        ("approx_count_distinct", "stime", Field("f", F.LONG)),
        ("sum", "tiny", Field("f", F.LONG, nullable=True)),
        ("sum", "bytes + 1", Field("f", F.LONG, nullable=True)),
        ("sum", "ts", Field("f", F.DOUBLE, nullable=True)),
        ("avg", "port", Field("f", F.DOUBLE, nullable=True)),
        ("min", "tiny", Field("f", F.BYTE, nullable=True)),
        ("max", "src", Field("f", F.STRING, 40, nullable=True)),
        ("min", "stime", Field("f", F.TIMESTAMP, nullable=True)),
        ("firstval", "ok", Field("f", F.BOOL, nullable=True)),
        ("lastval", "src", Field("f", F.STRING, 40, nullable=True)),
    ]
    for function, argument, field in calls:
        made = type_box(window(AggregateCall(function, argument, "f")), INPUTS).schemas["out"]
        assert made.fields == (
            Field("window_start", F.TIMESTAMP),
            Field("src", F.STRING, 40),
            field,
        )
        assert made.time is None


@pytest.mark.parametrize(
    ("box", "reason"),
    [
        (Filter("f", "in", ("a",), ()), "at least one expression"),
        (
            Filter("f", "in", ("a",), ("ok",), True),
            "1 outputs for 1 expressions and the false port; 2",
        ),
        (Filter("f", "in", ("a", "b"), ("ok",)), "2 outputs for 1 expressions; 1 are needed"),
        (Filter("f", "in", ("a",), ("port",)), "expression 0.*gives int; a condition must be"),
        (Filter("f", "in", ("a",), ("nope = 1",)), "'f': expression 0: .*no field 'nope'"),
        (Filter("f", "in", ("in",), ("ok",)), "stream 'in' occurs 2 times"),
        (Filter("f", "gone", ("a",), ("ok",)), "there is no stream gone"),
        (Filter("", "in", ("a",), ("ok",)), "its name must have"),
        (Filter("x" * 65, "in", ("a",), ("ok",)), "its name must have"),
        (Filter("a\nb", "in", ("a",), ("ok",)), "printable"),
        (Filter("f", "in", ("",), ("ok",)), "'' is not the name of a stream"),
        (Map("m", "in", "out", ()), "at least one output field"),
        (Map("m", "in", "out", (("x", "port"), ("X", "src"))), "field x occurs 2 times"),
        (Map("m", "in", "out", (("stime", "stime"),)), "stime: the name is reserved"),
        (Map("m", "in", "out", (("SEQ", "port"),)), "SEQ: the name is reserved"),
        (Map("m", "in", "out", (("a b", "port"),)), "field 'a b': a name has 1 to 64"),
        (Map("m", "in", "out", (("x", "port +"),)), "output field 'x': .*ends too early"),
        (Map("m", "in", "out", (("x", "null"),)), "null has no type"),
        (Union("u", (), "out"), "takes 1 to 256 inputs"),
        (Union("u", ("in", "in"), "out"), "stream 'in' occurs 2 times"),
        (Union("u", ("in", "other"), "out"), "same fields: other has x int, in has ts double"),
        (window(size_us=0), "not between 0 and 366 days"),
        (window(size_us=2**62), "not between 0 and 366 days"),
        (window(advance_us=0), "it must be more than 0"),
        (window(advance_us=366 * 86_400 * 10**6 + 1), "up to 366 days"),
        (window(size_us=10_000, advance_us=1), "windows overlap"),
        (window(functions=()), "at least one function"),
        (Sessions("v", "in", "out", 61, 60, (), (COUNT,)), "at most its longest session"),
        (Sessions("v", "in", "out", 0, 60, (), (COUNT,)), "must be more than 0"),
        (Sessions("v", "in", "out", 1, 2**62, (), (COUNT,)), "not between 0 and 366 days"),
        (Sessions("v", "in", "out", 1, 60, (), ()), "at least one function"),
        (Sessions("v", "in", "out", 1, 60, ("nope",), (COUNT,)), "groups by 'nope'"),
        (Cumulate("c", "in", "out", 7, 60, (), (COUNT,)), "does not divide its size"),
        (Cumulate("c", "in", "out", 1, 10_000, (), (COUNT,)), "in 1440 steps at most"),
        (Rank("r", "in", "out", 1, (), (), 0), "1 to 1,000 can be"),
        (Rank("r", "in", "out", 0, (), (), 1), "is not up to 366 days"),
        (Rank("r", "in", "out", 1, ("nope",), (), 1), "goes by 'nope', which is no field"),
        (
            Rank("r", "in", "out", 1, (), (order_by("ts"), order_by("ts", descending=True)), 1),
            "occurs 2 times",
        ),
        (Rank("r", "in", "out", 1, (), (), 1, "ts"), "ts"),
        (window(group_by=("nope",)), "groups by 'nope', which is no field"),
        (window(group_by=("src", "src")), "field src occurs 2 times"),
        (window(group_by=("stime",)), "groups by 'stime', which is no field"),
        (window(AggregateCall("count", None, "src")), "field src occurs 2 times"),
        (window(AggregateCall("count", None, "window_start")), "window_start occurs 2"),
        (window(AggregateCall("firstval", None, "f")), "firstval needs an argument"),
        (window(AggregateCall("count_distinct", None, "f")), "needs an argument"),
        (
            window(AggregateCall("approx_count_distinct", None, "f")),
            "approx_count_distinct needs an argument",
        ),
        (window(AggregateCall("sum", "src", "f")), "output field 'f': sum does not take"),
        (window(AggregateCall("avg", "stime", "f")), "avg does not take timestamp"),
        (window(AggregateCall("min", "ok", "f")), "min does not take bool"),
        (window(AggregateCall("sum", "", "f")), "it is empty"),
        (window(order_on="bytes"), "ordered on 'bytes', but in is ordered by ts"),
    ],
)
def test_boxes_that_do_not_fit_are_refused(box: Box, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^box .*{reason}"):
        type_box(box, INPUTS)


def test_windows_may_name_the_order_they_have() -> None:
    for order_on in ("", "stime", "ts"):
        type_box(window(order_on=order_on), INPUTS)


def through(name: str, source: str, target: str) -> Map:
    return Map(name, source, target, (("port", "port"),))


def test_boxes_may_come_in_any_order() -> None:
    query = Query("q", (through("b", "x", "y"), through("a", "in", "x")))
    assert list(check_query(query, INPUTS)) == ["in", "x", "y"]


@pytest.mark.parametrize(
    ("boxes", "reason"),
    [
        ((), "0 boxes; 1 to 256"),
        (tuple(through(f"b{n}", "in", f"x{n}") for n in range(MAX_BOXES + 1)), "257 boxes"),
        ((through("a", "in", "x"), through("a", "in", "y")), "box name 'a' occurs 2 times"),
        ((through("a", "in", "x"), through("b", "in", "x")), "x has two producers, boxes a and b"),
        ((through("a", "x", "y"), through("b", "y", "x")), "the boxes a, b form a loop"),
        ((through("a", "x", "x"),), "stream 'x' occurs 2 times"),
        ((through("a", "gone", "x"),), "there is no stream gone"),
        ((through("a", "in", "other"),), "stream other is produced elsewhere"),
        ((Filter("f", "in", ("x", "x"), ("ok", "ok")),), "stream 'x' occurs 2 times"),
        ((through("a", "in", "x"), Filter("f", "x", ("y",), ("src = ''",))), "no field 'src'"),
    ],
)
def test_networks_that_do_not_hold_are_refused(boxes: tuple[Box, ...], reason: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^query q: .*{reason}"):
        check_query(Query("q", boxes), INPUTS)


def test_declared_outputs_must_exist() -> None:
    with pytest.raises(InvalidInputError, match="output stream 'y' is made by no box"):
        check_query(Query("q", (through("a", "in", "x"),), ("y",)), INPUTS)


NAMES = st.sampled_from(["in", "other", "x", "y", "z", "", "a\nb"]) | st.text(max_size=5)
TEXTS = st.sampled_from(["ok", "port > 1", "src", "x", "ts", "", "1 +"]) | st.text(max_size=8)
FUNCTIONS = st.builds(
    AggregateCall, st.sampled_from([*AGGREGATES, "product"]), st.none() | TEXTS, NAMES
)
FEW_NAMES = st.lists(NAMES, max_size=3).map(tuple)
FEW_TEXTS = st.lists(TEXTS, max_size=3).map(tuple)
FEW_PAIRS = st.lists(st.tuples(NAMES, TEXTS), max_size=3).map(tuple)
FEW_FUNCTIONS = st.lists(FUNCTIONS, max_size=2).map(tuple)
SPANS = st.integers()
BOXES = st.one_of(
    st.builds(Filter, NAMES, NAMES, FEW_NAMES, FEW_TEXTS, st.booleans()),
    st.builds(Map, NAMES, NAMES, NAMES, FEW_PAIRS),
    st.builds(Union, NAMES, FEW_NAMES, NAMES),
    st.builds(Aggregate, NAMES, NAMES, NAMES, SPANS, SPANS, FEW_NAMES, FEW_FUNCTIONS, NAMES),
)


@given(st.lists(BOXES, max_size=4), st.lists(NAMES, max_size=2))
def test_any_query_is_checked_or_refused(boxes: list[Box], outputs: list[str]) -> None:
    try:
        schemas = check_query(Query("q", tuple(boxes), tuple(outputs)), INPUTS)
    except InvalidInputError:
        return
    for name, schema in schemas.items():
        assert schema.name == name or name in {"in", "other"}
        check_schema(schema)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (Schema("s", ()), "0 fields"),
        (Schema("s", tuple(Field(f"f{n}", F.INT) for n in range(257))), "257 fields"),
        (Schema("s", (Field("1x", F.INT),)), "does not begin with a digit"),
        (Schema("s", (Field("é", F.INT),)), "letters, digits and underscores"),
        (Schema("s", (Field("x", F.INT, 4),)), "only strings have a size"),
        (Schema("s", (Field("x", F.STRING, 0),)), "size 0"),
        (Schema("s", (Field("x", F.INT),), "y"), "time field 'y' is not among"),
        (Schema("s", (Field("x", F.SHORT),), "x"), "must be a timestamp"),
        (Schema("s", (Field("x", F.LONG, None, True),), "x"), "not nullable"),
    ],
)
def test_schemas_that_do_not_hold_are_refused(schema: Schema, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        check_schema(schema)
