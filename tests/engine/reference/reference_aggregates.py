"""The aggregate functions by their definitions, in plain Python and in DuckDB's SQL, for comparison
with the engine."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import wraps

import duckdb

from medusa.engine.aggregates.rows import AGGREGATES
from medusa.engine.objects.query import AggregateCall
from medusa.engine.objects.schema import Field, FieldType
from medusa.engine.scalars.type_rules import FLOATS

MILLION = 1_000_000
LIMIT = 16_384
"""The greatest length of a text, in characters."""


def exact_variance(values: Sequence[int], ddof: int) -> float | None:
    """Compute the variance of integers: two exact parts of the numerator, each rounded once."""
    n = len(values)
    if n <= ddof:
        return None
    spread = n * sum(value * value for value in values) - sum(values) ** 2
    rounded = float(spread >> 64) * 2.0**64 + float(spread & (2**64 - 1))
    return rounded / float(n * (n - ddof))


def paned_variance(values: Sequence[float], panes: Sequence[int], ddof: int) -> float | None:
    """Compute the variance of floats, in the order of their panes and of the values in each."""
    parts = [
        [value for _, value in group]
        for _, group in itertools.groupby(zip(panes, values, strict=True), lambda each: each[0])
    ]
    n, mean, spread = 0, 0.0, 0.0
    for part in parts:
        m, average, own = 0, 0.0, 0.0
        for value in part:
            m, average, own = updated((m, average, own), (1, value, value - value))
        n, mean, spread = updated((n, mean, spread), (m, average, own))
    return None if n <= ddof else spread / (n - ddof)


def updated(
    one: tuple[int, float, float], other: tuple[int, float, float]
) -> tuple[int, float, float]:
    """Combine two variances by Chan, Golub, LeVeque (1982), equation 1.5."""
    (n, a, s), (m, b, t) = one, other
    if n == 0:
        return other
    d = b - a
    return n + m, a + d * m / (n + m), s + t + d * d * (float(n) * float(m)) / (n + m)


def middle(value: float) -> float:
    """Return the sketch's answer for a value: the middle of its 64th of a power of two."""
    if math.isnan(value) or value == 0 or abs(value) < 2.0**-30:
        return value if math.isnan(value) else 0.0
    if abs(value) >= 2.0**64:
        return math.copysign(math.inf, value)
    fraction, exponent = math.frexp(abs(value))
    part = math.floor((fraction * 2 - 1) * 64)
    low = Fraction(2) ** (exponent - 1) * Fraction(64 + part, 64)
    high = Fraction(2) ** (exponent - 1) * Fraction(65 + part, 64)
    return math.copysign(float(2 * low * high / (low + high)), value)


def json_text(value: object) -> str:
    """Write JSON as Jackson does: escapes have digits in capitals."""
    if not isinstance(value, str):
        return json.dumps(value)
    named = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n"}
    named |= {"\f": "\\f", "\r": "\\r"}
    escaped = "\\u00{:02X}"
    return (
        '"'
        + "".join(named.get(c) or (c if c >= " " else escaped.format(ord(c))) for c in value)
        + '"'
    )


def limited(pieces: Iterable[str], separator: str, marks: Sequence[str]) -> str:
    """Return the pieces that fit, and the mark in place of the first piece that does not fit."""
    found: list[str] = []
    used = 0
    for number, piece in enumerate(pieces):
        used += max(1, len(piece + separator))
        if used > LIMIT:
            return separator.join([*found, marks[number % len(marks)]])
        found.append(piece)
    return separator.join(found)


def top(values: Sequence[object], k: int) -> str:
    counts = Counter(values).items()
    ordered = sorted(counts, key=lambda pair: (-pair[1], pair[0]))[:k]  # type: ignore[operator]
    pairs = (f"[{json_text(value)},{number}]" for value, number in ordered)
    return f"[{limited(pairs, ',', ['null'])}]"


def array(values: Sequence[object]) -> str:
    return _json_array(sorted(values))  # type: ignore[type-var]


def array_down(values: Sequence[object]) -> str:
    return _json_array(sorted(values, reverse=True))  # type: ignore[type-var]


def _json_array(values: Iterable[object]) -> str:
    return f"[{limited(map(json_text, values), ',', ['null'])}]"


