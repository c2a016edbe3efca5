"""Texts become sqlglot's trees, within limits: those of expressions here, those of scripts in
`medusa.engine.language.sql.parsing`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Final

from sqlglot import Dialect, Token, TokenType, exp
from sqlglot.errors import ParseError, SqlglotError

from medusa.engine.expressions.grammar import (
    ExpressionParser,
    Expressions,
    text_is_no_name,
)
from medusa.engine.expressions.texts import ExpressionText, Text
from medusa.engine.expressions.words import OURS

MAX_TEXT: Final = 8192
"""Characters of an expression: one predicate of a few hundred comparisons."""

MAX_TOKENS: Final = 2048
"""Words and signs of an expression: they bound the parsed tree, and with it Spark's plan."""

MAX_NESTING: Final = 32
"""Parentheses, cases and signs within each other: sqlglot recurses some 25 Python frames a level,
of the 1,000 there are by default."""

MAX_DEPTH: Final = 160
"""Levels of a tree: code that walks it recurses, some 5 Python frames a level. A chain of `and`,
`or` or `||`, or of UNION ALL, is one."""

SHORT_TEXT: Final = 64
"""The longest text whose parsed tree is cached, characters. A `*` repeats the same names in each
box, and parsing is most of their cost. 512 such trees take 5 MB at most."""

_OPENINGS: Final = re.compile(r"""['"`]|--|/\*""")

_REST: Final = {
    "'": re.compile(r"[^']*'"),
    '"': re.compile(r'[^"]*"'),
    "`": re.compile(r"[^`]*`"),
    "--": re.compile(r"[^\n]*"),
    "/*": re.compile(r".*?\*/", re.DOTALL),
}
"""The rest of a string, a name or a comment, by its first characters."""

_CONTROLS: Final = re.compile(r"[^\t\n\r -\U0010ffff]")
"""Characters that confuse tokenizers."""

_NOT_IN_XML: Final = re.compile(r"[\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Characters that XML cannot carry: no expression has one, so each can be written as XML."""

_CHAINS: Final = (exp.And, exp.Or, exp.DPipe, exp.Union)
"""sqlglot nests chains of these operators to the left, and our code walks them in a loop."""

_OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.CASE, TokenType.L_BRACKET})

_CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET})

_AFTER_LIST: Final = _CLOSING | {
    TokenType.COMMA,
    TokenType.SEMICOLON,
    TokenType.FROM,
    TokenType.ELSE,
    TokenType.WITH,
}

_BEFORE_LIST: Final = {
    TokenType.L_PAREN,
    TokenType.L_BRACKET,
    TokenType.SELECT,
    TokenType.DISTINCT,
    TokenType.FROM,
    TokenType.GROUP_BY,
    TokenType.ORDER_BY,
    TokenType.PARTITION_BY,
}

_PREFIXES: Final = frozenset({TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE})

_FOREIGN: Final = {
    TokenType.HINT: "hints are not part of the language: /* a comment */",
    # sqlglot reads it as a path of JSON
    TokenType.COLON: "`:` is not part of the language: say json_value",
    TokenType.PIPE_GT: "`|>` is not part of the language: say SELECT ... FROM ... WHERE ...",
}
"""Signs that sqlglot reads and the language does not have, and how to mend them."""

_TWICE: Final = "Found multiple"
"""The beginning of sqlglot's message that a query has a clause twice."""


def tree_of(text: str) -> exp.Expr:
    """The tree of an expression, for one reader: reading marks its nodes.

    Raises:
        ExpressionError: the text has a syntax error, or exceeds a limit; the message names the
            place.
    """
    if len(text) > SHORT_TEXT:
        return _parsed(text)
    return tree_of_short_text(text).copy()  # readers mark the nodes that they have read


@lru_cache(maxsize=512)
def tree_of_short_text(text: str) -> exp.Expr:
    """The tree of a text, from a cache: a caller copies it before a change."""
    return _parsed(text)


def _parsed(text: str) -> exp.Expr:
    source = ExpressionText(text)
    if not text.strip():
        raise source.refusal("it is empty", 0)
    if len(text) > MAX_TEXT:
        reason = f"it has {len(text)} characters, at most {MAX_TEXT} allowed"
        raise source.refusal(reason, MAX_TEXT)
    for found in _NOT_IN_XML.finditer(text):
        raise source.refusal(f"character {found.group()!a} is not allowed", found.start())
    tokens = tokens_of(source, _DIALECT, MAX_TOKENS)
    for token in tokens:
        if token.comments:
            raise source.refusal("comments are not allowed", token.start)
        if token.token_type is TokenType.SEMICOLON:
            raise source.refusal("';' is not allowed", token.start)
    parser = ExpressionParser(dialect=_DIALECT)
    return parsed(source, tokens, lambda: parser.parse_into(exp.Condition, tokens, text))


_DIALECT: Final = Expressions()


