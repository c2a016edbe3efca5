"""The grammar of calls: functions stay as they are written, but for those forms of SQL that have
words between their operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from sqlglot import Token, TokenType, exp
from sqlglot.parsers.spark import SparkParser

from medusa.engine.expressions.type_grammar import TypeParser

BLANK: Final = " "
"""The character that trim, ltrim and rtrim remove."""

TRIMS: Final = {"both": "trim", "leading": "ltrim", "trailing": "rtrim"}
"""The functions that remove blanks, by the keyword for the side."""

ONLY_BLANKS: Final = (
    "trim takes blanks off: trim(both ' ' from s); for other signs say "
    "regexp_replace(s, '^x+|x+$', '')"
)

_EXTRACT: Final = "extract takes a unit and a timestamp: extract(hour FROM t)"

_TIMESTAMPDIFF: Final = (
    "timestampdiff takes a unit and two timestamps: timestampdiff(hour, earlier, later)"
)

_POSITION: Final = "position takes two texts: position('b' IN s)"

_SUBSTRING: Final = (
    "substring takes a text and places: substring(s FROM 2 FOR 3), or substring(s, 2, 3); of a "
    "pattern say regexp_extract(s, 'pattern', 0)"
)

_SIDES: Final = tuple(each.upper() for each in TRIMS)

_AFTER_SIDE: Final = frozenset(
    {TokenType.FROM, TokenType.STRING, TokenType.VAR, TokenType.IDENTIFIER}
)
"""Tokens that may follow the keyword for a side; none of them can follow a field of that name."""

_NULLS: Final = {
    "IGNORE": "leave the nulls out by WHERE",
    "RESPECT": "leave it out, as firstval and lastval keep the nulls",
}
"""How to mend a word before NULLS."""


class CallParser(TypeParser):
    """Parses calls of functions."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {}
    FUNCTION_PARSERS: ClassVar = {
        **{name: SparkParser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST")},
        "EXTRACT": lambda self: self._extract(),
        "POSITION": lambda self: self._position(),
        "SUBSTRING": lambda self: self._substring(),
        "TIMESTAMPDIFF": lambda self: self._timestampdiff(),
        "TRIM": lambda self: self._trim(),
    }
    NO_PAREN_FUNCTIONS: ClassVar[dict[TokenType, type[exp.Expr]]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}

    def _extract(self) -> exp.Expr:
        """Parse `unit FROM time`, or the same with a comma."""
        start = self._tokens[self._index - 2]
        unit = self._unit()
        if not (self._match_text_seq("FROM") or self._match(TokenType.COMMA)):
            self._refuse(_EXTRACT)
        return self._called(start, [unit, self._parse_bitwise()], _EXTRACT)

    def _timestampdiff(self) -> exp.Expr:
        """Parse `unit, time, time`."""
        start = self._tokens[self._index - 2]
        return self._called(start, [self._unit(), *self._further()], _TIMESTAMPDIFF)

    def _unit(self) -> exp.Expr | None:
        """A unit of time, a word or a text, as a text."""
        token = self._curr
        if token.token_type is TokenType.STRING:
            return self._parse_string()
        word = self._parse_var(any_token=True)
        return (
            None if word is None else self.expression(exp.Literal.string(word.name.lower()), token)
        )

    def _position(self) -> exp.Expr:
        """Parse `part IN text` or `part, text`, within the parentheses of POSITION."""
        start = self._tokens[self._index - 2]
        part = self._parse_bitwise()
        if not self._match_set((TokenType.IN, TokenType.COMMA)):
            self._refuse(_POSITION)
        return self._called(start, [part, self._parse_bitwise()], _POSITION)

    def _substring(self) -> exp.Expr:
        """Parse `text FROM start [FOR length]`, `text FOR length` or operands with commas."""
        start = self._tokens[self._index - 2]
        operands = [self._parse_disjunction()]
        by_words = self._match_text_seq("FROM")
        if by_words:
            operands.append(self._parse_disjunction())
        if self._match_text_seq("FOR"):
            operands += [] if by_words else [exp.Literal.number(1)]
            operands.append(self._parse_disjunction())
        elif not by_words:
            operands += self._further()
        if self._curr and self._curr.token_type is not TokenType.R_PAREN:
            self._refuse(_SUBSTRING)
        return self._called(start, operands, _SUBSTRING)

    def _trim(self) -> exp.Expr:
        """Parse `[BOTH | LEADING | TRAILING] [' '] FROM text`, or operands with commas."""
        start, word, side = self._tokens[self._index - 2], self._curr, ""
        if word.token_type is not TokenType.IDENTIFIER and self._next.token_type in _AFTER_SIDE:
            side = word.text.lower() if self._match_texts(_SIDES) else ""
        signs = None if self._is_from() else self._parse_disjunction()
        if not self._match_text_seq("FROM"):
            if side:
                self._refuse(ONLY_BLANKS, word)
            return self._called(start, [signs, *self._further()], ONLY_BLANKS)
        if signs is not None and signs != exp.Literal.string(BLANK):
            self._refuse(ONLY_BLANKS, word)
        return self._called(start, [self._parse_disjunction()], ONLY_BLANKS, TRIMS.get(side, ""))

    def _is_from(self) -> bool:
        """Whether the word FROM is here, and not a field of that name."""
        named = self._curr.token_type is TokenType.IDENTIFIER
        closed = self._next.token_type is TokenType.R_PAREN
        return self._curr.text.upper() == "FROM" and not (named or closed)

    def _further(self) -> list[exp.Expr | None]:
        """The operands behind commas."""
        found = []
        while self._match(TokenType.COMMA):
            found.append(self._parse_disjunction())
        return found

    def _called(
        self, start: Token, operands: list[exp.Expr | None], takes: str, name: str = ""
    ) -> exp.Expr:
        """The call of a function. Its name is the token `start`, unless `name` is given.

        Args:
            takes: the reason of the refusal if an operand is missing.
        """
        if None in operands:
            self._refuse(takes)
        call = exp.Anonymous(this=name or start.text.lower(), expressions=operands)
        return self.expression(call, start)

    def _parse_respect_or_ignore_nulls(self, this: exp.Expr | None) -> exp.Expr | None:
        """Refuse RESPECT NULLS and IGNORE NULLS, in a call and behind it."""
        start = self._curr
        for word, mend in _NULLS.items():
            if self._match_text_seq(word, "NULLS"):
                self._refuse(f"`{word} NULLS` is not part of the language here: {mend}", start)
        return this
