"""How many different values there are: exactly, and by a sketch.

The sketch is a HyperLogLog, of plain numbers. Each value is hashed. The hash gives one of
`REGISTERS` registers, and a rank; a register has the greatest of its ranks. So what is known of a
set of values depends on the set alone: not on order, cut, place or panes. Two sketches are merged
by the greater rank of each register.

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

import math
import struct
from collections.abc import Sequence
from typing import ClassVar, Final

from xxhash import xxh64_intdigest

from medusa.engine.aggregates.function import Constant, Entries, Fold, Kind, OfSet, State
from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.examples import Example
from medusa.engine.scalars.hashes import SEED
from medusa.engine.scalars.late import Column, F, long_of
from medusa.engine.scalars.type_rules import ANY, FLOATS
from medusa.engine.scalars.values import Value

REGISTER_BITS: Final = 12
"""Bits of a register's number. The standard error is 1.04 / sqrt(2**12), 1.6 %."""

REGISTERS: Final = 2**REGISTER_BITS

RANK_BITS: Final = 40
"""Bits of a hash that a rank counts: as many as keep the sum of 2^-rank exact in a double."""

SIGMA_TERMS: Final = 18
"""Terms of the series that the estimate sums. With x at most 1 - 1 / REGISTERS, a further term does
not change the sum. With x = 1 the sum is so large that the estimate is 0."""

SCALE: Final = REGISTERS**2 / (2 * math.log(2))
"""The numerator of the estimate; its denominator is the sum of 2^-rank over the entries, and
REGISTERS times the series `sigma` for the empty registers."""

_CODE_BITS: Final = 6
"""Bits of a rank, which is at most 1 + RANK_BITS."""

_NO_REGISTER: Final = -1


class Values(Kind):
    """The key is the value: a set of the values that occur."""

    state: ClassVar[State | None] = None


class Registers(Kind):
    """The key is the register of a sketch, the state its greatest rank."""

    state: ClassVar[State | None] = State("r", FieldType.BYTE, Fold.MAX)

    def key_type(self, _argument: FieldType) -> FieldType:
        return FieldType.SHORT

    def spark_key(self, x: Column, type_: FieldType, _constant: Constant) -> Column:
        return _of(x, _spark_register(_spark_hash(x, type_)).cast("short"))

    def spark_mark(self, x: Column, type_: FieldType) -> Column:
        return _of(x, _spark_rank(_spark_hash(x, type_)).cast("byte"))

    def key(self, value: Value, _constant: Constant) -> Value:
        return place(value)[0]

    def mark(self, value: Value) -> int:
        return place(value)[1]


class CountDistinct(OfSet):
    never_null: ClassVar[bool] = True

    def spark_whole(self, x: Column, type_: FieldType) -> Column:
        if type_ in FLOATS:  # NaN differs from itself, so a set would hold it several times
            return F.count_distinct(x)
        return F.size(F.collect_set(x)).cast("long")

    def spark_combined(self, fields: Sequence[Column]) -> Column:
        return F.count(fields[0])

    def of(self, entries: Entries) -> Value:
        return len(entries)


class ApproxCountDistinct(OfSet):
    never_null: ClassVar[bool] = True

    def spark_whole(self, x: Column, type_: FieldType) -> Column:
        return estimate_of_codes(F.collect_set(_code(x, type_)))

    def spark_combined(self, fields: Sequence[Column]) -> Column:
        """Combine the rows of a register into one, with its greatest rank. Rows with nulls do not
        count."""
        register, rank = fields
        return _spark_formula(F.count(register), F.coalesce(F.sum(_share(rank)), long_of(0)))

    def of(self, entries: Entries) -> Value:
        x = (REGISTERS - len(entries)) / REGISTERS
        sigma = x
        for k in range(SIGMA_TERMS):
            x *= x
            sigma += x * 2.0**k
        powers = sum(2.0**-rank for _, rank in entries)
        return math.floor(SCALE / (REGISTERS * sigma + powers) + 0.5)


# -- in Spark --------------------------------------------------------------------------------------


def _of(x: Column, made: Column) -> Column:
    """Apply `made` to the argument's hash; the result is null if the argument is null, because
    Spark gives null a hash, too."""
    return F.when(x.isNotNull(), made)


def _spark_hash(x: Column, type_: FieldType) -> Column:
    assert SEED == 42, "Spark's"
    if type_ is FieldType.TIMESTAMP:
        return F.xxhash64(F.unix_micros(x))
    if type_ is FieldType.STRING:
        return F.xxhash64(x)
    return F.xxhash64(x.cast("double" if type_ in FLOATS else "long"))


