"""The subset of regular expressions is read, bounded, and compared with RE2."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_patterns import PATTERNS, TEXTS

from medusa.engine.expressions.typer import parse_expression
from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.pattern_nodes import (
    Anchor,
    Branches,
    Chars,
    Group,
    Node,
    Repeat,
    Sequence,
)
from medusa.engine.scalars.pattern_work import (
    LEAST_MATCHED,
    MAX_MATCHED,
    MAX_STEPS,
    longest_text,
    most_steps,
)
from medusa.engine.scalars.patterns import MAX_PATTERN, PatternError, read_pattern
from medusa.overlay.errors import InvalidInputError


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("a(b", "character 2: a group that does not end"),
        ("a)b", "character 2: a ) that nothing opens"),
        ("[ab", "character 1: a set that does not end"),
        ("a[]", "character 2: an empty set"),
        (r"[^\w\W]", "character 1: a set of no character"),
        ("[z-a]", "character 2: a range whose end is before"),
        (r"[\d-z]", "character 2: a range from or to a set"),
        ("[a[b]]", "character 3: a backslash must precede"),
        ("[a&&b]", "character 3: a backslash must precede"),
        ("a{", "character 2: a { that is none of"),
        ("a{,3}", "character 2: a { that is none of"),
        ("a{3,2}", "character 2: a quantifier that allows no turn"),
        ("a{0}", "character 2: a quantifier that allows no turn"),
        ("a{65}", "character 2: more than 64 turns"),
        ("a{99999999999}", "character 2: more than 64 turns"),
        ("{a", "character 1: a backslash must precede"),
        ("*a", "character 1: nothing that '*' could repeat"),
        ("a|*", "character 3: nothing that '*' could repeat"),
        ("a**", "character 3: a quantifier after a quantifier"),
        ("a*+", "character 3: a quantifier after a quantifier"),
        ("a++b", "character 3: a quantifier after a quantifier"),
        ("^*", "character 1: an anchor that is repeated"),
        ("(?=a)b", "character 1: of the groups that begin with (? there is (?:...) alone"),
        ("(?!a)b", "no lookaround"),
        ("(?<=a)b", "no lookaround"),
        ("(?<name>a)", "no lookaround, names or flags"),
        ("(?i)a", "no lookaround, names or flags"),
        ("(?>a)", "no lookaround, names or flags"),
        (r"(a)\1", "character 4: a reference to a group"),
        (r"a\b", r"character 2: \b is not part"),
        (r"\p{L}", r"character 1: \p is not part"),
        (r"\Qa\E", r"character 1: \Q is not part"),
        (r"\é", "character 1"),
        ("a\\", "ends too early"),
        ("(a+)+", "character 5: a group that is repeated without end"),
        ("(?:a|b)*c", "character 8: a group that is repeated without end"),
        ("(?:a|b){2,}c", "character 8: a group that is repeated without end"),
        ("(?:a*)?", "character 7: a quantifier of a group that can match nothing"),
        ("(a){2}", "character 1: a repeated group that captures"),
        ("(?:(a)b){2}", "character 1: a repeated group that captures"),
        ("(" * 9 + "a" + ")" * 9, "groups nested deeper than 8"),
        ("(a)" * 10, "more than 9 groups"),
        ("a" * (MAX_PATTERN + 1), f"has 257 characters, at most {MAX_PATTERN}"),
        ("(?:(?:a{60}){60}){60}", "more than 512 characters and sets"),
        (".*.*a", "could take more than"),
        ("a*a*a*b", "could take more than"),
        ("(?:a|a){20}b", "could take more than"),
        ("(?:a?b?c?d){12}e", None),
        ("a?" * 40 + "a" * 40, "could take more than"),
        ("(?:a+){5}b", "could take more than"),
    ],
)
def test_a_pattern_outside_the_subset_is_refused_with_its_reason(
    pattern: str, reason: str | None
) -> None:
    if reason is None:
        assert longest_text(pattern) >= LEAST_MATCHED
        return
    with pytest.raises(PatternError) as caught:
        longest_text(pattern)
    assert reason in str(caught.value)


HOSTILE = [
    "(" * 250,
    "(?:" * 80 + ")" * 80,
    "[" * 256,
    "a{64}" * 51,
    "(?:a{8}){64}",
    "(?:(?:(?:a?){8}b){8}c){8}",
    "(?:" * 8 + "a" + "){2}" * 8,
    "(?:" * 8 + "a+b" + "){1,2}" * 8,
    "a?" * 128,
    "(a|a?)+",
    "(?:a|b|ab)" * 25,
    "|" * 256,
    "\\" * 255,
    ".*" * 128,
    "(?:.?){64}",
    "(?:(?:x|y){1,16}z){1,16}",
]


@pytest.mark.parametrize("pattern", HOSTILE)
def test_hostile_patterns_are_refused_or_bounded_at_once(pattern: str) -> None:
    begin = time.perf_counter()
    quoted = pattern.replace("'", "''")
    with suppress(InvalidInputError):
        parse_expression(f"regexp_like(s, '{quoted}')", {"s": FieldType.STRING})
    assert time.perf_counter() - begin < 1.0


@pytest.mark.parametrize(
    ("pattern", "length"),
    [
        ("(&|^)channel_id=([^&]*)", MAX_MATCHED),
        (r"^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$", MAX_MATCHED),
        ("^https?://([^/]+)(/.*)?$", MAX_MATCHED),
        ("error|warning|fatal", MAX_MATCHED),
        ("^(?:[a-z]+[.]){1,8}com$", MAX_MATCHED),
        (r"user=(\w+) id=(\d+)", LEAST_MATCHED),
        ("a.*b", LEAST_MATCHED),
    ],
)
def test_ordinary_patterns_take_long_texts(pattern: str, length: int) -> None:
    assert longest_text(pattern) >= length


SLOW = ["a.*b", ".*foo", r"[\w.]+@[\w.]+\.com", "^.*a.*b", "(?:a|ab){1,9}c", "a?a?a?a?a?aaaaab"]


@pytest.mark.parametrize("pattern", SLOW)
def test_the_longest_text_takes_no_more_than_the_steps(pattern: str) -> None:
    """The test counts the steps of a matcher that backtracks as Java's and Python's do."""
    assert read_pattern(pattern)
    for part in ("a", "fo", "a@", "ab"):
        text = part * 60
        counted = _Matcher(text).search(read_pattern(pattern).node)
        assert counted <= steps_for(pattern, len(text))


def steps_for(pattern: str, length: int) -> int:
    return most_steps(read_pattern(pattern), length)


@given(PATTERNS, TEXTS)
def test_steps_are_an_upper_bound(pattern: str, text: str) -> None:
    try:
        read = read_pattern(pattern)
    except PatternError:
        return
    assert _Matcher(text).search(read.node) <= steps_for(pattern, len(text))


class _Matcher:
    """A matcher that backtracks, and counts the characters that it compares."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._steps = 0

    def search(self, node: Node) -> int:
        """Return the steps until the expression matches, or until no match is possible."""
        for begin in range(len(self._text) + 1):
            if self._match(node, begin, lambda _: True):
                break
        return self._steps

    def _match(self, node: Node, at: int, then: Callable[[int], bool]) -> bool:
        match node:
            case Chars(ranges=ranges):
                self._steps += 1
                fits = at < len(self._text) and any(
                    low <= ord(self._text[at]) <= high for low, high in ranges
                )
                return fits and then(at + 1)
            case Anchor(begins=begins):
                return at == (0 if begins else len(self._text)) and then(at)
            case Sequence(parts=parts):
                if not parts:
                    return then(at)
                rest = Sequence(parts[1:])
                return self._match(parts[0], at, lambda next_: self._match(rest, next_, then))
            case Branches(options=options):
                return any(self._match(option, at, then) for option in options)
            case Group(node=inner):
                return self._match(inner, at, then)
            case Repeat(node=inner, least=least, most=most, lazy=lazy):

                def turn(count: int, at: int) -> bool:
                    def more() -> bool:
                        if most is not None and count >= most:
                            return False
                        return self._match(inner, at, lambda next_: turn(count + 1, next_))

                    def out() -> bool:
                        return count >= least and then(at)

                    return out() or more() if lazy else more() or out()

                return turn(0, at)


@settings(max_examples=300)
@given(PATTERNS, st.lists(TEXTS, min_size=1, max_size=5))
def test_python_and_re2_agree(pattern: str, texts: list[str]) -> None:
    """RE2 reads the pattern as the user wrote it."""
    try:
        read = read_pattern(pattern)
    except PatternError:
        return
    compiled = re.compile(read.python)
    with duckdb.connect() as connection:
        for text in texts:
            found = compiled.search(text)
            (like,) = connection.execute("SELECT regexp_matches(?, ?)", [text, pattern]).fetchone()  # type: ignore[misc]
            assert like == (found is not None)
            if found is None:
                continue
            for group in range(read.groups + 1):
                (part,) = connection.execute(  # type: ignore[misc]
                    f"SELECT regexp_extract(?, ?, {group})", [text, pattern]
                ).fetchone()
                assert part == (found[group] or ""), (pattern, text, group)


def test_the_limits_of_steps_are_exact() -> None:
    for pattern in SLOW:
        longest = longest_text(pattern)
        assert steps_for(pattern, longest) <= MAX_STEPS
        assert longest == MAX_MATCHED or steps_for(pattern, longest + 1) > MAX_STEPS
