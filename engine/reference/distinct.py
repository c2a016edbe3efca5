"""The interpreter's sketch of `approx_count_distinct`; `medusa.engine.language.distinct` defines
it."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable

from xxhash import xxh64_intdigest

from medusa.engine.language.distinct import (
    RANK_BITS,
    REGISTER_BITS,
    REGISTERS,
    SCALE,
    SEED,
    SIGMA_TERMS,
)
from medusa.engine.reference.values import Value


def place(value: Value) -> tuple[int, int]:
    """The register and the rank of a value that is not null."""
    hashed = xxh64_intdigest(_bytes(value), SEED)
    rank = 1
    while rank <= RANK_BITS and not (hashed >> (rank - 1)) & 1:
        rank += 1
    return hashed >> (64 - REGISTER_BITS), rank


def merged(places: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The greatest rank of each register."""
    found: dict[int, int] = {}
    for register, rank in places:
        found[register] = max(rank, found.get(register, 0))
    return found


def estimate(ranks: dict[int, int]) -> int:
    """How many values have made these ranks, by register."""
    x = (REGISTERS - len(ranks)) / REGISTERS
    sigma = x
    for k in range(SIGMA_TERMS):
        x *= x
        sigma += x * 2.0**k
    powers = sum(2.0**-rank for rank in ranks.values())
    return math.floor(SCALE / (REGISTERS * sigma + powers) + 0.5)


def _bytes(value: Value) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return struct.pack("<d", math.nan if math.isnan(value) else value + 0.0)
    return struct.pack("<q", int(value))
