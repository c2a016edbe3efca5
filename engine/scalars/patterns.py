"""Regular expressions: reads and rewrites the subset on which Java, Python and RE2 agree.

    pattern   branch | branch | ...
    branch    pieces, each an atom with at most one quantifier, or an anchor
    atom      a character, . (all but a line feed), a set [a-z_] or [^...], \\d \\w \\s \\D \\W \\S
              (ASCII), \\t \\n \\r \\f, a backslash before a sign, (pattern), (?:pattern)
    anchor    ^ and $, the ends of the whole text
    quantifier  ? * + {n} {n,} {n,m}, each also with a ? after it: as few as possible

The first match from the left counts, and of a branch or a quantifier the first that leads to one,
as in Perl. A group takes no `*`, `+` or `{n,}`: Java recurses for each turn, and a long text ends
the JVM. A group that can match nothing takes no quantifier, and no group that captures but `?`:
engines differ in what it holds.

The engines do not read the user's text: `Pattern.java` and `Pattern.python` are written from the
tree. So a sign with a special meaning in one engine has no such meaning here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from medusa.engine.scalars.pattern_nodes import (
    Anchor,
    Branches,
    Chars,
    Group,
    Node,
    Ranges,
    Repeat,
    Sequence,
    captures,
    complement,
    least_length,
    union,
    written,
    written_out,
)

MAX_PATTERN: Final = 256
"""Characters of a pattern: a line."""

MAX_NESTED: Final = 8
"""Groups within each other: Java's matcher recurses through them."""

MAX_TURNS: Final = 64
"""The greatest n and m of {n,m}."""

MAX_WRITTEN_OUT: Final = 512
"""Atoms of a pattern, each counted as often as quantifiers repeat it: bounds the automaton that
engines build."""

MAX_GROUPS: Final = 9
"""Groups of a pattern: `$1` to `$9` of a replacement name them."""


class PatternError(ValueError):
    """The pattern is not of the subset; the message has the reason and the character."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern that was read. Attributes: groups: the number of groups that capture. least:
    characters of the shortest match. java: its text for Java and RE2. python: its text for Python's
    `re`.
    """

    node: Node
    groups: int
    least: int
    java: str
    python: str


@lru_cache(maxsize=256)
def read_pattern(text: str) -> Pattern:
    """Read a pattern.

    Raises: PatternError: the pattern is not of the subset.
    """
    if len(text) > MAX_PATTERN:
        raise PatternError(f"has {len(text)} characters, at most {MAX_PATTERN} allowed")
    reader = _Reader(text)
    node = reader.whole()
    if written_out(node) > MAX_WRITTEN_OUT:
        raise PatternError(
            f"has more than {MAX_WRITTEN_OUT} characters and sets with all that is repeated"
        )
    java = written(node, lambda code: f"\\x{{{code:x}}}", r"\z")
    python = written(node, lambda code: f"\\U{code:08x}", r"\Z")
    return Pattern(node, reader.groups, least_length(node), java, python)


def _only(characters: str) -> Ranges:
    return union(tuple((ord(each), ord(each)) for each in characters))


_DIGITS: Final[Ranges] = ((48, 57),)
_WORD: Final = union(_DIGITS, ((65, 90), (97, 122)), _only("_"))
_SPACE: Final = _only(" \t\n\x0b\f\r")

_SETS: Final[dict[str, Ranges]] = {
    "d": _DIGITS,
    "w": _WORD,
    "s": _SPACE,
    "D": complement(_DIGITS),
    "W": complement(_WORD),
    "S": complement(_SPACE),
    "t": _only("\t"),
    "n": _only("\n"),
    "r": _only("\r"),
    "f": _only("\f"),
}

_DOT: Final = complement(_only("\n"))

_QUANTIFIERS: Final[dict[str, tuple[int, int | None]]] = {
    "?": (0, 1),
    "*": (0, None),
    "+": (1, None),
}


