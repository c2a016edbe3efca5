"""Values at the edges of types: a value that does not fit is null, in Spark and in the interpreter.
The oracle computes with exact fractions."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scalar_rows import FIELDS, Oracle, by_interpreter, by_spark, check, check_oracles, odd

from medusa.engine.dataframes.columns import output
from medusa.engine.evaluation.expressions import Row
from medusa.engine.spark.session import Spark

pytestmark = pytest.mark.spark

BITS = {"byte": 8, "short": 16, "int": 32, "long": 64}
LIMITS = sorted({sign * 2 ** (bits - 1) for bits in BITS.values() for sign in (1, -1)})
NEAR = [limit + step for limit in LIMITS for step in (-2, -1, 0, 1)]

GREATEST_SINGLE = (2 - 2**-23) * 2.0**127
HALF_A_STEP = 2.0**103

DOUBLES = [
    *map(float, NEAR),
    *(math.nextafter(limit, towards) for limit in LIMITS for towards in (-math.inf, math.inf)),
    *(limit + part for limit in LIMITS[2:6] for part in (-0.5, 0.5, -1.5, -0.999)),
    *(sign * (GREATEST_SINGLE + step) for sign in (1, -1) for step in (0, HALF_A_STEP)),
    math.nextafter(GREATEST_SINGLE + HALF_A_STEP, 0),
    *(1e39, -1e39, 1e300, -0.9, 0.9, -0.0, 2.5, -2.5, 0.1, 16_777_217.0, 1e-46, 7e-46, 5e-324),
    *(math.nan, math.inf, -math.inf, 1.7976931348623157e308),
]

TEXTS = """1d 1f 1L 0x1p3 0x10 1_0 1,0 1e3 1.5 1. .5 . e3 1e 1e+ 1e400 -1e400 1e-400 1e39 3.5e38 --1
+-1 + - inf Inf
+inf -Infinity INFINITY infinit nan NaN -nan +NaN null 1e99999999999 0e99999999999 ١ 1٢
3.4028235677973366e38 3.4028235677973365e38 1.1920929e-7 16777217 16777216.9 0.1 1e-46""".split()  # noqa: SIM905
TEXTS += ["", " ", " 7 ", "\t-7\n", "\x0b7\x0c\r", "7 7", "7\x00", "\xa07", "\u30007", "7\x1f"]
TEXTS += ["0" * 5_000 + "12", "9" * 5_000, "-" + "9" * 400 + "e-390"]
TEXTS += [f"{sign}{abs(number)}" for number in NEAR for sign in ("-", "+", "")]

LONGS = st.sampled_from([each for each in NEAR if each in range(-(2**63), 2**63)])
INTS = st.sampled_from([each for each in NEAR if each in range(-(2**31), 2**31)])


def edges() -> st.SearchStrategy[list[Row]]:
    fields = {
        "s": st.sampled_from(TEXTS) | st.text(st.sampled_from("019+-.eE \tdfxnNaifI"), max_size=6),
        "n": INTS | st.integers(-300, 300),
        "m": INTS | st.integers(-300, 300),
        "b": LONGS | st.integers(-300, 300),
        "c": LONGS | st.integers(-(2**63), 2**63 - 1),
        "x": st.sampled_from(DOUBLES) | st.floats(),
        "t": LONGS,
    }
    row = {name: fields.get(name, st.none()) for name in FIELDS}
    return st.lists(st.fixed_dictionaries(row), min_size=60, max_size=120)


def fit(number: int | None, type_: str) -> int | None:
    if number is None:
        return None
    size = 2 ** (BITS[type_] - 1)
    return number if -size <= number < size else None


def towards_zero(x: float) -> int | None:
    if math.isnan(x) or math.isinf(x):
        return None
    exact = Fraction(x)
    return abs(exact.numerator) // exact.denominator * (1 if x > 0 else -1)


def nearest_single(x: float | None) -> float | None:
    """Return the nearest number of 24 bits, and of two equally near ones the even one; null instead
    of an infinite one."""
    if x is None or math.isnan(x) or math.isinf(x) or x == 0:
        return x
    exact = Fraction(x)
    step = Fraction(2) ** (max(math.frexp(x)[1], -125) - 24)
    made = round(exact / step) * step
    return float(made) if abs(made) < 2**128 else None


def read(s: str) -> float | None:
    plain = s.strip(" \t\n\x0b\x0c\r")
    if plain.lower() == "nan":
        return math.nan
    if (
        plain.lower().lstrip("+-") in {"inf", "infinity"}
        and len(plain.lstrip("+-")) >= len(plain) - 1
    ):
        return -math.inf if plain[0] == "-" else math.inf
    if not set(plain) <= set("0123456789+-.eE"):
        return None
    try:
        number = Decimal(plain)
    except InvalidOperation:
        return None
    if not number or number.adjusted() < -400:
        return 0.0
    made = math.inf if number.adjusted() > 400 else float(number)
    return None if math.isinf(made) else made


def read_whole(text: str) -> int | None:
    plain = text.strip(" \t\n\x0b\x0c\r")
    digits = plain[1:] if plain[:1] in {"+", "-"} else plain
    if not digits or not set(digits) <= set("0123456789"):
        return None
    return int(Decimal(plain)) if len(digits.lstrip("0")) < 30 else None


def casts() -> dict[str, Oracle]:
    def of_integer(type_: str) -> Callable[[int], int | None]:
        return lambda b: fit(b, type_)

    def of_double(type_: str) -> Callable[[float], int | None]:
        return lambda x: fit(towards_zero(x), type_)

    def of_single(type_: str) -> Callable[[float], int | None]:
        def through(x: float) -> int | None:
            made = nearest_single(x)
            return None if made is None else fit(towards_zero(made), type_)

        return through

    def of_text(type_: str) -> Callable[[str], int | None]:
        return lambda s: fit(read_whole(s), type_)

    found: dict[str, Oracle] = {
        "cast(cast(x as single) as double)": nearest_single,
        "cast(s as double)": read,
        "cast(cast(s as single) as double)": lambda s: nearest_single(read(s)),
        "cast(b as double)": lambda b: float(Fraction(b)),
        "cast(b as string)": lambda b: f"{b:d}",
        "cast(b > 0 as string)": lambda b: "true" if b > 0 else "false",
        "cast(b > 0 as byte)": lambda b: 1 if b > 0 else 0,
        "cast(cast(b as timestamp) as long)": lambda b: b,
        "cast(t as long)": lambda t: t,
    }
    for type_ in BITS:
        found[f"cast(b as {type_})"] = of_integer(type_)
        found[f"cast(x as {type_})"] = of_double(type_)
        found[f"cast(cast(x as single) as {type_})"] = of_single(type_)
        found[f"cast(s as {type_})"] = of_text(type_)
    return found


def arithmetic() -> dict[str, Oracle]:
    found: dict[str, Oracle] = {
        "b + c": lambda b, c: fit(b + c, "long"),
        "b - c": lambda b, c: fit(b - c, "long"),
        "b * c": lambda b, c: fit(b * c, "long"),
        "b * n": lambda b, n: fit(b * n, "long"),
        "n + m": lambda n, m: fit(n + m, "int"),
        "n - m": lambda n, m: fit(n - m, "int"),
        "n * m": lambda n, m: fit(n * m, "int"),
        "-b": lambda b: fit(-b, "long"),
        "-n": lambda n: fit(-n, "int"),
        "abs(b)": lambda b: fit(abs(b), "long"),
        "abs(n)": lambda n: fit(abs(n), "int"),
        "b % -1": lambda b: 0,
        "unix_micros(t + interval '1' microsecond)": lambda t: fit(t + 1, "long"),
        "unix_micros(t - interval '1' second)": lambda t: fit(t - 10**6, "long"),
        "timestampdiff(microsecond, cast(b as timestamp), t)": lambda b, t: fit(t - b, "long"),
    }
    for type_ in ("byte", "short"):
        one, other = f"cast(n as {type_})", f"cast(m as {type_})"
        for sign, act in (("+", int.__add__), ("-", int.__sub__), ("*", int.__mul__)):
            found[f"{one} {sign} {other}"] = narrow(type_, act)
        found[f"-{one}"] = of_narrow(type_, int.__neg__)
        found[f"abs({one})"] = of_narrow(type_, abs)
    return found


def narrow(type_: str, act: Callable[[int, int], int]) -> Oracle:
    def computed(n: int, m: int) -> int | None:
        one, other = fit(n, type_), fit(m, type_)
        return None if one is None or other is None else fit(act(one, other), type_)

    return computed


def of_narrow(type_: str, act: Callable[[int], int]) -> Oracle:
    def computed(n: int) -> int | None:
        return None if fit(n, type_) is None else fit(act(n), type_)

    return computed


def whole(x: float, towards: Callable[[Fraction], int]) -> int | None:
    return None if math.isnan(x) or math.isinf(x) else fit(towards(Fraction(x)), "long")


def rounded(x: float, digits: int) -> float:
    """Round half away from zero, by the shortest decimal that denotes the number."""
    if math.isnan(x) or math.isinf(x):
        return x
    scaled = Fraction(repr(x)) * 10**digits
    size = (abs(scaled) + Fraction(1, 2)).__floor__()
    return float(Fraction(size if x > 0 else -size, 10**digits))


ROUNDED: dict[str, Oracle] = {
    "floor(x)": lambda x: whole(x, math.floor),
    "ceil(x)": lambda x: whole(x, math.ceil),
    "floor(b)": lambda b: b,
    "ceil(n)": lambda n: n,
    "round(b, 2)": lambda b: b,
    "round(x)": lambda x: rounded(x, 0),
    "round(x, 2)": lambda x: rounded(x, 2),
    "cast(round(x) as long)": lambda x: fit(towards_zero(rounded(x, 0)), "long"),
    "floor(cast(b as double))": lambda b: whole(float(b), math.floor),
}


@odd(4, soak=60)
@given(edges())
def test_a_value_that_does_not_fit_its_type_is_null(spark: Spark, found: list[Row]) -> None:
    check_oracles(spark, found, casts() | arithmetic() | ROUNDED)


def test_every_edge_in_one_table(spark: Spark) -> None:
    none = dict.fromkeys(FIELDS)
    found = [{**none, "x": x} for x in DOUBLES] + [{**none, "s": text} for text in TEXTS]
    found += [{**none, "b": b} for b in NEAR if fit(b, "long") is not None]
    check_oracles(spark, found, casts() | ROUNDED)


def test_the_greatest_doubles_are_no_longs(spark: Spark) -> None:
    row = {**dict.fromkeys(FIELDS), "x": 2.0**63, "s": "1d", "p": "0x1p3"}
    texts = ["cast(x as long)", "cast(-x as long)", "cast(9.223372036854776e18 as long)"]
    texts += ["cast(s as double)", "cast(p as double)", "floor(x)"]
    made = check(spark, [row], texts)
    assert made == [[None], [-(2**63)], [None], [None], [None], [None]]


# -- the sign of zero ------------------------------------------------------------------------------

DIGITS = st.sampled_from(
    ["0", "0.0", "0e0", "0.00e-7", "0E+3", "1e-400", "7e-330", "1e-46", "12.5"]
)
MINUS = st.sampled_from(["", "-"])
WRITTEN = ["0", "00", "000.", ".0", ".00e5", "0.e-1"]  # SQL reads these numbers, JSON does not

NUMBERS_IN_TEXTS: dict[str, Oracle] = {
    "cast(s as double)": read,
    "cast(s as single)": lambda s: nearest_single(read(s)),
    "cast(cast(s as double) as single)": lambda s: nearest_single(read(s)),
    "cast(cast(s as single) as double)": lambda s: nearest_single(read(s)),
    "json_double(p, '$.a')": lambda p: float(p[5:-1]),
    "cast(json_value(p, '$.a') as double)": lambda p: float(p[5:-1]),
    "cast(json_value(p, '$.a') as single)": lambda p: nearest_single(float(p[5:-1])),
}


def zeros() -> st.SearchStrategy[list[Row]]:
    """Draw numbers of texts and of JSON, most of which are zeros with or without a sign."""
    signed = st.tuples(st.sampled_from(["", "+", "-"]), DIGITS | st.sampled_from(WRITTEN))
    fields = {
        "s": st.builds(lambda number, blank: f"{blank}{''.join(number)}{blank}", signed, BLANKS),
        "p": st.builds(lambda minus, digits: f'{{"a":{minus}{digits}}}', MINUS, DIGITS),
    }
    row = {name: fields.get(name, st.none()) for name in FIELDS}
    return st.lists(st.fixed_dictionaries(row), min_size=60, max_size=120)


BLANKS = st.sampled_from(["", " ", "\t"])


def signed_bits(value: float | None) -> bytes | None:
    return None if value is None else struct.pack("<d", value)


@odd(2, soak=60)
@given(zeros())
def test_a_number_that_is_read_out_of_a_text_is_no_negative_zero(
    spark: Spark, found: list[Row]
) -> None:
    """Every zero is 0.0: in Spark's outputs, and at each value in the interpreter."""
    texts = [*NUMBERS_IN_TEXTS]
    outputs = by_spark(spark, found, texts, lambda expression: output("made", expression))
    values = by_interpreter(found, texts)
    for (text, oracle), ours, theirs in zip(NUMBERS_IN_TEXTS.items(), outputs, values, strict=True):
        (field,) = oracle.__code__.co_varnames[: oracle.__code__.co_argcount]
        for row, one, other in zip(found, ours, theirs, strict=True):
            wanted = oracle(row[field])
            expected = signed_bits(None if wanted is None else wanted + 0.0)
            assert signed_bits(one) == signed_bits(other) == expected, (text, row)
