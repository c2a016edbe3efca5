"""Expressions of a script as texts of the expression language, which has its own parser.

sqlglot's tree of an expression is printed in the words of
`medusa.engine.language.parse_expression`, with the fields' names of the box that it becomes part
of. That parser decides what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from sqlglot import exp

from medusa.engine.aggregates.rows import NAMES as AGGREGATES
from medusa.engine.language.expression_tokens import KEYWORDS, no_function
from medusa.engine.language.sql.errors import Source
from medusa.engine.language.sql.type_grammar import type_of
from medusa.engine.scalars.rows import FUNCTIONS

Substitute = Callable[[exp.Expr], str | None]
"""The text that stands for a node, or None: the node is printed as it is. It must answer for every
`exp.Column`.

Raises:
    PointedError: the node cannot be here.
"""

_BINARY: Final[dict[type[exp.Expr], str]] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}

_CHAINS: Final[dict[type[exp.Expr], str]] = {exp.And: "and", exp.Or: "or", exp.DPipe: "||"}

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_RESERVED: Final = KEYWORDS

_SECONDS: Final = {
    "MICROSECOND": Decimal("1e-6"),
    "MILLISECOND": Decimal("1e-3"),
    "SECOND": Decimal(1),
    "MINUTE": Decimal(60),
    "HOUR": Decimal(3600),
    "DAY": Decimal(86_400),
    "WEEK": Decimal(7 * 86_400),
}


def name_text(name: str) -> str:
    """The name of a field in an expression."""
    if _PLAIN.fullmatch(name) and name.lower() not in _RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


def string_text(value: str) -> str:
    """A string constant in an expression."""
    return "'" + value.replace("'", "''") + "'"


def expression_text(node: exp.Expr, source: Source, substitute: Substitute) -> str:
    """The node in the expression language.

    Raises:
        PointedError: a part of it has no form there.
    """
    return _Printer(source, substitute).text(node)


def interval_us(node: exp.Expr, source: Source) -> int:
    """The length of an INTERVAL, microseconds.

    Raises:
        PointedError: it has no fixed length, or is no interval.
    """
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        raise source.refusal("here comes an interval, like INTERVAL '10' SECOND", node)
    unit = node.args.get("unit")
    name = unit.name.upper().removesuffix("S") if isinstance(unit, exp.Var) else ""
    if name in {"MONTH", "YEAR", "QUARTER"}:
        raise source.refusal(f"a {name.lower()} has no fixed length: say so many DAYs", node)
    if name not in _SECONDS:
        raise source.refusal(
            f"an interval's unit is one of {', '.join(_SECONDS)}, like INTERVAL '10' SECOND", node
        )
    if not re.fullmatch(r"-?\d{1,19}(\.\d{1,6})?", node.this.name.strip()):
        raise source.refusal(f"{node.this.name[:40]!a} is not a number", node)
    return round(Decimal(node.this.name.strip()) * _SECONDS[name] * 1_000_000)


class _Printer:
    def __init__(self, source: Source, substitute: Substitute) -> None:
        self._source = source
        self._substitute = substitute

    def text(self, node: exp.Expr) -> str:
        replaced = self._substitute(node)
        made = self._plain(node) if replaced is None else replaced
        return self._source.printed(node, made)

    def _plain(self, node: exp.Expr) -> str:
        kind = type(node)
        if kind in _CHAINS:
            return f" {_CHAINS[kind]} ".join(map(self.text, _chain(node)))
        if kind in _BINARY:
            return f"{self.text(node.this)} {_BINARY[kind]} {self.text(node.expression)}"
        build = _FORMS.get(kind)
        if build is None:
            if isinstance(node, exp.Window) and not isinstance(node.this, exp.Anonymous):
                node = node.this  # what stands before OVER
            mend = next((each for of, each in _MENDS.items() if isinstance(node, of)), "")
            raise self._source.no_part(node, mend)
        return build(self, node)

    def _all(self, nodes: list[exp.Expr]) -> str:
        return ", ".join(map(self.text, nodes))

    def paren(self, node: exp.Expr) -> str:
        return f"({self.text(node.this)})"

    def negation(self, node: exp.Expr) -> str:
        inner = node.this
        if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
            return f"{self.text(inner.this)} is not null"
        match inner:
            case exp.In():
                return self.in_(inner, " not")
            case exp.Between():
                return self.between(inner, " not")
            case exp.Like() if not inner.args.get("negate"):
                return self.like(inner, " not")
            case exp.Escape() if not inner.this.args.get("negate"):
                return self.escape(inner, " not")
            case _:
                return f"not {self.text(inner)}"

    def minus(self, node: exp.Expr) -> str:
        inner = self.text(node.this)
        return f"- {inner}" if inner.startswith("-") else f"-{inner}"  # -- begins a comment

    def literal(self, node: exp.Expr) -> str:
        return string_text(node.name) if node.args.get("is_string") else node.name

    def boolean(self, node: exp.Expr) -> str:
        return "true" if node.this else "false"

    def null(self, _node: exp.Expr) -> str:
        return "null"

    def is_(self, node: exp.Expr) -> str:
        if isinstance(node.expression, exp.Null):
            return f"{self.text(node.this)} is null"
        if isinstance(node.expression, exp.Boolean):  # null is neither
            value = "true" if node.expression.this else "false"
            return f"coalesce({self.text(node.this)} = {value}, false)"
        raise self._source.refusal("after IS comes NULL, NOT NULL, TRUE or FALSE", node)

    def in_(self, node: exp.Expr, negation: str = "") -> str:
        if node.args.get("query") is not None:
            raise self._source.refusal(
                "IN takes a list of values: for the rows of another stream say "
                "LEFT SEMI JOIN ... ON",
                node,
            )
        return f"{self.text(node.this)}{negation} in ({self._all(node.expressions)})"

    def between(self, node: exp.Expr, negation: str = "") -> str:
        if node.args.get("symmetric"):
            raise self._source.refusal("SYMMETRIC is not part of the language", node)
        low, high = self.text(node.args["low"]), self.text(node.args["high"])
        return f"{self.text(node.this)}{negation} between {low} and {high}"

    def like(self, node: exp.Expr, negation: str = "") -> str:
        negation = " not" if node.args.get("negate") else negation
        return f"{self.text(node.this)}{negation} like {self.text(node.expression)}"

    def escape(self, node: exp.Expr, negation: str = "") -> str:
        if not isinstance(node.this, exp.Like):
            raise self._source.refusal("ESCAPE stands behind the pattern of LIKE", node)
        return f"{self.like(node.this, negation)} escape {self.text(node.expression)}"

    def matches(self, node: exp.Expr) -> str:
        return f"regexp_like({self.text(node.this)}, {self.text(node.expression)})"

    def distinct(self, node: exp.Expr) -> str:
        return f"{self.text(node.this)} is distinct from {self.text(node.expression)}"

    def same(self, node: exp.Expr) -> str:
        return f"{self.text(node.this)} is not distinct from {self.text(node.expression)}"

    def interval(self, node: exp.Expr) -> str:
        unit = node.args.get("unit")
        if not isinstance(node.this, exp.Literal) or not isinstance(unit, exp.Var):
            raise self._source.refusal(
                "an interval is a number and a unit, like INTERVAL '10' SECOND", node
            )
        return f"interval {string_text(node.this.name)} {unit.name.lower()}"

    def extract(self, node: exp.Expr) -> str:
        return f"extract({string_text(node.name.lower())}, {self.text(node.expression)})"

    def case(self, node: exp.Expr) -> str:
        parts = ["case"] if node.this is None else ["case", self.text(node.this)]
        parts += [
            f"when {self.text(each.this)} then {self.text(each.args['true'])}"
            for each in node.args["ifs"]
        ]
        if node.args.get("default") is not None:
            parts.append(f"else {self.text(node.args['default'])}")
        return " ".join([*parts, "end"])

    def cast(self, node: exp.Expr) -> str:
        type_, size = type_of(node.args["to"], self._source)
        cast = f"cast({self.text(node.this)} as {type_})"
        return cast if size is None else f"substring({cast}, 1, {size})"

    def call(self, node: exp.Expr) -> str:
        name, operands = node.name.lower(), node.expressions
        if name in _ELSEWHERE:
            raise self._source.refusal(_ELSEWHERE[name], node)
        if name not in FUNCTIONS | self._source.functions:
            others = self._source.functions | {*AGGREGATES}
            raise self._source.refusal(no_function(node.name, others), node)
        match name, operands:
            case "timestampdiff", [exp.Column(table="") as unit, *rest]:
                return f"{name}({string_text(unit.name)}, {self._all(rest)})"
            case _, [exp.Star()]:
                raise self._source.refusal(
                    f"{node.name[:40]}(*) is not part of the language here: only count takes *",
                    node,
                )
            case _:
                return f"{name}({self._all(operands)})"


_FORMS: Final[dict[type[exp.Expr], Callable[[_Printer, exp.Expr], str]]] = {
    exp.Paren: _Printer.paren,
    exp.Not: _Printer.negation,
    exp.Neg: _Printer.minus,
    exp.Literal: _Printer.literal,
    exp.Boolean: _Printer.boolean,
    exp.Null: _Printer.null,
    exp.Is: _Printer.is_,
    exp.In: _Printer.in_,
    exp.Between: _Printer.between,
    exp.Like: _Printer.like,
    exp.Escape: _Printer.escape,
    exp.Case: _Printer.case,
    exp.Cast: _Printer.cast,
    exp.RegexpLike: _Printer.matches,
    exp.NullSafeNEQ: _Printer.distinct,
    exp.NullSafeEQ: _Printer.same,
    exp.Interval: _Printer.interval,
    exp.Extract: _Printer.extract,
    exp.Anonymous: _Printer.call,
}


_ELSEWHERE: Final = {
    "row_number": "ROW_NUMBER() takes OVER (PARTITION BY ... ORDER BY ...), or a window of rows",
    **dict.fromkeys(
        ("tumble", "hop", "session", "cumulate"),
        "a window stands in FROM, like TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE), or in "
        "GROUP BY",
    ),
}
"""Functions of SQL that are no values of a row, and where they stand."""

_MENDS: Final = {
    exp.Exists: ": say LEFT SEMI JOIN ... ON, or LEFT ANTI JOIN for NOT EXISTS",
    exp.Subquery: ": join the stream that it reads",
    exp.IntDiv: ": say cast(a / b AS LONG)",
    exp.BitwiseAnd: ": say bitand(a, b)",
    exp.BitwiseOr: ": say bitor(a, b)",
    exp.BitwiseXor: ": say bitxor(a, b)",
    exp.BitwiseNot: ": say bitxor(a, -1)",
    exp.BitwiseLeftShift: ": say shiftleft(a, bits)",
    exp.BitwiseRightShift: ": say shiftright(a, bits)",
    exp.AtTimeZone: ": times are in UTC; add an INTERVAL to one",
    exp.Bracket: ": of JSON say json_value(s, '$[0]'), of a text split_index(s, ',', 0)",
    exp.JSONExtract: ": say json_value(s, '$.name')",
    exp.ILike: ": say lower(s) LIKE 'pattern'",
    exp.Filter: ": it is for an aggregate; for others say WHERE, of this SELECT or of a subquery",
    exp.Window: ": a rank is ROW_NUMBER(), an earlier row PREV(x) of MATCH_RECOGNIZE, or in ROWS "
    "BETWEEN n PRECEDING",
}


def _chain(node: exp.Expr) -> list[exp.Expr]:
    """The operands of `a and b and c`, which sqlglot nests to the left."""
    parts: list[exp.Expr] = []
    left = node
    while type(left) is type(node):
        parts.append(left.expression)
        left = left.this
    return [left, *reversed(parts)]
