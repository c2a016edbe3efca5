"""Texts, hashes, numbers and logic over odd rows: Spark and the interpreter agree with an oracle
each."""

from __future__ import annotations

import hashlib
import math
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scalar_rows import FIELDS, WORDS, Oracle, check, check_duckdb, check_oracles, odd, rows

from medusa.engine.evaluation.expressions import Row
from medusa.engine.spark.session import Spark

pytestmark = pytest.mark.spark

# -- texts ---------------------------------------------------------------------------------------

TEXTS_OF_DUCKDB = {
    "contains(s, p)": "contains(s, p)",
    "startswith(s, p)": "starts_with(s, p)",
    "ends_with(s, p)": "ends_with(s, p)",
    "instr(s, p)": "instr(s, p)::INTEGER",
    "position(p in s)": "position(p IN s)::INTEGER",
    "replace(s, p, '-+')": "CASE WHEN p = '' THEN s ELSE replace(s, p, '-+') END",
    "length(s) - length(replace(s, 'a', ''))": "(length(s) - length(replace(s, 'a', '')))::INTEGER",
    "left(s, 3)": "left(s, 3)",
    "right(s, 2)": "right(s, 2)",
    "lpad(s, 5, 'éx')": "lpad(s, 5, 'éx')",
    "rpad(s, 5)": "rpad(s, 5, ' ')",
    "repeat(s, 3)": "repeat(s, 3)",
    "ltrim(s) || rtrim(s)": "ltrim(s, ' ') || rtrim(s, ' ')",
    "split_index(s, '.', 1)": "string_split(s, '.')[2]",
    "s like 'a%_b'": "s LIKE 'a%_b'",
    "s like '%!%!!a!_%' escape '!'": "s LIKE '%!%!!a!_%' ESCAPE '!'",
    "s not like '%a%%%' escape 'a'": "s NOT LIKE '%a%%%' ESCAPE 'a'",
    "s like '%$%\\%' escape '$'": "s LIKE '%$%\\%' ESCAPE '$'",
    "s like '%\\%%' escape '\\'": "s LIKE '%\\%%' ESCAPE '\\'",
    "trim(s)": "trim(s, ' ')",
    "trim(both from s) || trim(leading ' ' from s)": "trim(BOTH ' ' FROM s) || ltrim(s, ' ')",
    "trim(trailing ' ' from s)": "trim(TRAILING ' ' FROM s)",
    "substring(s from 2 for 3)": "substring(s FROM 2 FOR 3)",
    "substring(s from 3)": "substring(s FROM 3)",
    "md5(s)": "md5(s)",
    "sha256(s)": "sha256(s)",
}

TEXTS_OF_PYTHON: dict[str, Oracle] = {
    "reverse(s)": lambda s: "".join(reversed(s)),
    "lpad(s, n, p)": lambda s, n, p: padded(s, n, p, left=True),
    "rpad(s, n, p)": lambda s, n, p: padded(s, n, p, left=False),
    "right(s, n)": lambda s, n: s[max(len(s) - max(n, 0), 0) :],
    "left(s, n)": lambda s, n: s[: max(n, 0)],
    "repeat(s, n)": lambda s, n: (
        "".join(s for _ in range(n if s else 0)) if n * len(s) <= 65_536 else None
    ),
    "replace(s, p, '')": lambda s, p: "".join(s.split(p)) if p else s,
    "split_index(s, 'a', n)": lambda s, n: dict(enumerate(s.split("a"))).get(n),
    "split_index(s, '😀.', n)": lambda s, n: dict(enumerate(s.split("😀."))).get(n),
    "split_index(s, '\\E$', n)": lambda s, n: dict(enumerate(s.split("\\E$"))).get(n),
    "sha2(s, 512)": lambda s: hashlib.sha512(s.encode()).hexdigest(),
    "sha2(s, 224)": lambda s: hashlib.sha224(s.encode()).hexdigest(),
    "crc32(s)": lambda s: zlib.crc32(s.encode()),
    "hash64(s)": lambda s: xxh64(s.encode()),
}


def padded(text: str, length: int, filling: str, *, left: bool) -> str | None:
    if length > 65_536:
        return None
    made = list(text)[: max(length, 0)]
    fill = [filling[n % len(filling)] for n in range(max(length - len(text), 0)) if filling]
    return "".join([*fill, *made] if left else [*made, *fill])


def xxh64(data: bytes, seed: int = 42) -> int:
    """Compute XXH64 by its specification (Y. Collet, "XXHash fast digest algorithm", 0.1.1)."""
    mask = 2**64 - 1
    p1, p2, p3 = 11400714785074694791, 14029467366897019727, 1609587929392839161
    p4, p5 = 9650029242287828579, 2870177450012600261

    def turned(value: int, count: int) -> int:
        return (value << count | value >> 64 - count) & mask

    def one(lane: int, word: int) -> int:
        return turned(lane + word * p2 & mask, 31) * p1 & mask

    words = len(data) // 32 * 4
    hashed = seed + p5
    if words:
        lanes = [seed + p1 + p2, seed + p2, seed, seed - p1]
        for n in range(words):
            word = int.from_bytes(data[8 * n : 8 * n + 8], "little")
            lanes[n % 4] = one(lanes[n % 4] & mask, word)
        turns = zip(lanes, (1, 7, 12, 18), strict=True)
        hashed = sum(turned(lane, count) for lane, count in turns) & mask
        for lane in lanes:
            hashed = ((hashed ^ one(0, lane)) * p1 + p4) & mask
    hashed = hashed + len(data) & mask
    at = 8 * words
    while at + 8 <= len(data):
        hashed ^= one(0, int.from_bytes(data[at : at + 8], "little"))
        hashed = turned(hashed, 27) * p1 + p4 & mask
        at += 8
    if at + 4 <= len(data):
        hashed ^= int.from_bytes(data[at : at + 4], "little") * p1 & mask
        hashed = turned(hashed, 23) * p2 + p3 & mask
        at += 4
    for byte in data[at:]:
        hashed = turned(hashed ^ byte * p5 & mask, 11) * p1 & mask
    for shift, factor in ((33, p2), (29, p3), (32, 1)):
        hashed = (hashed ^ hashed >> shift) * factor & mask
    return hashed - 2**64 if hashed >= 2**63 else hashed


