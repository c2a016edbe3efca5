"""Names, constants and expressions as SQL that `medusa.engine.language.sql.script` reads as the
same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from sqlglot import Token, TokenType

from medusa.engine.language.expression_tokens import FUNCTION, KEYWORDS, TYPE_TOKENS, tokens_of
from medusa.engine.language.spans import in_units
from medusa.engine.language.sql.dialect import Medusa
from medusa.engine.language.sql.expressions import string_text
from medusa.engine.language.sql.type_grammar import TYPES
from medusa.engine.language.written_forms import INTERVAL
from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.casts import CAST
from medusa.overlay.names import ObjectName

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

_RESERVED: Final = frozenset(KEYWORDS) | {
    word.lower() for word in Medusa.Tokenizer.KEYWORDS if word.isidentifier()
}
"""Words that have a meaning somewhere: as names they are quoted."""

_TYPE_NAMES: Final = {FieldType(type_): name for name, type_ in reversed(TYPES.items())}
"""Our own names of types."""

_TIGHT_BEFORE: Final = frozenset({")", ",", "."})
_TIGHT_BEHIND: Final = frozenset({"(", "."})
_VALUES: Final = frozenset(
    {TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER, TokenType.R_PAREN, TokenType.END}
    | {TokenType.NULL, TokenType.TRUE, TokenType.FALSE}
)
"""Behind them a minus takes away; elsewhere it is a sign."""

_SIDES: Final = frozenset({"left", "right"})
"""The sides of a join are called by these keywords."""

Conjuncts = list[list[Token]]


def name_sql(name: str) -> str:
    """The name of a field."""
    if _PLAIN.fullmatch(name) and name.lower() not in _RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


def object_sql(name: str) -> str:
    """The name of a stream, schema or query: `medusa://mit.edu/a/b` is `mit.edu."a/b"`."""
    parsed = ObjectName.parse(name)
    return ".".join(map(name_sql, (*parsed.participant.split("."), parsed.path)))


def type_sql(type_: FieldType) -> str:
    return _TYPE_NAMES[type_]


def interval_sql(microseconds: int) -> str:
    number, unit = in_units(microseconds)
    return f"INTERVAL '{number}' {unit.upper()}"


def options_sql(options: Sequence[tuple[str, str]]) -> str:
    """`WITH (...)` and a blank before it; nothing of none."""
    if not options:
        return ""
    told = ", ".join(f"{name_sql(name)} = {value}" for name, value in options)
    return f" WITH ({told})"


def expression_sql(text: str) -> str:
    """An expression of the expression language.

    Raises:
        InvalidInputError: it is none.
    """
    return tokens_sql(tokens_of(text, None)[1:-1])


def conjuncts_of(text: str) -> Conjuncts:
    """The conditions that `and` joins in a predicate; one, if `or` joins some of them."""
    return conjuncts_in(tokens_of(text, None)[1:-1])


def conjuncts_in(tokens: Sequence[Token]) -> Conjuncts:
    """See `conjuncts_of`."""
    found: Conjuncts = [[]]
    between = 0
    for token, depth in _depths(tokens):
        kind = token.token_type
        if depth == 0 and kind is TokenType.OR:
            return [[*tokens]]
        if depth == 0 and kind is TokenType.AND and not between:
            found.append([])
            continue
        if depth == 0:
            between += (kind is TokenType.BETWEEN) - (kind is TokenType.AND)
        found[-1].append(token)
    return found


def without_parentheses(tokens: Sequence[Token]) -> Sequence[Token]:
    """Return the text within the parentheses that surround all of it."""
    while tokens[0].token_type is TokenType.L_PAREN and all(
        depth > 0 for _, depth in _depths(tokens[:-1])
    ):
        tokens = tokens[1:-1]
    return tokens


def outermost(tokens: Sequence[Token]) -> set[TokenType]:
    """The kinds of the tokens that are in no parentheses and no case."""
    return {token.token_type for token, depth in _depths(tokens) if depth == 0}


def _depths(tokens: Sequence[Token]) -> Iterator[tuple[Token, int]]:
    """Yield each token with the number of parentheses and cases around it."""
    depth = 0
    for token in tokens:
        opens = token.token_type in {TokenType.L_PAREN, TokenType.CASE}
        depth += opens
        yield token, depth
        depth -= token.token_type in {TokenType.R_PAREN, TokenType.END}


def tokens_sql(tokens: Sequence[Token]) -> str:
    """The words and signs of an expression, or of a whole part of one."""
    made = ""
    behind: Token | None = None  # the one before
    is_sign = False
    index = 0
    while index < len(tokens):
        word, taken = _form(tokens[index : index + 6])
        tight = (
            not made
            or word in _TIGHT_BEFORE
            or (behind is not None and behind.text in _TIGHT_BEHIND and _is_sign_of(behind))
            or (word == "(" and behind is not None and _is_called(behind))
            or (is_sign and word != "-")
        )
        made += word if tight else f" {word}"
        is_sign = word == "-" and (behind is None or behind.token_type not in _VALUES)
        behind = tokens[index + taken - 1]
        index += taken
    return made


def _form(tokens: Sequence[Token]) -> tuple[str, int]:
    """The text of the first token, or of the form that begins with it; and how many they are."""
    first = tokens[0]
    if first.token_type is TokenType.IDENTIFIER and first.text == INTERVAL:
        amount, unit = tokens[2].text, tokens[4].text
        return f"INTERVAL {string_text(amount)} {unit.upper()}", 6
    if len(tokens) > 1 and tokens[1].text == "." and first.text in _SIDES:
        return first.text, 1
    called = first.text.removeprefix(FUNCTION) if _is_called(first) else ""
    if called in {"extract", "timestampdiff"} and tokens[2].token_type is TokenType.STRING:
        unit = tokens[2].text
        if _PLAIN.fullmatch(unit):
            return f"{called}({unit.lower()}{' FROM' if called == 'extract' else ','}", 4
    return _word(first), 1


def _is_called(token: Token) -> bool:
    """Whether a parenthesis follows at once."""
    kind = token.token_type
    if kind is TokenType.IDENTIFIER:
        return token.text.startswith(FUNCTION)
    return kind is not TokenType.STRING and token.text.lower() == CAST


def _is_sign_of(token: Token) -> bool:
    return token.token_type not in {TokenType.STRING, TokenType.IDENTIFIER}


def _word(token: Token) -> str:
    match token.token_type:
        case TokenType.STRING:
            return string_text(token.text)
        case TokenType.IDENTIFIER if token.text.startswith(FUNCTION):
            return token.text.removeprefix(FUNCTION)
        case TokenType.IDENTIFIER:
            return name_sql(token.text)
        case TokenType.NUMBER:
            return token.text
        case kind if kind in _BY_TOKEN:
            return type_sql(_BY_TOKEN[kind])
        case _ if token.text.isidentifier():
            return token.text.upper()
        case _:
            return {"==": "=", "!=": "<>"}.get(token.text, token.text)


_BY_TOKEN: Final = {kind: type_ for type_, kind in TYPE_TOKENS.items()}
