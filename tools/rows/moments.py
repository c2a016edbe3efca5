"""Converts columns of times in untrusted files to timestamps, and timestamps to texts.

All formats use this module, so that one text, number or moment means the same in each. Digits
beyond the microsecond are cut off, also before 1970; a number is seconds, rounded to the nearest
microsecond. A value that is no moment becomes null.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from medusa.engine.objects.moments import (
    AMBIGUOUS_NUMBER,
    CYCLE_US,
    CYCLE_YEARS,
    MOMENT_FORM,
    moment_text,
)
from medusa.engine.objects.schema import BEGINNING, END, FieldType
from medusa.engine.streams.seconds import micros_of

_UTC: Final = FieldType.TIMESTAMP.arrow
_LOCAL: Final = pa.timestamp("us")

_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_MICROSECONDS: Final = 1_000_000
_DAY_US: Final = 86_400 * _MICROSECONDS

NUMBER_FORM: Final = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
"""A pattern of seconds as text, for Python and RE2."""

_PARTS: Final = rf"^{MOMENT_FORM}$"

_YEARS_FROM: Final = -62_135_596_800 * _MICROSECONDS
_YEARS_UNTIL: Final = 253_402_300_800 * _MICROSECONDS
"""From 0001-01-01 until 10000-01-01: in this range Arrow writes moments as this program does."""


def moments_of(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The column as timestamps, null where a value is no moment; None: the column's type has no
    moments."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _of_units(column.cast(pa.int64()), _PER_SECOND[kind.unit])
    if pa.types.is_date32(kind):
        days = column.cast(pa.int32()).cast(pa.int64())
        return _checked_product(days, _DAY_US)
    if pa.types.is_date64(kind):
        return _of_units(column.cast(pa.int64()), _PER_SECOND["ms"])
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return micros_of(column).cast(_UTC)
    if is_text(kind):
        return _of_texts(column.cast(pa.string()))
    return None


def is_text(kind: pa.DataType) -> bool:
    """Whether the type is one of Arrow's types of texts."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def all_are_moments(texts: pa.ChunkedArray) -> bool:
    """Whether there are texts, and each is a date, and maybe a time."""
    dates = pc.match_substring_regex(texts, _PARTS)
    return bool(pc.all(dates).as_py()) and _of_forms(texts).null_count == texts.null_count


