"""Tokens of an expression, checked before sqlglot parses them.

sqlglot knows all of SQL. So its parser gets only tokens that this file allows: names of fields
become quoted identifiers, even if they look like keywords; functions of the allow-list get a name
that no SQL function has; every other word is refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches
from itertools import pairwise
from typing import Final

import sqlglot
from sqlglot import Token, TokenType
from sqlglot.errors import SqlglotError

from medusa.engine.language.written_forms import FormError, as_calls
from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.casts import CAST
from medusa.engine.scalars.rows import FUNCTIONS
from medusa.overlay.errors import InvalidInputError

MAX_TEXT: Final = 8192
"""Characters: one predicate of a few hundred comparisons."""

MAX_TOKENS: Final = 2048
"""Bounds the parsed tree, and with it Spark's plan."""

MAX_NESTING: Final = 32
"""Parentheses, functions, cases and signs within each other; sqlglot recurses about 14 Python
frames a level, of the 1,000 there are by default."""

FUNCTION: Final = "function "
"""Precedes the name of a function in the tokens; no field's name has a blank."""

_CHANGING: Final = ": a result must be the same wherever and whenever it is computed"

_ABSENT: Final = {
    **dict.fromkeys(("rand", "randn", "random", "uuid"), _CHANGING),
    **dict.fromkeys(
        ("now", "current_timestamp", "current_date", "localtimestamp"),
        f"{_CHANGING}; the time of a tuple is stime",
    ),
    **dict.fromkeys(
        ("power", "pow", "exp", "ln", "log", "log2", "log10", "sin", "cos", "tan"),
        ": its last bits differ from library to library",
    ),
}
"""Functions that are left out on purpose, and why."""

TYPE_TOKENS: Final = {
    FieldType.BOOL: TokenType.BOOLEAN,
    FieldType.BYTE: TokenType.TINYINT,
    FieldType.SHORT: TokenType.SMALLINT,
    FieldType.INT: TokenType.INT,
    FieldType.LONG: TokenType.BIGINT,
    FieldType.SINGLE: TokenType.FLOAT,
    FieldType.DOUBLE: TokenType.DOUBLE,
    FieldType.STRING: TokenType.TEXT,
    FieldType.TIMESTAMP: TokenType.TIMESTAMP,
}

KEYWORDS: Final = {
    "and": TokenType.AND,
    "or": TokenType.OR,
    "not": TokenType.NOT,
    "is": TokenType.IS,
    "null": TokenType.NULL,
    "true": TokenType.TRUE,
    "false": TokenType.FALSE,
    "in": TokenType.IN,
    "like": TokenType.LIKE,
    "between": TokenType.BETWEEN,
    "case": TokenType.CASE,
    "when": TokenType.WHEN,
    "then": TokenType.THEN,
    "else": TokenType.ELSE,
    "end": TokenType.END,
    "as": TokenType.ALIAS,
}
"""The words that are no names of fields, unless they are quoted."""

_SIGNS: Final = frozenset(
    {"(", ")", ",", ".", "+", "-", "*", "/", "%", "=", "==", "<>", "!=", "<", "<=", ">", ">=", "||"}
)

_PREFIXES: Final = frozenset({TokenType.NOT, TokenType.DASH, TokenType.PLUS})

