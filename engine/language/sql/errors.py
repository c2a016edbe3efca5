"""Errors of SQL texts: each names the line and the column, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlglot import exp

from medusa.engine.expressions.texts import ExpressionError, Text
from medusa.engine.expressions.unsaid import Unsaid
from medusa.engine.expressions.words import position_of
from medusa.overlay.errors import InvalidInputError


class PointedError(InvalidInputError, code=None):
    """An error that names its place in the text."""


class Source(Text):
    """The text of a script. It makes the errors that point at a place in the text.

    Attributes:
        unsaid: the default bounds that hold because the script names none.
        declared: the names of the functions that the script declares, in small letters.
    """

    def __init__(self, text: str) -> None:
        self.declared: set[str] = set()
        super().__init__(text, self.declared)
        self.unsaid = Unsaid()
        self._printed: dict[str, list[int]] = {}
        self._fields: dict[str, int] = {}

    def note(self, node: exp.Expr, printed: str) -> None:
        """See `Text.note`."""
        self._printed.setdefault(printed, []).append(position_of(node))

    def makes(self, node: exp.Expr, field: str) -> None:
        """Note that a call of an aggregate function makes a field of a box."""
        self._fields[field] = position_of(node)

    def error(self, reason: str, position: int) -> PointedError:
        """The error for a mistake; its text names the line and the column."""
        place = min(max(position, 0), len(self.text))
        line = self.text.count("\n", 0, place) + 1
        column = place - self.text.rfind("\n", 0, place)
        return PointedError(f"{reason}, at line {line}, column {column}")

    @contextmanager
    def pointing(self, at: exp.Expr | int) -> Iterator[None]:
        """Add the place to an InvalidInputError of the block that does not name one yet."""
        try:
            yield
        except PointedError:
            raise
        except InvalidInputError as error:
            place = at if isinstance(at, int) else position_of(at)
            raise self._translated(error, place) from None

    def _translated(self, error: InvalidInputError, place: int) -> InvalidInputError:
        """Translate the error of a box or an expression that was made of a part of the text. The
        new error points at that part (by default at `place`), and has no words that the text does
        not have."""
        cause = _expression_error(error)
        if cause is not None:
            return self.refusal(cause.reason, self._place_of(cause, place))
        reason = str(error)
        field = _FIELD.match(reason)
        at = self._fields.get(field["name"], place) if field else place
        return self.refusal(_BOX.sub("", reason), at)

    def _place_of(self, error: ExpressionError, place: int) -> int:
        """Return where the part of an expression is in the text that an error points at."""
        rest = error.text[error.position :]
        printed = max(
            (each for each in self._printed if rest.startswith(each)), key=len, default=""
        )
        places = self._printed.get(printed, [])
        behind = [each for each in places if each >= place]
        if places:
            return min(behind, default=places[0])
        word = _word_at(error.text, error.position)
        at = self.text.lower().find(word.lower(), place) if word else -1
        return place if at < 0 else at


def _expression_error(error: BaseException | None) -> ExpressionError | None:
    """The error of an expression that caused this error."""
    while error is not None and not isinstance(error, ExpressionError):
        error = error.__context__
    return error


_FIELD: Final = re.compile(r"^(box '[^']*': )?output field '(?P<name>[^']*)': ")

_BOX: Final = re.compile(
    r"^(box '[^']*': )?((expression \d+|predicate|output field '\w*'|condition of \w+): )?"
)


def _word_at(text: str, place: int) -> str:
    """The word or sign at this place of the expression."""
    found = re.compile(r"\w+|'(?:[^']|'')*'|[^\w\s]+").match(text, place)
    return found.group() if found else ""
