"""The interpreter's sketch of `approx_count_distinct`; `engine.language.distinct` defines it."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import Final

from engine.language.distinct import (
    RANK_BITS,
    REGISTER_BITS,
    REGISTERS,
    SCALE,
    SEED,
    SIGMA_TERMS,
)
from testnet.simulation.expressions import Value


def place(value: Value) -> tuple[int, int]:
    """The register and the rank of a value that is not null."""
    hashed = xxh64(_bytes(value), SEED)
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


_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5
_MASK: Final = 2**64 - 1


def xxh64(data: bytes, seed: int) -> int:
    """XXH64 of Collet's specification, xxHash fast digest algorithm, "XXH64 algorithm description".

    Of our libraries only Spark has it, and here speed does not matter.
    """
    length = len(data)
    long, whole = length - length % 32, length - length % 8
    if long == 0:
        hashed = (seed + _P5) & _MASK
    else:
        lanes = [(seed + each) & _MASK for each in (_P1 + _P2, _P2, 0, -_P1)]
        for words in struct.iter_unpack("<4Q", data[:long]):
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
        hashed = sum(map(_rotated, lanes, (1, 7, 12, 18))) & _MASK
        for lane in lanes:
            hashed = ((hashed ^ _round(0, lane)) * _P1 + _P4) & _MASK
    hashed = (hashed + length) & _MASK
    for (word,) in struct.iter_unpack("<Q", data[long:whole]):
        hashed = (_rotated(hashed ^ _round(0, word), 27) * _P1 + _P4) & _MASK
    rest = data[whole:]
    if len(rest) >= 4:
        (half,) = struct.unpack_from("<I", rest)
        hashed = (_rotated(hashed ^ (half * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        rest = rest[4:]
    for byte in rest:
        hashed = _rotated(hashed ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    hashed = (hashed ^ (hashed >> 33)) * _P2 & _MASK
    hashed = (hashed ^ (hashed >> 29)) * _P3 & _MASK
    return hashed ^ (hashed >> 32)


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _rotated(number: int, bits: int) -> int:
    return ((number << bits) | (number >> (64 - bits))) & _MASK
