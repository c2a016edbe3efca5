"""Regular expressions in Spark, in the interpreter and in RE2 (by DuckDB)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_patterns import PATTERNS, TEXTS
from scalar_rows import FIELDS, by_duckdb, check, check_like, odd, rows

from medusa.engine.evaluation.expressions import Row
from medusa.engine.scalars.pattern_work import MAX_MATCHED, longest_text
from medusa.engine.scalars.patterns import PatternError, read_pattern
from medusa.engine.spark.session import Spark

pytestmark = pytest.mark.spark

CHANNEL = "regexp_extract(s, '(&|^)channel_id=([^&]*)', 2)"


def is_taken(pattern: str) -> bool:
    try:
        return longest_text(pattern) > 0
    except PatternError:
        return False


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@odd(8, soak=150)
@given(st.lists(PATTERNS.filter(is_taken), min_size=6, max_size=10), rows(TEXTS))
def test_three_engines_agree(spark: Spark, patterns: list[str], found: list[Row]) -> None:
    pairs: dict[str, str] = {}
    for pattern in patterns:
        read, of = read_pattern(pattern), f"(s, {quoted(pattern)}"
        pairs[f"regexp_like{of})"] = f"regexp_matches{of})"
        for group in range(read.groups + 1):
            extract = f"CASE WHEN regexp_matches{of}) THEN regexp_extract{of}, {group}) END"
            pairs[f"regexp_extract{of}, {group})"] = extract
        if read.least:
            other, theirs = ("<$1>", r"<\1>") if read.groups else ("<>", "<>")
            replaced = f"regexp_replace{of}, '{theirs}', 'g')"
            pairs[f"regexp_replace{of}, '{other}')"] = replaced
    texts = [*pairs]
    check_like(texts, found, check(spark, found, texts), by_duckdb(found, [*pairs.values()]))


def given_texts(*texts: str | None) -> list[Row]:
    none = dict.fromkeys(FIELDS)
    return [{**none, "s": text} for text in texts]


def test_spark_answers_the_patterns_of_flinks_nexmark(spark: Spark) -> None:
    found = given_texts(
        "https://www.nexmark.com/a/b/c/item.htm?query=1&channel_id=1234",
        "channel_id=&x",
        "x=channel_id=5",
        "",
        None,
    )
    texts = [CHANNEL, f"{CHANNEL} is not null", "split_index(s, '/', 3)", "s rlike '^https'"]
    assert check(spark, found, texts) == [
        ["1234", "", None, None, None],
        [True, True, False, False, False],
        ["a", None, None, None, None],
        [True, False, False, False, None],
    ]


def test_a_sign_that_one_engine_gives_a_meaning_has_none(spark: Spark) -> None:
    found = given_texts("a&&b", "a[b", "a#b", "a b", "a\nb", "a\n", "\u0663", "\u212a", "É", "a~~b")
    texts = {
        "s rlike '[a&]+b'": [True, *[False] * 9],
        "s rlike 'a.b'": [False, True, True, True, False, False, False, False, False, False],
        "s rlike 'a$'": [False] * 10,
        "s rlike '^a\\n$'": [*[False] * 5, True, *[False] * 4],
        "s rlike 'a#b'": [False, False, True, *[False] * 7],
        "s rlike '\\d|\\w'": [*[True] * 6, False, False, False, True],
        "s rlike '[\\W]'": [*[True] * 10],
        "s rlike '[~-~]{2}'": [*[False] * 9, True],
    }
    assert check(spark, found, [*texts]) == [*texts.values()]


def test_replacements_are_plain_but_for_groups(spark: Spark) -> None:
    found = given_texts("ab", "b")
    texts = {
        "regexp_replace(s, '(a)?b', '[$1]')": ["[a]", "[]"],
        "regexp_replace(s, '(a)?(b)', '$2$1$2')": ["bab", "bb"],
        "regexp_replace(s, '(a)?b', '$10')": ["a0", "0"],
        "regexp_replace(s, 'b', '&{}#')": ["a&{}#", "&{}#"],
        "regexp_replace(s, 'x', 'y')": ["ab", "b"],
    }
    assert check(spark, found, [*texts]) == [*texts.values()]


LONG = [
    "^[^&]{2,}&",
    "^.*?x",
    "(&|^)channel_id=([^&]*)",
    "^(?:a|😀b?){1,64}$",
    "^(?:[ab😀]+c){1,8}d",
    "^(a|😀){0,1}[a😀]*?$",
    "x|y|z|[0-9]{64}",
]


@pytest.mark.parametrize("pattern", LONG)
def test_long_texts_overflow_no_stack(spark: Spark, pattern: str) -> None:
    """Java recurses for each turn of a group, so the turns are few."""
    longest = longest_text(pattern)
    assert longest == MAX_MATCHED
    found = given_texts("a😀" * (longest // 2), "a" * longest, "a" * (longest + 1), "&a😀" * 999)
    like, replaced = check(
        spark, found, [f"regexp_like(s, {quoted(pattern)})", "regexp_replace(s, 'q', 'r')"]
    )
    assert [each is None for each in like] == [False, False, True, False]
    assert [each is None for each in replaced] == [False, False, True, False]


@pytest.mark.parametrize("pattern", ["a.*b", ".*foo", r"[\w.]+@[\w.]+\.com", "(?:a|ab){1,9}c"])
def test_the_worst_texts_are_matched_soon(spark: Spark, pattern: str) -> None:
    longest = longest_text(pattern)
    found = given_texts(*["a" * longest, "fo" * (longest // 2), "a@" * (longest // 2)])
    (made,) = check(spark, found, [f"regexp_like(s, {quoted(pattern)})"])
    assert made == [False, False, False]
