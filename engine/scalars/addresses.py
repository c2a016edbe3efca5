"""Functions of IP addresses.

A text is an IPv4 or IPv6 address (RFC 4291, IPv4 in dotted form at its end, no zone), or the result
is null. In Spark, an address is a text of hexadecimal digits, 8 (IPv4) or 32 (IPv6), while it is
worked with. Where a part is needed several times, it is the variable of a function over an array of
one: so it is written, and made, once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.examples import Example
from medusa.engine.scalars.late import Column, F
from medusa.engine.scalars.scalar import Family, Scalar
from medusa.engine.scalars.type_rules import Literals, Nulls, either, fixed

_STRING: Final = FieldType.STRING
_INT: Final = FieldType.INT


def _check_network(values: Literals) -> str | None:
    given = values[0]
    try:
        network = ip_network(given) if isinstance(given, str) else None
    except ValueError as error:
        return f"the network must be one like '10.0.0.0/8' or '2001:db8::/32': {error}"
    if network is None or "%" in str(given) or "/" not in str(given):
        return "the network must be one like '10.0.0.0/8' or '2001:db8::/32'"
    return None


def _check_bits(values: Literals) -> str | None:
    for value, most in zip(values, (32, 128), strict=False):
        if value not in range(most + 1):
            return f"the bits must be 0 to {most}"
    return None


# -- in Spark --------------------------------------------------------------------------------------


_DIGITS: Final = "0123456789abcdef"

_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_DOTTED = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_PART = r"[0-9a-fA-F]{1,4}"
_PARTS = rf"{_PART}(?::{_PART}){{0,6}}"

_IPV4: Final = rf"\A{_DOTTED}\z"

_IPV6: Final = (
    rf"\A(?:(?:{_PART}:){{7}}{_PART}|(?:{_PART}:){{6}}{_DOTTED}"
    rf"|(?:{_PARTS})?::(?:(?:{_PART}:){{0,5}}{_DOTTED}|{_PARTS})?)\z"
)
"""A pattern of all IPv6 addresses; it also fits some texts that have :: and too many parts."""

_IPV6_PARTS: Final = 8


def _once(made: Column, of: Callable[[Column], Column]) -> Column:
    """The expression `of(made)`, which computes `made` once."""
    return F.get(F.transform(F.array(made), of), F.lit(0))


def _spark_address(text: Column) -> Column:
    """The digits of an address; null if the text is no address."""

    def digits(text: Column) -> Column:
        ipv4 = F.when(F.rlike(text, F.lit(_IPV4)), _dotted(text))
        return F.coalesce(ipv4, F.when(F.rlike(text, F.lit(_IPV6)), _colons(text)))

    return _once(text, digits)


def _dotted(text: Column) -> Column:
    """The 8 digits of an IPv4 address."""
    parts = F.transform(F.split(text, r"\."), lambda each: _hex(each.cast("int"), 2))
    return F.array_join(parts, "")


def _hex(number: Column, digits: int) -> Column:
    return F.lpad(F.lower(F.hex(number)), digits, "0")


def _colons(text: Column) -> Column:
    """The 32 digits of an IPv6 address; null if it has too many parts."""

    def filled(sides: Column) -> Column:
        left, right = F.get(sides, F.lit(0)), F.coalesce(F.get(sides, F.lit(1)), F.lit(""))
        missing = F.lit(4 * _IPV6_PARTS) - F.length(left) - F.length(right)
        short = F.size(sides) == F.lit(2)
        # two colons stand for one part at least
        complete = F.when(short, missing >= F.lit(4)).otherwise(missing == F.lit(0))
        zeros = F.call_function("repeat", F.lit("0"), missing)
        return F.when(complete, F.concat(left, zeros, right))

    sides = F.transform(F.split(F.lower(text), "::", -1), _side)
    return _once(sides, filled)


def _side(text: Column) -> Column:
    """The digits of the parts on one side of the two colons."""

    def part(each: Column) -> Column:
        return F.when(F.contains(each, F.lit(".")), _dotted(each)).otherwise(F.lpad(each, 4, "0"))

    parts = F.transform(F.split(text, ":", -1), part)
    return F.when(text == F.lit(""), F.lit("")).otherwise(F.array_join(parts, ""))


def _masked(digits: Column, bits: int, length: int) -> Column:
    """The digits with zeros after the first `bits`; length: of the digits."""
    whole, rest = divmod(bits, 4)
    parts = [F.substring(digits, 1, whole)]
    if rest:
        mask = 0xF << (4 - rest) & 0xF
        kept = "".join(_DIGITS[digit & mask] for digit in range(16))
        parts.append(F.translate(F.substring(digits, whole + 1, 1), _DIGITS, kept))
    zeros = "0" * (length - whole - (rest > 0))
    return F.concat(*parts, F.lit(zeros))


def _spark_in_cidr(text: Column, given: str) -> Column:
    network: IPv4Network | IPv6Network = ip_network(given)
    length = network.max_prefixlen // 4
    wanted = F.lit(network.network_address.packed.hex())
    bits = network.prefixlen

    def inside(digits: Column) -> Column:
        same = _masked(digits, bits, length) == wanted
        return F.when(F.length(digits) == F.lit(length), same).when(
            digits.isNotNull(), F.lit(False)
        )

    return _once(_spark_address(text), inside)


def _spark_prefix(text: Column, bits: int, bits_of_6: int | None = None) -> Column:
    def shown(digits: Column) -> Column:
        made = F.when(F.length(digits) == F.lit(8), _shown_4(_masked(digits, bits, 8), bits))
        if bits_of_6 is not None:
            masked = _masked(digits, bits_of_6, 32)
            made = made.when(F.length(digits) == F.lit(32), _shown_6(masked, bits_of_6))
        return made

    return _once(_spark_address(text), shown)


def _shown_4(digits: Column, bits: int) -> Column:
    def shown(digits: Column) -> Column:
        parts = [F.conv(F.substring(digits, at, 2), 16, 10) for at in (1, 3, 5, 7)]
        return F.concat(F.concat_ws(".", *parts), F.lit(f"/{bits}"))

    return _once(digits, shown)


def _shown_6(digits: Column, bits: int) -> Column:
    """An IPv6 address as RFC 5952 writes it: no zeros before a part; two colons for the longest row
    of zeros."""

    def joined(digits: Column) -> Column:
        parts = [
            F.regexp_replace(F.substring(digits, 4 * part + 1, 4), "^0{1,3}", "")
            for part in range(_IPV6_PARTS)
        ]
        return F.concat(F.lit(":"), F.concat_ws(":", *parts), F.lit(":"))

    return F.concat(_once(_once(digits, joined), _shortened), F.lit(f"/{bits}"))


def _shortened(text: Column) -> Column:
    """The shortened address of a text with colons at both ends: `1::2` for `:1:0:0:2:`."""
    rows = [":0" * count + ":" for count in range(_IPV6_PARTS, 1, -1)]
    found = [(F.instr(text, F.lit(row)), len(row)) for row in rows]

    def cut(place: Column, length: int) -> Column:
        left = F.substring(text, F.lit(2), place - F.lit(2))
        right = F.substr(text, place + F.lit(length))
        return F.concat(left, F.lit("::"), F.rtrim(right, F.lit(":")))

    first, *others = found
    chain = F.when(first[0] > F.lit(0), cut(*first))
    chain = reduce(lambda made, each: made.when(each[0] > F.lit(0), cut(*each)), others, chain)
    return chain.otherwise(F.trim(text, F.lit(":")))


# -- in Python -------------------------------------------------------------------------------------


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
    """An IPv6 address as RFC 5952 writes it; for some addresses `str` differs between Python's
    versions."""
    parts = [f"{address >> shift & 0xFFFF:x}" for shift in range(112, -1, -16)]
    rows = [(len(row[0]), -row.start()) for row in re.finditer(r"(?:\b0\b:?)+", ":".join(parts))]
    text = ":".join(parts)
    longest = max(rows, default=(0, 0))
    if longest[0] < len("0:0"):
        return text
    begin = -longest[1]
    end = begin + longest[0]
    return f"{text[:begin].removesuffix(':')}::{text[end:]}"


ADDRESSES: Final = Family(
    "Addresses",
    (
        Scalar(
            "ip_in_cidr",
            "ip_in_cidr(text, '10.0.0.0/8')",
            "a string and a constant network",
            fixed((_STRING, _STRING), FieldType.BOOL),
            Nulls.POSSIBLE,
            spark=_spark_in_cidr,
            value=_in_cidr,
            gives="Whether the address is in the network, and of its version.",
            examples=(
                Example(
                    "ip_in_cidr('10.1.2.3', '10.0.0.0/8')",
                    True,
                    differs="DuckDB has it in an extension, `inet`",
                ),
            ),
            constants=(1,),
            check=_check_network,
            own=50,
        ),
        Scalar(
            "ip_prefix",
            "ip_prefix(text, 24, 48)",
            "a string and constant bits, of IPv4 and perhaps of IPv6",
            either(fixed((_STRING, _INT), _STRING), fixed((_STRING, _INT, _INT), _STRING)),
            Nulls.POSSIBLE,
            spark=_spark_prefix,
            value=_prefix,
            gives="The network of the address, as 10.1.2.0/24 or 2001:db8::/32 (RFC 5952), of so "
            "many bits of IPv4 and of IPv6; without the latter an IPv6 address gives null.",
            examples=(
                Example(
                    "ip_prefix('10.1.2.3', 24)",
                    "10.1.2.0/24",
                    differs="DuckDB has it in an extension, `inet`",
                ),
            ),
            constants=(1, 2),
            check=_check_bits,
            own=128,
        ),
    ),
)