def _of_units(counts: pa.ChunkedArray, per_second: int) -> pa.ChunkedArray:
    if per_second <= _MICROSECONDS:
        return _checked_product(counts, _MICROSECONDS // per_second)
    finer = per_second // _MICROSECONDS
    towards_zero = pc.divide(counts, finer)
    if (pc.min(counts).as_py() or 0) >= 0:
        return towards_zero.cast(_UTC)
    above = pc.less(counts, pc.multiply(towards_zero, finer)).cast(pa.int64())
    return pc.subtract(towards_zero, above).cast(_UTC)


def _checked_product(counts: pa.ChunkedArray, micros: int) -> pa.ChunkedArray:
    """Multiply counts by `micros` microseconds; null where the product does not fit."""
    least, most = -(-BEGINNING // micros), END // micros
    fits = pc.and_(pc.less_equal(counts, most), pc.greater_equal(counts, least))
    if pc.all(fits).as_py() is False:
        counts = pc.if_else(fits, counts, pa.scalar(None, pa.int64()))
    return pc.multiply(counts, micros).cast(_UTC)


def _of_texts(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts as timestamps. A usual column has one form, which Arrow reads quickly; otherwise each
    text is read by its own form."""
    read = _reader_of(texts)
    if read is not None:
        with suppress(pa.ArrowInvalid):
            return read(texts)
    return _of_any(texts)


def _reader_of(texts: pa.ChunkedArray) -> Callable[[pa.ChunkedArray], pa.ChunkedArray] | None:
    """The reader of the first text's form, if Arrow has one. (A failure of Arrow's reader costs as
    much per value as `_of_any`.)"""
    first = texts.drop_null().slice(0, 1)
    for read in (_zoned, _local, _numbers):
        with suppress(pa.ArrowInvalid):
            read(first)
            return read
    return None


def _zoned(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return texts.cast(_UTC)


def _local(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return texts.cast(_LOCAL).cast(_UTC)


def _numbers(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return _of_numbers(texts, texts.cast(pa.float64()))


def _of_numbers(texts: pa.ChunkedArray, seconds: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers of seconds as timestamps; null where the text may also be a date."""
    moments = micros_of(seconds).cast(_UTC)
    if pc.any(pc.and_(pc.greater_equal(seconds, 1.9e7), pc.less(seconds, 2.1e7))).as_py():
        ambiguous = pc.match_substring_regex(texts, f"^{AMBIGUOUS_NUMBER}$")
        moments = pc.if_else(ambiguous, pa.scalar(None, _UTC), moments)
    return moments


def _of_any(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts of many forms."""
    number = pc.match_substring_regex(texts, f"^(?:{NUMBER_FORM})$")
    numbers = pc.if_else(number, texts, pa.scalar(None, pa.string()))
    seconds = _of_numbers(numbers, numbers.cast(pa.float64()))
    return pc.if_else(number, seconds, _of_forms(texts))


def _of_forms(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts of the forms of `medusa.engine.objects.moments`."""
    found = pc.extract_regex(texts, _PARTS).combine_chunks()
    part = {name: pc.struct_field(found, name) for name in _NAMES}
    year, cycles = _years(part["year"])
    leap = pc.equal(part["day"], "02-29")
    day = pc.if_else(leap, "02-28", part["day"])  # all years have this day
    clock = [pc.if_else(pc.equal(part[each], ""), "00", part[each]) for each in _CLOCK]
    date = pc.binary_join_element_wise(year, day, "-")
    whole = pc.binary_join_element_wise(date, pc.binary_join_element_wise(*clock, ":"), " ")
    seconds = whole.cast(pa.timestamp("s"))
    there = pc.or_(pc.invert(leap), pc.is_leap_year(seconds))
    days = pc.add(pc.multiply(cycles, CYCLE_US // _DAY_US), leap.cast(pa.int64()))
    seconds = pc.add(seconds.cast(pa.int64()), pc.multiply(days, _DAY_US // _MICROSECONDS))
    seconds = pc.subtract(seconds, _shifts(part["zone"]))
    digits = pc.utf8_rpad(pc.utf8_slice_codeunits(part["fraction"], 0, 6), 6, "0")
    moments = _joined(seconds, digits.cast(pa.int64()))
    return pc.if_else(there, moments, pa.scalar(None, pa.int64())).cast(_UTC)


_CLOCK: Final = ("hour", "minute", "second")
_NAMES: Final = ("year", "day", *_CLOCK, "fraction", "zone")


def _years(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """For each year, the equivalent year in the cycle of 2000, as text, and the number of cycles
    from there."""
    years = pc.replace_substring_regex(texts, r"^\+", "").cast(pa.int64())
    cycles = pc.floor(pc.divide(years.cast(pa.float64()), float(CYCLE_YEARS))).cast(pa.int64())
    within = pc.subtract(years, pc.multiply(cycles, CYCLE_YEARS))
    year = pc.add(within, 5 * CYCLE_YEARS).cast(pa.string())
    return year, pc.subtract(cycles, 5)


def _shifts(zones: pa.Array) -> pa.Array:
    """The seconds by which local time is ahead of UTC."""
    digits = pc.replace_substring_regex(zones, r"[^0-9]", "")
    digits = pc.utf8_rpad(digits, 4, "0").cast(pa.int64())
    hours = pc.divide(digits, 100)
    minutes = pc.add(pc.multiply(hours, 60), pc.subtract(digits, pc.multiply(hours, 100)))
    behind = pc.match_substring(zones, "-")
    return pc.multiply(minutes, pc.if_else(behind, -60, 60))


def _joined(seconds: pa.Array, micros: pa.Array) -> pa.Array:
    """Seconds and microseconds as one count; null where that does not fit."""
    below = pc.less(seconds, 0)  # computed from the next second, so that the product fits
    seconds = pc.add(seconds, below.cast(pa.int64()))
    micros = pc.subtract(micros, pc.if_else(below, _MICROSECONDS, 0))
    most, rest = divmod(END, _MICROSECONDS)
    size = pc.abs(seconds)
    fits = pc.or_(
        pc.less(size, most),
        pc.and_(
            pc.equal(size, most),
            pc.and_(pc.less_equal(micros, rest), pc.greater_equal(micros, -rest - 1)),
        ),
    )
    seconds = pc.if_else(fits, seconds, pa.scalar(None, pa.int64()))
    return pc.add(pc.multiply(seconds, _MICROSECONDS), micros)


def texts_of(moments: pa.ChunkedArray) -> pa.ChunkedArray:
    """Timestamps in the form of `medusa.engine.objects.moments`."""
    # without the zone: the values are UTC, and no time-zone database is needed
    counts = moments.cast(_UTC).cast(pa.int64())
    usual = pc.and_(pc.greater_equal(counts, _YEARS_FROM), pc.less(counts, _YEARS_UNTIL))
    if pc.all(usual).as_py() is not False:
        return pc.strftime(counts.cast(_LOCAL), format="%Y-%m-%dT%H:%M:%SZ")
    written = [None if each is None else moment_text(each) for each in counts.to_pylist()]
    return pa.chunked_array([pa.array(written, pa.string())])