class _Reader:
    """Recursive descent over a pattern's text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._nested = 0
        self.groups = 0

    def whole(self) -> Node:
        node = self._branches()
        if self._at < len(self._text):
            raise self._error("a ) that nothing opens")
        return node

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        character = self._peek()
        if not character:
            raise self._error("it ends too early")
        self._at += 1
        return character

    def _error(self, reason: str, at: int | None = None) -> PatternError:
        place = self._at if at is None else at
        return PatternError(f"has at its character {place + 1}: {reason}")

    def _branches(self) -> Node:
        options = [self._branch()]
        while self._peek() == "|":
            self._at += 1
            options.append(self._branch())
        return options[0] if len(options) == 1 else Branches(tuple(options))

    def _branch(self) -> Node:
        parts: list[Node] = []
        while self._peek() not in {"", "|", ")"}:
            begin = self._at
            parts.append(self._quantified(self._atom(), begin))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _atom(self) -> Node:
        begin = self._at
        character = self._take()
        if character in "^$":
            return Anchor(character == "^")
        if character == ".":
            return Chars(_DOT)
        if character == "(":
            return self._group()
        if character == "[":
            return Chars(self._set())
        if character == "\\":
            return Chars(self._escape())
        if character in "*+?":
            raise self._error(f"nothing that {character!r} could repeat", begin)
        if character in "{}]":
            raise self._error(f"a backslash must precede {character!r} here", begin)
        return Chars(_only(character))

    def _group(self) -> Group:
        begin = self._at - 1
        self._nested += 1
        if self._nested > MAX_NESTED:
            raise self._error(f"groups nested deeper than {MAX_NESTED}", begin)
        number = None
        if self._peek() == "?":
            self._at += 1
            if self._peek() != ":":
                reason = "of the groups that begin with (? there is (?:...) alone"
                raise self._error(f"{reason}: no lookaround, names or flags", begin)
            self._at += 1
        else:
            self.groups += 1
            number = self.groups
            if number > MAX_GROUPS:
                raise self._error(f"more than {MAX_GROUPS} groups; (?:...) does not count", begin)
        node = self._branches()
        if self._peek() != ")":
            raise self._error("a group that does not end", begin)
        self._at += 1
        self._nested -= 1
        return Group(node, number)

    def _escape(self) -> Ranges:
        begin = self._at - 1
        character = self._take()
        if character in _SETS:
            return _SETS[character]
        if character.isdigit():
            raise self._error("a reference to a group; there is none here", begin)
        if character.isascii() and not character.isalnum() and character.isprintable():
            return _only(character)
        raise self._error(f"\\{character} is not part of the language", begin)

    def _set(self) -> Ranges:
        begin = self._at - 1
        negative = self._peek() == "^"
        self._at += negative
        found: list[Ranges] = []
        while self._peek() != "]":
            if not self._peek():
                raise self._error("a set that does not end", begin)
            found.append(self._member())
        if not found:
            raise self._error("an empty set; write \\] for the sign itself", begin)
        self._at += 1
        ranges = union(*found)
        ranges = complement(ranges) if negative else ranges
        if not ranges:
            raise self._error("a set of no character", begin)
        return ranges

    def _member(self) -> Ranges:
        begin = self._at
        first = self._one()
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in {"]", ""}:
            return first
        self._at += 1
        last = self._one()
        low, high = first[0][0], last[-1][1]
        if first != ((low, low),) or last != ((high, high),):
            raise self._error("a range from or to a set", begin)
        if high < low:
            raise self._error("a range whose end is before its beginning", begin)
        return ((low, high),)

    def _one(self) -> Ranges:
        begin = self._at
        character = self._take()
        if character == "\\":
            return self._escape()
        if character == "[" or self._text.startswith("&&", begin):
            raise self._error(f"a backslash must precede {character!r} in a set", begin)
        return _only(character)

    def _quantified(self, node: Node, begin: int) -> Node:
        at = self._at
        sign = self._peek()
        if sign in _QUANTIFIERS:
            self._at += 1
            least, most = _QUANTIFIERS[sign]
        elif sign == "{":
            self._at += 1
            least, most = self._bounds(at)
        else:
            return node
        lazy = self._peek() == "?"
        self._at += lazy
        if self._peek() in {"*", "+", "?", "{"}:
            raise self._error("a quantifier after a quantifier")
        self._check_repeated(node, (least, most), begin, at)
        return Repeat(node, least, most, lazy)

    def _bounds(self, begin: int) -> tuple[int, int | None]:
        end = self._text.find("}", begin)
        least, comma, most = self._text[begin + 1 : max(end, begin + 1)].partition(",")
        self._at = end + 1
        numbers = [each for each in (least, most) if each]
        if end < 0 or not least or not all(n.isascii() and n.isdigit() for n in numbers):
            raise self._error("a { that is none of {n}, {n,} and {n,m}", begin)
        if any(len(each) > 3 or int(each) > MAX_TURNS for each in numbers):
            raise self._error(f"more than {MAX_TURNS} turns", begin)
        low = int(least)
        high = int(most) if most else None if comma else low
        if high is not None and (high < low or high == 0):
            raise self._error("a quantifier that allows no turn", begin)
        return low, high

    def _check_repeated(
        self, node: Node, turns: tuple[int, int | None], begin: int, at: int
    ) -> None:
        if isinstance(node, Anchor):
            raise self._error("an anchor that is repeated", begin)
        if not isinstance(node, Group):
            return
        if turns[1] is None:
            reason = f"a group that is repeated without end; write {{n,m}}, at most {MAX_TURNS}"
            raise self._error(reason, at)
        if least_length(node) == 0:
            raise self._error("a quantifier of a group that can match nothing", at)
        if turns != (0, 1) and captures(node):
            raise self._error("a repeated group that captures; write (?:...)", begin)
