"""The interpreter's operations on texts."""

from __future__ import annotations

import hashlib
import math
import re
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final

from xxhash import xxh64_intdigest

from medusa.engine.aggregates.distinct import SEED
from medusa.engine.language.operators_text import (
    JSON_NUMBER,
    MAX_MADE,
    NEGATIVE_ZERO,
    REFERENCE,
    longest_replaced,
)
from medusa.engine.language.pattern_work import longest_text
from medusa.engine.language.patterns import read_pattern
from medusa.engine.reference.json_texts import Number, value_at

_DECIMAL_DIGITS: Final = 38


def _replace(text: str, part: str, other: str) -> str | None:
    if len(other) > len(part) and len(text) * len(other) > MAX_MADE * max(len(part), 1):
        return None
    return text.replace(part, other) if part else text


def _split_index(text: str, delimiter: str, index: int) -> str | None:
    pieces = text.split(delimiter)
    return pieces[index] if 0 <= index < len(pieces) else None


def _lpad(text: str, length: int, filling: str) -> str | None:
    if length > MAX_MADE:
        return None
    made = _filling(text, length, filling) + text
    return made[:length] if len(text) < length else text[: max(length, 0)]


def _rpad(text: str, length: int, filling: str) -> str | None:
    if length > MAX_MADE:
        return None
    return (text + _filling(text, length, filling))[: max(length, 0)]


def _filling(text: str, length: int, filling: str) -> str:
    missing = max(length - len(text), 0)
    return (filling * missing)[:missing]


def _repeat(text: str, times: int) -> str | None:
    return None if len(text) * times > MAX_MADE else text * times


def _like(text: str, pattern: str) -> bool:
    return _wildcards(pattern).fullmatch(text) is not None


@lru_cache(maxsize=256)
def _wildcards(pattern: str) -> re.Pattern[str]:
    parts = re.findall(r"\\?.", pattern, re.DOTALL)
    signs = {"%": ".*", "_": "."}
    return re.compile("".join(signs.get(p, re.escape(p[-1])) for p in parts), re.DOTALL)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(read_pattern(pattern).python)


def _regexp_like(text: str, pattern: str) -> bool | None:
    if len(text) > longest_text(pattern):
        return None
    return _compiled(pattern).search(text) is not None


def _extract(text: str, pattern: str, group: int) -> str | None:
    if len(text) > longest_text(pattern):
        return None
    match = _compiled(pattern).search(text)
    return None if match is None else match[group] or ""


def _regexp_replace(text: str, pattern: str, other: str) -> str | None:
    longest = longest_replaced(read_pattern(pattern).least, other)
    if len(text) > min(longest_text(pattern), longest):
        return None

    def made(match: re.Match[str]) -> str:
        return REFERENCE.sub(lambda name: match[int(name[1])] or "", other)

    return _compiled(pattern).sub(made, text)


def _json_value(text: str, path: str) -> str | None:
    value = value_at(text, path)
    if isinstance(value, Number):
        return _plain(value.text) if _is_decimal(value.text) else _written(text, value.text)
    return str(value).lower() if isinstance(value, bool) else value


def _written(document: str, number: str) -> str | None:
    double, sign = float(number), number.startswith("-")
    written = set(re.findall(JSON_NUMBER, document))
    alike = [each for each in written if float(each) == double and each.startswith("-") == sign]
    return min(alike) if math.isfinite(double) else None


def _json_double(text: str, path: str) -> float | None:
    value = value_at(text, path)
    if not isinstance(value, Number):
        return None
    number = float(value.text)
    return number + 0.0 if math.isfinite(number) else None


def _is_decimal(number: str) -> bool:
    whole, _, fraction = number.removeprefix("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    return (
        not re.fullmatch(NEGATIVE_ZERO, number)
        and not set("eE") & set(number)
        and len(digits) <= _DECIMAL_DIGITS
        and len(fraction) <= _DECIMAL_DIGITS
    )


def _plain(number: str) -> str:
    if "." in number:
        number = number.rstrip("0").removesuffix(".")
    return number


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text) if text.isascii() and "%" not in text else None
    except ValueError:
        return None


def _in_cidr(text: str, network: str) -> bool | None:
    address = _address(text)
    return None if address is None else address in ip_network(network)


def _prefix(text: str, bits: int, bits_of_6: int | None = None) -> str | None:
    address = _address(text)
    if address is None:
        return None
    length = bits if address.version == 4 else bits_of_6
    if length is None:
        return None
    zeros = address.max_prefixlen - length
    masked = type(address)(int(address) >> zeros << zeros)
    return f"{masked if address.version == 4 else _shortest(int(masked))}/{length}"


def _shortest(address: int) -> str:
    """An IPv6 address as RFC 5952 has it; `str` differs between Python's versions for some."""
    parts = [f"{address >> shift & 0xFFFF:x}" for shift in range(112, -1, -16)]
    rows = [(len(row[0]), -row.start()) for row in re.finditer(r"(?:\b0\b:?)+", ":".join(parts))]
    text = ":".join(parts)
    longest = max(rows, default=(0, 0))
    if longest[0] < len("0:0"):
        return text
    begin = -longest[1]
    end = begin + longest[0]
    return f"{text[:begin].removesuffix(':')}::{text[end:]}"


def _hash64(text: str) -> int:
    hashed: int = xxh64_intdigest(text.encode(), SEED)
    return hashed - 2**64 if hashed >= 2**63 else hashed


TEXTS: Final[Mapping[str, Callable[..., Any]]] = {
    "contains": lambda text, part: part in text,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "instr": lambda text, part: text.find(part) + 1,
    "replace": _replace,
    "split_index": _split_index,
    "lpad": _lpad,
    "rpad": _rpad,
    "repeat": _repeat,
    "reverse": lambda text: text[::-1],
    "ltrim": lambda text: text.lstrip(" "),
    "rtrim": lambda text: text.rstrip(" "),
    "right": lambda text, count: text[-count:] if count > 0 else "",
    "like": _like,
    "regexp_like": _regexp_like,
    "regexp_extract": _extract,
    "regexp_replace": _regexp_replace,
    "json_value": _json_value,
    "json_double": _json_double,
    "ip_in_cidr": _in_cidr,
    "ip_prefix": _prefix,
    "hash64": _hash64,
    "md5": lambda text: hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(),
    "sha2": lambda text, bits: hashlib.new(f"sha{bits}", text.encode()).hexdigest(),
    "crc32": lambda text: zlib.crc32(text.encode()),
}
"""By operator; no operand is null."""
