"""The sketch of `approx_percentile`: an approximate distribution of values.

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

from typing import Final

PART_BITS: Final = 6

PARTS: Final = 2**PART_BITS
"""Buckets from one power of two to the next; 50 would do for 1 %."""

LEAST_EXPONENT: Final = -30
"""What is smaller is 0: nothing that is measured in units, or in seconds, is below 10^-9."""

EXPONENT_LIMIT: Final = 64
"""Every long is below."""

INFINITE: Final = 1 + PARTS * (EXPONENT_LIMIT - LEAST_EXPONENT)

NOT_A_NUMBER: Final = INFINITE + 1
