"""Operators on texts, a part of the table in `medusa.engine.language.operators`.

Positions and lengths are in code points. What can make a long text of a short one gives null for
more than `MAX_MADE`.

    contains startswith endswith  (text, part)
    instr                 (text, part): the place of the first such part, from 1; 0 if there is
                          none; 1 for the part ""
    replace               (text, part, other): each such part, from the left; "" is no part. Null if
                          `other` is longer than `part` (at least 1), and length(text) *
                          length(other) > MAX_MADE * length(part)
    split_index           (text, constant delimiter, n): the n-th piece, from 0; null if n < 0 or
                          there are no more so many
    lpad rpad             (text, length, filling): cut to the length, too; "" if that is not above
                          0, null if it is above MAX_MADE; with the filling "" only cut
    repeat                (text, n): "" if n is not above 0; null if the result had more than
                          MAX_MADE
    reverse ltrim rtrim   ltrim and rtrim take spaces off one end
    right                 (text, n): the last n; "" if n is not above 0
    regexp_like           (text, constant pattern): whether it matches somewhere
    regexp_extract        (text, constant pattern, constant group): what the group has in the first
                          match, 0 is the whole match; null if there is none, "" if the group has no
                          part in it
    regexp_replace        (text, constant pattern, constant other): each match, from the left; $1 to
                          $9 in `other` are groups, any other $ and a backslash are refused. The
                          pattern must not match ""; null if `longest_replaced` says that the result
                          could have more than MAX_MADE
                          The patterns are those of `medusa.engine.language.patterns`; null for a
                          text of more code points than
                          `medusa.engine.language.pattern_work.longest_text`
    json_value            (text, constant path) of a text that begins with a JSON document (RFC
                          8259): the string at the path; true or false; a number. One without
                          exponent and of at most 38 digits (of its fraction, too) is without zeros
                          at the end of its fraction, and -0.0 is 0; another is as it is written (if
                          the document writes the same double in several ways, the least of these
                          texts), and null beyond the doubles. Else null. The whole document counts:
                          null if it has an object with a name twice, half a surrogate pair, a
                          number of more than 1,000 digits, a name of more than 50,000 characters
                          or more than 1,000 levels. What follows the document is not looked at
    json_double           (text, constant path): the number there, as a double; null if it is
                          infinite
    ip_in_cidr            (text, constant network): whether an IPv4 or IPv6 address (RFC 4291, IPv4
                          in dotted form at its end, no zone) is in the network, of its version;
                          null if the text is no address
    ip_prefix             (text, constant bits, constant bits of IPv6): the network of the address,
                          as 10.1.2.0/24 or 2001:db8::/32 (RFC 5952); null of an IPv6 address if its
                          bits are not given
    hash64                long: XXH64 with seed 42 of the UTF-8 bytes
    md5 sha2 crc32        of the UTF-8 bytes; md5 and sha2 (text, constant 224, 256, 384 or 512) in
                          small hexadecimal digits, crc32 (zlib's) a long
"""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import Final

from medusa.engine.language.json_paths import PathError, read_path
from medusa.engine.language.pattern_work import longest_text
from medusa.engine.language.patterns import PatternError, read_pattern
from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.type_rules import (
    SOME_STRING,
    Literals,
    Nulls,
    Operator,
    either,
    fixed,
    uniform,
)

MAX_MADE: Final = 65_536
"""Code points of a text that a function makes of a shorter one: a longer result is null."""

MAX_OTHER: Final = 256
"""Characters of a constant replacement, or delimiter."""

SHA2_BITS: Final = (224, 256, 384, 512)

JSON_NUMBER: Final = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
"""A number of JSON, for Java and for Python."""

NEGATIVE_ZERO: Final = r"(?<![eE0-9])-0(?:\.0{1,900})?(?![.0-9eE])"
"""One that is no exact decimal, which has no sign of its zero."""

REFERENCE: Final = re.compile(r"\$([1-9])")
"""A group, in the replacement of `regexp_replace`."""


