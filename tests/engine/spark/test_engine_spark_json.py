"""JSON in Spark and in the interpreter; the oracle is Python's `json`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal
from json.scanner import NUMBER_RE  # type: ignore[attr-defined]
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scalar_rows import FIELDS, check, check_like, odd, rows

from medusa.engine.evaluation.expressions import Row
from medusa.engine.spark.session import Spark

pytestmark = pytest.mark.spark

PATHS: dict[str, list[Any]] = {
    "$.a": ["a"],
    "$['b']": ["b"],
    "$.a.b": ["a", "b"],
    "$.a[0]": ["a", 0],
    "$[0]": [0],
    "$[1].a": [1, "a"],
    '$["a"].b[1].c': ["a", "b", 1, "c"],
    "$.é-$x": ["é-$x"],
    "$.a[0][0]": ["a", 0, 0],
    "$['id.orig_h']": ["id.orig_h"],
    '$["a 1"][\' a[0]"?\']': ["a 1", ' a[0]"?'],
    '$.a["o\'b*"][1]': ["a", "o'b*", 1],
}
"""Paths of JSON, each with its steps."""

WRITTEN = """0 -0 7 -12.50 1.0 0.000 1e5 1E-7 -0e0 100 9223372036854775808 1e400 -1e999 1e-400 01 1.
12345678901234567890.1234567890123456780 0.1 2.675 .5 +1 - NaN 0.30000000000000004 4.9e-324
123456789012345678 1.7976931348623157e308 -0.0 -0.10""".split()  # noqa: SIM905
WRITTEN += ["1" * 38, "1" * 39, "0." + "0" * 37 + "1", "0." + "0" * 38 + "1"]
NUMBERS = st.sampled_from(WRITTEN)
"""Texts of numbers, and texts that are no numbers."""

STRINGS = st.text(st.sampled_from('ab"\\/é😀\n\t\x00\x1f\u2028 {}[],:'), max_size=5)

NAMES = st.sampled_from(["a", "b", "c", "é-$x", "id.orig_h", "a 1", ' a[0]"?', "o'b*"])


def written_string(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from([json.dumps(text), json.dumps(text, ensure_ascii=False)])


def spaced(parts: list[str], signs: str) -> str:
    return signs[0] + ", ".join(parts) + signs[1]


VALUES = st.recursive(
    NUMBERS
    | STRINGS.flatmap(written_string)
    | st.sampled_from(["true", "false", "null", '"\\ud83d\\ude00"', '"\\ude00"', "'a'", '"\\x"'])
    | st.sampled_from(['"1.5"', '"true"', '"\t"', "tru", "[", "{}", "[]", "nullx", '"\\u00e9\\/"']),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda each: spaced(each, "[]"))
        | st.lists(st.tuples(NAMES, inner), max_size=3).map(
            lambda each: spaced([f"{json.dumps(k)}:\n{v}" for k, v in each], "{}")
        )
    ),
    max_leaves=8,
)


@st.composite
def documents(draw: st.DrawFn) -> str:
    members = draw(st.lists(st.tuples(NAMES, VALUES), min_size=1, max_size=4))
    text = spaced([f"{json.dumps(name)} : {value}" for name, value in members], "{}")
    text = draw(st.sampled_from([text, text, f"[{text}, {text}]", f" \t\n{text} ", f"{text} x"]))
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(text)))
        text = (
            text[:at]
            + draw(st.sampled_from(["", ",", '"', "}", "\x00", "/", " ", "é"]))
            + text[at + 1 :]
        )
    return text


class _Number(str):
    __slots__ = ()


def parsed(text: str) -> Any:
    """Return the document with which the text begins.

    Raises:
        ValueError: the text does not begin with a document.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("twice")
        return dict(pairs)

    def never(_: str) -> None:
        raise ValueError("no number")

    decoder = json.JSONDecoder(
        object_pairs_hook=once, parse_int=_Number, parse_float=_Number, parse_constant=never
    )
    value, _ = decoder.raw_decode(text.lstrip(" \t\r\n"))
    json.dumps(value, ensure_ascii=False).encode()  # halves of surrogate pairs
    return value


def at(text: str, path: str) -> Any:
    try:
        value = parsed(text)
    except (ValueError, UnicodeEncodeError):
        return None
    try:
        for step in PATHS[path]:
            if isinstance(step, int) != isinstance(value, list) or isinstance(value, str):
                return None
            value = value[step]
    except (LookupError, TypeError):
        return None
    return value


def value_of(path: str) -> Callable[[str], str | None]:
    def oracle(text: str) -> str | None:
        value = at(text, path)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, _Number):
            _, digits, exponent = Decimal(value).as_tuple()
            exact = "e" not in value.lower() and len(digits) <= 38 and int(exponent) >= -38
            exact = exact and not (value.startswith("-") and float(value) == 0)
            return without_zeros(f"{Decimal(value):f}") if exact else written(value, text)
        return value if isinstance(value, str) else None

    return oracle


def written(number: str, document: str) -> str | None:
    """Return a value as the document writes it; if there are several forms, the least of them."""
    if math.isinf(float(number)):
        return None
    ways = [match.group() for match in NUMBER_RE.finditer(document)]
    return min(way for way in ways if repr(float(way)) == repr(float(number)))  # -0.0 is not 0.0


