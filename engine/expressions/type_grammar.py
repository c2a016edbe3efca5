"""The grammar of types: of fields, of arguments, and of the results of casts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, NoReturn

from sqlglot import Token, TokenType, exp
from sqlglot.parsers.spark import SparkParser

from medusa.engine.expressions.texts import Text
from medusa.engine.expressions.words import OURS, NotingParser
from medusa.engine.objects.schema import FieldType

TYPES: Final = {
    **{each.upper(): each for each in FieldType},
    "BOOLEAN": FieldType.BOOL,
    "TINYINT": FieldType.BYTE,
    "SMALLINT": FieldType.SHORT,
    "INTEGER": FieldType.INT,
    "BIGINT": FieldType.LONG,
    "FLOAT": FieldType.SINGLE,
    "REAL": FieldType.SINGLE,
    "VARCHAR": FieldType.STRING,
    "TEXT": FieldType.STRING,
}
"""The types of fields by their names, upper case."""

_SYNONYMS: Final = {
    "DOUBLE PRECISION": "DOUBLE",
    "TIMESTAMPTZ": "TIMESTAMP",
    "TIMESTAMP_LTZ": "TIMESTAMP",
    "TIMESTAMP_NTZ": "TIMESTAMP",
}
"""Other names of types. TIMESTAMPTZ and its like are TIMESTAMP, because all times are UTC."""

_SUFFIXES: Final = {"L": "BIGINT", "S": "SMALLINT", "Y": "TINYINT", "D": "DOUBLE", "F": "FLOAT"}
"""The types of numbers, by their suffixes."""

_KNOWN: Final = ", ".join(TYPES)

_MENDS: Final = {
    "CHAR": ": it pads with blanks, which engines compare in different ways; say VARCHAR",
    "CHARACTER": ": it pads with blanks, which engines compare in different ways; say VARCHAR",
    "DATE": ": say TIMESTAMP, and date_trunc('day', x)",
    "DECIMAL": ": say DOUBLE, or LONG of a smaller unit",
    "NUMERIC": ": say DOUBLE, or LONG of a smaller unit",
}

MOST_DIGITS: Final = 9
"""Digits in the size of a type: more than the length of any text has."""


class TypeName(exp.Expression):
    """`name [(size)]`."""

    arg_types: ClassVar = {"this": True, "size": False}


class RefusingParser(NotingParser, SparkParser):
    """A parser of sqlglot that raises our errors."""

    def _refuse(self, reason: str, token: Token | None = None) -> NoReturn:
        """Raise a syntax error with a reason of ours."""
        self.raise_error(OURS + reason, token or self._curr)
        raise AssertionError("the parser raises its errors at once")


class TypeParser(RefusingParser):
    """Parses types, and the expressions that name one: constants and casts."""

    STRICT_CAST: ClassVar = True

    def _type_name(self, synonyms: Mapping[str, str] = _SYNONYMS) -> TypeName:
        start = self._curr
        name = " ".join(start.text.upper().split()) if start else ""
        name = synonyms.get(name, name)
        if name not in TYPES or start.token_type in {TokenType.STRING, TokenType.IDENTIFIER}:
            shown = start.text[:40] if start else ""
            mend = _MENDS.get(name, f"; there are {_KNOWN}")
            self._refuse(f"{shown!a} is not a type here{mend}", start)
        self._advance()
        size = None
        if self._match(TokenType.L_PAREN):
            size = self._parse_number()
            if size is None:
                self._refuse("a size is a whole number, like STRING(64)")
            self._match_r_paren()
        if name == "TIMESTAMP" and not self._match_text_seq("WITH", "TIME", "ZONE"):
            self._match_text_seq("WITHOUT", "TIME", "ZONE")
        return self.expression(TypeName(this=name, size=size), start)

    def _parse_types(
        self,
        check_func: bool = False,
        schema: bool = False,
        allow_identifiers: bool = True,
        with_collation: bool = False,
    ) -> exp.Expr | None:
        """The type of a constant like TIMESTAMP '2026-01-01'; other words are names here."""
        constant = self._next and self._next.token_type is TokenType.STRING
        return self._type_name() if constant and self._curr.token_type in self.TYPE_TOKENS else None

    def _parse_dcolon(self) -> exp.Expr | None:
        """The type behind `::`; sqlglot makes 10::L of a number like 10L."""
        return self._type_name(_SYNONYMS | _SUFFIXES)

    def _parse_cast(self, strict: bool, safe: bool | None = None) -> exp.Expr:
        if safe:
            self._refuse("TRY_CAST is not part of the language: CAST gives NULL for what it cannot")
        value = self._parse_disjunction()
        if value is None or not self._match(TokenType.ALIAS):
            self._refuse("CAST takes a value AS a type")
        made = exp.Cast(this=value, to=self._type_name())
        if self._curr and self._curr.text.upper() == "FORMAT":
            self._refuse("CAST has no FORMAT: say to_timestamp(x, 'format') or date_format")
        return self.expression(made)


def type_of(node: TypeName, text: Text) -> tuple[FieldType, int | None]:
    """The type, and the size if it is a text with one; else None.

    Raises:
        PointedError: a type has no such size.
    """
    name, size = node.name, node.args.get("size")
    type_ = TYPES[name]
    if size is None:
        return type_, None
    digits = size.name
    if not (digits.isascii() and digits.isdecimal() and 1 <= len(digits) <= MOST_DIGITS):
        raise text.refusal("a size is a whole number, like STRING(64)", size)
    if type_ is FieldType.STRING and int(digits):
        return type_, int(digits)
    if type_ is FieldType.TIMESTAMP and int(digits) == 6:
        return type_, None
    mend = _SIZED.get(name, f"say {name}")
    raise text.refusal(f"{name}({digits}) is not part of the language: {mend}", size)


_SIZED: Final = {
    "TIMESTAMP": (
        "it has microseconds, and engines cut or round the others; say TIMESTAMP, and "
        "date_trunc('millisecond', x), or 'second'"
    ),
    "FLOAT": "say REAL, or DOUBLE",
    **dict.fromkeys(("STRING", "VARCHAR", "TEXT"), "a text has room for one character at least"),
}
"""For each type the message that refuses any size but the allowed one."""
