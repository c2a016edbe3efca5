"""The dialect of expressions: sqlglot's grammar of Spark without its functions, and with no words
but ours, so that a field may be called `select`.

Functions stay as they are written: sqlglot would give many of them other names and arguments.
`medusa.engine.language.sql.dialect` adds the clauses of scripts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final, TypeVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark

from medusa.engine.expressions.call_grammar import CallParser
from medusa.engine.expressions.type_grammar import TYPES

T = TypeVar("T")

KEYWORDS: Final = frozenset(
    {"and", "or", "not", "is", "null", "true", "false", "in", "like", "rlike", "between"}
    | {"case", "when", "then", "else", "end", "as"}
)
"""Words that name no field unless they are quoted."""

_WORDS: Final = KEYWORDS | {"interval", "escape"}
"""Words that always have a meaning, besides the names of types; other words have one in some places
only."""


class ExpressionParser(CallParser):
    """Parses expressions."""

    EXPRESSION_PARSERS: ClassVar = {exp.Condition: lambda self: self._parse_disjunction()}

    def _parse_csv(
        self, parse_method: Callable[[], T | None], sep: TokenType = TokenType.COMMA
    ) -> list[T]:
        """Parse a list. sqlglot accepts a list that begins or ends with a comma."""
        if self._curr and self._curr.token_type is sep:
            self._refuse("something is missing before the comma")
        made: list[T] = super()._parse_csv(parse_method, sep)
        if self._prev and self._prev.token_type is sep:
            self._refuse("something is missing after the comma", self._prev)
        return made

    def _advance_any(self, ignore_reserved: bool = False) -> Token | None:
        """Take any word; refuse a string, which sqlglot accepts as a name."""
        self._refuse_text()
        return super()._advance_any(ignore_reserved)

    def _parse_string_as_identifier(self) -> exp.Identifier | None:
        self._refuse_text()
        return None

    def _refuse_text(self) -> None:
        if self._curr and self._curr.token_type is TokenType.STRING:
            self._refuse(text_is_no_name(self._curr))

    def _parse_interval(
        self, require_interval: bool = True, parse_function_unit: bool = True
    ) -> exp.Interval | None:
        """`INTERVAL '5' MINUTE` or `INTERVAL '5 minute'`: sqlglot drops words that follow. Before
        other words than an amount, `interval` is a name."""
        start = self._curr
        if start.token_type is not TokenType.INTERVAL or self._next.token_type not in _AMOUNTS:
            return None
        self._advance(2)
        amount = self._prev.text.split() or [""]
        if len(amount) == 1 and self._curr.text.isidentifier():
            amount.append(self._curr.text)
            self._advance()
        if len(amount) != 2:
            self._refuse("an interval is a number and a unit, like INTERVAL '10' SECOND", start)
        number, unit = amount
        made = exp.Interval(this=exp.Literal.string(number), unit=exp.Var(this=unit.upper()))
        return self.expression(made, start)


_AMOUNTS: Final = frozenset({TokenType.STRING, TokenType.NUMBER})


class Expressions(Spark):
    """Spark's SQL with standard strings and names: 'text', "name" or `name`."""

    # division and concatenation have the same rules everywhere, so their nodes need no options
    SAFE_DIVISION = False
    STRICT_STRING_CONCAT = True

    class Tokenizer(Spark.Tokenizer):
        """Splits an expression into words and signs."""

        QUOTES: ClassVar = ["'"]
        IDENTIFIERS: ClassVar = ["`", '"']
        STRING_ESCAPES: ClassVar = ["'"]
        KEYWORDS: ClassVar = {
            word: kind
            for word, kind in Spark.Tokenizer.KEYWORDS.items()
            if word.lower() in _WORDS or word in TYPES or not word[0].isalpha()
        }
        COMMANDS: ClassVar = set()
        HINT_START: ClassVar = ""
        RAW_STRINGS: ClassVar = []
        BYTE_STRINGS: ClassVar = []
        HEX_STRINGS: ClassVar = []

    Parser = ExpressionParser  # type: ignore[mutable-override]


def text_is_no_name(token: Token) -> str:
    """Why a text cannot stand where a name does."""
    return f"'{token.text[:40]}' is a text: a name stands without quotes, or in \"double quotes\""
