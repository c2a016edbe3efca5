"""Functions of texts and patterns, which are those of `medusa.engine.scalars.patterns`.

The functions give null for a text of more code points than
`medusa.engine.scalars.pattern_work.longest_text` allows for the pattern.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.examples import Example
from medusa.engine.scalars.late import Column, F
from medusa.engine.scalars.pattern_work import longest_text
from medusa.engine.scalars.patterns import PatternError, read_pattern
from medusa.engine.scalars.scalar import Family, Scalar
from medusa.engine.scalars.texts import MAX_MADE, MAX_OTHER
from medusa.engine.scalars.type_rules import Literals, Nulls, fixed

_REFERENCE: Final = re.compile(r"\$([1-9])")
"""A pattern of references to groups in the replacement of `regexp_replace`."""

_STRING: Final = FieldType.STRING


def longest_replaced(least: int, other: str) -> int:
    """Code points of the longest text from which `regexp_replace` can make at most `MAX_MADE`.

    Args:
        least: characters of the shortest match.
        other: the replacement; a group that it names is no longer than its match.
    """
    references = len(_REFERENCE.findall(other))
    plain = len(_REFERENCE.sub("", other))
    growth = max(1, references + -(-plain // least))
    return MAX_MADE // growth


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
    return f"the group must be 0 to {groups}: the pattern has no more"


def _check_replace(values: Literals) -> str | None:
    wrong = _check_pattern(values)
    if wrong is not None:
        return wrong
    pattern, other = read_pattern(str(values[0])), values[1]
    if pattern.least == 0:
        return "the pattern must not match an empty text"
    if not isinstance(other, str) or len(other) > MAX_OTHER:
        return f"the replacement must be a string of at most {MAX_OTHER} characters"
    groups = [int(group) for group in _REFERENCE.findall(other)]
    if re.search(r"[$\\]", _REFERENCE.sub("", other)) or any(g > pattern.groups for g in groups):
        return "a $ of the replacement must be that of a group, as $1; a backslash is not allowed"
    return None


# -- in Spark --------------------------------------------------------------------------------------


def _within(text: Column, pattern: str, made: Column) -> Column:
    return F.when(F.length(text) <= F.lit(longest_text(pattern)), made)


def _spark_like(text: Column, pattern: str) -> Column:
    return _within(text, pattern, F.rlike(text, F.lit(read_pattern(pattern).java)))


def _spark_extract(text: Column, pattern: str, group: int) -> Column:
    java = read_pattern(pattern).java
    found = F.regexp_extract(text, java, group)
    return _within(text, pattern, F.when(F.rlike(text, F.lit(java)), found))


def _spark_replace(text: Column, pattern: str, other: str) -> Column:
    read = read_pattern(pattern)
    longest = min(longest_text(pattern), longest_replaced(read.least, other))
    made = F.regexp_replace(text, read.java, other)
    return F.when(F.length(text) <= F.lit(longest), made)


# -- in Python -------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(read_pattern(pattern).python)


def _like(text: str, pattern: str) -> bool | None:
    if len(text) > longest_text(pattern):
        return None
    return _compiled(pattern).search(text) is not None


def _extract(text: str, pattern: str, group: int) -> str | None:
    if len(text) > longest_text(pattern):
        return None
    match = _compiled(pattern).search(text)
    return None if match is None else match[group] or ""


def _replace(text: str, pattern: str, other: str) -> str | None:
    longest = longest_replaced(read_pattern(pattern).least, other)
    if len(text) > min(longest_text(pattern), longest):
        return None

    def made(match: re.Match[str]) -> str:
        return _REFERENCE.sub(lambda name: match[int(name[1])] or "", other)

    return _compiled(pattern).sub(made, text)


REGEXES: Final = Family(
    "Patterns",
    (
        Scalar(
            "regexp_like",
            "regexp_like(text, 'pattern')",
            "a string and a constant pattern",
            fixed((_STRING, _STRING), FieldType.BOOL),
            Nulls.POSSIBLE,
            spark=_spark_like,
            value=_like,
            gives="Whether the pattern matches somewhere; also `text rlike 'pattern'`.",
            examples=(
                Example(
                    "regexp_like('medusa', 'u.a')", True, duckdb="regexp_matches('medusa', 'u.a')"
                ),
            ),
            other_names=("rlike",),
            constants=(1,),
            check=_check_pattern,
            repeats=(2,),
        ),
        Scalar(
            "regexp_extract",
            "regexp_extract(text, 'pattern', group)",
            "a string, a constant pattern and a constant group",
            fixed((_STRING, _STRING, FieldType.INT), _STRING),
            Nulls.POSSIBLE,
            spark=_spark_extract,
            value=_extract,
            gives="What the group has in the first match, of which 0 is the whole; null if nothing "
            "matches.",
            examples=(Example("regexp_extract('a=7', '([a-z])=([0-9])', 2)", "7"),),
            constants=(1, 2),
            check=_check_extract,
            repeats=(3,),
        ),
        Scalar(
            "regexp_replace",
            "regexp_replace(text, 'pattern', 'other')",
            "a string, a constant pattern and a constant string",
            fixed((_STRING,) * 3, _STRING),
            Nulls.POSSIBLE,
            spark=_spark_replace,
            value=_replace,
            gives="With the other text for each match, from the left; $1 to $9 in it are groups. "
            f"Null if the result could have more than {MAX_MADE:,} characters.",
            examples=(
                Example(
                    "regexp_replace('a=7', '([a-z])=([0-9])', '$2=$1')",
                    "7=a",
                    duckdb=r"regexp_replace('a=7', '([a-z])=([0-9])', '\2=\1', 'g')",
                ),
            ),
            constants=(1, 2),
            check=_check_replace,
            repeats=(2,),
        ),
    ),
)
