"""Medusa's dialect of SQL: sqlglot's grammar of Spark with streams, windows and no functions.

Functions stay as they are written: sqlglot would give many of them other names and arguments.
`engine.language.sql.expressions` prints them for the parser of expressions, which has the list of
those that are allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import ClassVar, Final

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.parsers.spark import SparkParser

from engine.language.sql.errors import position_of, refusal
from engine.language.sql.match_grammar import OURS
from engine.language.sql.parts import check_parts
from engine.language.sql.window_grammar import WindowParser
from engine.objects.schema import FieldType

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

EXPLAIN: Final = "EXPLAIN"
"""The first word of a script that asks for the plan of its queries."""

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
    "CHAR": FieldType.STRING,
    "TEXT": FieldType.STRING,
}
"""The types of fields by their names, upper case."""

_KNOWN_TYPES: Final = ", ".join(TYPES)


class Definition(exp.Expression):
    """`CREATE SCHEMA | STREAM | TABLE | QUERY name ...`."""

    arg_types: ClassVar = {
        "this": True,  # the name: a Table
        "kind": True,
        "temporary": False,
        "fields": False,  # FieldDefinition, Watermark, Key
        "schema": False,  # a Table: `USING schema`
        "options": False,  # (Identifier, value) pairs of WITH, as EQ
        "query": False,  # what follows AS
        "body": False,  # the definitions between BEGIN and END, added by `parse`
        "more": False,  # further names, of a SPLIT's streams
    }


class FunctionDefinition(exp.Expression):
    """`CREATE FUNCTION f(a type, ...) RETURNS type [DETERMINISTIC] LANGUAGE PYTHON AS 'code'`."""

    arg_types: ClassVar = {
        "this": True,  # the name: an Identifier
        "arguments": True,  # Identifiers, the names of types
        "result": True,
        "deterministic": False,
        "source": True,  # a string: the place of its code
    }


class FieldDefinition(exp.Expression):
    """`name type [(size)] [NOT NULL] [PRIMARY KEY]` in a list of fields."""

    arg_types: ClassVar = {"this": True, "kind": True, "size": False, "constraints": False}


class Watermark(exp.Expression):
    """`WATERMARK FOR field AS field - INTERVAL ...` in a list of fields."""

    arg_types: ClassVar = {"this": True, "expression": True}


class Key(exp.Expression):
    """`PRIMARY KEY (a, b)` in a list of fields."""

    arg_types: ClassVar = {"expressions": True}


class Split(exp.Expression):
    """`SPLIT s BY p0, p1 [ELSE]`: a filter with several outputs."""

    arg_types: ClassVar = {"this": True, "expressions": True, "rest": False}


class MedusaParser(WindowParser):
    """Parses scripts of Medusa's dialect."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {}
    FUNCTION_PARSERS: ClassVar = {
        name: SparkParser.FUNCTION_PARSERS[name] for name in ("CAST", "EXTRACT")
    }
    NO_PAREN_FUNCTIONS: ClassVar[dict[TokenType, type[exp.Expr]]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}

    def _parse_statement(self) -> exp.Expr | None:
        if self._match(TokenType.CREATE):
            return self._definition()
        if self._match_text_seq(EXPLAIN):
            self._refuse("EXPLAIN is the first word of a script, and for all of it", self._prev)
        if not self._is_query():
            self._refuse(
                "a statement begins with CREATE SCHEMA, STREAM, TABLE, QUERY or FUNCTION, with "
                f"SELECT or WITH{_STATEMENTS.get(self._curr.text.upper(), '')}"
            )
        return super()._parse_statement()

    def _is_query(self) -> bool:
        return self._curr.token_type in {TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN}

    def _parse_as_command(self, start: Token) -> exp.Command:
        self._refuse(f"{start.text} is not a statement here")

    def _definition(self) -> exp.Expr:
        if self._match_text_seq("FUNCTION"):
            return self._function()
        temporary = self._match_text_seq("TEMPORARY") or self._match_text_seq("TEMP")
        kind = self._curr.text.upper()
        if kind not in {"SCHEMA", "STREAM", "TABLE", "QUERY"}:
            mend = "; a VIEW is a TEMPORARY STREAM in a QUERY" if kind == "VIEW" else ""
            self._refuse(f"after CREATE comes SCHEMA, STREAM, TABLE, QUERY or FUNCTION{mend}")
        self._advance()
        self._match_text_seq("IF", "NOT", "EXISTS")
        made = Definition(this=self._made_name(), kind=kind, temporary=bool(temporary))
        more = []
        while self._match(TokenType.COMMA):
            more.append(self._made_name())
        made.set("more", more)
        if self._curr and self._curr.token_type is TokenType.L_PAREN:
            made.set("fields", self._parse_wrapped_csv(self._field))
        if self._match_text_seq("USING"):
            made.set("schema", self._name())
        if self._match_pair(TokenType.WITH, TokenType.L_PAREN):
            made.set("options", self._parse_csv(self._option))
            self._match_r_paren()
        # without more of a QUERY, BEGIN follows, of which `parse` takes care
        if self._match(TokenType.ALIAS) and (self._curr or kind != "QUERY"):
            made.set("query", self._made_of())
        return self.expression(made)

    def _function(self) -> exp.Expr:
        """What follows CREATE FUNCTION."""
        start = self._curr
        self._match_text_seq("IF", "NOT", "EXISTS")
        name = self._parse_id_var(any_token=True)
        if name is None or not self._curr or self._curr.token_type is not TokenType.L_PAREN:
            self._refuse("a function is CREATE FUNCTION f(a INT, ...) RETURNS type ...", start)
        arguments = self._parse_wrapped_csv(self._argument_type)
        made = FunctionDefinition(this=name, arguments=arguments)
        while self._curr and not self._match(TokenType.ALIAS):
            word = self._curr
            if self._match_text_seq("RETURNS"):
                made.set("result", self._type_name())
            elif self._match_text_seq("LANGUAGE"):
                if not self._match_text_seq("PYTHON"):
                    self._refuse("a function is LANGUAGE PYTHON: there is no other")
            elif self._match_text_seq("NOT", "DETERMINISTIC"):
                made.set("deterministic", False)
            elif self._match_text_seq("DETERMINISTIC"):
                made.set("deterministic", True)
            else:
                self._refuse(
                    "after a function's arguments come RETURNS type, DETERMINISTIC, LANGUAGE "
                    "PYTHON, and AS 'FILE.py:NAME'",
                    word,
                )
        source = self._parse_string()
        if source is None or made.args.get("result") is None:
            self._refuse(
                "a function RETURNS a type, and is the code that an operator allows: AS "
                "'FILE.py:NAME'",
                start,
            )
        made.set("source", source)
        return self.expression(made, start)

    def _argument_type(self) -> exp.Identifier:
        if self._parse_id_var(any_token=True) is None:
            self._refuse("a function takes arguments, each a name and a type: f(a INT)")
        return self._type_name()

    def _type_name(self) -> exp.Identifier:
        type_ = self._curr
        if not type_ or not self._match_texts(TYPES):
            self._refuse(f"here comes a type; there are {_KNOWN_TYPES}")
        return exp.to_identifier(type_.text.upper())

    def _made_name(self) -> exp.Table:
        """`[TEMPORARY] name`, of a statement that may make several streams."""
        temporary = self._match_text_seq("TEMPORARY")
        name = self._name()
        name.set("temporary", bool(temporary))
        return name

    def _made_of(self) -> exp.Expr | None:
        if self._match_text_seq("SPLIT"):
            table = self._name()
            if not self._match_text_seq("BY"):
                self._refuse("SPLIT takes a stream and conditions: SPLIT s BY a > 1, b > 2 ELSE")
            conditions = self._parse_csv(self._parse_disjunction)
            rest = bool(self._match(TokenType.ELSE))
            return self.expression(Split(this=table, expressions=conditions, rest=rest))
        if not self._curr or not self._is_query():
            self._refuse("after AS comes SELECT, WITH or SPLIT")
        return self._parse_select()

    def _field(self) -> exp.Expr | None:
        if self._match_text_seq("WATERMARK", "FOR"):
            field = self._parse_id_var()
            self._match(TokenType.ALIAS)
            return self.expression(Watermark(this=field, expression=self._parse_bitwise()))
        if self._match(TokenType.PRIMARY_KEY):
            fields = self._parse_wrapped_csv(self._parse_id_var)
            if self._match_text_seq("NOT", "ENFORCED"):
                pass  # Flink's users write it; a key is not enforced here either
            return self.expression(Key(expressions=fields))
        name, constraints = self._parse_id_var(any_token=True), []
        type_ = self._curr
        if not self._match_texts(TYPES):
            self._refuse(f"{type_.text[:40]!a} is not a type; there are {_KNOWN_TYPES}")
        size = self._size()
        while self._curr and self._curr.token_type not in {TokenType.COMMA, TokenType.R_PAREN}:
            word = self._curr
            if self._match_text_seq("NOT", "NULL"):
                constraints.append("NOT NULL")
            elif self._match(TokenType.PRIMARY_KEY):
                constraints.append("KEY")
            elif self._match_text_seq("NULL"):
                constraints.append("NULL")
            else:
                self._refuse("after a field's type comes NOT NULL, NULL or PRIMARY KEY", word)
        made = FieldDefinition(this=name, kind=type_.text.upper(), size=size)
        made.set("constraints", constraints)
        return self.expression(made, type_)

    def _size(self) -> exp.Expr | None:
        if not self._match(TokenType.L_PAREN):
            return None
        size = self._parse_number()
        if size is None:
            self._refuse("a size is a whole number, like STRING(64)")
        self._match_r_paren()
        return size

    def _option(self) -> exp.Expr:
        token = self._curr
        name = self._parse_id_var(any_token=True)
        if name is None and self._match(TokenType.STRING):
            name = self.expression(exp.Identifier(this=self._prev.text), token)
        if not self._match(TokenType.EQ):
            self._refuse("an option is name = value")
        value = self._parse_interval() or self._parse_unary()
        return self.expression(exp.EQ(this=name, expression=value))


