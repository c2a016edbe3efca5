"""Rewrites the tokens of SQL's forms that are no calls as tokens of calls, for the parser of calls.

    INTERVAL '5' MINUTE, INTERVAL '5 minute'    "function interval"('5', 'MINUTE')
    extract(hour from t)                    extract('hour', t)
    timestampdiff(hour, a, b)               timestampdiff('hour', a, b)
    position(a in b)                        position(a, b)
    substring(s from a for b)               substring(s, a, b)
    substring(s for b)                      substring(s, 1, b)
    trim(both ' ' from s), trim(both from s)    trim(s); leading: ltrim(s), trailing: rtrim(s)

All other tokens stay. A field may still be called `interval`, `hour`, `from` or `both`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlglot import Token, TokenType

INTERVAL: Final = "function interval"
"""The name of the call that an interval becomes; no field has a blank in its name."""

BLANK: Final = " "
"""What the trims take off."""

TRIMS: Final = {"both": "trim", "leading": "ltrim", "trailing": "rtrim"}
"""The functions that take blanks off, by the words that stand for their sides."""

ONLY_BLANKS: Final = (
    "trim takes blanks off: trim(both ' ' from s); for other signs say "
    "regexp_replace(s, '^x+|x+$', '')"
)

_BEFORE_OPERANDS: Final = frozenset(
    {"and", "or", "not", "case", "when", "then", "else", "in", "like", "rlike", "between", "is"}
    | {"distinct", "escape"}
)
"""Words that an operand follows: so the word behind them is a name, whatever it is."""

_OPERANDS: Final = frozenset(
    {TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER, TokenType.R_PAREN}
)
"""An operand ends with one of these, or with a word."""

_SEPARATORS: Final = {"position": ("in", ""), "substring": ("from", "for")}
"""By function, the words before its second and its third operand."""

_MOST: Final = 3
"""Operands of such a function."""

_AMOUNTS: Final = frozenset({TokenType.STRING, TokenType.NUMBER})


class FormError(ValueError):
    """A form is refused, with its reason. token: the place."""

    def __init__(self, reason: str, token: Token) -> None:
        super().__init__(reason)
        self.token = token


def as_calls(raw: list[Token]) -> list[Token]:
    """The tokens, with these forms as calls. Each new token has the place of an old one.

    Raises:
        FormError: a form has no call.
    """
    made: list[Token] = []
    index = 0
    while index < len(raw):
        rest = raw[index : index + _LONGEST]
        new, taken = _interval(rest) or _unit(rest) or _trim(rest) or ([raw[index]], 1)
        made += new
        index += taken
    return _with_commas(made)


_LONGEST: Final = 5
"""Tokens of the longest beginning of a form: `trim(both ' ' from`."""

_Form = tuple[list[Token], int]
"""The tokens of a call, and how many tokens of the text they stand for."""


def _interval(raw: list[Token]) -> _Form | None:
    if len(raw) < 3 or not _is(raw[0], "interval") or raw[1].token_type not in _AMOUNTS:
        return None
    name, amount, unit, *_ = raw
    taken = 3
    words = amount.text.split()
    if amount.token_type is TokenType.STRING and len(words) == 2:
        amount, unit = (_like(amount, TokenType.STRING, word) for word in words)
        taken = 2
    elif not _is_word(unit):
        return None
    made = [
        _like(name, TokenType.IDENTIFIER, INTERVAL),
        _like(name, TokenType.L_PAREN, "("),
        _like(amount, TokenType.STRING, amount.text),
        _like(amount, TokenType.COMMA, ","),
        _like(unit, TokenType.STRING, unit.text),
        _like(unit, TokenType.R_PAREN, ")"),
    ]
    return made, taken


def _unit(raw: list[Token]) -> _Form | None:
    """The beginning of a call whose first operand is the name of a unit."""
    if len(raw) < 4 or raw[1].token_type is not TokenType.L_PAREN or not _is_word(raw[2]):
        return None
    called, opening, unit, after, *_ = raw
    extracted = _is(called, "extract") and _is(after, "from")
    apart = _is(called, "timestampdiff") and after.token_type is TokenType.COMMA
    if not (extracted or apart):
        return None
    named, comma = _like(unit, TokenType.STRING, unit.text), _like(after, TokenType.COMMA, ",")
    return [called, opening, named, comma], 4


def _trim(raw: list[Token]) -> _Form | None:
    """The beginning of a trim whose operand stands behind `from`."""
    if len(raw) < 4 or not _is(raw[0], "trim") or raw[1].token_type is not TokenType.L_PAREN:
        return None
    called, opening, *words = raw
    side = words.pop(0).text.lower() if any(_is(words[0], each) for each in TRIMS) else ""
    signs = words.pop(0) if words[0].token_type is TokenType.STRING else None
    if not (side or signs) or not words:
        return None
    if not _is(words[0], "from"):
        if side and (signs or _is_word(words[0])):
            raise FormError(ONLY_BLANKS, signs or words[0])
        return None
    if signs is not None and signs.text != BLANK:
        raise FormError(ONLY_BLANKS, signs)
    name = _like(called, called.token_type, TRIMS.get(side, called.text))
    return [name, opening], len(raw) - len(words) + 1


@dataclass
class _Call:
    """A call that is read. operands: those that have begun."""

    name: str
    operands: int = 1


def _with_commas(tokens: list[Token]) -> list[Token]:
    """The tokens, with commas for the words between operands."""
    calls: list[_Call] = []
    made: list[Token] = []
    for index, token in enumerate(tokens):
        before = tokens[index - 1] if index else None
        new = [token]
        if token.token_type is TokenType.L_PAREN:
            calls.append(_Call(before.text.lower() if before and _is_word(before) else ""))
        elif token.token_type is TokenType.R_PAREN and calls:
            calls.pop()
        elif calls and token.token_type is TokenType.COMMA:
            calls[-1].operands = _MOST  # operands stand with commas, or with words
        elif calls and before is not None and _ends_operand(before):
            new = _separated(calls[-1], token)
        made += new
    return made


def _separated(call: _Call, token: Token) -> list[Token]:
    """Return the tokens in place of one behind an operand of a call."""
    word = token.text.lower() if _is_word(token) else ""
    first, later = _SEPARATORS.get(call.name, ("", ""))
    comma = _like(token, TokenType.COMMA, ",")
    if word and word == later and call.operands < _MOST:
        left_out = [comma, _like(token, TokenType.NUMBER, "1")] if call.operands == 1 else []
        call.operands = _MOST
        return [*left_out, comma]
    if word and word == first and call.operands == 1:
        call.operands += 1
        return [comma]
    return [token]


def _ends_operand(token: Token) -> bool:
    if _is_word(token):
        return token.text.lower() not in _BEFORE_OPERANDS
    return token.token_type in _OPERANDS


def _is_word(token: Token) -> bool:
    quoted = token.token_type in {TokenType.STRING, TokenType.IDENTIFIER}
    return not quoted and token.text.isidentifier()


def _is(token: Token, word: str) -> bool:
    return _is_word(token) and token.text.lower() == word


def _like(token: Token, kind: TokenType, text: str) -> Token:
    return Token(kind, text, token.line, token.col, token.start, token.end, token.comments)
