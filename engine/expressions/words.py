"""Finds the place of each part of a parsed text, and the words in which it was written.

sqlglot names its nodes in its own words (`IntDiv`) and knows the places of names and constants
only. So its parser notes the first and the last word of each node here, and a refusal shows what a
person wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

import sqlglot
from sqlglot import Token, exp
from sqlglot.parser import Parser

E = TypeVar("E", bound=exp.Expr)

OURS: Final = "medusa: "
"""The prefix of a reason that our parsers pass through sqlglot's errors."""

MAX_SHOWN: Final = 60
"""Characters of a part of the text in an error, which points at the place as well."""

_FIRST: Final = "first"
_LAST: Final = "last"
"""The key, in a node's `meta`, of the end of its last word; sqlglot's own keys are `start` and
`end`."""

_AROUND: Final = frozenset("()[]{},")


class NotingParser(Parser):
    """Notes where each node begins and ends.

    It takes one more Python frame a level: a text that is nested as deeply as allowed uses most of
    the frames."""

    def expression(self, instance: E, *args: Any, **named: Any) -> E:  # noqa: ANN401 - sqlglot's
        """Make a node, and note where its last word ends."""
        made: E = super().expression(instance, *args, **named)
        if self._prev:
            made.meta.setdefault(_LAST, self._prev.end)
        return made

    def _parse_unary(self) -> exp.Expr | None:
        """Parse an operand, and note its first and its last word."""
        first = self._curr
        made = super()._parse_unary()
        if made is not None and first:
            made.meta.setdefault(_FIRST, first.start)
            made.meta[_LAST] = max(made.meta.get(_LAST, 0), self._prev.end)
        return made


def position_of(node: exp.Expr) -> int:
    """Return where a node begins: the first known place among its parts, or else a place in the
    part around it; 0 if none is known."""
    place = min(_places(node, ("start", _FIRST)), default=None)
    around = node.parent
    while place is None and around is not None:
        place = next(_places(around, ("start", _FIRST)), None)
        around = around.parent
    return place or 0


def _places(node: exp.Expr, keys: Sequence[str]) -> Iterator[int]:
    return (each.meta[key] for each in node.walk() for key in keys if key in each.meta)


def span_of(node: exp.Expr) -> tuple[int, int] | None:
    """Return where a node begins and ends, as far as its parts have positions; None: no part has
    one."""
    begin = min(_places(node, ("start", _FIRST)), default=None)
    ends = max(_places(node, ("end", _LAST)), default=None)
    return None if begin is None or ends is None else (begin, ends + 1)


def own_words(text: str, node: exp.Expr) -> tuple[str, int]:
    """The words of a node that belong to none of its parts, as written, and where they begin: `DIV`
    of `a DIV b`; all words of a node that has only parentheses and commas of its own."""
    begin, end = span_of(node) or (0, 0)
    written = text[begin:end]
    parts = [range(*span) for each in node.iter_expressions() if (span := span_of(each))]
    own: list[Token] = []
    for token in sqlglot.tokenize(written, read="spark"):
        at = begin + token.start
        if token.text not in _AROUND and not any(at in part for part in parts):
            own.append(token)
        elif own:
            break
    if not own:
        return _shown(written), begin
    return _shown(written[own[0].start : own[-1].end + 1]), begin + own[0].start


def _shown(written: str) -> str:
    plain = " ".join(written.split())
    return plain if len(plain) <= MAX_SHOWN else plain[: MAX_SHOWN - 3] + "..."