def parsed(
    source: Text, tokens: list[Token], parse: Callable[[], list[exp.Expr | None]]
) -> exp.Expr:
    """The one tree that `parse` makes of the tokens.

    Raises:
        InvalidInputError: an error of `source`, which names the place.
    """
    start = tokens[0].start if tokens else 0
    try:
        trees = parse()
    except ParseError as error:
        raise source.refusal(*_syntax_error(error, tokens)) from None
    except RecursionError:
        raise source.refusal("nested too deeply", start) from None
    except (SqlglotError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        # sqlglot fails with these on some texts that are not of our language: the author's mistake
        # all the same
        raise source.refusal("it cannot be parsed", start) from None
    if len(trees) != 1 or trees[0] is None:
        raise source.refusal("it is not one statement or expression", start)
    _check_depth(source, trees[0])
    _check_whole(source, trees[0])
    return trees[0]


def tokens_of(source: Text, dialect: Dialect, most: int) -> list[Token]:
    """The words and signs of a text. most: the greatest number of them.

    Raises:
        InvalidInputError: an error of `source`: the text exceeds a limit, or has a sign that is not
            allowed.
    """
    for found in _CONTROLS.finditer(source.text):
        raise source.refusal(f"character {found.group()!a} is not allowed", found.start())
    try:
        tokens: list[Token] = dialect.tokenize(source.text)
    except SqlglotError:
        place = _endless(source.text)
        raise source.refusal("a string, name or comment does not end", place) from None
    if len(tokens) > most:
        reason = f"it has {len(tokens):,} words and signs, at most {most:,} allowed"
        raise source.refusal(reason, tokens[most].start)
    for token in tokens:
        if token.token_type in _FOREIGN:
            raise source.refusal(_FOREIGN[token.token_type], token.start)
    for token, following in pairwise(tokens):
        _check_pair(source, token, following)
    _check_nesting(source, tokens)
    _check_closed(source, tokens)
    return tokens


def _check_pair(source: Text, token: Token, following: Token) -> None:
    """Refuse mistakes that sqlglot accepts silently: a list that begins or ends with a comma, a
    string as a name beside a dot, and `0x1F` for a 0 that is called x1F."""
    kind, next_kind = token.token_type, following.token_type
    if kind is TokenType.COMMA and next_kind in _AFTER_LIST:
        raise source.refusal("something is missing after the comma", token.start)
    if next_kind is TokenType.COMMA and kind in _BEFORE_LIST:
        raise source.refusal("something is missing before the comma", following.start)
    if {kind, next_kind} == {TokenType.DOT, TokenType.STRING}:
        word = token if kind is TokenType.STRING else following
        raise source.refusal(text_is_no_name(word), word.start)
    behind = following.start == token.end + 1 and source.text[following.start].isidentifier()
    if kind is TokenType.NUMBER and behind:
        written = source.text[token.start : following.end + 1]
        raise source.refusal(f"{written[:40]!a} is not a number: write its digits", token.start)


def _endless(text: str) -> int:
    """The position of the first string, name or comment that does not end; None: all end."""
    place = 0
    while opening := _OPENINGS.search(text, place):
        rest = _REST[opening.group()].match(text, opening.end())
        if rest is None:
            return opening.start()
        place = rest.end()
    return 0


def _check_nesting(source: Text, tokens: Collection[Token]) -> None:
    """Refuse a text that is nested too deeply for the parser's recursion."""
    depth = prefixes = 0
    for token in tokens:
        kind = token.token_type
        prefixes = prefixes + 1 if kind in _PREFIXES else 0
        depth += (kind in _OPENING) - (kind in _CLOSING)
        if depth + prefixes > MAX_NESTING:
            raise source.refusal(f"nested deeper than {MAX_NESTING}", token.start)
        if kind is TokenType.SEMICOLON:
            depth = 0
        if kind is TokenType.END and depth > 0:
            depth -= 1


def _check_closed(source: Text, tokens: Collection[Token]) -> None:
    """Refuse a parenthesis that does not close: sqlglot accepts a CAST without one."""
    opened: list[Token] = []
    for token in tokens:
        if token.token_type is TokenType.L_PAREN:
            opened.append(token)
        elif token.token_type is TokenType.R_PAREN and opened:
            opened.pop()
        elif token.token_type is TokenType.SEMICOLON and opened:
            break
    if opened:
        raise source.refusal("a parenthesis does not close", opened[-1].start)


def _check_depth(source: Text, tree: exp.Expr) -> None:
    """Refuse a tree that operators without parentheses nest too deeply: `a + a + a + ...`."""
    level = [tree]
    for _ in range(MAX_DEPTH):
        level = [each for node in level for each in _below(node)]
        if not level:
            return
    raise source.refusal(f"nested deeper than {MAX_DEPTH}", level[0])


def _check_whole(source: Text, tree: exp.Expr) -> None:
    """Refuse a list with a missing member, which sqlglot accepts."""
    for node in tree.walk():
        if any(isinstance(each, list) and None in each for each in node.args.values()):
            raise source.refusal("something is missing in this list", node)


def _below(node: exp.Expr) -> Iterator[exp.Expr]:
    """The child nodes; of a chain like `a and b and c`, all its operands."""
    stack = [node]
    while stack:
        each = stack.pop()
        for child in each.iter_expressions():
            if type(child) is type(each) and isinstance(child, _CHAINS):
                stack.append(child)
            else:
                yield child


def _syntax_error(error: ParseError, tokens: list[Token]) -> tuple[str, int]:
    """Reason and position of an error of sqlglot."""
    details = error.errors[0] if error.errors else {}
    reason = str(details.get("description") or "")
    place = (details.get("line"), details.get("col"))
    found = next((each for each in tokens if (each.line, each.col) == place), tokens[-1])
    if reason.startswith(OURS):
        return reason.removeprefix(OURS), found.start
    if reason.startswith(_TWICE):
        return f"{found.text} is said twice: a query has one", found.start
    if found is tokens[-1]:
        return f"it ends too early, or {found.text[:40]!a} is a mistake", found.start
    return f"syntax error at {found.text[:40]!a}", found.start
