"""Errors of SQL texts: each names the line and the column, and what is meant instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlglot import exp

from engine.language.unsaid import Unsaid
from overlay.errors import InvalidInputError


class PointedError(InvalidInputError, code=None):
    """An error that names its place in the text."""


def refusal(text: str, reason: str, position: int) -> PointedError:
    """The error of a refused SQL text.

    Args:
        reason: with what to write instead, if there is such a thing.
        position: of a character in `text`, from 0.
    """
    place = min(max(position, 0), len(text))
    line, column = text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)
    return PointedError(f"{reason}, at line {line}, column {column}")


def position_of(node: exp.Expr) -> int:
    """Where a node begins: the first character of its parts that know theirs; 0 if none does."""
    return min((each.meta["start"] for each in node.walk() if "start" in each.meta), default=0)


def span_of(node: exp.Expr) -> tuple[int, int] | None:
    """Where a node begins and ends, as far as its parts know; None: none does."""
    known = [each.meta for each in node.walk() if "start" in each.meta]
    if not known:
        return None
    return min(each["start"] for each in known), max(each["end"] for each in known) + 1


class Source:
    """The text of a script: makes the errors that point into it.

    Attributes:
        unsaid: the bounds that hold because the script names none.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.unsaid = Unsaid()

    def refusal(self, reason: str, at: exp.Expr | int) -> PointedError:
        """The error that points at a node, or at a position."""
        return refusal(self.text, reason, at if isinstance(at, int) else position_of(at))

    @contextmanager
    def pointing(self, at: exp.Expr | int) -> Iterator[None]:
        """Add the place to an InvalidInputError of the block that does not name one yet."""
        try:
            yield
        except PointedError:
            raise
        except InvalidInputError as error:
            place = at if isinstance(at, int) else position_of(at)
            raise self._translated(str(error), place) from None

    def _translated(self, reason: str, place: int) -> PointedError:
        """The error of a box or an expression that was made of a part of the text: without the
        words that the text does not have, and at the word that it is about."""
        reason = _BOX.sub("", reason)
        found = _EXPRESSION.fullmatch(reason)
        if found is None:
            return self.refusal(reason, place)
        word = _word_at(ast.literal_eval(found["text"]), int(found["place"]) - 1)
        lower = self.text.lower()
        at = lower.find(word.lower(), place) if word else -1
        return self.refusal(found["reason"], place if at < 0 else at)


_BOX: Final = re.compile(
    r"^(box '[^']*': )?((expression \d+|predicate|output field '\w*'|condition of \w+): )?"
)

_EXPRESSION: Final = re.compile(
    r"""expression (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"): (?P<reason>.*), """
    r"at character (?P<place>\d+)",
    re.DOTALL,
)


def _word_at(text: str, place: int) -> str:
    """The word or sign at a place of an expression."""
    found = re.compile(r"\w+|'(?:[^']|'')*'|[^\w\s]+").match(text, place)
    return found.group() if found else ""
