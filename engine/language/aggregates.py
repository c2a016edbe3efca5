"""The results of the aggregate functions, and the constants that some of them take.

Each is a function of the window's values alone, as a bag: a value and how often it occurs. So the
result has the same bits in any order, cut, panes and place. In order, `false` is before `true`, NaN
behind all numbers, and strings are by code point; nulls do not count.

    percentile(x, p)          n values in ascending order, from 0; the position (n - 1) p = i + f,
                              0 <= f < 1: x_i if f is 0 or x_i = x_(i + 1), else
                              x_i + (x_(i + 1) - x_i) f, in doubles. median(x): p is 0.5
    percentile_disc(x, p)     the value ceil(n p), from 1; for p = 0 the least
    f(x desc, ...)            of these three, array_agg and string_agg: the same of the values in
                              descending order; percentile(x desc, p) is percentile(x, 1 - p)
    approx_percentile(x, p)   about the same value: see `medusa.engine.language.buckets`
    top_k(x, k)               the k most frequent values, of equally frequent ones the least:
                              [[value,number],...]
    array_agg(x)              all values in ascending order: [value,...]
    string_agg(x, 'text')     all values in ascending order, with the text between them
    histogram(x, width)       {"start":number,...}: values in [start, start + width), start a
                              multiple of width, in ascending order; of a float its floor, which
                              does not count unless it fits a long
    bool_and, bool_or         the least, the greatest

Texts are JSON without blanks, but that of `string_agg`. In JSON, timestamps are microseconds since
the epoch. In strings, `"` and `\\` have a backslash before them, the characters below U+0020 are
\\b \\t \\n \\f \\r or \\u00XX with digits 0-9A-F, and others are themselves. Floats have no text:
engines print them differently.

A text has at most `TEXT_LIMIT` characters. Values are taken in order for as long as they fit, each
with a separator, at least one character each. If some are left, the mark follows: `null` in
`array_agg` and `top_k`, `MARK` in `string_agg`, and `"MARK":number` with the values left in
`histogram`.

Of integers, variances are made of exact sums. With n values x,

    N = n sum(x^2) - sum(x)^2 = u 2^64 + v, 0 <= v < 2^64
    var_pop = (double(u) 2^64 + double(v)) / double(n n);   var_samp: n (n - 1) in place of n n

Of floats, (n, mean, m2) are put together one after the other: first each value of a pane as
(1, value, value - value), in ascending order, then pane after pane: so the variance is NaN if a
value is infinite or NaN. (n, a, s) and (m, b, t), with d = b - a and doubles from the left, become

    n + m,   a + d m / (n + m),   s + t + d d (n m) / (n + m);   the second alone if n is 0

and var_pop is m2 / n, var_samp m2 / (n - 1). Source: Chan, Golub and LeVeque, Updating formulae and
a pairwise algorithm for computing sample variances (COMPSTAT 1982), equation 1.5. A standard
deviation is the square root of its variance.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum, auto
from typing import Final

from medusa.engine.objects.query import AggregateFunction, Function
from medusa.overlay.errors import InvalidInputError

COUNTS: Final = frozenset({Function.COUNT, Function.COUNT_DISTINCT, Function.APPROX_COUNT_DISTINCT})
"""The functions that are never null."""

CHOSEN: Final = frozenset(
    {
        Function.MIN,
        Function.MAX,
        Function.FIRSTVAL,
        Function.LASTVAL,
        Function.PERCENTILE_DISC,
    }
)
"""The functions whose result is one of the values."""

VARIANCES: Final = frozenset(
    {Function.VAR_POP, Function.VAR_SAMP, Function.STDDEV_POP, Function.STDDEV_SAMP}
)

PERCENTILES: Final = frozenset(
    {
        Function.MEDIAN,
        Function.PERCENTILE,
        Function.PERCENTILE_DISC,
        Function.APPROX_PERCENTILE,
    }
)

TEXT_LIMIT: Final = 16_384
"""Characters of a text: at most 64 KiB in a tuple."""

MARK: Final = "…"

MOST_FREQUENT: Final = 1_000
"""The greatest k of top_k."""

SEPARATOR_LIMIT: Final = 64
"""Characters between the values of string_agg."""

WIDTH_LIMIT: Final = 2**31
"""The greatest width of a histogram's bins."""

