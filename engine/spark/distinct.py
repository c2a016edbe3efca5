"""The sketch of `approx_count_distinct` as Spark columns; `medusa.engine.language.distinct` defines
it."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medusa.engine.language.distinct import (
    RANK_BITS,
    REGISTER_BITS,
    REGISTERS,
    SCALE,
    SEED,
    SIGMA_TERMS,
)
from medusa.engine.language.operators import FLOATS
from medusa.engine.objects.schema import FieldType

_CODE_BITS: Final = 6
"""Bits of a rank, which is at most 1 + RANK_BITS."""

_NO_REGISTER: Final = -1


def register_of(argument: Column, type_: FieldType) -> Column:
    """The register of a value, a short; null of null.

    Args:
        argument: without -0.0.
    """
    return _of(argument, _register(_hash(argument, type_)).cast(T.ShortType()))


def rank_of(argument: Column, type_: FieldType) -> Column:
    """The rank of a value, a byte; null of null."""
    return _of(argument, _rank(_hash(argument, type_)).cast(T.ByteType()))


def code_of(argument: Column, type_: FieldType) -> Column:
    """Register and rank of a value as one int, as `estimate_of_codes` takes it; null of null."""
    hashed = _hash(argument, type_)
    register = _register(hashed).cast(T.IntegerType())
    return _of(argument, F.shiftleft(register, _CODE_BITS).bitwiseOR(_rank(hashed)))


def _of(argument: Column, made: Column) -> Column:
    """`made` of the argument's hash; null if the argument is null, as Spark hashes null, too."""
    return F.when(argument.isNotNull(), made)


def _hash(argument: Column, type_: FieldType) -> Column:
    assert SEED == 42, "Spark's"
    if type_ is FieldType.TIMESTAMP:
        return F.xxhash64(F.unix_micros(argument))
    if type_ is FieldType.STRING:
        return F.xxhash64(argument)
    return F.xxhash64(argument.cast(T.DoubleType() if type_ in FLOATS else T.LongType()))


def _register(hashed: Column) -> Column:
    return F.shiftrightunsigned(hashed, 64 - REGISTER_BITS)


def _rank(hashed: Column) -> Column:
    """From the lowest bit on up to the first 1, that included: what subtracting 1 changes."""
    bounded = hashed.bitwiseOR(F.lit(2**RANK_BITS))
    return F.bit_count(bounded.bitwiseXOR(bounded - F.lit(1)))


def estimate(register: Column, rank: Column) -> Column:
    """How many values have made these rows, a long: an aggregate over one row a register, with its
    greatest rank. Rows with nulls do not count."""
    return _formula(F.count(register), F.coalesce(F.sum(_share(rank)), _long(0)))


def estimate_of_codes(codes: Column) -> Column:
    """How many values have made an array of codes, a long. The codes are all different; a register
    may have several ranks, of which the greatest counts."""

    def add(found: Column, each: Column) -> Column:
        register = F.shiftright(each, _CODE_BITS)
        rank = each.bitwiseAND(F.lit(2**_CODE_BITS - 1))
        return F.when(register == found.getField("register"), found).otherwise(
            F.struct(
                register.alias("register"),
                (found.getField("n") + _long(1)).alias("n"),
                (found.getField("total") + _share(rank)).alias("total"),
            )
        )

    nothing = F.struct(
        F.lit(_NO_REGISTER).alias("register"), _long(0).alias("n"), _long(0).alias("total")
    )
    return F.aggregate(
        F.sort_array(codes, asc=False),  # the greatest rank of a register is the first
        nothing,
        add,
        lambda found: _formula(found.getField("n"), found.getField("total")),
    )


def _long(number: int) -> Column:
    return F.lit(number).cast(T.LongType())


def _share(rank: Column) -> Column:
    """2^-rank, times 2^(1 + RANK_BITS): a long."""
    return F.call_function("shiftleft", _long(1), F.lit(1 + RANK_BITS) - rank.cast("int"))


def _formula(n: Column, total: Column) -> Column:
    """The estimate. n: registers with a rank. total: the sum of their shares."""
    double = T.DoubleType()
    registers = F.lit(float(REGISTERS))
    powers = total.cast(double) / F.lit(2.0 ** (1 + RANK_BITS))
    sums = registers * _sigma((registers - n.cast(double)) / registers) + powers
    return F.floor(F.lit(SCALE) / sums + F.lit(0.5)).cast(T.LongType())


def _sigma(x: Column) -> Column:
    weights = F.array(*(F.lit(2.0**k) for k in range(SIGMA_TERMS)))

    def add(found: Column, weight: Column) -> Column:
        square = found.getField("x") * found.getField("x")
        return F.struct(square.alias("x"), (found.getField("sum") + square * weight).alias("sum"))

    begun = F.struct(x.alias("x"), x.alias("sum"))
    return F.aggregate(weights, begun, add, lambda found: found.getField("sum"))
