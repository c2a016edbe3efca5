"""The nodes of sqlglot's trees that the language has, and what to write instead of others."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from medusa.engine.expressions.texts import Text

BINARY: Final[dict[type[exp.Expr], str]] = {
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
    exp.Like: "like",
    exp.RegexpLike: "regexp_like",
    exp.NullSafeEQ: "is not distinct from",
    exp.NullSafeNEQ: "is not distinct from",
}
"""The binary operators, by their nodes."""

CHAINS: Final[dict[type[exp.Expr], str]] = {exp.And: "and", exp.Or: "or", exp.DPipe: "concat"}
"""The operators of two or more operands, by their nodes."""

_KINDS: Final[frozenset[type[exp.Expr]]] = frozenset(
    {
        *BINARY,
        *CHAINS,
        exp.Escape,
        exp.Paren,
        exp.Column,
        exp.Literal,
        exp.Boolean,
        exp.Null,
        exp.Not,
        exp.Neg,
        exp.Is,
        exp.In,
        exp.Between,
        exp.Interval,
        exp.Case,
        exp.Cast,
        exp.Anonymous,
    }
)

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


def check_kind(node: exp.Expr, text: Text) -> None:
    """Refuse a node that no expression has, with the mend.

    Raises:
        InvalidInputError: an error of `text`, in its own words.
    """
    if isinstance(node, exp.Between) and node.args.get("symmetric"):
        raise text.refusal("SYMMETRIC is not part of the language", node)
    if type(node) in _KINDS:
        return
    if isinstance(node, exp.Window) and not isinstance(node.this, exp.Anonymous):
        node = node.this  # the part before OVER
    mend = next((each for of, each in _MENDS.items() if isinstance(node, of)), "")
    raise text.no_part(node, mend)


def chain(node: exp.Expr) -> list[exp.Expr]:
    """The operands of `a and b and c`, which sqlglot nests to the left."""
    parts: list[exp.Expr] = []
    left = node
    while type(left) is type(node):
        parts.append(left.expression)
        left = left.this
    return [left, *reversed(parts)]