ORDERED: Final = frozenset(
    {
        Function.PERCENTILE,
        Function.PERCENTILE_DISC,
        Function.APPROX_PERCENTILE,
        Function.STRING_AGG,
        Function.ARRAY_AGG,
    }
)
"""The functions whose values may be taken in descending order."""

MILLION: Final = 1_000_000
"""A percentile has six decimals at most, so that positions are exact."""


class Parameter(Enum):
    """The constant that a function takes; the value is what it is, in words, and an example."""

    FRACTION = ("a number from 0 to 1 with at most six decimals", "0.95")
    NUMBER = (f"a whole number from 1 to {MOST_FREQUENT:,}", "10")
    SEPARATOR = (f"a text of at most {SEPARATOR_LIMIT} printable characters", "', '")
    WIDTH = (f"a whole number from 1 to {WIDTH_LIMIT:,}", "100")


PARAMETERS: Final[Mapping[Function, Parameter]] = {
    Function.PERCENTILE: Parameter.FRACTION,
    Function.PERCENTILE_DISC: Parameter.FRACTION,
    Function.APPROX_PERCENTILE: Parameter.FRACTION,
    Function.TOP_K: Parameter.NUMBER,
    Function.STRING_AGG: Parameter.SEPARATOR,
    Function.HISTOGRAM: Parameter.WIDTH,
}

OTHER_NAMES: Final[Mapping[str, Function]] = {
    "variance": Function.VAR_SAMP,
    "stddev": Function.STDDEV_SAMP,
    "percentile_cont": Function.PERCENTILE,
    "listagg": Function.STRING_AGG,
    "every": Function.BOOL_AND,
    "some": Function.BOOL_OR,
}
"""Names that SQL has for the same functions; they are read, and not written."""


class Kind(Enum):
    """By what the values of a function are put together: each makes a tuple of a pane and group."""

    VALUES = auto()
    """The value: which ones there are."""

    REGISTERS = auto()
    """The register of a sketch, with its greatest rank: `medusa.engine.language.distinct`."""

    NUMBERS = auto()
    """The value, with how often it occurs."""

    BUCKETS = auto()
    """The bucket of a sketch, with how often: `medusa.engine.language.buckets`."""

    BINS = auto()
    """The bin of a histogram, with how often."""


KINDS: Final[Mapping[Function, Kind]] = {
    Function.COUNT_DISTINCT: Kind.VALUES,
    Function.APPROX_COUNT_DISTINCT: Kind.REGISTERS,
    Function.MEDIAN: Kind.NUMBERS,
    Function.PERCENTILE: Kind.NUMBERS,
    Function.PERCENTILE_DISC: Kind.NUMBERS,
    Function.TOP_K: Kind.NUMBERS,
    Function.STRING_AGG: Kind.NUMBERS,
    Function.ARRAY_AGG: Kind.NUMBERS,
    Function.APPROX_PERCENTILE: Kind.BUCKETS,
    Function.HISTOGRAM: Kind.BINS,
}
"""The functions that make several tuples of a pane and group."""

BAGS: Final = frozenset({Kind.NUMBERS, Kind.BUCKETS, Kind.BINS})
"""The kinds that count how often."""


def check_parameter(each: AggregateFunction) -> None:
    """Check the constant of a function.

    Raises:
        InvalidInputError: it is missing, too many, or out of its range; names what it should be.
    """
    if each.descending and each.function not in ORDERED:
        raise InvalidInputError(f"{each.function} has no order: leave out DESC")
    check_constant(each.function, each.parameter)


def check_constant(function: Function, constant: int | float | str | None) -> None:
    """Check the constant of a call; None: it has none.

    Raises:
        InvalidInputError: it is missing, too many, or out of its range; names what it should be.
    """
    wanted = PARAMETERS.get(function)
    if wanted is None:
        if constant is not None:
            raise InvalidInputError(f"{function} takes no constant beside its argument")
    elif not _fits(wanted, constant):
        what, example = wanted.value
        raise InvalidInputError(f"{function} needs {what}, like {example}")