class Medusa(Spark):
    """Spark's SQL with standard strings and names: 'text', "name" or `name`."""

    NULL_ORDERING = "nulls_are_last"

    class Tokenizer(Spark.Tokenizer):
        """Splits a script into words and signs."""

        QUOTES: ClassVar = ["'"]
        IDENTIFIERS: ClassVar = ["`", '"']
        STRING_ESCAPES: ClassVar = ["'"]
        KEYWORDS: ClassVar = {
            word: kind
            for word, kind in Spark.Tokenizer.KEYWORDS.items()
            if word not in {"WINDOW", "SESSION"}
        } | {"MATCH_RECOGNIZE": TokenType.MATCH_RECOGNIZE}
        COMMANDS: ClassVar = set()
        HINT_START: ClassVar = ""
        RAW_STRINGS: ClassVar = []
        BYTE_STRINGS: ClassVar = []
        HEX_STRINGS: ClassVar = []

    Parser = MedusaParser  # type: ignore[mutable-override]


_STATEMENTS: Final = {
    "INSERT": "; `medusa post` posts rows, and CREATE STREAM s AS SELECT ... makes a query",
    "DROP": "; `medusa stream delete` and `medusa query delete` delete",
}
"""What to do instead of statements of other languages."""

_OPENINGS: Final = re.compile(r"""['"`]|--|/\*""")
_REST: Final = {
    "'": re.compile(r"[^']*'"),
    '"': re.compile(r'[^"]*"'),
    "`": re.compile(r"[^`]*`"),
    "--": re.compile(r"[^\n]*"),
    "/*": re.compile(r".*?\*/", re.DOTALL),
}
"""What follows the beginning of a string, a name or a comment that ends."""

