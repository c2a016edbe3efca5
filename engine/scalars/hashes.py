"""Hashes of texts: of their UTF-8 bytes."""

from __future__ import annotations

import hashlib
import zlib
from typing import Final

from xxhash import xxh64_intdigest

from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.examples import Example
from medusa.engine.scalars.late import F
from medusa.engine.scalars.scalar import Family, Scalar, ShortForm
from medusa.engine.scalars.type_rules import SOME_STRING, Literals, Nulls, fixed, uniform

SEED: Final = 42
"""The seed of Spark's `xxhash64`."""

_BITS: Final = (224, 256, 384, 512)


def _check_bits(values: Literals) -> str | None:
    return None if values[0] in _BITS else f"the bits must be one of {_BITS}"


def _hash64(text: str) -> int:
    hashed: int = xxh64_intdigest(text.encode(), SEED)
    return hashed - 2**64 if hashed >= 2**63 else hashed


HASHES: Final = Family(
    "Hashes",
    (
        Scalar(
            "md5",
            "md5(text)",
            "one string",
            uniform(SOME_STRING, least=1, most=1),
            Nulls.IF_ANY,
            spark=F.md5,
            value=lambda text: hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(),
            gives="MD5, in small hexadecimal digits.",
            examples=(Example("md5('abc')", "900150983cd24fb0d6963f7d28e17f72"),),
        ),
        Scalar(
            "sha2",
            "sha2(text, 256)",
            "a string and constant bits",
            fixed((FieldType.STRING, FieldType.INT), FieldType.STRING),
            Nulls.IF_ANY,
            spark=F.sha2,
            value=lambda text, bits: hashlib.new(f"sha{bits}", text.encode()).hexdigest(),
            gives="SHA-2 of 224, 256, 384 or 512 bits, in small hexadecimal digits.",
            examples=(
                Example("left(sha2('abc', 256), 8)", "ba7816bf", duckdb="left(sha256('abc'), 8)"),
            ),
            constants=(1,),
            check=_check_bits,
        ),
        ShortForm(
            "sha256",
            "sha256(text)",
            "one string",
            1,
            lambda make, o: make("sha2", [o[0], 256]),
            "`sha2(text, 256)`.",
            (Example("left(sha256('abc'), 8)", "ba7816bf"),),
        ),
        Scalar(
            "crc32",
            "crc32(text)",
            "one string",
            fixed((FieldType.STRING,), FieldType.LONG),
            Nulls.IF_ANY,
            spark=F.crc32,
            value=lambda text: zlib.crc32(text.encode()),
            gives="CRC-32, as zlib has it.",
            examples=(Example("crc32('abc')", 891568578, differs="DuckDB has none"),),
        ),
        Scalar(
            "hash64",
            "hash64(text)",
            "one string",
            fixed((FieldType.STRING,), FieldType.LONG),
            Nulls.IF_ANY,
            # Spark gives null a hash, too
            spark=lambda text: F.when(text.isNotNull(), F.xxhash64(text)),
            value=_hash64,
            gives=f"XXH64 with the seed {SEED}.",
            examples=(
                Example("hash64('abc')", 1423657621850124518, differs="DuckDB has another hash"),
            ),
            other_names=("xxhash64",),
            repeats=(2,),
        ),
    ),
)
