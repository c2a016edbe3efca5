"""The interpreter's functions of bags of values; `medusa.engine.language.aggregates` and
`medusa.engine.language.buckets` define them."""

from __future__ import annotations

import json
import math
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from medusa.engine.language.aggregates import (
    MARK,
    MILLION,
    PERCENTILES,
    TEXT_LIMIT,
    Kind,
    millionths,
)
from medusa.engine.language.buckets import (
    INFINITE,
    LEAST_EXPONENT,
    NOT_A_NUMBER,
    PART_BITS,
    PARTS,
)
from medusa.engine.language.operators import INTEGER_RANGE
from medusa.engine.objects.query import Function
from medusa.engine.objects.schema import FieldType
from medusa.engine.operators.shared.aggregation import TypedAggregate
from medusa.engine.reference.values import Value

Bag = list[tuple[Any, int]]
"""Values in ascending order, and how often each occurs."""

_BIAS: Final = 1023
_MANTISSA_BITS: Final = 52


def key_of(kind: Kind, value: Value, parameter: int | float | str | None) -> Value:
    """By what a value is put together with others; None: it does not count."""
    if value is None:
        return None
    if kind is Kind.BUCKETS:
        return bucket(value)
    if kind is not Kind.BINS:
        return value
    assert isinstance(parameter, int)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    number = math.floor(value)
    return number // parameter if number in INTEGER_RANGE[FieldType.LONG] else None


def bag(entries: Iterable[tuple[Value, int]]) -> Bag:
    """The entries of one bag; several may have the same value."""
    found: Counter[Value] = Counter()
    not_a_number = 0
    for key, number in entries:
        if key is None:
            continue
        if isinstance(key, float) and math.isnan(key):  # it would equal no other
            not_a_number += number
        else:
            found[key] += number
    ordered = sorted(found.items())
    return [*ordered, (math.nan, not_a_number)] if not_a_number else ordered


def of_bag(each: TypedAggregate, entries: Bag) -> Value:
    """The result of one function."""
    if not entries:
        return None
    if each.function in PERCENTILES:
        return _percentile(each, entries)
    if each.descending:
        entries = entries[::-1]
    match each.function, each.parameter:
        case Function.TOP_K, int(most):
            first = sorted(entries, key=lambda entry: -entry[1])[:most]
            return f"[{_joined([(f'[{_text(v)},{n}]', 1) for v, n in first], ',', _null)}]"
        case Function.STRING_AGG, str(separator):
            return _joined(entries, separator, lambda _full: MARK)
        case Function.ARRAY_AGG, _:
            return f"[{_joined([(_text(v), n) for v, n in entries], ',', _null)}]"
        case Function.HISTOGRAM, int(width):
            pairs = [(f'"{v * width}":{n}', 1) for v, n in entries]

            def others(full: int) -> str:
                return f'"{MARK}":{sum(n for _, n in entries[full:])}'

            return f"{{{_joined(pairs, ',', others)}}}"
        case _:
            raise AssertionError(each.function)


def _null(_full: int) -> str:
    return "null"


def _text(value: Value) -> str:
    """JSON, with the digits of escapes in capitals."""
    if isinstance(value, bool | int):
        return json.dumps(value)
    parts = re.split(r"(\\\\|\\u00..)", json.dumps(value, ensure_ascii=False))
    return "".join(f"\\u{part[2:].upper()}" if part[:2] == "\\u" else part for part in parts)


def _joined(entries: Sequence[tuple[str, int]], separator: str, mark: Callable[[int], str]) -> str:
    pieces: list[str] = []
    room = TEXT_LIMIT
    for full, (text, number) in enumerate(entries):
        weight = max(len(text) + len(separator), 1)
        fitting = min(number, room // weight)
        pieces += [text] * fitting
        room -= fitting * weight
        if fitting < number:
            pieces.append(mark(full))
            break
    return separator.join(pieces)


def _percentile(each: TypedAggregate, entries: Bag) -> Value:
    fraction = millionths(each.function, each.parameter)
    total = sum(number for _, number in entries)
    if each.function in {Function.PERCENTILE_DISC, Function.APPROX_PERCENTILE}:
        place = max(-(-total * fraction // MILLION) - 1, 0)
        found = _at(entries, total - 1 - place if each.descending else place)
        return found if each.function is Function.PERCENTILE_DISC else estimate(found)
    fraction = MILLION - fraction if each.descending else fraction
    place, rest = divmod((total - 1) * fraction, MILLION)
    low = float(_at(entries, place))
    high = float(_at(entries, place + (rest > 0)))
    return low if low == high else low + (high - low) * (rest / MILLION)


def _at(entries: Bag, place: int) -> Value:
    for key, number in entries:
        if place < number:
            return key
        place -= number
    raise AssertionError(place)


def bucket(value: Value) -> int:
    """The bucket of a number: its exponent and the first bits of its mantissa."""
    number = float(value)
    if math.isnan(number):
        return NOT_A_NUMBER
    bits: int = struct.unpack(">q", struct.pack(">d", abs(number)))[0]
    if bits >> _MANTISSA_BITS < _BIAS + LEAST_EXPONENT:
        return 0
    first = (_BIAS + LEAST_EXPONENT) << PART_BITS
    found = 1 + (bits >> (_MANTISSA_BITS - PART_BITS)) - first
    return min(found, INFINITE) if number > 0 else -min(found, INFINITE)


def estimate(found: int) -> float:
    """A number for the values of a bucket."""
    size = abs(found)
    if size >= INFINITE:
        return math.nan if size == NOT_A_NUMBER else math.copysign(math.inf, found)
    if size == 0:
        return 0.0
    exponent, part = divmod(size - 1, PARTS)
    low = PARTS + part
    middle = 2 * low * (low + 1) / (2 * low + 1)
    return math.copysign(math.ldexp(middle, exponent + LEAST_EXPONENT - PART_BITS), found)
