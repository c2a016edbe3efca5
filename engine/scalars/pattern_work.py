"""Limits the length of texts that a pattern may be matched with: no text may keep a backtracking
matcher busy.

`_Work` counts the steps of a backtracking matcher over a text of n characters in the worst case, as
the nodes of its search tree: where a quantifier or a branch can go several ways, all that follows
counts for each of them. It counts once where the characters tell which way is right: after
`[^&]*` comes `&`, so each wrong way ends at its first character. Nothing is counted after the part
that ends the pattern: its first way is a match.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from medusa.engine.scalars.pattern_nodes import (
    Anchor,
    Branches,
    Chars,
    Group,
    Node,
    Ranges,
    Repeat,
    Sequence,
    least_length,
    union,
)
from medusa.engine.scalars.patterns import Pattern, PatternError, read_pattern

MAX_STEPS: Final = 2**24
"""Steps of one match: some 0.1 s in Java, a second in Python."""

MAX_MATCHED: Final = 65_536
"""Code points of a text that a pattern is matched with; the result for longer ones is null."""

LEAST_MATCHED: Final = 1_000
"""A pattern that cannot be matched with so long a text within `MAX_STEPS` is refused."""

_MUCH: Final = 2**62


@lru_cache(maxsize=256)
def longest_text(text: str) -> int:
    """Code points of the longest text that the pattern may be matched with. Raises: PatternError:
    the pattern is not of the subset, or takes too many steps even with short texts.
    """
    pattern = read_pattern(text)
    least, most = 0, MAX_MATCHED
    while least < most:
        middle = (least + most + 1) // 2
        if most_steps(pattern, middle) <= MAX_STEPS:
            least = middle
        else:
            most = middle - 1
    if least < LEAST_MATCHED:
        raise PatternError(
            f"could take more than {MAX_STEPS:,} steps with a text of {LEAST_MATCHED:,} "
            "characters; begin it with ^, or let what follows a * or + begin with a character "
            "that the * or + does not take"
        )
    return least


def most_steps(pattern: Pattern, length: int) -> int:
    """Steps of the search for one match, in any text of `length` code points."""
    starts = 1 if _anchored(pattern.node) else length + 1
    from_one = _Work(length).of(pattern.node, 0, _Next(((0, 0x10FFFF),), ends=True))
    return starts * from_one + length


def _anchored(node: Node) -> bool:
    """Whether the node matches only at the text's beginning."""
    match node:
        case Anchor(begins=begins):
            return begins
        case Sequence(parts=parts):
            return bool(parts) and _anchored(parts[0])
        case Branches(options=options):
            return all(map(_anchored, options))
        case Group(node=inner):
            return _anchored(inner)
        case _:
            return False


class _Next(NamedTuple):
    """The possible continuations: a character of `ranges`, or (`ends`) the end of the pattern."""

    ranges: Ranges
    ends: bool


def _first(node: Node, then: _Next) -> _Next:
    """Return the possible first characters of `node` and of the nodes after it."""
    match node:
        case Chars(ranges=ranges):
            return _Next(ranges, ends=False)
        case Anchor(begins=begins):
            return then if begins else _Next((), ends=False)
        case Sequence(parts=parts):
            for part in reversed(parts):
                then = _first(part, then)
            return then
        case Branches(options=options):
            each = [_first(option, then) for option in options]
            return _Next(union(*(n.ranges for n in each)), any(n.ends for n in each))
        case Group(node=inner):
            return _first(inner, then)
        case Repeat(node=inner, least=least):
            once = _first(inner, then)
            if least:
                return once
            return _Next(union(once.ranges, then.ranges), once.ends or then.ends)


def _apart(*sets: Ranges) -> bool:
    """Whether no character is in two of the sets."""
    ranges = sorted(each for ranges in sets for each in ranges)
    return all(one[1] < other[0] for one, other in pairwise(ranges))


class _Work:
    """Counts the steps of a match over a text of `length` characters."""

    def __init__(self, length: int) -> None:
        self._length = length

    def of(self, node: Node, rest: int, then: _Next) -> int:
        """The number of steps from `node` on. rest: the steps after it. then: the possible
        continuations after it."""
        match node:
            case Chars() | Anchor():
                steps = 1 + rest
            case Sequence(parts=parts):
                for part in reversed(parts):
                    rest = self.of(part, rest, then)
                    then = _first(part, then)
                steps = rest
            case Branches(options=options):
                steps = self._branches(options, rest, then)
            case Group(node=inner):
                steps = self.of(inner, rest, then)
            case Repeat(node=Chars(ranges=ranges), least=least, most=most):
                steps = self._characters(ranges, (least, most), rest, then)
            case Repeat():
                steps = self._turns(node, rest, then)
        return min(steps, _MUCH)

    def _branches(self, options: tuple[Node, ...], rest: int, then: _Next) -> int:
        steps = [self.of(option, rest, then) for option in options]
        firsts = [_first(option, then).ranges for option in options]
        told = all(map(least_length, options)) and _apart(*firsts)
        return len(options) + (max(steps) if told else sum(steps))

    def _characters(
        self, ranges: Ranges, turns: tuple[int, int | None], rest: int, then: _Next
    ) -> int:
        least, most = turns
        longest = min(self._length, self._length if most is None else most)
        if least == most:
            return least + rest
        if rest == 0:
            return least + 1
        if then.ends or _apart(ranges, then.ranges):
            return 2 * (longest + 1) + rest
        return longest + 1 + (max(longest - least, 0) + 1) * rest

    def _turns(self, node: Repeat, rest: int, then: _Next) -> int:
        most = node.least if node.most is None else node.most
        body = _first(node.node, then).ranges
        either = _Next(union(body, then.ranges), then.ends)
        told = _apart(body, then.ranges) and not then.ends
        steps = rest
        for turn in range(most, 0, -1):
            after = then if turn == most else either
            if turn < node.least:
                after = _Next(body, ends=False)
            on = self.of(node.node, steps, after)
            if turn > node.least:
                on = 1 + (max(on, rest) if told else on + rest)
            steps = min(on, _MUCH)
        return steps
