"""Seconds since 1970 as microseconds: columns of numbers that are times."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_MICROSECONDS: Final = 1_000_000
"""Microseconds in a second."""

_MAX_WHOLE: Final = 9_223_372_036_854
"""Whole seconds from 1970 whose microseconds fit into 64 bits."""

MAX_SECONDS: Final = 9_223_372_036_854.775
"""The float of most seconds whose microseconds fit into 64 bits; the next has 2 ms more."""


def micros_of(seconds: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The microseconds of numbers of seconds, int64; null where it is NaN or they do not fit.

    A fraction is rounded to the nearest microsecond: the float 4.1 is a little less than 4.1, and
    means 4.1.
    """
    near = seconds.cast(pa.float64(), safe=False)  # an integer type's bound
    whole_only = pa.types.is_integer(seconds.type)
    inside = pc.less_equal(pc.abs(near), float(_MAX_WHOLE) if whole_only else MAX_SECONDS)
    if pc.all(inside).as_py() is False:  # NaN is not
        seconds = pc.if_else(inside, seconds, pa.scalar(None, seconds.type))
    if whole_only:
        return pc.multiply(seconds.cast(pa.int64()), _MICROSECONDS)
    seconds = seconds.cast(pa.float64())
    whole = pc.trunc(seconds)  # towards 1970: the whole seconds below the least do not fit
    # computed apart from the whole seconds: a product of both would lose the bits of the fraction
    fraction = pc.round(pc.multiply(pc.subtract(seconds, whole), float(_MICROSECONDS)))
    return pc.add(pc.multiply(whole.cast(pa.int64()), _MICROSECONDS), fraction.cast(pa.int64()))