def _fits(wanted: Parameter, given: int | float | str | None) -> bool:
    match wanted, given:
        case Parameter.FRACTION, (int() | float()) as number:
            return 0 <= number <= 1 and not Decimal(repr(number)) * MILLION % 1
        case Parameter.NUMBER, int() as number:
            return 1 <= number <= MOST_FREQUENT
        case Parameter.SEPARATOR, str() as text:
            return len(text) <= SEPARATOR_LIMIT and text.isprintable()
        case Parameter.WIDTH, int() as number:
            return 1 <= number <= WIDTH_LIMIT
        case _:
            return False


def millionths(function: Function, parameter: int | float | str | None) -> int:
    """The fraction of a percentile, in millionths."""
    if function is Function.MEDIAN:
        return MILLION // 2
    assert isinstance(parameter, int | float)
    return int(Decimal(repr(parameter)) * MILLION)


def function_named(name: str) -> Function:
    """The function of a name. Raises: InvalidInputError: there is none; names those there are."""
    if name in OTHER_NAMES:
        return OTHER_NAMES[name]
    if name not in Function._value2member_map_:
        known = ", ".join((*Function, *OTHER_NAMES))
        raise InvalidInputError(f"there is no aggregate {name[:64]!a}; there are {known}")
    return Function(name)


_WHOLE = re.compile(r"\d{1,20}", re.ASCII)
_DECIMAL = re.compile(r"\d{1,20}\.\d{1,20}", re.ASCII)
_TEXT = re.compile(r"'((?:[^']|'')*)'", re.DOTALL)


def split_parameter(inside: str) -> tuple[str, int | float | str | None]:
    """The argument and the constant that stand in the parentheses of a call; None: there is none.

    Raises:
        InvalidInputError: what is behind the last comma is no constant.
    """
    at = _last_comma(inside)
    if at is None:
        return inside, None
    text = inside[at + 1 :].strip()
    if _WHOLE.fullmatch(text):
        return inside[:at], int(text)
    if _DECIMAL.fullmatch(text):
        return inside[:at], float(text)
    quoted = _TEXT.fullmatch(text)
    if quoted is None:
        raise InvalidInputError(f"{text[:64]!a} is not a number like 0.5, or a text like ', '")
    return inside[:at], quoted.group(1).replace("''", "'")


def _last_comma(text: str) -> int | None:
    """Where the last comma is that is in no parentheses and no quotes."""
    found, depth, quote = None, 0, ""
    for number, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == "," and not depth:
            found = number
    return found


def call_of(each: AggregateFunction) -> str:
    """The function as a document has it."""
    argument = each.argument or ""
    if each.descending:
        argument = f"{argument} desc"
    elif each.function in ORDERED and _DESCENDING.fullmatch(argument):
        argument = f"({argument})"  # its last field is called desc
    constant = constant_of(each)
    return f"{each.function}({argument}{'' if constant is None else f', {constant}'})"


def constant_of(each: AggregateFunction) -> str | None:
    """The constant of a function as texts have it."""
    match each.parameter:
        case None:
            return None
        case str() as text:
            return "'" + text.replace("'", "''") + "'"
        case number:
            return f"{Decimal(repr(number)):f}"


_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
_DESCENDING = re.compile(r"(.*\S)\s+desc\s*", re.DOTALL | re.IGNORECASE)


def function_of(text: str, output: str) -> AggregateFunction:
    """The function of a call, as `call_of` writes it.

    Raises:
        InvalidInputError: it is no call of an aggregate function.
    """
    match = _CALL.fullmatch(text)
    if match is None:
        raise InvalidInputError(f"{text[:80]!a} is not an aggregate like count() or sum(bytes)")
    name, argument = match.groups()
    function = function_named(name)
    parameter = None
    if function in PARAMETERS:
        argument, parameter = split_parameter(argument)
    down = _DESCENDING.fullmatch(argument) if function in ORDERED else None
    argument = argument if down is None else down[1]
    blank = not argument.strip() or argument.strip() == "*"
    given = None if blank else argument
    return AggregateFunction(function, given, output, parameter, down is not None)
