"""A text that is parsed: the errors that point into it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection

from sqlglot import exp

from medusa.engine.expressions.words import own_words, position_of
from medusa.overlay.errors import InvalidInputError


class Text(ABC):
    """A text that a person wrote; makes the errors that show its mistakes.

    Attributes:
        functions: the names of users' functions that it may call, in small letters; None: any.
    """

    def __init__(self, text: str, functions: Collection[str] | None = None) -> None:
        self.text = text
        self.functions = functions

    @abstractmethod
    def error(self, reason: str, position: int) -> InvalidInputError:
        """The error for a mistake. position: the number of the character, from 0."""

    def refusal(self, reason: str, at: exp.Expr | int) -> InvalidInputError:
        """The error that points at a node, or at a position."""
        return self.error(reason, at if isinstance(at, int) else position_of(at))

    def note(self, node: exp.Expr, printed: str) -> None:  # noqa: B027 - most texts need no notes
        """Note the text as which a node is printed, so that an error in this text is shown at the
        place of the node."""

    def no_part(self, node: exp.Expr, mend: str = "") -> InvalidInputError:
        """The error for a node that the language does not have; it quotes the text."""
        words, at = own_words(self.text, node)
        return self.refusal(f"`{words}` is not part of the language here{mend}", at)


class ExpressionError(InvalidInputError, code=None):
    """An expression is refused.

    Attributes:
        text: the text of the expression. reason: the message without the text. position: the number
            of a character, from 0.
    """

    def __init__(self, text: str, reason: str, position: int) -> None:
        self.text, self.reason = text, reason
        self.position = min(max(position, 0), max(len(text) - 1, 0))
        shown = text if len(text) <= 80 else text[:77] + "..."
        super().__init__(f"expression {shown!a}: {reason}, at character {self.position + 1}")


class ExpressionText(Text):
    """The text of one expression."""

    def error(self, reason: str, position: int) -> ExpressionError:
        return ExpressionError(self.text, reason, position)