def histogram(values: Sequence[float], width: int) -> str | None:
    whole = [math.floor(value) for value in values if math.isfinite(value)]
    starts = [value // width * width for value in whole if -(2**63) <= value < 2**63]
    counts = sorted(Counter(starts).items())
    rest = [sum(number for _, number in counts[n:]) for n in range(len(counts))]
    pairs = (f'"{start}":{number}' for start, number in counts)
    marks = [f'"…":{number}' for number in rest]
    return f"{{{limited(pairs, ',', marks)}}}" if counts else None


def define_aggregates(database: duckdb.DuckDBPyConnection) -> None:
    """Define the functions in DuckDB that `later_sql` uses."""

    def create(name: str, function: Callable[..., object], takes: list[str]) -> None:
        """Create a function. Null arguments give null. Results are texts: a number that is NaN
        would be null."""

        @wraps(function)  # DuckDB reads the signature
        def called(*given: object) -> str | None:
            found = None if None in given else function(*given)
            return found if found is None or isinstance(found, str) else repr(found)

        database.create_function(name, called, takes, "VARCHAR", null_handling="special")

    create("exact_variance", exact_variance, ["BIGINT[]", "BIGINT"])
    create("paned_variance", paned_variance, ["DOUBLE[]", "BIGINT[]", "BIGINT"])
    create("middle", middle, ["DOUBLE"])
    for kind in ("BIGINT", "VARCHAR", "BOOLEAN"):
        create(f"top_{kind}", top, [f"{kind}[]", "BIGINT"])
        create(f"array_{kind}", array, [f"{kind}[]"])
        create(f"array_down_{kind}", array_down, [f"{kind}[]"])
    for kind in ("BIGINT", "DOUBLE"):
        create(f"histogram_{kind}", histogram, [f"{kind}[]", "BIGINT"])


def percentile_sql(f: str, fraction: str) -> str:
    """Write a percentile by positions, from 1, in the sorted list of the values."""
    values = f"list({f}::DOUBLE ORDER BY {f}) FILTER ({f} IS NOT NULL)"
    position = f"({fraction} * {MILLION})::BIGINT * (count({f}) - 1)"
    low = f"({values})[({position}) // {MILLION} + 1]"
    high = f"({values})[({position} + {MILLION - 1}) // {MILLION} + 1]"
    share = f"(({position}) % {MILLION})::DOUBLE / {MILLION}.0::DOUBLE"
    return f"CASE WHEN {low} = {high} THEN {low} ELSE {low} + ({high} - {low}) * ({share}) END"


def text_sql(text: object) -> str:
    return "'" + str(text).replace("'", "''") + "'"


def later_sql(each: AggregateCall, field: Field, width: int | None) -> str:
    """Write variances, percentiles, texts and truth values in DuckDB's SQL."""
    f, with_ = field.name, each.parameter
    wide = "DOUBLE" if field.type in FLOATS else "BIGINT"
    kind = {FieldType.STRING: "VARCHAR", FieldType.BOOL: "BOOLEAN"}.get(field.type, wide)
    value = f"epoch_us({f})" if field.type is FieldType.TIMESTAMP else f"{f}::{kind}"
    values = f"list({value}) FILTER ({f} IS NOT NULL)"
    variance = variance_sql(f, "samp" in each.function, wide, width)
    order = "DESC" if each.descending else "ASC"
    discrete = f"percentile_disc({with_}) WITHIN GROUP (ORDER BY {f} {order})"
    made = {
        "var_pop": variance,
        "var_samp": variance,
        "stddev_pop": f"sqrt({variance})",
        "stddev_samp": f"sqrt({variance})",
        "median": percentile_sql(f, "0.5"),
        "percentile": percentile_sql(f, f"(1 - {with_})" if each.descending else f"{with_}"),
        "percentile_disc": discrete,
        "approx_percentile": f"middle({discrete}::DOUBLE)::DOUBLE",
        "top_k": f"top_{kind}({values}, {with_})",
        "string_agg": f"string_agg({f}, {text_sql(with_)} ORDER BY {f} {order})",
        "array_agg": f"array_{'down_' if each.descending else ''}{kind}({values})",
        "histogram": f"histogram_{wide}({values}, {with_})",
    }
    example = AGGREGATES[each.function].example
    return made.get(each.function) or re.sub(r"\bx\b", f, example.duckdb or example.text)


def variance_sql(f: str, sample: bool, wide: str, width: int | None) -> str:
    if wide == "BIGINT":
        return f"exact_variance(list({f}::BIGINT) FILTER ({f} IS NOT NULL), {int(sample)})::DOUBLE"
    pane = "0" if width is None else f"stime - ((stime % {width}) + {width}) % {width}"
    given = f"FILTER ({f} IS NOT NULL)"
    lists = (f"list({each} ORDER BY {pane}, {f}) {given}" for each in (f"{f}::DOUBLE", pane))
    return f"paned_variance({', '.join(lists)}, {int(sample)})::DOUBLE"