def without_zeros(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def double_of(path: str) -> Callable[[str], float | None]:
    def oracle(text: str) -> float | None:
        value = at(text, path)
        if not isinstance(value, _Number) or not math.isfinite(float(value)):
            return None
        return float(value)

    return oracle


@odd(12, soak=200)
@given(rows(documents()))
def test_values_at_paths(spark: Spark, found: list[Row]) -> None:
    oracles: dict[str, Callable[[str], Any]] = {}
    for path in PATHS:
        quoted = path.replace("'", "''")
        oracles[f"json_value(s, '{quoted}')"] = value_of(path)
        oracles[f"json_double(s, '{quoted}')"] = double_of(path)
    wanted = [
        [None if row["s"] is None else oracle(row["s"]) for row in found]
        for oracle in oracles.values()
    ]
    texts = [*oracles]
    check_like(texts, found, check(spark, found, texts), wanted)


def given_texts(*texts: str) -> list[Row]:
    none = dict.fromkeys(FIELDS)
    return [{**none, "s": text} for text in texts]


def test_odd_documents(spark: Spark) -> None:
    deep = {count: f'{{"b": 2, "a": {"[" * count}{"]" * count}}}' for count in (999, 1000)}
    cases: dict[str, tuple[str | None, str | None]] = {
        '{"a":"x","b":2} and more': ("x", "2"),
        '{"a":"x","b":2}}': ("x", "2"),
        '\ufeff{"a":1}': (None, None),
        '\u00a0{"a":1}': (None, None),
        "{'a':1}": (None, None),
        '{"a":1,}': (None, None),
        '{"a":1 "b":2}': (None, None),
        '{"a":1,"b":{"c":1,"c":2}}': (None, None),
        '{"a":1,"c":"\\ud800"}': (None, None),
        '{"a":1,"\\udc00":1}': (None, None),
        '{"\\u0061":"\\u0041","b":"\\"\\\\\\/\\b\\f\\n\\r\\t"}': ("A", '"\\/\b\f\n\r\t'),
        '{"A":1,"a ":2," a":3}': (None, None),
        '{"a":null,"b":{}}': (None, None),
        '{"a":/**/1}': (None, None),
        '{"a":Infinity}': (None, None),
        "": (None, None),
        "[]": (None, None),
        '"a"': (None, None),
        '{"a":-0.0,"b":-0}': ("-0", "-0"),
        '{"a":-0.00,"b":0}': ("-0.00", "0"),
        '{"a":": -0.0, ","b":-0.0}': (": -0.0, ", "-0.0"),
        '{"b":-0.0,"a":"' + "\\n" * 200_000 + '"}': ("\n" * 200_000, "-0.0"),
        '{"b":[-0.0,"\\q"],"a":1}': (None, None),
        '{"a":' + "9" * 1000 + ',"b":2}': (None, "2"),
        '{"a":' + "9" * 1001 + ',"b":2}': (None, None),
        '{"a":1.' + "9" * 999 + ',"b":2}': ("1." + "9" * 999, "2"),
        '{"a":1.' + "9" * 1000 + ',"b":2}': (None, None),
        '{"a":1e' + "0" * 999 + ',"b":2}': ("1e" + "0" * 999, "2"),
        '{"a":1e' + "0" * 1000 + ',"b":2}': (None, None),
        '{"' + "n" * 50_000 + '":1,"b":2}': (None, "2"),
        '{"' + "n" * 50_001 + '":1,"b":2}': (None, None),
        '{"a":"' + "é" * 100_000 + '","b":2}': ("é" * 100_000, "2"),
        deep[999]: (None, "2"),
        deep[1000]: (None, None),
    }
    found = given_texts(*cases)
    made = check(spark, found, ["json_value(s, '$.a')", "json_value(s, '$.b')"])
    assert [*zip(*made, strict=True)] == [*cases.values()]


def test_odd_numbers(spark: Spark) -> None:
    cases: dict[str, tuple[str | None, float | None]] = {
        "1e400": (None, None),
        "-1e400": (None, None),
        "9" * 400: (None, None),
        "1e-400": ("1e-400", 0.0),
        "-0e0": ("-0e0", 0.0),
        "1e2": ("1e2", 100.0),
        "1.50E-7": ("1.50E-7", 1.5e-7),
        "9" * 39: ("9" * 39, 1e39),
        '1e2, "b": "99e9 100", "c": 1E+2': ("100", 100.0),
        "-0.0": ("-0.0", 0.0),
        "-0": ("-0", 0.0),
        "1e-0": ("1e-0", 1.0),
        "-0." + "0" * 900: ("-0." + "0" * 900, 0.0),
        "-00.0": (None, None),
        "1.7976931348623157e308": ("1.7976931348623157e308", 1.7976931348623157e308),
        "12.50": ("12.5", 12.5),
        "9223372036854775809": ("9223372036854775809", 2.0**63),
        '"1.5"': ("1.5", None),
        "true": ("true", None),
        "null": (None, None),
    }
    found = given_texts(*(f'{{"a": {number}}}' for number in cases))
    made = check(spark, found, ["json_value(s, '$.a')", "json_double(s, '$.a')"])
    assert [*zip(*made, strict=True)] == [*cases.values()]
    assert not any(str(value).startswith("-") for value in made[1])
