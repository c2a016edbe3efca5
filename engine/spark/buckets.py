"""The sketch of `approx_percentile` as Spark columns; `medusa.engine.language.buckets` defines
it."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medusa.engine.language.buckets import (
    EXPONENT_LIMIT,
    INFINITE,
    LEAST_EXPONENT,
    NOT_A_NUMBER,
    PART_BITS,
    PARTS,
)

_DOUBLE = T.DoubleType()


def bucket_of(argument: Column) -> Column:
    """The bucket of a number, a short; null of null.

    A logarithm may be so wrong that it gives the exponent beside the right one, near a power of 2.
    The bucket is the right one even then: with one exponent less, j is `PARTS` more.
    """
    number = argument.cast(_DOUBLE)
    size = F.abs(number)
    exponent = F.floor(F.log2(size)).cast(T.IntegerType())
    # a power of two is exact, and so is what is divided by it
    scaled = F.floor(size / F.pow(F.lit(2.0), exponent - F.lit(PART_BITS))).cast(T.IntegerType())
    bucket = (exponent - F.lit(LEAST_EXPONENT + 1)) * F.lit(PARTS) + scaled + F.lit(1)
    bounded = (
        F.when(size < F.lit(2.0**LEAST_EXPONENT), F.lit(0))
        .when(size >= F.lit(2.0**EXPONENT_LIMIT), F.lit(INFINITE))
        .otherwise(bucket)
    )
    sign = F.when(number < F.lit(0.0), F.lit(-1)).otherwise(F.lit(1))
    made = F.when(F.isnan(number), F.lit(NOT_A_NUMBER)).otherwise(sign * bounded)
    return F.when(number.isNotNull(), made.cast(T.ShortType()))


def estimate(bucket: Column) -> Column:
    """A double for the values of a bucket; null of null."""
    size = F.abs(bucket.cast(T.IntegerType()))
    place = size - F.lit(1)
    exponent = F.shiftright(place, PART_BITS) + F.lit(LEAST_EXPONENT - PART_BITS)
    part = place.bitwiseAND(F.lit(PARTS - 1)) + F.lit(PARTS)
    whole = (F.lit(2) * part * (part + F.lit(1))).cast(_DOUBLE)
    middle = whole / (F.lit(2) * part + F.lit(1)).cast(_DOUBLE)
    made = (
        F.when(size == F.lit(NOT_A_NUMBER), F.lit(float("nan")))
        .when(size == F.lit(INFINITE), F.lit(float("inf")))
        .when(size == F.lit(0), F.lit(0.0))
        .otherwise(F.pow(F.lit(2.0), exponent) * middle)
    )
    return F.when(bucket < F.lit(0), -made).otherwise(made)
