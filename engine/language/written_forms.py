"""Forms of SQL that are no calls, as the tokens of calls: the parser of calls reads them then.

    INTERVAL '5' MINUTE, INTERVAL '5 minute'    "function interval"('5', 'MINUTE')
    extract(hour from t)                    extract('hour', t)
    timestampdiff(hour, a, b)               timestampdiff('hour', a, b)
    position(a in b)                        position(a, b)

All other tokens stay. A field may still be called `interval`, `hour` or `extract`.
"""

from __future__ import annotations

from typing import Final

from sqlglot import Token, TokenType

INTERVAL: Final = "function interval"
"""The name of the call that an interval becomes; no field has a blank in its name."""

_AMOUNTS: Final = frozenset({TokenType.STRING, TokenType.NUMBER})


def as_calls(raw: list[Token]) -> list[Token]:
    """The tokens, with these forms as calls. Each new token has the place of an old one."""
    made: list[Token] = []
    index = 0
    while index < len(raw):
        new = _interval(raw[index : index + 3]) or _unit(raw[index : index + 4])
        if new:
            made += new
            index += _taken(new)
        else:
            made.append(raw[index])
            index += 1
    return _positions(made)


def _interval(raw: list[Token]) -> list[Token]:
    if len(raw) < 3 or not _is(raw[0], "interval") or raw[1].token_type not in _AMOUNTS:
        return []
    name, amount, unit = raw
    words = amount.text.split()
    if amount.token_type is TokenType.STRING and len(words) == 2:
        amount, unit = (_like(amount, TokenType.STRING, word) for word in words)
    elif not _is_word(unit):
        return []
    return [
        _like(name, TokenType.IDENTIFIER, INTERVAL),
        _like(name, TokenType.L_PAREN, "("),
        _like(amount, TokenType.STRING, amount.text),
        _like(amount, TokenType.COMMA, ","),
        _like(unit, TokenType.STRING, unit.text),
        _like(unit, TokenType.R_PAREN, ")"),
    ]


def _taken(new: list[Token]) -> int:
    """How many tokens a form had. The unit of an interval may be in the string of its amount."""
    if new[0].text != INTERVAL:
        return len(new)
    return 2 if new[2].start == new[4].start else 3


def _unit(raw: list[Token]) -> list[Token]:
    """The beginning of a call whose first operand is the name of a unit."""
    if len(raw) < 4 or raw[1].token_type is not TokenType.L_PAREN or not _is_word(raw[2]):
        return []
    called, opening, unit, after = raw
    extracted = _is(called, "extract") and _is(after, "from")
    apart = _is(called, "timestampdiff") and after.token_type is TokenType.COMMA
    if not (extracted or apart):
        return []
    return [
        called,
        opening,
        _like(unit, TokenType.STRING, unit.text),
        _like(after, TokenType.COMMA, ","),
    ]


def _positions(tokens: list[Token]) -> list[Token]:
    """A comma for the `in` of each `position(a in b)`."""
    open_calls: list[bool] = []
    made: list[Token] = []
    for index, token in enumerate(tokens):
        new = token
        if token.token_type is TokenType.L_PAREN:
            open_calls.append(index > 0 and _is(tokens[index - 1], "position"))
        elif token.token_type is TokenType.R_PAREN and open_calls:
            open_calls.pop()
        elif open_calls and open_calls[-1] and _is(token, "in"):
            new = _like(token, TokenType.COMMA, ",")
            open_calls[-1] = False
        made.append(new)
    return made


def _is_word(token: Token) -> bool:
    quoted = token.token_type in {TokenType.STRING, TokenType.IDENTIFIER}
    return not quoted and token.text.isidentifier()


def _is(token: Token, word: str) -> bool:
    return _is_word(token) and token.text.lower() == word


def _like(token: Token, kind: TokenType, text: str) -> Token:
    return Token(kind, text, token.line, token.col, token.start, token.end, token.comments)
