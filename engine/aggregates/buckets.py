"""How values are spread, approximately: the sketch of `approx_percentile`.

It is a DDSketch, of whole numbers: for each bucket of the number line, how many values are in it.
Two sketches are merged by adding the numbers of each bucket. So a sketch depends on the values
alone: not on order, cut, place or panes.

    the value x   an integer as the nearest double; a float as its double. Nulls do not count
    bucket        of 2^e (1 + j / `PARTS`) <= |x| < 2^e (1 + (j + 1) / `PARTS`), with integers e and
                  0 <= j < `PARTS`: 1 + `PARTS` (e - `LEAST_EXPONENT`) + j, with the sign of x;
                  0 if |x| < 2^`LEAST_EXPONENT`;
                  `INFINITE` with the sign of x if |x| >= 2^`EXPONENT_LIMIT`; `NOT_A_NUMBER` of NaN
    estimate      of a bucket from low to high: 2 low high / (low + high), which is
                  2^e / `PARTS` times 2 a (a + 1) / (2 a + 1) with a = `PARTS` + j; the first factor
                  is exact, the second one is one division of integers, both as doubles; with the
                  sign; 0, infinity and NaN of the others

The bucket is the value's exponent and the first bits of its mantissa. It needs no logarithm, whose
last bit differs from library to library. The estimate is at most 1 / (2 `PARTS` + 1), 0.8 %, off
any value of its bucket. A logarithm would need 35 buckets for a factor of 2, not 64, for 1 %.
The buckets' numbers have the order of the values. So the sketch knows the bucket of the value of
any rank, and `approx_percentile` is the estimate of the bucket of `percentile_disc`. There are at
most 12,035 buckets. The paper's sketch merges its lowest ones instead, when there are too many:
that would take all rows of a group at once.

Source: Masson, Rim and Lee, DDSketch: a fast and fully-mergeable quantile sketch with
relative-error guarantees (PVLDB 12, 2019), section 2; section 2.2 for the linear interpolation
between powers of two.
"""

from __future__ import annotations

import math
import struct
from typing import Final

from medusa.engine.aggregates.function import Constant, Kind
from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.late import Column, F
from medusa.engine.scalars.values import Value

PART_BITS: Final = 6

PARTS: Final = 2**PART_BITS
"""Buckets from one power of two to the next; 50 are enough for an error of 1 %."""

LEAST_EXPONENT: Final = -30
"""Smaller numbers count as 0: nothing that is measured in units, or in seconds, is below 10^-9."""

EXPONENT_LIMIT: Final = 64
"""Every long is below 2 to this power."""

INFINITE: Final = 1 + PARTS * (EXPONENT_LIMIT - LEAST_EXPONENT)

NOT_A_NUMBER: Final = INFINITE + 1


class Buckets(Kind):
    """The key is the bucket of a sketch, the state how often it occurs."""

    def key_type(self, _argument: FieldType) -> FieldType:
        return FieldType.SHORT

    def spark_key(self, x: Column, _type: FieldType, _constant: Constant) -> Column:
        """A logarithm may be so wrong that it gives the exponent beside the right one, near a power
        of 2. The bucket is the right one even then: with one exponent less, j is `PARTS` more."""
        number = x.cast("double")
        size = F.abs(number)
        exponent = F.floor(F.log2(size)).cast("int")
        # a power of two is exact, and so is a quotient by it
        scaled = F.floor(size / F.pow(F.lit(2.0), exponent - F.lit(PART_BITS))).cast("int")
        bucket = (exponent - F.lit(LEAST_EXPONENT + 1)) * F.lit(PARTS) + scaled + F.lit(1)
        bounded = (
            F.when(size < F.lit(2.0**LEAST_EXPONENT), F.lit(0))
            .when(size >= F.lit(2.0**EXPONENT_LIMIT), F.lit(INFINITE))
            .otherwise(bucket)
        )
        sign = F.when(number < F.lit(0.0), F.lit(-1)).otherwise(F.lit(1))
        made = F.when(F.isnan(number), F.lit(NOT_A_NUMBER)).otherwise(sign * bounded)
        return F.when(number.isNotNull(), made.cast("short"))

    def key(self, value: Value, _constant: Constant) -> int:
        """The exponent of a number, and the first bits of its mantissa."""
        number = float(value)
        if math.isnan(number):
            return NOT_A_NUMBER
        bits: int = struct.unpack(">q", struct.pack(">d", abs(number)))[0]
        if bits >> _MANTISSA_BITS < _BIAS + LEAST_EXPONENT:
            return 0
        first = (_BIAS + LEAST_EXPONENT) << PART_BITS
        found = 1 + (bits >> (_MANTISSA_BITS - PART_BITS)) - first
        return min(found, INFINITE) if number > 0 else -min(found, INFINITE)


BUCKETS: Final = Buckets()

_BIAS: Final = 1023
_MANTISSA_BITS: Final = 52


def spark_estimate(bucket: Column) -> Column:
    """A double for the values of a bucket; null if the bucket is null."""
    size = F.abs(bucket.cast("int"))
    place = size - F.lit(1)
    exponent = F.shiftright(place, PART_BITS) + F.lit(LEAST_EXPONENT - PART_BITS)
    part = place.bitwiseAND(F.lit(PARTS - 1)) + F.lit(PARTS)
    whole = (F.lit(2) * part * (part + F.lit(1))).cast("double")
    middle = whole / (F.lit(2) * part + F.lit(1)).cast("double")
    made = (
        F.when(size == F.lit(NOT_A_NUMBER), F.lit(float("nan")))
        .when(size == F.lit(INFINITE), F.lit(float("inf")))
        .when(size == F.lit(0), F.lit(0.0))
        .otherwise(F.pow(F.lit(2.0), exponent) * middle)
    )
    return F.when(bucket < F.lit(0), -made).otherwise(made)


def estimate(bucket: int) -> float:
    """A number for the values of a bucket."""
    size = abs(bucket)
    if size >= INFINITE:
        return math.nan if size == NOT_A_NUMBER else math.copysign(math.inf, bucket)
    if size == 0:
        return 0.0
    exponent, part = divmod(size - 1, PARTS)
    low = PARTS + part
    middle = 2 * low * (low + 1) / (2 * low + 1)
    return math.copysign(math.ldexp(middle, exponent + LEAST_EXPONENT - PART_BITS), bucket)
