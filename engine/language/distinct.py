"""The sketch of `approx_count_distinct`: an approximate number of different values.

It is a HyperLogLog, of plain numbers. Each value is hashed. The hash gives one of `REGISTERS`
registers, and a rank; a register has the greatest of its ranks. So what is known of a set of values
depends on the set alone: not on order, cut, place or panes. Two sketches are merged by the greater
rank of each register.

    the value     an integer (of any width) or a timestamp (microseconds) as 8 bytes, little-endian,
                  two's complement; a bool as 0 or 1; a float (of any width) as the 8 bytes of its
                  double, -0.0 as 0.0, any NaN as 0x7ff8000000000000; a string as its UTF-8.
                  Nulls do not count
    the hash h    XXH64 of these bytes with the seed `SEED`, as unsigned
    register      the upper `REGISTER_BITS` bits of h
    rank          1 + how many of the lower `RANK_BITS` bits of h are 0 before the first 1, from the
                  lowest on; 1 + `RANK_BITS` if all are

The estimate, of the registers that have a rank (their number n, of m = `REGISTERS`):

    m^2 / (2 ln 2) / (m sigma(1 - n / m) + sum of 2^-rank)
    sigma(x) = x + sum of x^(2^k) 2^(k - 1) over k = 1, 2, ..., `SIGMA_TERMS`

rounded to the nearest integer. The sum of 2^-rank is exact in a double: it is a multiple of
2^-(1 + `RANK_BITS`), at most m / 2. The rest is +, * and / of doubles in the order that is written
here, from the left and k by k. So the result has the same bits everywhere.

Sources. The sketch: Flajolet, Fusy, Gandouet and Meunier, HyperLogLog (AofA 2007), section 1. A
hash of 64 bits: Heule, Nunkesser and Hall, HyperLogLog in Practice (EDBT 2013), section 5.1. The
estimate: Ertl, New cardinality estimation algorithms for HyperLogLog sketches (arXiv:1702.01284,
2017), algorithm 6, the improved raw estimator. It is unbiased for few values and many, without
linear counting and tables. Its tau, for ranks that are cut off, is left out: it would matter for
more than 10^14 values. The hash: Collet, xxHash fast digest algorithm, "XXH64 algorithm
description".
"""

from __future__ import annotations

from math import log
from typing import Final

REGISTER_BITS: Final = 12
"""The standard error is 1.04 / sqrt(2**12), 1.6 %."""

REGISTERS: Final = 2**REGISTER_BITS

RANK_BITS: Final = 40
"""As many as keep the sum of 2^-rank exact in a double."""

SEED: Final = 42
"""Spark's `xxhash64` hashes with this seed."""

SIGMA_TERMS: Final = 18
"""With x at most 1 - 1 / REGISTERS, a further one does not change the sum. With x = 1 the sum is so
large that the estimate is 0."""

SCALE: Final = REGISTERS**2 / (2 * log(2))
"""The estimate, were the sums 1."""
