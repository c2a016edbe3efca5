"""Scripts, parsed: a text within its limits, cut into statements, as sqlglot's trees."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import ParseError, SqlglotError

from medusa.engine.language.sql.dialect import (
    EXPLAIN,
    Definition,
    Medusa,
    MedusaParser,
    text_is_no_name,
)
from medusa.engine.language.sql.errors import refusal
from medusa.engine.language.sql.parts import REASONS
from medusa.engine.language.words import OURS, position_of

MAX_TEXT: Final = 65_536
"""Characters of a script: hundreds of statements."""

MAX_TOKENS: Final = 16_384
"""Words and signs of a script: sqlglot parses so many in half a second."""

MAX_NESTING: Final = 32
"""Parentheses, cases and signs within each other: sqlglot recurses some 25 Python frames a level,
of the 1,000 there are by default."""

MAX_DEPTH: Final = 160
"""Levels of a statement's tree: code that walks it recurses, some 5 Python frames a level. A chain
of `and`, `or` or `||`, or of UNION ALL, is one."""

_OPENINGS: Final = re.compile(r"""['"`]|--|/\*""")

_REST: Final = {
    "'": re.compile(r"[^']*'"),
    '"': re.compile(r'[^"]*"'),
    "`": re.compile(r"[^`]*`"),
    "--": re.compile(r"[^\n]*"),
    "/*": re.compile(r".*?\*/", re.DOTALL),
}
"""The rest of a string, a name or a comment, by its first characters."""

_CHAINS: Final = (exp.And, exp.Or, exp.DPipe, exp.Union)
"""sqlglot nests these to the left, and our code walks them in a loop."""

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

_TWICE: Final = "Found multiple"
"""How sqlglot begins to say that a clause of a query is there twice."""

_PREFIXES: Final = frozenset({TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE})


def parse(text: str) -> tuple[list[exp.Expr], bool]:
    """The statements of a script, and whether EXPLAIN stands before them.

    Raises:
        InvalidInputError: it is no SQL of ours, or beyond a limit; points at the place.
    """
    if len(text) > MAX_TEXT:
        raise refusal(
            text, f"the script has {len(text):,} characters, at most {MAX_TEXT:,} allowed", MAX_TEXT
        )
    made: list[exp.Expr] = []
    query: Definition | None = None
    words = _tokens(text)
    explain = bool(words) and words[0].text.upper() == EXPLAIN
    for statement in _statements(words[explain:]):
        tokens = statement
        if query is None and (head := _head_of_query(tokens)):
            query = _definition_of(text, tokens[:head])
            made.append(query)
            tokens = statement[head + 1 :]
        if query is None:
            made.append(_parsed(text, tokens))
        elif [token.token_type for token in tokens] == [TokenType.END]:
            query = None
        elif tokens:
            query.append("body", _definition_of(text, tokens))
    if query is not None:
        raise refusal(text, "BEGIN has no END", position_of(query))
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


def _definition_of(text: str, tokens: list[Token]) -> Definition:
    tree = _parsed(text, tokens)
    if not isinstance(tree, Definition):
        reason = "between BEGIN and END are CREATE STREAM statements"
        raise refusal(text, reason, tokens[0].start)
    return tree


def _parsed(text: str, tokens: list[Token]) -> exp.Expr:
    try:
        trees = MedusaParser(dialect=Medusa()).parse(tokens, text)
    except ParseError as error:
        raise refusal(text, *_syntax_error(error, tokens)) from None
    except RecursionError:
        raise refusal(text, "nested too deeply", tokens[0].start) from None
    except (SqlglotError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        # sqlglot fails so on some texts that are no SQL: still the sender's mistake
        raise refusal(text, "it cannot be parsed", tokens[0].start) from None
    if len(trees) != 1 or trees[0] is None:
        raise refusal(text, "it is not one statement", tokens[0].start)
    _check_depth(text, trees[0])
    _check_whole(text, trees[0])
    return trees[0]


def _check_depth(text: str, tree: exp.Expr) -> None:
    """Refuse a tree that signs without parentheses nest too deeply: `a + a + a + ...`."""
    level = [tree]
    for _ in range(MAX_DEPTH):
        level = [each for node in level for each in _below(node)]
        if not level:
            return
    raise refusal(text, f"nested deeper than {MAX_DEPTH}", position_of(level[0]))


def _check_whole(text: str, tree: exp.Expr) -> None:
    """Refuse a list of which a member is missing: sqlglot does not miss it."""
    for node in tree.walk():
        if any(isinstance(each, list) and None in each for each in node.args.values()):
            raise refusal(text, "something is missing in this list", position_of(node))


def _below(node: exp.Expr) -> Iterator[exp.Expr]:
    """The nodes one level below; those of a whole chain."""
    stack = [node]
    while stack:
        each = stack.pop()
        for child in each.iter_expressions():
            if type(child) is type(each) and isinstance(child, _CHAINS):
                stack.append(child)
            else:
                yield child


def _tokens(text: str) -> list[Token]:
    for position, character in enumerate(text):
        if character < " " and character not in "\t\n\r":
            raise refusal(text, f"character {character!a} is not allowed", position)
    try:
        tokens = sqlglot.tokenize(text, read=Medusa)
    except SqlglotError:
        raise refusal(text, "a string, name or comment does not end", _endless(text)) from None
    if len(tokens) > MAX_TOKENS:
        reason = f"the script has {len(tokens):,} words and signs, at most {MAX_TOKENS:,} allowed"
        raise refusal(text, reason, tokens[MAX_TOKENS].start)
    for token in tokens:
        if token.token_type is TokenType.HINT:
            raise refusal(text, "hints are not part of the language: /* a comment */", token.start)
        if token.token_type is TokenType.COLON:  # sqlglot reads a path of JSON behind it
            raise refusal(text, "`:` is not part of the language: say json_value", token.start)
        if token.token_type is TokenType.PIPE_GT:
            reason = "`|>` is not part of the language: say SELECT ... FROM ... WHERE ..."
            raise refusal(text, reason, token.start)
    _check_lists(text, tokens)
    _check_names(text, tokens)
    _check_selects(text, tokens)
    _check_numbers(text, tokens)
    _check_nesting(text, tokens)
    _check_closed(text, tokens)
    return tokens


def _check_lists(text: str, tokens: list[Token]) -> None:
    """Refuse a list that begins or ends with a comma: sqlglot does not miss its member."""
    for token, following in pairwise(tokens):
        if token.token_type is TokenType.COMMA and following.token_type in _AFTER_LIST:
            raise refusal(text, "something is missing after the comma", token.start)
        if following.token_type is TokenType.COMMA and token.token_type in _BEFORE_LIST:
            raise refusal(text, "something is missing before the comma", following.start)


def _check_names(text: str, tokens: list[Token]) -> None:
    """Refuse a text before or behind a dot: sqlglot takes the second for a name."""
    for pair in pairwise(tokens):
        kinds = {each.token_type for each in pair}
        if kinds == {TokenType.DOT, TokenType.STRING}:
            word = next(each for each in pair if each.token_type is TokenType.STRING)
            raise refusal(text, text_is_no_name(word), word.start)


def _check_selects(text: str, tokens: list[Token]) -> None:
    """Refuse other languages' words behind SELECT, which sqlglot takes for names or leaves out."""
    for select, word, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if select.token_type is not TokenType.SELECT:
            continue
        if word.token_type is TokenType.ALIAS:
            said = f"SELECT AS {after.text[:40].upper()}"
            reason = f"`{said}` is not part of the language: name the columns, SELECT a, b"
            raise refusal(text, reason, select.start)
        counted = after.token_type in {TokenType.NUMBER, TokenType.L_PAREN}
        if word.text.upper() == "TOP" and word.token_type is not TokenType.IDENTIFIER and counted:
            raise refusal(
                text, f"`TOP` is not part of the language: {REASONS['limit']}", word.start
            )


def _check_numbers(text: str, tokens: list[Token]) -> None:
    """Refuse a number that a word follows without a blank: `0x1F` is not a 0 that is called x1F."""
    for token, following in pairwise(tokens):
        behind = following.start == token.end + 1 and text[following.start].isidentifier()
        if token.token_type is TokenType.NUMBER and behind:
            written = text[token.start : following.end + 1]
            raise refusal(text, f"{written[:40]!a} is not a number: write its digits", token.start)


def _endless(text: str) -> int:
    """Return where the first string, name or comment begins that does not end."""
    place = 0
    while opening := _OPENINGS.search(text, place):
        rest = _REST[opening.group()].match(text, opening.end())
        if rest is None:
            return opening.start()
        place = rest.end()
    return 0


def _check_nesting(text: str, tokens: list[Token]) -> None:
    """Refuse a text that is nested too deeply for the parser's recursion."""
    depth = prefixes = 0
    for token in tokens:
        kind = token.token_type
        prefixes = prefixes + 1 if kind in _PREFIXES else 0
        depth += (kind in _OPENING) - (kind in _CLOSING)
        if depth + prefixes > MAX_NESTING:
            raise refusal(text, f"nested deeper than {MAX_NESTING}", token.start)
        if kind is TokenType.SEMICOLON:
            depth = 0
        if kind is TokenType.END and depth > 0:
            depth -= 1


def _check_closed(text: str, tokens: list[Token]) -> None:
    """Refuse a parenthesis that does not close: sqlglot does not miss that of a CAST."""
    opened: list[Token] = []
    for token in tokens:
        if token.token_type is TokenType.L_PAREN:
            opened.append(token)
        elif token.token_type is TokenType.R_PAREN and opened:
            opened.pop()
        elif token.token_type is TokenType.SEMICOLON and opened:
            break
    if opened:
        raise refusal(text, "a parenthesis does not close", opened[-1].start)


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
