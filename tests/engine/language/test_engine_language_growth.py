"""For twice the text, every construct of expressions and of documents takes twice the work at most.
Work is the number of lines run and of calls of C's functions, which is the same on every run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from medusa.engine.expressions.parsing import tree_of_short_text
from medusa.engine.expressions.typed import Expression, Operation, nullable
from medusa.engine.expressions.typer import MAX_NODES, parse_expression, typed_short_text
from medusa.engine.language.check import check_query
from medusa.engine.language.xml.writing import query_as_xml
from medusa.engine.objects.definitions import StreamDefinition, StreamEntry
from medusa.engine.objects.query import Filter, Map, Query
from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.engine.operators.filter import MAX_PORTS
from medusa.engine.reading import read_document
from medusa.engine.scalars.casts import CAST
from medusa.engine.scalars.pattern_work import longest_text
from medusa.engine.scalars.patterns import read_pattern
from medusa.engine.scalars.rows import FAMILIES, FUNCTIONS, SCALARS
from medusa.engine.scalars.time_units import PARTS
from medusa.engine.tasks.network import Network
from medusa.engine.tasks.plan import plan
from medusa.overlay.errors import InvalidInputError

F = FieldType

FIELDS = {"n": F.INT, "d": F.DOUBLE, "s": F.STRING, "t": F.TIMESTAMP, "flag": F.BOOL}

MOST = 2.2
"""The greatest allowed growth when the size doubles, with some room for work that grows in
steps."""

Text = Callable[[int], str]


def work(act: Callable[[], object]) -> int:
    """Return the lines and calls of C until `act` returns, or is refused."""
    steps = 0

    def lines(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal steps
        steps += event == "line"
        return lines

    def calls(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal steps
        steps += event == "c_call"

    for cached in (read_pattern, longest_text, tree_of_short_text, typed_short_text):
        cached.cache_clear()  # entries cached by an earlier test would reduce the work
    before = sys.gettrace(), sys.getprofile()
    sys.settrace(lines)
    sys.setprofile(calls)
    try:
        with suppress(InvalidInputError):
            act()
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    return steps


def check_growth(act: Callable[[int], object], size: int) -> None:
    small, large = work(lambda: act(size)), work(lambda: act(2 * size))
    assert large <= MOST * small, (small, large)


def walked(expression: Expression) -> int:
    """Return the nodes that a walker visits if it does not recognise shared parts."""
    operands = expression.operands if isinstance(expression, Operation) else ()
    return 1 + sum(map(walked, operands))


def typed(text: str) -> Expression:
    expression = parse_expression(text, FIELDS)
    nullable(expression, lambda name: name == "d")
    return expression


# -- expressions -----------------------------------------------------------------------------------


def nested(opening: str, closing: str, leaf: str = "n") -> Text:
    return lambda size: opening * size + leaf + closing * size


def listed(opening: str, each: str, sign: str, closing: str = "") -> Text:
    return lambda size: opening + sign.join([each] * size) + closing


COMPARISONS = ("=", "==", "<>", "!=", "<", "<=", ">", ">=")

WIDE: dict[str, tuple[Text, int]] = {
    **{f"chain of {sign}": (listed("", "n", f" {sign} "), 40) for sign in "+-*/%"},
    **{each: (listed("", f"n {each} 2.5", " and "), 50) for each in COMPARISONS},
    **{each: (listed("", "flag", f" {each} "), 200) for each in ("and", "or")},
    "and, or": (listed("", "flag and flag", " or "), 100),
    "||": (listed("", "s", " || "), 200),
    "in": (listed("n in (", "1", ", ", ")"), 200),
    "in, of strings": (listed("s in (", "'x'", ", ", ")"), 200),
    "between": (listed("", "n between 1 and 2.5", " and "), 50),
    "like": (listed("", "s not like 'a%_\\\\%'", " and "), 50),
    "is null": (listed("", "n is not null", " and "), 50),
    "case": (listed("case ", "when n > 1 then d", " ", " end"), 50),
    "case of a subject": (listed("case n ", "when 1 then d", " ", " end"), 50),
    "case of a sum": (lambda size: f"case {'n + ' * size} n {'when 1 then 2 ' * size} end", 20),
    "cast": (listed("", "cast(n as string)", " || "), 50),
    "parentheses": (listed("", "((flag))", " and "), 50),
    "not": (listed("", "not flag", " and "), 100),
    "sign": (listed("", "-n > +n", " and "), 50),
    "names in quotes": (listed("", '"flag"', " and "), 100),
    "a long string": (lambda size: f"s = '{'x' * 10 * size}'", 300),
    "a long number": (lambda size: f"d = {'9' * 10 * size}.0", 15),
    **{each: (listed(f"{each}(", "n", ", ", ")"), 200) for each in ("coalesce", "least")},
    **{each: (listed(f"{each}(", "s", ", ", ")"), 200) for each in ("greatest", "concat")},
    "interval": (listed("t", " + interval '1' day", ""), 40),
    "is distinct from": (listed("", "n is distinct from 2.5", " and "), 50),
    "rlike": (listed("", "s rlike 'a+b'", " and "), 50),
    "a long pattern": (lambda size: f"regexp_like(s, '{'ab' * size}')", 60),
    "a long path": (lambda size: f"json_value(s, '${'.abcdef' * size}')", 15),
    **{
        f"short {each}": (listed("", f"{each}(n, 2) > 1", " and "), 50)
        for each in ("mod", "nullif", "ifnull", "nvl")
    },
    **{
        f"of a moment, {each}": (listed("", f"{each}(t) > 1", " and "), 50)
        for each in (*sorted(PARTS), "dayofmonth", "unix_micros", "unix_seconds")
    },
}

DEEP: dict[str, Text] = {
    "parentheses": nested("(", ")"),
    "cast": nested("cast(cast(", " as string) as int)"),
    "sign": nested("- ", ""),
    "not": nested("not ", "", "flag"),
    "is null": nested("(", ") is null"),
    "like": nested("cast(", " like 'x' as string)", "s"),
    "between": nested("case when ", " between 1 and 2 then 1 else 2 end"),
    "between's bound": nested("case when n between ", " and 2 then 1 else 2 end"),
    "case's condition": nested("case when n = ", " then 1 end"),
    "case's value": nested("case when flag then ", " end"),
    "case's default": nested("case when flag then 1 else ", " end"),
    "case's subject": nested("case ", " when 1 then 2 when 3 then 4 end"),
    "case's comparand": nested("case n when ", " then 2 end"),
    "in": nested("case when ", " in (1, 2) then 1 end"),
    "in's member": nested("case when n in (1, ", ") then 1 end"),
    **{f"left of {sign}": nested("(", f" {sign} n)") for sign in "+-*/%"},
    **{f"right of {sign}": nested(f"(n {sign} ", ")") for sign in "+-*/%"},
    **{f"left of {sign}": nested("case when (", f" {sign} n) then 1 end") for sign in COMPARISONS},
    **{each: nested(f"{each}(", ")") for each in ("abs", "round")},
    **{each: nested(f"{each}(d + ", ")") for each in ("floor", "ceil")},
    **{each: nested(f"{each}(", ")", "s") for each in ("lower", "upper", "trim")},
    "length": nested("length(cast(", " as string))"),
    "substring": nested("substring(", ", 1, 2)", "s"),
    "substring's start": nested("length(substring(s, ", ", 2))"),
    "substring_index": nested("substring_index(", ", '.', 2)", "s"),
    **{each: nested(f"{each}(1, ", ")") for each in ("coalesce", "least", "greatest")},
    "concat": nested("concat(s, ", ")", "s"),
    "||": nested("(s || ", ")", "s"),
    "and": nested("(flag and ", ")", "flag"),
    "or": nested("(flag or ", ")", "flag"),
    "interval": nested("(", " + interval '1' day)", "t"),
    "is distinct from": nested("case when ", " is distinct from 1 then 1 end"),
    **{each: nested(f"{each}(", ")", "d") for each in ("sqrt", "ceiling")},
    **{each: nested(f"{each}(n, ", ")") for each in ("bitand", "bitor", "bitxor")},
    **{each: nested(f"{each}(", ", 1)") for each in ("shiftleft", "shiftright", "mod")},
    **{each: nested(f"{each}(", ", 1)") for each in ("ifnull", "nvl")},
    **{each: nested(f"{each}(", ", 1)", "s") for each in ("right", "left", "repeat", "substr")},
    **{each: nested(f"{each}(", ")", "s") for each in ("reverse", "ltrim", "rtrim", "md5")},
    **{each: nested(f"{each}(", ", 5, 'x')", "s") for each in ("lpad", "rpad")},
    **{
        each: nested(f"cast({each}(", ") as string)", "s")
        for each in ("hash64", "xxhash64", "crc32", "char_length")
    },
    **{
        each: nested(f"cast({each}(", ", 'x') as string)", "s")
        for each in ("contains", "startswith", "starts_with", "endswith", "ends_with", "instr")
    },
    **{
        each: nested(f"cast({each}(", ", 'a+b') as string)", "s")
        for each in ("regexp_like", "rlike", "position")
    },
    "if": nested("if(flag, ", ", 1)"),
    "nullif": nested("nullif(1, ", ")"),
    "the function sign": nested("sign(", ")"),
    "replace": nested("replace(", ", 'a', 'b')", "s"),
    "split_index": nested("split_index(", ", '.', 1)", "s"),
    "regexp_extract": nested("regexp_extract(", ", '(a)b', 1)", "s"),
    "regexp_replace": nested("regexp_replace(", ", 'ab', 'b')", "s"),
    "json_value": nested("json_value(", ", '$.a')", "s"),
    "json_double": nested("cast(json_double(", ", '$.a') > 1 as string)", "s"),
    "ip_in_cidr": nested("cast(ip_in_cidr(", ", '10.0.0.0/8') as string)", "s"),
    "ip_prefix": nested("ip_prefix(", ", 24, 48)", "s"),
    "sha2": nested("sha2(", ", 256)", "s"),
    "sha256": nested("sha256(", ")", "s"),
    "date_trunc": nested("date_trunc('day', ", ")", "t"),
    "date_format": nested("to_timestamp(date_format(", ", 'yyyy'), 'yyyyMMdd')", "t"),
    "timestampdiff": nested("cast(timestampdiff(day, stime, ", ") as timestamp)", "t"),
    "extract": nested("cast(cast(extract(hour from ", ") as long) as timestamp)", "t"),
}

_CALLED = " ".join(text(3) for text in (*DEEP.values(), *(text for text, _ in WIDE.values())))

WIDE |= {
    f"the example of {row.name}": (listed("", f"{row.examples[0].text} is null", " and "), 20)
    for family in FAMILIES
    for row in family.rows
    if f"{row.name}(" not in _CALLED
}
"""The examples of the functions that no text above calls."""

REPEATING = {
    "floor",
    "ceil",
    "sqrt",
    "shiftleft",
    "shiftright",
    "repeat",
    "lpad",
    "rpad",
    "replace",
}
REPEATING |= {"hash64", "xxhash64", "regexp_like", "rlike", "regexp_extract", "regexp_replace"}
REPEATING |= {"ip_in_cidr", "ip_prefix", "json_value", "json_double", "date_trunc", "date_format"}
REPEATING |= {"ceiling", "cast"}
"""Operations whose form in Spark repeats an operand, or has many operations."""

SHALLOW = REPEATING - {"floor", "ceil"} | {"the function sign"}
"""Kinds of nesting that are refused at a small depth."""


REFUSED: dict[str, Text] = {
    "a name at the end": lambda size: "flag and " * size + "unknown",
    "the type of a long operand": lambda size: f"lower({'s = s and ' * size} flag)",
    "grammar": lambda size: "flag and " * size + "flag flag",
    "a parenthesis that does not end": lambda size: "(" + "flag and " * size + "flag",
    "a string that does not end": lambda size: "s = 'x' and " * size + "'",
    "a comment that does not end": lambda size: "/* " * size,
    "a dialect's word": lambda size: "flag and " * size + "flag qualify 1",
}


@pytest.mark.parametrize("name", WIDE)
def test_long_expressions(name: str) -> None:
    text, size = WIDE[name]
    typed(text(size))
    check_growth(lambda n: typed(text(n)), size)


@pytest.mark.parametrize("name", DEEP)
def test_expressions_within_each_other(name: str) -> None:
    text = DEEP[name]
    size = 2 if name in SHALLOW else 7
    typed(text(min(size, 5)))
    check_growth(lambda n: typed(text(n)), size)


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_input_is_refused(name: str) -> None:
    text = REFUSED[name]
    with pytest.raises(InvalidInputError):
        typed(text(100))
    check_growth(lambda n: typed(text(n)), 100)


def test_the_nested_texts_have_every_operator() -> None:
    def names(expression: Expression) -> set[str]:
        if not isinstance(expression, Operation):
            return set()
        return {expression.operator}.union(*map(names, expression.operands))

    texts = [text(3) for text in (*DEEP.values(), *(text for text, _ in WIDE.values()))]
    assert set().union(*(names(typed(text)) for text in texts)) == {CAST, *SCALARS}
    assert all(any(f"{name}(" in text for text in texts) for name in FUNCTIONS)


# -- repeated parts --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DEEP)
def test_the_count_of_nodes_is_the_number_that_a_walker_meets(name: str) -> None:
    expression = typed(DEEP[name](3))
    if name in REPEATING:
        assert expression.nodes > walked(expression)
    else:
        assert expression.nodes == walked(expression)


@pytest.mark.parametrize(
    ("name", "place"), [("between", 61), ("case's subject", 26), ("floor", 81), ("ceil", 73)]
)
def test_too_much_repetition_is_refused_with_place_and_mend(name: str, place: int) -> None:
    with pytest.raises(InvalidInputError) as caught:
        typed(DEEP[name](14))
    reason = str(caught.value)
    assert f"parts, at most {MAX_NODES:,} allowed" in reason
    assert "`between`, `case x when`, `floor` and `ceil` repeat their x" in reason
    assert reason.endswith(f"at character {place}")


def repeating(boxes: int, *outputs: int) -> Query:
    """Return boxes that each double the field of the one before."""
    maps = [Map(f"m{n}", f"s{n}", f"s{n + 1}", (("n", "n + n"),)) for n in range(boxes)]
    last = Filter("f", f"s{boxes}", ("out",), ("n > 1",))
    return Query("q", (*maps, last), tuple(f"s{number}" for number in outputs))


NUMBERS = {"s0": Schema("s0", (Field("n", F.LONG),))}


def test_fields_of_earlier_boxes_count_as_what_makes_them() -> None:
    """Spark replaces a field in a filter by the expression behind it: fourteen such boxes took half
    a minute an epoch, and sixteen killed the JVM."""
    query = repeating(16)
    with pytest.raises(InvalidInputError) as caught:
        plan(query, check_query(query, NUMBERS))
    assert "box 'm11': output field 'n': expression 'n + n'" in str(caught.value)
    assert "unless their stream is an output of the query" in str(caught.value)
    mended = repeating(16, 8)
    tasks = plan(mended, check_query(mended, NUMBERS))
    assert [task.output for task in tasks] == ["s8", "out"]


def filtering(*predicates: str) -> Query:
    ports = tuple(f"o{number}" for number in range(len(predicates)))
    return Query("q", (Filter("f", "s0", ports, predicates),))


def members(count: int) -> str:
    return f"n in ({', '.join(map(str, range(count)))})"


def test_the_widest_filter_is_within_the_bounds() -> None:
    query = filtering(*(f"n = {port}" for port in range(MAX_PORTS)))
    assert len(plan(query, check_query(query, NUMBERS))) == MAX_PORTS


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (filtering(*[members(900)] * 20), r"query q: what makes o18 has 17,1.. parts .* 16,384"),
        (filtering(*[members(64)] * 64), "query q: its expressions have 137,280 parts.* 131,072"),
    ],
)
def test_tasks_and_queries_are_bounded(query: Query, reason: str) -> None:
    schemas = check_query(query, NUMBERS)
    with pytest.raises(InvalidInputError, match=reason):
        plan(query, schemas)


# -- documents -------------------------------------------------------------------------------------


def box(
    name: str,
    kind: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    parameters: Sequence[tuple[str, str]] = (),
) -> str:
    ports = [
        f'<{tag} port="{port}" stream="{stream}"/>'
        for tag, streams in (("input", inputs), ("output", outputs))
        for port, stream in enumerate(streams, 1)
    ]
    given = [f'<param name="{name}" value="{value}"/>' for name, value in parameters]
    return f'<box name="{name}" type="{kind}">{"".join(ports)}{"".join(given)}</box>'


def passing(name: str, source: str, sink: str) -> str:
    return box(name, "filter", [source], [sink], [("expression.0", "n = 1")])


def numbered(prefix: str, size: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(size)]


def parameters(prefix: str, values: Sequence[str]) -> list[tuple[str, str]]:
    return [(f"{prefix}.{number}", value) for number, value in enumerate(values)]


def query(*boxes: str) -> str:
    return f'<query name="q">{"".join(boxes)}</query>'


def chain(size: int) -> list[str]:
    return [passing(f"b{n}", f"s{n}", f"s{n + 1}") for n in range(size)]


def fan(size: int) -> list[str]:
    return [passing(f"b{n}", "s0", f"t{n}") for n in range(size)]


def windowed(*functions: str, groups: Sequence[str] = ()) -> str:
    given = [("window-size", "1"), *parameters("aggregate-function", functions)]
    return box("b", "aggregate", ["s0"], ["t"], [*given, ("group-by", ",".join(groups))])


def mapped(expressions: Sequence[str]) -> str:
    names = numbered("g", len(expressions))
    given = [*parameters("expression", expressions), *parameters("output-field-name", names)]
    return box("b", "map", ["s0"], ["t"], given)


QUERIES: dict[str, Text] = {
    "boxes in a row": lambda size: query(*chain(size)),
    "boxes in a row, the last first": lambda size: query(*reversed(chain(size))),
    "boxes side by side": lambda size: query(*fan(size)),
    "a loop": lambda size: query(*chain(size), passing("back", f"s{size}", "s0")),
    "ports": lambda size: query(
        box(
            "b",
            "filter",
            ["s0"],
            numbered("t", size),
            parameters("expression", numbered("n = ", size)),
        )
    ),
    "a union": lambda size: query(*fan(size), box("u", "union", numbered("t", size), ["out"])),
    "outputs": lambda size: query(
        *chain(size), *(f'<output stream="{each}"/>' for each in numbered("s", size + 1)[1:])
    ),
    "fields of a map": lambda size: query(mapped([f"{each} + n" for each in numbered("f", size)])),
    "functions": lambda size: query(windowed(*(f"lastval({f})" for f in numbered("f", size)))),
    "functions with a constant": lambda size: query(
        windowed(*(f"percentile({f}, 0.5)" for f in numbered("f", size)))
    ),
    "groups": lambda size: query(windowed("count()", groups=numbered("f", size))),
    "parameters that are not known": lambda size: query(
        box("b", "filter", ["s0"], ["t"], parameters("x", numbered("y", size)))
    ),
}

DOCUMENTS: dict[str, Text] = {
    "schemas": lambda size: "".join(
        f'<schema name="{each}"><field name="n" type="int"/></schema>'
        for each in numbered("c", size)
    ),
    "fields": lambda size: (
        '<schema name="c" key="f0,f1" time="f2">'
        + "".join(f'<field name="{each}" type="long"/>' for each in numbered("f", size))
        + "</schema>"
    ),
    "streams": lambda size: "".join(
        f'<stream name="{each}" schema="c" readers="a.edu"/>' for each in numbered("s", size)
    ),
    "queries": lambda size: "".join(
        f'<query name="q{n}">{passing("b", f"s{n}", f"s{n + 1}")}</query>' for n in range(size)
    ),
    "views": lambda size: "".join(
        f'<connection_point_view name="{each}" stream="s"><size value="3"/></connection_point_view>'
        for each in numbered("v", size)
    ),
    "empty lines": lambda size: "\n" * 100 * size + '<stream name="s" schema="c"/>',
}


def borealis(size: int) -> str:
    schema = '<schema name="c"><field name="n" type="int"/></schema>'
    parts = [
        f"""<input stream="s{n}" schema="c"/> <output stream="t{n}" schema="c"/>
        <connection_point_view name="v{n}" stream="t{n}"><size value="3"/></connection_point_view>
        <query name="q{n}"><box name="b" type="filter"><in stream="s{n}"/><out stream="t{n}"/>
        <parameter name="expression.0" value="n = 1"/></box></query>"""
        for n in range(size)
    ]
    return f"<borealis>{schema}{''.join(parts)}</borealis>"


def created(text: str, fields: int) -> None:
    """Take a query from its document to its tasks."""
    base = "medusa://mit.edu/"
    schema = Schema(
        f"{base}c", tuple(Field(each, F.LONG) for each in ["n", *numbered("f", fields)])
    )
    for made in read_document(text, base).queries:
        query_as_xml(made)
        entry = StreamEntry(StreamDefinition(f"{base}s0", schema.name), schema)
        Network(made, {f"{base}s0": entry}).tasks()


@pytest.mark.parametrize("name", QUERIES)
def test_queries(name: str) -> None:
    check_growth(lambda size: created(QUERIES[name](size), size), 30)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents(name: str) -> None:
    text = DOCUMENTS[name]
    read_document(f"<medusa>{text(30)}</medusa>", "medusa://mit.edu/")
    check_growth(
        lambda size: read_document(f"<medusa>{text(size)}</medusa>", "medusa://mit.edu/"), 30
    )


def test_documents_of_borealis() -> None:
    read_document(borealis(30), "medusa://mit.edu/")
    check_growth(lambda size: read_document(borealis(size), "medusa://mit.edu/"), 30)
