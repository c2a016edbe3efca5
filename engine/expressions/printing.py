"""Expressions as texts: the ones that boxes keep, which are SQL as well."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.generator import Generator

from medusa.engine.expressions.grammar import KEYWORDS, Expressions
from medusa.engine.expressions.names import check_call
from medusa.engine.expressions.nodes import chain, check_kind
from medusa.engine.expressions.parsing import tree_of
from medusa.engine.expressions.texts import ExpressionText, Text
from medusa.engine.expressions.type_grammar import TypeName, type_of

Substitute = Callable[[exp.Expr], str | None]
"""A function: the text to print in place of a node; None: the node is printed as it is.

Raises:
    InvalidInputError: the node is not allowed at this place.
"""

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_RESERVED: Final = (
    KEYWORDS
    | {"match_recognize"}  # a keyword in scripts only
    | {word.lower() for word in Spark.Tokenizer.KEYWORDS if word.isidentifier()}
)
"""Words that a language gives a meaning: the printer quotes a name that is one of them."""

_SIDES: Final = frozenset({"left", "right"})
"""The names of the sides of a join, which are keywords."""


def name_text(name: str) -> str:
    """The name of a field in an expression."""
    if _PLAIN.fullmatch(name) and name.lower() not in _RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


def string_text(value: str) -> str:
    """A string constant in an expression."""
    return "'" + value.replace("'", "''") + "'"


def expression_text(node: exp.Expr, source: Text, substitute: Substitute) -> str:
    """The text of a node.

    Raises:
        InvalidInputError: an error of `source`: the language has no form for a part of the node.
    """
    return _Printer(source, substitute).sql(node)


def expression_sql(text: str, substitute: Substitute = lambda _: None) -> str:
    """The text of an expression as a box made of SQL keeps it. Raises: InvalidInputError: the text
    is no expression.
    """
    return printed(tree_of(text), substitute)


def printed(tree: exp.Expr, substitute: Substitute = lambda _: None) -> str:
    """The text of an expression's tree."""
    return expression_text(tree, ExpressionText(""), substitute)


class _Printer(Generator):
    """Prints the nodes of the language; any other node is an error."""

    def __init__(self, source: Text, substitute: Substitute) -> None:
        super().__init__(dialect=_DIALECT, normalize_functions="lower", comments=False)
        self._source = source
        self._substitute = substitute

    def sql(self, expression: Any, key: str | None = None, comment: bool = True) -> str:  # noqa: ANN401 - sqlglot's
        """The text of a node, or of the part of it that `key` names."""
        node = expression.args.get(key) if key else expression
        if not isinstance(node, exp.Expr):
            return str(node or "")
        made = self._substitute(node)
        if made is None:
            if not isinstance(node, (exp.Identifier, exp.Var, TypeName)):
                check_kind(node, self._source)
            made = getattr(self, f"{node.key}_sql")(node)
        self._source.note(node, made)
        return str(made)

    def binary(self, expression: exp.Expr, op: str) -> str:
        """Print `a op b`; each operand may have a substitute. A chain of `||` is printed with all
        its operands."""
        if isinstance(expression, exp.DPipe):
            return f" {op} ".join(map(self.sql, chain(expression)))
        return f"{self.sql(expression.this)} {op} {self.sql(expression.expression)}"

    def identifier_sql(self, expression: exp.Identifier) -> str:
        return name_text(expression.name)

    def column_parts(self, expression: exp.Column) -> str:
        side = expression.args.get("table")
        if side is not None and side.name in _SIDES and not expression.args.get("db"):
            return f"{side.name}.{self.sql(expression.this)}"
        return super().column_parts(expression)

    def not_sql(self, expression: exp.Not) -> str:
        inner = expression.this
        if isinstance(inner, (exp.Is, exp.In, exp.Between)) and self._substitute(inner) is None:
            value, whole = self.sql(inner.this), self.sql(inner)
            words = whole.removeprefix(value)
            of_is = isinstance(inner, exp.Is)
            return f"{value} IS NOT{words.removeprefix(' IS')}" if of_is else f"{value} NOT{words}"
        return super().not_sql(expression)

    def typename_sql(self, expression: TypeName) -> str:
        type_, size = type_of(expression, self._source)
        return type_.upper() if size is None else f"{type_.upper()}({size})"

    def regexplike_sql(self, expression: exp.RegexpLike) -> str:
        return self.binary(expression, "RLIKE")

    def anonymous_sql(self, expression: exp.Anonymous) -> str:
        check_call(expression, self._source)
        name, operands = expression.name.lower(), expression.expressions
        return f"{name}({', '.join(map(self.sql, operands))})"


_DIALECT: Final = Expressions()
