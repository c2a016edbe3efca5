"""Expressions over the pairs of a join, with other names for its sides and their fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import Token, TokenType

from medusa.engine.language.expression_tokens import tokens_of
from medusa.engine.language.sql.expressions import name_text

Sides = Mapping[str, tuple[str, Mapping[str, str]]]
"""By the name of a side, its new name, and the new names of its fields; the others stay."""


def renamed(text: str, sides: Sides) -> str:
    """The expression with these names; nothing else of it changes.

    Raises:
        InvalidInputError: it is no expression.
    """
    tokens = tokens_of(text, None)[1:-1]
    parts, end = [], 0
    for index, token in enumerate(tokens):
        side, field, last = _field(tokens, index)
        if token.start - 1 < end or side not in sides:
            continue
        turned, names = sides[side]
        parts += [text[end : token.start - 1], f"{turned}.{name_text(names.get(field, field))}"]
        end = last.end  # one more than in the text
    return "".join([*parts, text[end:]])


def _field(tokens: Sequence[Token], index: int) -> tuple[str, str, Token]:
    """The side and the field that a token begins, and its last token; "": it begins none."""
    token = tokens[index]
    if token.token_type is not TokenType.IDENTIFIER:
        return "", "", token
    if len(tokens) > index + 2 and tokens[index + 1].text == ".":
        return token.text, tokens[index + 2].text, tokens[index + 2]
    side, dot, field = token.text.partition(".")
    return (side, field, token) if dot else ("", "", token)
