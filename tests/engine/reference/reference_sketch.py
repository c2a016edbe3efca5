"""A HyperLogLog as its papers print it, for comparison."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import duckdb
from xxhash import xxh64_intdigest

P, Q, SEED = 12, 40, 42
"""The bits of the register number and of the rank, in a hash of 64 bits; the seed."""


def counted(values: Sequence[object]) -> int:
    """Return the estimated number of different values."""
    registers = [0] * 2**P
    for value in values:
        digits = f"{xxh64_intdigest(data(value), SEED):064b}"
        number = int(digits[:P], 2)
        rest = digits[::-1][:Q]
        rank = rest.index("1") + 1 if "1" in rest else Q + 1
        registers[number] = max(registers[number], rank)
    return improved_raw(registers)


def data(value: object) -> bytes:
    match value:
        case str():
            return value.encode()
        case float():
            not_a_number = bytes([0] * 6 + [0xF8, 0x7F])
            return not_a_number if math.isnan(value) else struct.pack("<d", value or 0.0)
        case int():
            return value.to_bytes(8, "little", signed=True)
    raise TypeError(value)


def improved_raw(registers: Sequence[int]) -> int:
    """Compute Ertl's estimate, arXiv:1702.01284, algorithm 6, without tau."""
    m = len(registers)
    counts = [registers.count(rank) for rank in range(Q + 2)]
    z = 0.0
    for count in counts[:0:-1]:
        z = 0.5 * (z + count)
    z += m * sigma(counts[0] / m)
    return round(m * m / (2 * math.log(2)) / z)


def sigma(x: float) -> float:
    if x == 1:
        return math.inf
    y, z, before = 1.0, x, math.nan
    while z != before:
        x *= x
        before = z
        z += x * y
        y += y
    return z


def define(database: duckdb.DuckDBPyConnection) -> None:
    """Define the functions `sketch_<type>` of a list of values in DuckDB."""
    for kind in ("BIGINT", "DOUBLE", "VARCHAR"):
        database.create_function(f"sketch_{kind}", counted, [f"{kind}[]"], "BIGINT")