@odd(6, soak=60)
@given(rows(WORDS | st.text(st.sampled_from("abé😀. "), max_size=80)))
def test_texts(spark: Spark, found: list[Row]) -> None:
    check_duckdb(spark, found, TEXTS_OF_DUCKDB)
    check_oracles(spark, found, TEXTS_OF_PYTHON)


def test_letters_have_all_of_unicodes_mappings(spark: Spark) -> None:
    """Unicode's SpecialCasing says so: ß becomes two letters, and a final sigma is special."""
    texts = ["aé1", "straße", "ǆ", "ŉ", "ΌΔΟΣ", "İ", "😀", ""]
    found = [{**dict.fromkeys(FIELDS), "s": each} for each in texts]
    assert check(spark, found, ["upper(s)", "lower(s)"]) == [
        ["AÉ1", "STRASSE", "Ǆ", "ʼN", "ΌΔΟΣ", "İ", "😀", ""],
        ["aé1", "straße", "ǆ", "ŉ", "όδος", "i̇", "😀", ""],
    ]


def test_no_text_grows_beyond_the_limit(spark: Spark) -> None:
    none = dict.fromkeys(FIELDS)
    found = [
        {**none, "s": "é" * length, "n": length, "m": 2}
        for length in (32_768, 32_769, 65_536, 65_537, 2**20)
    ]
    lengths: dict[str, list[int | None]] = {
        "length(replace(s, 'é', '-+'))": [65_536, None, None, None, None],
        "length(replace(s, 'é', '-'))": [32_768, 32_769, 65_536, 65_537, 2**20],
        "length(replace(s, '', '-'))": [32_768, 32_769, 65_536, None, None],
        "length(repeat(s, m))": [65_536, None, None, None, None],
        "length(lpad('', n, 'ab'))": [32_768, 32_769, 65_536, None, None],
        "length(rpad(s, n))": [32_768, 32_769, 65_536, None, None],
        "length(regexp_replace(s, '(é)', '$1-'))": [65_536, None, None, None, None],
        "length(regexp_replace(s, 'é', 'x'))": [32_768, 32_769, 65_536, None, None],
    }
    assert check(spark, found, [*lengths]) == [*lengths.values()]


# -- numbers and logic ----------------------------------------------------------------------------


def rooted(x: float) -> float | None:
    return None if x < 0 else math.sqrt(x)


def shifted(value: int, count: int, width: int) -> int | None:
    if not 0 <= count < width:
        return None
    return int.from_bytes(
        (value * 2**count % 2**width).to_bytes(width // 8, "little"), "little", signed=True
    )


def signed(x: float) -> float:
    return math.nan if math.isnan(x) else float((x > 0) - (x < 0))


def signed_long(b: int) -> int:
    return (b > 0) - (b < 0)


NUMBERS: dict[str, Oracle] = {
    "sqrt(x)": rooted,
    "sqrt(b)": lambda b: rooted(float(b)),
    "sign(x)": signed,
    "sign(b)": signed_long,
    "mod(b, c)": lambda b, c: b - c * div(b, c) if c else None,
    "bitand(b, c)": lambda b, c: b & c,
    "bitor(b, n)": lambda b, n: b | n,
    "bitxor(n, m)": lambda n, m: n ^ m,
    "shiftleft(b, n)": lambda b, n: shifted(b, n, 64),
    "shiftleft(n, m)": lambda n, m: shifted(n, m, 32),
    "shiftright(b, n)": lambda b, n: b // 2**n if n in range(64) else None,
    "shiftright(n, m)": lambda n, m: n // 2**m if m in range(32) else None,
}


def div(a: int, b: int) -> int:
    """Return the quotient, rounded towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


LOGIC_OF_DUCKDB = {
    "s is distinct from p": "s IS DISTINCT FROM p",
    "b is not distinct from c": "b IS NOT DISTINCT FROM c",
    "x is distinct from x + 0": "x IS DISTINCT FROM x + 0",
    "x is not distinct from null": "x IS NULL",
    "nullif(n, m)": "nullif(n, m)",
    "nullif(x, x)": "nullif(x, x)",
    "if(n > m, s, p)": "if(n > m, s, p)",
    "ifnull(s, p)": "ifnull(s, p)",
    "nvl(n, b)": "coalesce(n::BIGINT, b)",
    "x = x and x >= 1": "x = x AND x >= 1",
    "case when x < 1e308 then 1 end": "CASE WHEN x < 1e308 THEN 1 END",
}


@odd(6, soak=60)
@given(rows())
def test_numbers_and_logic(spark: Spark, found: list[Row]) -> None:
    check_oracles(spark, found, NUMBERS)
    check_duckdb(spark, found, LOGIC_OF_DUCKDB)
