"""Medusa's dialect of SQL: that of expressions, with clauses, streams and windows."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import ClassVar, Final

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser

from medusa.engine.expressions.grammar import Expressions
from medusa.engine.expressions.type_grammar import TypeName
from medusa.engine.language.sql.window_grammar import WindowParser

EXPLAIN: Final = "EXPLAIN"
"""The first word of a script that asks for the plan of its queries."""


class Definition(exp.Expression):
    """`CREATE SCHEMA | STREAM | TABLE | QUERY name ...`."""

    arg_types: ClassVar = {
        "this": True,  # a Table: the name
        "kind": True,
        "temporary": False,
        "fields": False,  # FieldDefinition, Watermark, Key
        "schema": False,  # a Table: `USING schema`
        "options": False,  # the options of WITH: (Identifier, value) pairs, as EQ
        "query": False,  # the query, behind AS
        "body": False,  # the definitions between BEGIN and END, added by `parse`
        "more": False,  # further names, of SPLIT's streams
    }


class FunctionDefinition(exp.Expression):
    """`CREATE FUNCTION f(a type, ...) RETURNS type [DETERMINISTIC] LANGUAGE PYTHON AS 'code'`."""

    arg_types: ClassVar = {
        "this": True,  # an Identifier: the name
        "arguments": True,  # TypeNames
        "result": True,
        "deterministic": False,
        "source": True,  # a string: the source of its code
    }


class FieldDefinition(exp.Expression):
    """`name type [NOT NULL] [PRIMARY KEY]` in a list of fields."""

    arg_types: ClassVar = {"this": True, "kind": True, "constraints": False}


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

    TABLE_ALIAS_TOKENS: ClassVar = SparkParser.TABLE_ALIAS_TOKENS - {TokenType.ASC, TokenType.DESC}

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

    def parse_set_operation(
        self, this: exp.Expr | None, consume_pipe: bool = False, intersect_only: bool = False
    ) -> exp.SetOperation | None:
        """Parse a UNION; refuse the words of a join before it, which sqlglot skips."""
        index, start = self._index, self._curr
        self._parse_join_parts()
        if self._index > index and self._curr and self._curr.token_type in self.SET_OPERATIONS:
            self._refuse(f"{start.text[:40]} means nothing before {self._curr.text}", start)
        self._retreat(index)
        return super().parse_set_operation(this, consume_pipe, intersect_only)

    def _parse_join(
        self,
        skip_join_token: bool = False,
        parse_bracket: bool = False,
        alias_tokens: Collection[TokenType] | None = None,
    ) -> exp.Join | None:
        """Parse a join. Behind a comma a stream must follow; sqlglot accepts none."""
        if not self._match(TokenType.COMMA):
            return super()._parse_join(skip_join_token, parse_bracket, alias_tokens)
        table = self._parse_table(alias_tokens=alias_tokens)
        return self.expression(exp.Join(this=table, kind="CROSS"))

    def _parse_table_alias(
        self, alias_tokens: Collection[TokenType] | None = None
    ) -> exp.TableAlias | None:
        """Parse the alias of a stream. Behind AS a name must follow; sqlglot accepts none."""
        if self._prev.token_type is TokenType.STAR:
            self._refuse("* stands behind SELECT, and not behind a stream", self._prev)
        made = super()._parse_table_alias(alias_tokens)
        if made is None and self._prev.token_type is TokenType.ALIAS:
            self._refuse("a name is missing after AS", self._prev)
        return made

    def _parse_ordered(
        self, parse_method: Callable[[], exp.Expr | None] | None = None
    ) -> exp.Ordered | None:
        """Parse an expression of ORDER BY. `nulls_first` becomes None unless the text has NULLS
        FIRST or NULLS LAST."""
        this = parse_method() if parse_method else self._parse_disjunction()
        if this is None:
            return None
        descending = bool(self._match(TokenType.DESC))
        if not descending:
            self._match(TokenType.ASC)
        nulls_first: bool | None = None
        if self._match_text_seq("NULLS", "FIRST"):
            nulls_first = True
        elif self._match_text_seq("NULLS", "LAST"):
            nulls_first = False
        made = self.expression(exp.Ordered(this=this, desc=descending, nulls_first=False))
        made.set("nulls_first", nulls_first)  # the check of a new node asks for a value
        return made

    def _parse_cte(self) -> exp.CTE | exp.FunctionSpecification | None:
        """Parse a member of WITH. sqlglot accepts a WITH in place of the comma between two
        members."""
        before = self._tokens[max(self._index - 2, 0)].token_type
        if self._prev.token_type is TokenType.WITH and before is TokenType.R_PAREN:
            self._refuse("a query has one WITH: say WITH a AS (...), b AS (...) SELECT", self._prev)
        return super()._parse_cte()

    def _is_query(self) -> bool:
        return self._curr.token_type in {TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN}

    def _parse_as_command(self, start: Token) -> exp.Command:
        self._refuse(f"{start.text} is not a statement here")

    def _definition(self) -> exp.Expr:
        if self._match_text_seq("FUNCTION"):
            return self._function()
        start = self._curr
        temporary = self._match_text_seq("TEMPORARY") or self._match_text_seq("TEMP")
        kind = self._curr.text.upper()
        if temporary and kind in {"SCHEMA", "QUERY", "FUNCTION"}:
            self._refuse(
                f"a {kind} is not TEMPORARY: a stream of a QUERY is, that another one of it reads",
                start,
            )
        if kind not in {"SCHEMA", "STREAM", "TABLE", "QUERY"}:
            mend = "; a VIEW is a TEMPORARY STREAM in a QUERY" if kind == "VIEW" else ""
            self._refuse(f"after CREATE comes SCHEMA, STREAM, TABLE, QUERY or FUNCTION{mend}")
        self._advance()
        self._refuse_if_not_exists()
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
        # the end of the text after AS QUERY means that BEGIN follows, which `parse` handles
        if self._match(TokenType.ALIAS) and (self._curr or kind != "QUERY"):
            made.set("query", self._made_of())
        return self.expression(made)

    def _refuse_if_not_exists(self) -> None:
        start = self._curr
        if self._match_text_seq("IF", "NOT", "EXISTS"):
            self._refuse("IF NOT EXISTS is not part of the language: leave it out", start)

    def _function(self) -> exp.Expr:
        """Parse a CREATE FUNCTION, from the third word on."""
        start = self._curr
        self._refuse_if_not_exists()
        name = self._parse_id_var(any_token=True)
        if name is None or not self._curr or self._curr.token_type is not TokenType.L_PAREN:
            self._refuse("a function is CREATE FUNCTION f(a INT, ...) RETURNS type ...", start)
        named: set[str] = set()
        arguments = self._parse_wrapped_csv(lambda: self._argument_type(named))
        made = FunctionDefinition(this=name, arguments=arguments)
        said: set[str] = set()
        while self._curr and not self._match(TokenType.ALIAS):
            word = self._curr
            clause = "DETERMINISTIC" if word.text.upper() == "NOT" else word.text.upper()
            if clause in said:
                self._refuse(f"{clause} is said twice", word)
            said.add(clause)
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

    def _argument_type(self, named: set[str]) -> TypeName:
        """The type of an argument. named: the names of earlier arguments, in small letters."""
        start, name = self._curr, self._parse_id_var(any_token=True)
        if name is None:
            self._refuse("a function takes arguments, each a name and a type: f(a INT)")
        if name.name.lower() in named:
            self._refuse(
                f"argument {name.name[:40]} occurs twice (case does not count): give each a name "
                "of its own",
                start,
            )
        named.add(name.name.lower())
        return self._type_name()

    def _made_name(self) -> exp.Table:
        """Parse `[TEMPORARY] name` in a statement that may make several streams."""
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
        return self._parse_statement()

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
        start, type_ = self._curr, self._type_name()
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
        made = FieldDefinition(this=name, kind=type_, constraints=constraints)
        return self.expression(made, start)

    def _option(self) -> exp.Expr:
        token = self._curr
        if self._match(TokenType.STRING):
            name: exp.Expr | None = self.expression(exp.Identifier(this=token.text), token)
        else:
            name = self._parse_id_var(any_token=True)
        if not self._match(TokenType.EQ):
            self._refuse("an option is name = value")
        value = self._parse_interval() or self._parse_unary()
        return self.expression(exp.EQ(this=name, expression=value))


class Medusa(Expressions):
    """The dialect of scripts."""

    class Tokenizer(Expressions.Tokenizer):
        """Splits a script into words and signs."""

        KEYWORDS: ClassVar = {
            word: kind
            for word, kind in Spark.Tokenizer.KEYWORDS.items()
            if word not in {"WINDOW", "SESSION"}
        } | {"MATCH_RECOGNIZE": TokenType.MATCH_RECOGNIZE}

    Parser = MedusaParser  # type: ignore[mutable-override]


_STATEMENTS: Final = {
    "INSERT": "; `medusa post` posts rows, and CREATE STREAM s AS SELECT ... makes a query",
    "DROP": "; `medusa stream delete` and `medusa query delete` delete",
}
"""How to mend statements of other languages, by their first words."""