_COMPLETE = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|/\*.*?\*/""", re.DOTALL)


class ExpressionError(InvalidInputError, code=None):
    """An expression is refused.

    Attributes:
        text: of the expression. reason: without the text. position: of a character, from 0.
    """

    def __init__(self, text: str, reason: str, position: int) -> None:
        self.text, self.reason = text, reason
        self.position = min(max(position, 0), max(len(text) - 1, 0))
        shown = text if len(text) <= 80 else text[:77] + "..."
        super().__init__(f"expression {shown!a}: {reason}, at character {self.position + 1}")


def refusal(text: str, reason: str, position: int) -> ExpressionError:
    """The error of every refused expression; position: of a character in `text`, from 0."""
    return ExpressionError(text, reason, position)


def tokens_of(text: str, functions: Collection[str] | None = ()) -> list[Token]:
    """The checked tokens of `(text)`: positions in them are one more than in `text`.

    The parentheses keep sqlglot's tokenizer from taking a first word for a command.

    Args:
        functions: names of users' functions that it may call; None: any.

    Raises:
        InvalidInputError: a limit is passed, or a comment, word or sign is not allowed.
    """
    _check_text(text)
    try:
        raw = sqlglot.tokenize(f"({text})")
    except SqlglotError:
        rest = _COMPLETE.sub(lambda match: " " * len(match.group()), text)
        opening = re.search(r"""['"]|/\*""", rest)
        place = opening.start() if opening else 0
        raise refusal(text, "a string, name or comment does not end", place) from None
    try:
        raw = as_calls(raw)
    except FormError as error:
        raise refusal(text, str(error), error.token.start - 1) from None
    if len(raw) > MAX_TOKENS:
        raise refusal(text, f"more than {MAX_TOKENS} words and signs", raw[MAX_TOKENS].start - 1)
    tokens = [_checked(text, raw, index, functions) for index in range(len(raw))]
    _check_lists(text, tokens)
    _check_nesting(text, tokens)
    return tokens


def _check_lists(text: str, tokens: list[Token]) -> None:
    """Refuse a list that ends with a comma: sqlglot does not miss its member."""
    for token, following in pairwise(tokens):
        if (token.token_type, following.token_type) == (TokenType.COMMA, TokenType.R_PAREN):
            raise refusal(text, "something is missing after the comma", token.start - 1)


def _check_text(text: str) -> None:
    if not text.strip():
        raise refusal(text, "it is empty", 0)
    if len(text) > MAX_TEXT:
        raise refusal(text, f"it has {len(text)} characters, at most {MAX_TEXT} allowed", MAX_TEXT)
    for position, character in enumerate(text):
        # XML cannot carry some of these characters; the others confuse tokenizers
        if (character < " " and character not in "\t\n\r") or not _storable(character):
            raise refusal(text, f"character {character!a} is not allowed", position)


def _storable(character: str) -> bool:
    return not ("\x7f" <= character <= "\x9f" or "\ud800" <= character <= "\udfff") and (
        character not in "\ufffe\uffff"
    )


def _checked(text: str, raw: list[Token], index: int, functions: Collection[str] | None) -> Token:
    """Token `index`, checked, for the parser."""
    token = raw[index]
    here = token.start - 1
    if token.comments:
        raise refusal(text, "comments are not allowed", here)
    if token.token_type in {TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER}:
        return token
    if token.text in _SIGNS:
        return token
    if not token.text.isidentifier():
        raise refusal(text, f"{token.text!a} is not allowed", here)
    following = raw[index + 1].text if index + 1 < len(raw) else ""
    if token.text.lower() == "rlike" and raw[index + 1].token_type is TokenType.STRING:
        return _retyped(token, TokenType.RLIKE, token.text)
    if token.text.lower() == "escape" and raw[index + 1].token_type is TokenType.STRING:
        return _retyped(token, TokenType.ESCAPE, token.text)
    if _in_distinct_from(raw, index):
        return _retyped(token, TokenType.VAR, token.text)
    if raw[index - 1].text.lower() == "as" and raw[index - 1].token_type is TokenType.ALIAS:
        return _type_name(text, token, following)
    if following == "(" and (functions is None or token.text.lower() in functions):
        return _called(token)
    return _word(text, token, functions or (), called=following == "(")


def _called(token: Token) -> Token:
    """A function's name, unless it is a keyword's or a cast."""
    name = token.text.lower()
    if name in KEYWORDS and name != "like":
        return _retyped(token, KEYWORDS[name], token.text)
    return token if name == CAST else _retyped(token, TokenType.IDENTIFIER, FUNCTION + name)


def _in_distinct_from(raw: list[Token], index: int) -> bool:
    """Whether it is one of the last two words of `is [not] distinct from`."""
    words = [each.text.lower() for each in raw[max(index - 3, 0) : index + 2]]
    here = index - max(index - 3, 0)
    if words[here] == "from":
        here -= 1
    if here < 1 or words[here : here + 2] != ["distinct", "from"]:
        return False
    return words[here - 1] == "is" or words[max(here - 2, 0) : here] == ["is", "not"]


def _type_name(text: str, token: Token, following: str) -> Token:
    name = token.text.lower()
    if name in TYPE_TOKENS and following == "(":
        reason = "a type has no size here: say substring(cast(x as string), 1, n)"
        raise refusal(text, reason, token.start - 1)
    if name not in TYPE_TOKENS or following != ")":
        known = ", ".join(TYPE_TOKENS)
        raise refusal(
            text, f"{token.text!a} is not a type here; there are {known}", token.start - 1
        )
    return _retyped(token, TYPE_TOKENS[FieldType(name)], token.text)


def _word(text: str, token: Token, functions: Collection[str], *, called: bool) -> Token:
    name = token.text.lower()
    if name in KEYWORDS and not (name == "like" and called):
        return _retyped(token, KEYWORDS[name], token.text)
    if not called:
        return _retyped(token, TokenType.IDENTIFIER, token.text)
    if name == CAST:
        return token
    if name not in FUNCTIONS:
        raise refusal(text, no_function(token.text, functions), token.start - 1)
    return _retyped(token, TokenType.IDENTIFIER, FUNCTION + name)


def no_function(name: str, others: Collection[str]) -> str:
    """Why there is no such function, with those alike. others: there are beside `FUNCTIONS`."""
    mend = _ABSENT.get(name.lower()) or _alike(name.lower(), others)
    return f"there is no function {name[:80]!a}{mend}"


def _alike(name: str, others: Collection[str]) -> str:
    alike = get_close_matches(name[:80], sorted({*FUNCTIONS, *others, CAST}))
    known = f"alike are {', '.join(alike)}" if alike else "`medusa function list` names all"
    return f"; {known}; CREATE FUNCTION names one of your own"


def _retyped(token: Token, kind: TokenType, text: str) -> Token:
    return Token(kind, text, token.line, token.col, token.start, token.end)


def _check_nesting(text: str, tokens: list[Token]) -> None:
    """Refuse unbalanced groups, and nesting too deep for the parser's recursion."""
    open_groups = prefixes = 0
    for token in tokens:
        prefixes = prefixes + 1 if token.token_type in _PREFIXES else 0
        if token.token_type in {TokenType.L_PAREN, TokenType.CASE}:
            open_groups += 1
        elif token.token_type in {TokenType.R_PAREN, TokenType.END}:
            open_groups -= 1
        if open_groups + prefixes > MAX_NESTING + 1:
            raise refusal(text, f"nested deeper than {MAX_NESTING}", token.start - 1)
        if open_groups < 1 and token is not tokens[-1]:
            raise refusal(text, f"unexpected {token.text!a}", token.start - 1)
    if open_groups:
        raise refusal(text, "a parenthesis or case does not end", len(text))