def longest_replaced(least: int, other: str) -> int:
    """Code points of the longest text of which `regexp_replace` can make no more than `MAX_MADE`.

    Args:
        least: characters of the shortest match.
        other: the replacement; a group that it names is no longer than its match.
    """
    references = len(REFERENCE.findall(other))
    plain = len(REFERENCE.sub("", other))
    growth = max(1, references + -(-plain // least))
    return MAX_MADE // growth


_STRING: Final = FieldType.STRING
_INT: Final = FieldType.INT


def _check_delimiter(values: Literals) -> str | None:
    good = isinstance(values[0], str) and 0 < len(values[0]) <= MAX_OTHER
    return None if good else f"the delimiter must be a string of 1 to {MAX_OTHER} characters"


def _check_pattern(values: Literals) -> str | None:
    if not isinstance(values[0], str):
        return "the pattern must be a string"
    try:
        longest_text(values[0])
    except PatternError as error:
        return f"the pattern {error}"
    return None


def _check_extract(values: Literals) -> str | None:
    wrong = _check_pattern(values)
    if wrong is not None:
        return wrong
    groups = read_pattern(str(values[0])).groups
    if values[1] in range(groups + 1):
        return None
    return f"the group must be 0 to {groups}: so many has the pattern"


def _check_replace(values: Literals) -> str | None:
    wrong = _check_pattern(values)
    if wrong is not None:
        return wrong
    pattern, other = read_pattern(str(values[0])), values[1]
    if pattern.least == 0:
        return "the pattern must not match an empty text"
    if not isinstance(other, str) or len(other) > MAX_OTHER:
        return f"the replacement must be a string of at most {MAX_OTHER} characters"
    groups = [int(group) for group in REFERENCE.findall(other)]
    if re.search(r"[$\\]", REFERENCE.sub("", other)) or any(g > pattern.groups for g in groups):
        return "a $ of the replacement must be that of a group, as $1; a backslash is not allowed"
    return None


def _check_path(values: Literals) -> str | None:
    if not isinstance(values[0], str):
        return "the path must be a string"
    try:
        read_path(values[0])
    except PathError as error:
        return f"the path {error}"
    return None


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


def _check_sha2(values: Literals) -> str | None:
    return None if values[0] in SHA2_BITS else f"the bits must be one of {SHA2_BITS}"


_TEXT: Final = Operator("one string", uniform(SOME_STRING, least=1, most=1), Nulls.IF_ANY)
_FOUND: Final = Operator("two strings", uniform(SOME_STRING, FieldType.BOOL), Nulls.IF_ANY)
_PAD: Final = Operator(
    "a string, a length and a string",
    fixed((_STRING, _INT, _STRING), _STRING),
    Nulls.POSSIBLE,
)

TEXT_OPERATORS: Final[dict[str, Operator]] = {
    "contains": _FOUND,
    "startswith": _FOUND,
    "endswith": _FOUND,
    "instr": Operator("two strings", fixed((_STRING, _STRING), _INT), Nulls.IF_ANY),
    "replace": Operator("three strings", fixed((_STRING,) * 3, _STRING), Nulls.POSSIBLE),
    "split_index": Operator(
        "a string, a constant delimiter and a number",
        fixed((_STRING, _STRING, _INT), _STRING),
        Nulls.POSSIBLE,
        (1,),
        _check_delimiter,
    ),
    "lpad": _PAD,
    "rpad": _PAD,
    "repeat": Operator("a string and a number", fixed((_STRING, _INT), _STRING), Nulls.POSSIBLE),
    "reverse": _TEXT,
    "ltrim": _TEXT,
    "rtrim": _TEXT,
    "right": Operator("a string and a number", fixed((_STRING, _INT), _STRING), Nulls.IF_ANY),
    "regexp_like": Operator(
        "a string and a constant pattern",
        fixed((_STRING, _STRING), FieldType.BOOL),
        Nulls.POSSIBLE,
        (1,),
        _check_pattern,
    ),
    "regexp_extract": Operator(
        "a string, a constant pattern and a constant group",
        fixed((_STRING, _STRING, _INT), _STRING),
        Nulls.POSSIBLE,
        (1, 2),
        _check_extract,
    ),
    "regexp_replace": Operator(
        "a string, a constant pattern and a constant string",
        fixed((_STRING,) * 3, _STRING),
        Nulls.POSSIBLE,
        (1, 2),
        _check_replace,
    ),
    "json_value": Operator(
        "a string and a constant path",
        fixed((_STRING, _STRING), _STRING),
        Nulls.POSSIBLE,
        (1,),
        _check_path,
    ),
    "json_double": Operator(
        "a string and a constant path",
        fixed((_STRING, _STRING), FieldType.DOUBLE),
        Nulls.POSSIBLE,
        (1,),
        _check_path,
    ),
    "ip_in_cidr": Operator(
        "a string and a constant network",
        fixed((_STRING, _STRING), FieldType.BOOL),
        Nulls.POSSIBLE,
        (1,),
        _check_network,
    ),
    "ip_prefix": Operator(
        "a string and constant bits, of IPv4 and perhaps of IPv6",
        either(fixed((_STRING, _INT), _STRING), fixed((_STRING, _INT, _INT), _STRING)),
        Nulls.POSSIBLE,
        (1, 2),
        _check_bits,
    ),
    "hash64": Operator("one string", fixed((_STRING,), FieldType.LONG), Nulls.IF_ANY),
    "crc32": Operator("one string", fixed((_STRING,), FieldType.LONG), Nulls.IF_ANY),
    "md5": _TEXT,
    "sha2": Operator(
        "a string and constant bits",
        fixed((_STRING, _INT), _STRING),
        Nulls.IF_ANY,
        (1,),
        _check_sha2,
    ),
}
