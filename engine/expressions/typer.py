"""Parse an expression's text: sqlglot's grammar, our allow-list and types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, cast

from sqlglot import exp

from medusa.engine.expressions.constants import number
from medusa.engine.expressions.intervals import interval_us
from medusa.engine.expressions.names import check_call
from medusa.engine.expressions.nodes import BINARY, CHAINS, chain, check_kind
from medusa.engine.expressions.operations import Operations, Typed, constant
from medusa.engine.expressions.parsing import SHORT_TEXT, tree_of
from medusa.engine.expressions.texts import ExpressionError, ExpressionText, Text
from medusa.engine.expressions.type_grammar import type_of
from medusa.engine.expressions.typed import (
    MAX_NODES,
    Constant,
    Expression,
    FieldRef,
)
from medusa.engine.expressions.unread import unread, watch
from medusa.engine.expressions.user_functions import Declared
from medusa.engine.objects.schema import STIME, FieldType
from medusa.engine.scalars.moments import PLUS_INTERVAL
from medusa.engine.scalars.rows import OTHER_NAMES, SCALARS, SHORT_FORMS
from medusa.engine.scalars.signs import with_backslashes
from medusa.engine.scalars.type_rules import INTEGER_RANGE
from medusa.overlay.alternatives import alternatives

MAX_DEPTH: Final = 100
"""Levels of a typed expression: code that walks it recurses. A chain of `and`, `or` or `||` is one
level."""

FEW_FIELDS: Final = 64
"""Fields of the tuples of an expression whose types are remembered. 512 such expressions take 10 MB
at most."""

_LIST: Final = (
    "IN takes a list of values in parentheses: for the rows of another stream say "
    "LEFT SEMI JOIN ... ON"
)


def parse_expression(
    text: str,
    fields: Mapping[str, FieldType],
    nodes: Mapping[str, int] | None = None,
    functions: Declared | None = None,
) -> Expression:
    """Parse an expression over tuples of `fields` (and `stime`, a timestamp).

    Args:
        nodes: `FieldRef.nodes` of the fields that an earlier step of the task makes.
        functions: the functions of users that the text may call.

    Raises:
        InvalidInputError: it has a syntax error, or does not type-check; the message names the
            part, the reason and the position in `text`.
    """
    if nodes or functions or len(text) > SHORT_TEXT or len(fields) > FEW_FIELDS:
        return _typed(text, fields, nodes or {}, functions or {})
    return typed_short_text(text, tuple(fields.items()))


@lru_cache(maxsize=512)
def typed_short_text(text: str, fields: tuple[tuple[str, FieldType], ...]) -> Expression:
    """A query is typed several times: when it is created, planned, printed and compared."""
    return _typed(text, dict(fields), {}, {})


def _typed(
    text: str, fields: Mapping[str, FieldType], nodes: Mapping[str, int], functions: Declared
) -> Expression:
    source = ExpressionText(text, functions)
    tree = tree_of(text)
    watched = watch(tree)
    typed = _Typer(source, fields, nodes, functions).of(tree, 0)
    for part in unread(watched):
        raise source.no_part(part.node)
    if typed is None:
        raise source.refusal("null has no type: write cast(null as int), or another type", 0)
    return typed


def parse_predicate(
    text: str,
    fields: Mapping[str, FieldType],
    nodes: Mapping[str, int] | None = None,
    functions: Declared | None = None,
) -> Expression:
    """Parse a condition: an expression that is boolean.

    Raises:
        InvalidInputError: as `parse_expression`, or it is not boolean.
    """
    predicate = parse_expression(text, fields, nodes, functions)
    if predicate.type is not FieldType.BOOL:
        reason = f"it gives {predicate.type}; a condition must be true or false"
        raise ExpressionError(text, reason, 0)
    return predicate


class _Typer:
    """Walks the tree once: checks the node types and widens the operands."""

    def __init__(
        self,
        source: Text,
        fields: Mapping[str, FieldType],
        nodes: Mapping[str, int],
        functions: Declared,
    ) -> None:
        self._source = source
        self._make = Operations(source)
        self._fields = fields
        self._nodes = nodes
        self._functions = functions

    def of(self, node: exp.Expr, depth: int) -> Typed:
        typed = self._made(node, depth)
        if typed is not None and typed.nodes > MAX_NODES:
            raise self._source.refusal(
                f"written out it has {typed.nodes:,} parts, at most {MAX_NODES:,} allowed: "
                "`between`, `case x when`, `floor` and `ceil` repeat their x, as other functions "
                "do; fields that an earlier box makes are written out as well, unless their "
                "stream is an output of the query",
                node,
            )
        return typed

    def _made(self, node: exp.Expr, depth: int) -> Typed:
        while isinstance(node, exp.Paren):
            node = node.this
        check_kind(node, self._source)
        if depth > MAX_DEPTH:
            raise self._source.refusal(f"more than {MAX_DEPTH} operations within each other", node)
        below = depth + 1
        kind = type(node)
        if kind in CHAINS:
            return self._make.operation(
                CHAINS[kind], [self.of(each, below) for each in chain(node)], node
            )
        if kind in BINARY:
            return self._binary(node, below)
        build = cast("Callable[[exp.Expr, int], Typed]", getattr(self, f"_{kind.__name__.lower()}"))
        return build(node, below)

    # one method per node type, named after it

    def _column(self, node: exp.Expr, _: int) -> Typed:
        table = node.args.get("table")
        if node.args.get("db"):
            raise self._source.refusal("a qualified name is not part of the language", node)
        name = node.name if table is None else f"{table.name}.{node.name}"
        type_ = FieldType.TIMESTAMP if name == STIME else self._fields.get(name)
        if table is not None and type_ is None and "." not in "".join(self._fields):
            raise self._source.refusal("a qualified name is not part of the language", node)
        if not isinstance(node.this, exp.Identifier) or type_ is None:
            known = alternatives(name, (STIME, *self._fields))
            raise self._source.refusal(f"there is no field {name[:80]!a}; {known}", node)
        return FieldRef(name, type_, self._nodes.get(name, 1))

    def _literal(self, node: exp.Expr, _: int) -> Typed:
        text = str(node.this)
        if node.args.get("is_string"):
            return Constant(text, FieldType.STRING)
        return self._make.said(lambda: number(text), node)

    def _boolean(self, node: exp.Expr, _: int) -> Typed:
        return Constant(bool(node.this), FieldType.BOOL)

    def _null(self, _node: exp.Expr, _: int) -> Typed:
        return None

    def _not(self, node: exp.Expr, depth: int) -> Typed:
        return self._make.operation("not", [self.of(node.this, depth)], node)

    def _neg(self, node: exp.Expr, depth: int) -> Typed:
        if isinstance(node.this, exp.Literal) and not node.this.args.get("is_string"):
            return self._make.said(lambda: number(f"-{node.this.this}"), node)
        return self._make.operation("neg", [self.of(node.this, depth)], node)

    def _is(self, node: exp.Expr, depth: int) -> Typed:
        operand, value = self.of(node.this, depth), node.expression
        if isinstance(value, exp.Null):
            return self._make.operation("is_null", [operand], node)
        if not isinstance(value, exp.Boolean):
            reason = "after IS comes NULL, NOT NULL, TRUE or FALSE"
            raise self._source.refusal(reason, node)
        constant, no = Constant(bool(value.this), FieldType.BOOL), Constant(False, FieldType.BOOL)
        return self._make.operation(
            "coalesce", [self._make.operation("=", [operand, constant], node), no], node
        )

    def _interval(self, node: exp.Expr, _: int) -> Typed:
        reason = "an interval stands only after the + or - of a timestamp"
        raise self._source.refusal(reason, node)

    def _in(self, node: exp.Expr, depth: int) -> Typed:
        members = node.expressions
        if not members:
            raise self._source.refusal(_LIST, node)
        return self._make.operation(
            "in", [self.of(each, depth) for each in (node.this, *members)], node
        )

    def _between(self, node: exp.Expr, depth: int) -> Typed:
        value, low, high = (self.of(node.args[key], depth + 1) for key in ("this", "low", "high"))
        bounds = [
            self._make.operation(">=", [value, low], node),
            self._make.operation("<=", [value, high], node),
        ]
        return self._make.operation("and", bounds, node)

    def _case(self, node: exp.Expr, depth: int) -> Typed:
        compared = node.args.get("this")
        subject = None if compared is None else self.of(compared, depth)
        operands: list[Typed] = []
        for branch in node.args["ifs"]:
            condition = self.of(branch.this, depth)
            if compared is not None:
                condition = self._make.operation("=", [subject, condition], node)
            operands += [condition, self.of(branch.args["true"], depth)]
        default = node.args.get("default")
        operands.append(None if default is None else self.of(default, depth))
        return self._make.choice(operands, node)

    def _cast(self, node: exp.Expr, depth: int) -> Typed:
        target, size = type_of(node.args["to"], self._source)
        operand = self._make.cast(target, self.of(node.this, depth), node)
        if size is None:
            return operand
        places = [Constant(each, FieldType.INT) for each in (1, size)]
        return self._make.operation("substring", [operand, *places], node)

    def _anonymous(self, node: exp.Expr, depth: int) -> Typed:
        check_call(node, self._source)
        name = node.name.lower()
        operands = [self.of(each, depth) for each in node.expressions]
        if name in self._functions:
            return self._make.call(self._functions[name], operands, node)
        name = OTHER_NAMES.get(name, name)
        if name in SHORT_FORMS:
            return self._make.short(name, operands, node)
        count, default = SCALARS[name].left_out or (None, None)
        defaults = [constant(default)] if len(operands) == count else []
        return self._make.operation(name, operands, node, defaults)

    def _escape(self, node: exp.Expr, depth: int) -> Typed:
        """`like` with an escape character: the pattern is written with backslashes."""
        like, sign = node.this, node.expression
        if not isinstance(like, exp.Like) or not isinstance(like.expression, exp.Literal):
            raise self._source.refusal(
                "`escape` stands behind the pattern of `like`, a string", node
            )
        pattern = self._make.said(lambda: with_backslashes(like.expression.name, sign.name), sign)
        said, negate = exp.Literal.string(pattern), like.args.get("negate")
        return self.of(exp.Like(this=like.this, expression=said, negate=negate), depth)

    def _binary(self, node: exp.Expr, depth: int) -> Typed:
        if isinstance(node, (exp.Add, exp.Sub)):
            for moment, other in ((node.this, node.expression), (node.expression, node.this)):
                interval = other.unnest()
                if isinstance(interval, exp.Interval):
                    return self._moved(node, moment, interval, depth)
        operands = [self.of(node.this, depth), self.of(node.expression, depth)]
        operation = self._make.operation(BINARY[type(node)], operands, node)
        negative = isinstance(node, exp.NullSafeNEQ) or node.args.get("negate")
        return self._make.operation("not", [operation], node) if negative else operation

    def _moved(self, node: exp.Expr, moment: exp.Expr, interval: exp.Expr, depth: int) -> Typed:
        """The operation for a timestamp plus or minus an interval."""
        length = interval_us(interval, self._source)
        if isinstance(node, exp.Sub):
            if moment is not node.this:
                raise self._source.refusal("a timestamp cannot be taken from an interval", node)
            length = -length
        if length not in INTEGER_RANGE[FieldType.LONG]:
            raise self._source.refusal("the interval does not fit", interval)
        operands = [self.of(moment, depth), Constant(length, FieldType.LONG)]
        return self._make.operation(PLUS_INTERVAL, operands, node)