_CHAINS: Final = (exp.And, exp.Or, exp.DPipe, exp.Union)
"""What sqlglot nests to the left, and our code walks in a loop."""

_OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.CASE, TokenType.L_BRACKET})
_CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET})
_AFTER_LIST: Final = _CLOSING | {
    TokenType.COMMA,
    TokenType.SEMICOLON,
    TokenType.FROM,
    TokenType.ELSE,
}
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
    check_parts(text, trees[0])
    return trees[0]


def _check_depth(text: str, tree: exp.Expr) -> None:
    """Refuse a tree that signs without parentheses nest too deeply: `a + a + a + ...`."""
    level = [tree]
    for _ in range(MAX_DEPTH):
        level = [each for node in level for each in _below(node)]
        if not level:
            return
    raise refusal(text, f"nested deeper than {MAX_DEPTH}", position_of(level[0]))


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
        if token.token_type is TokenType.COLON:  # sqlglot reads a path of JSON behind it
            raise refusal(text, "`:` is not part of the language: say json_value", token.start)
    for token, following in pairwise(tokens):
        if token.token_type is TokenType.COMMA and following.token_type in _AFTER_LIST:
            raise refusal(text, "something is missing after the comma", token.start)
    _check_nesting(text, tokens)
    return tokens


def _endless(text: str) -> int:
    """Where the first string, name or comment begins that does not end."""
    place = 0
    while opening := _OPENINGS.search(text, place):
        rest = _REST[opening.group()].match(text, opening.end())
        if rest is None:
            return opening.start()
        place = rest.end()
    return 0


def _check_nesting(text: str, tokens: list[Token]) -> None:
    """Refuse what is nested too deeply for the parser's recursion."""
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


def _syntax_error(error: ParseError, tokens: list[Token]) -> tuple[str, int]:
    """Reason and position of an error of sqlglot."""
    details = error.errors[0] if error.errors else {}
    reason = str(details.get("description") or "")
    place = (details.get("line"), details.get("col"))
    found = next((each for each in tokens if (each.line, each.col) == place), tokens[-1])
    if reason.startswith(OURS):
        return reason.removeprefix(OURS), found.start
    if found is tokens[-1]:
        return f"it ends too early, or {found.text[:40]!a} is a mistake", found.start
    return f"syntax error at {found.text[:40]!a}", found.start
