"""Scripts, parsed: a text within its limits, cut into statements, as sqlglot's trees."""

from __future__ import annotations

from typing import Final

from sqlglot import Token, TokenType, exp

from medusa.engine.expressions.parsing import parsed, tokens_of
from medusa.engine.language.sql.dialect import EXPLAIN, Definition, Medusa, MedusaParser
from medusa.engine.language.sql.errors import Source
from medusa.engine.language.sql.parts import REASONS

MAX_TEXT: Final = 65_536
"""Characters of a script: hundreds of statements."""

MAX_TOKENS: Final = 16_384
"""Words and signs of a script: sqlglot parses that many in half a second."""


def parse(source: Source) -> tuple[list[exp.Expr], bool]:
    """The statements of a script, and whether EXPLAIN stands before them.

    Raises:
        InvalidInputError: the script has a syntax error, or exceeds a limit; the error points at
            the place.
    """
    if len(source.text) > MAX_TEXT:
        reason = f"it has {len(source.text):,} characters, at most {MAX_TEXT:,} allowed"
        raise source.refusal(reason, MAX_TEXT)
    made: list[exp.Expr] = []
    query: Definition | None = None
    words = tokens_of(source, _DIALECT, MAX_TOKENS)
    _check_selects(source, words)
    explain = bool(words) and words[0].text.upper() == EXPLAIN
    for statement in _statements(words[explain:]):
        tokens = statement
        if query is None and (head := _head_of_query(tokens)):
            query = _definition_of(source, tokens[:head])
            made.append(query)
            tokens = statement[head + 1 :]
        if query is None:
            made.append(_parsed(source, tokens))
        elif [token.token_type for token in tokens] == [TokenType.END]:
            query = None
        elif tokens:
            query.append("body", _definition_of(source, tokens))
    if query is not None:
        raise source.refusal("BEGIN has no END", query)
    return made, explain


def _statements(tokens: list[Token]) -> list[list[Token]]:
    """The tokens of each statement."""
    found: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            found.append([])
        else:
            found[-1].append(token)
    return [each for each in found if each]


def _head_of_query(tokens: list[Token]) -> int:
    """The number of tokens before BEGIN, if they begin a query of several streams; else 0."""
    if [token.text.upper() for token in tokens[:2]] != ["CREATE", "QUERY"]:
        return 0
    words = (n for n, token in enumerate(tokens) if token.text.upper() == "BEGIN")
    return next(words, 0)


def _definition_of(source: Source, tokens: list[Token]) -> Definition:
    tree = _parsed(source, tokens)
    if not isinstance(tree, Definition):
        reason = "between BEGIN and END are CREATE STREAM statements"
        raise source.refusal(reason, tokens[0].start)
    return tree


def _parsed(source: Source, tokens: list[Token]) -> exp.Expr:
    parser = MedusaParser(dialect=_DIALECT)
    return parsed(source, tokens, lambda: parser.parse(tokens, source.text))


_DIALECT: Final = Medusa()


def _check_selects(source: Source, tokens: list[Token]) -> None:
    """Refuse words of other languages behind SELECT, which sqlglot reads as names or drops."""
    for select, word, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if select.token_type is not TokenType.SELECT:
            continue
        if word.token_type is TokenType.ALIAS:
            said = f"SELECT AS {after.text[:40].upper()}"
            reason = f"`{said}` is not part of the language: name the columns, SELECT a, b"
            raise source.refusal(reason, select.start)
        counted = after.token_type in {TokenType.NUMBER, TokenType.L_PAREN}
        if word.text.upper() == "TOP" and word.token_type is not TokenType.IDENTIFIER and counted:
            reason = f"`TOP` is not part of the language: {REASONS['limit']}"
            raise source.refusal(reason, word.start)