def _spark_register(hashed: Column) -> Column:
    return F.shiftrightunsigned(hashed, 64 - REGISTER_BITS)


def _spark_rank(hashed: Column) -> Column:
    """Compute the rank with Spark: subtracting 1 changes exactly the lowest bits up to the first
    1."""
    bounded = hashed.bitwiseOR(F.lit(2**RANK_BITS))
    return F.bit_count(bounded.bitwiseXOR(bounded - F.lit(1)))


def _code(x: Column, type_: FieldType) -> Column:
    """Register and rank of a value as one int; null of null."""
    hashed = _spark_hash(x, type_)
    register = F.shiftleft(_spark_register(hashed).cast("int"), _CODE_BITS)
    return _of(x, register.bitwiseOR(_spark_rank(hashed)))


def estimate_of_codes(codes: Column) -> Column:
    """How many values have made an array of codes, a long. The codes are all different; a register
    may have several ranks, of which the greatest counts."""

    def add(found: Column, each: Column) -> Column:
        register = F.shiftright(each, _CODE_BITS)
        rank = each.bitwiseAND(F.lit(2**_CODE_BITS - 1))
        return F.when(register == found.getField("register"), found).otherwise(
            F.struct(
                register.alias("register"),
                (found.getField("n") + long_of(1)).alias("n"),
                (found.getField("total") + _share(rank)).alias("total"),
            )
        )

    nothing = F.struct(
        F.lit(_NO_REGISTER).alias("register"), long_of(0).alias("n"), long_of(0).alias("total")
    )
    return F.aggregate(
        F.sort_array(codes, asc=False),  # the greatest rank of a register is the first
        nothing,
        add,
        lambda found: _spark_formula(found.getField("n"), found.getField("total")),
    )


def _share(rank: Column) -> Column:
    """2^-rank, times 2^(1 + RANK_BITS): a long."""
    return F.call_function("shiftleft", long_of(1), F.lit(1 + RANK_BITS) - rank.cast("int"))


def _spark_formula(n: Column, total: Column) -> Column:
    """The estimate. n: the number of registers with a rank. total: the sum of `_share` of these
    ranks."""
    registers = F.lit(float(REGISTERS))
    powers = total.cast("double") / F.lit(2.0 ** (1 + RANK_BITS))
    sums = registers * _spark_sigma((registers - n.cast("double")) / registers) + powers
    return F.floor(F.lit(SCALE) / sums + F.lit(0.5)).cast("long")


def _spark_sigma(x: Column) -> Column:
    weights = F.array(*(F.lit(2.0**k) for k in range(SIGMA_TERMS)))

    def add(found: Column, weight: Column) -> Column:
        square = found.getField("x") * found.getField("x")
        return F.struct(square.alias("x"), (found.getField("sum") + square * weight).alias("sum"))

    begun = F.struct(x.alias("x"), x.alias("sum"))
    return F.aggregate(weights, begun, add, lambda found: found.getField("sum"))


# -- in Python -------------------------------------------------------------------------------------


def place(value: Value) -> tuple[int, int]:
    """The register and the rank of a value that is not null."""
    hashed = xxh64_intdigest(_bytes(value), SEED)
    rank = 1
    while rank <= RANK_BITS and not (hashed >> (rank - 1)) & 1:
        rank += 1
    return hashed >> (64 - REGISTER_BITS), rank


def _bytes(value: Value) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return struct.pack("<d", math.nan if math.isnan(value) else value + 0.0)
    return struct.pack("<q", int(value))


COUNT_DISTINCT: Final = CountDistinct(
    name="count_distinct",
    takes=ANY,
    argument="any",
    result=FieldType.LONG,
    kind=Values(),
    gives="How many different values there are; in SQL `count(DISTINCT x)`.",
    example=Example("count_distinct(x)", 2, values=(7, None, 7, 1), duckdb="count(DISTINCT x)"),
)
APPROX_COUNT_DISTINCT: Final = ApproxCountDistinct(
    name="approx_count_distinct",
    takes=ANY,
    argument="any",
    result=FieldType.LONG,
    kind=Registers(),
    gives="About as many: the standard error is 1.6 %.",
    example=Example("approx_count_distinct(x)", 2, values=(7, None, 7, 1)),
)

ROWS: Final = (COUNT_DISTINCT, APPROX_COUNT_DISTINCT)
