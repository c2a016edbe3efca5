"""Parse an expression's text: sqlglot's grammar, our allow-list and types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar, cast

from sqlglot import exp

from medusa.engine.language.constants import folded, number, widened
from medusa.engine.language.expressions.intervals import interval_us
from medusa.engine.language.expressions.names import check_call
from medusa.engine.language.expressions.nodes import BINARY, CHAINS, chain, check_kind
from medusa.engine.language.expressions.parsing import tree_of
from medusa.engine.language.expressions.texts import ExpressionError, ExpressionText, Text
from medusa.engine.language.expressions.type_grammar import type_of
from medusa.engine.language.expressions.unread import unread, watch
from medusa.engine.language.typed import (
    MAX_NODES,
    Call,
    Constant,
    Expression,
    FieldRef,
    Operation,
)
from medusa.engine.language.user_functions import Declared
from medusa.engine.objects.functions import UserFunction
from medusa.engine.objects.schema import STIME, FieldType
from medusa.engine.scalars.casts import CAST, can_cast
from medusa.engine.scalars.moments import PLUS_INTERVAL
from medusa.engine.scalars.rows import OTHER_NAMES, SCALARS, SHORT_FORMS
from medusa.engine.scalars.signs import with_backslashes
from medusa.engine.scalars.type_rules import INTEGER_RANGE, Literal, common_type, fixed

T = TypeVar("T")

Typed: TypeAlias = Expression | None
"""A typed expression; None: a bare `null`, which gets the type of its neighbours."""

Plain = bool | int | float | str
"""The types of constants that have a short form."""

MAX_DEPTH: Final = 100
"""Levels of a typed expression: code that walks it recurses. A chain of `and`, `or` or `||` is one
level."""

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
        functions: those of users that it may call.

    Raises:
        InvalidInputError: it has a syntax error, or does not type-check; the message names the
            part, the reason and the position in `text`.
    """
    source = ExpressionText(text, functions or ())
    tree = tree_of(text)
    watched = watch(tree)
    typed = _Typer(source, fields, nodes or {}, functions or {}).of(tree, 0)
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
            return self._operation(
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
            known = ", ".join((STIME, *self._fields))
            known = known if len(known) <= 200 else known[:197] + "..."
            raise self._source.refusal(f"there is no field {name[:80]!a}; there are {known}", node)
        return FieldRef(name, type_, self._nodes.get(name, 1))

    def _literal(self, node: exp.Expr, _: int) -> Typed:
        text = str(node.this)
        if node.args.get("is_string"):
            return Constant(text, FieldType.STRING)
        return self._said(lambda: number(text), node)

    def _boolean(self, node: exp.Expr, _: int) -> Typed:
        return Constant(bool(node.this), FieldType.BOOL)

    def _null(self, _node: exp.Expr, _: int) -> Typed:
        return None

    def _not(self, node: exp.Expr, depth: int) -> Typed:
        return self._operation("not", [self.of(node.this, depth)], node)

    def _neg(self, node: exp.Expr, depth: int) -> Typed:
        if isinstance(node.this, exp.Literal) and not node.this.args.get("is_string"):
            return self._said(lambda: number(f"-{node.this.this}"), node)
        return self._operation("neg", [self.of(node.this, depth)], node)

    def _is(self, node: exp.Expr, depth: int) -> Typed:
        operand, value = self.of(node.this, depth), node.expression
        if isinstance(value, exp.Null):
            return self._operation("is_null", [operand], node)
        if not isinstance(value, exp.Boolean):
            reason = "after IS comes NULL, NOT NULL, TRUE or FALSE"
            raise self._source.refusal(reason, node)
        constant, no = Constant(bool(value.this), FieldType.BOOL), Constant(False, FieldType.BOOL)
        return self._operation(
            "coalesce", [self._operation("=", [operand, constant], node), no], node
        )

    def _interval(self, node: exp.Expr, _: int) -> Typed:
        reason = "an interval stands only after the + or - of a timestamp"
        raise self._source.refusal(reason, node)

    def _in(self, node: exp.Expr, depth: int) -> Typed:
        members = node.expressions
        if not members:
            raise self._source.refusal(_LIST, node)
        return self._operation("in", [self.of(each, depth) for each in (node.this, *members)], node)

    def _between(self, node: exp.Expr, depth: int) -> Typed:
        value, low, high = (self.of(node.args[key], depth + 1) for key in ("this", "low", "high"))
        bounds = [
            self._operation(">=", [value, low], node),
            self._operation("<=", [value, high], node),
        ]
        return self._operation("and", bounds, node)

    def _case(self, node: exp.Expr, depth: int) -> Typed:
        compared = node.args.get("this")
        subject = None if compared is None else self.of(compared, depth)
        conditions: list[Typed] = []
        values: list[Typed] = []
        for branch in node.args["ifs"]:
            condition = self.of(branch.this, depth)
            if compared is not None:
                condition = self._operation("=", [subject, condition], node)
            conditions.append(condition)
            values.append(self.of(branch.args["true"], depth))
        default = node.args.get("default")
        values.append(None if default is None else self.of(default, depth))
        pairs = [each for pair in zip(conditions, values, strict=False) for each in pair]
        return self._choice([*pairs, values[-1]], node)

    def _choice(self, operands: Sequence[Typed], node: exp.Expr) -> Operation:
        """A `case`; a bare null among its values has their type."""
        values = self._fill([*operands[1::2], operands[-1]], node)
        conditions = [each or Constant(None, FieldType.BOOL) for each in operands[:-1:2]]
        pairs = [each for pair in zip(conditions, values, strict=False) for each in pair]
        return self._operation("case", [*pairs, values[-1]], node)

    def _cast(self, node: exp.Expr, depth: int) -> Typed:
        target, size = type_of(node.args["to"], self._source)
        operand = self._cast_to(target, self.of(node.this, depth), node)
        if size is None:
            return operand
        places = [Constant(each, FieldType.INT) for each in (1, size)]
        return self._operation("substring", [operand, *places], node)

    def _cast_to(self, target: FieldType, operand: Typed, node: exp.Expr) -> Expression:
        if operand is None:
            return Constant(None, target)
        if isinstance(operand, Constant):
            constant = self._said(lambda: folded(operand, target), node)
            if constant is not None:
                return constant
        if not can_cast(operand.type, target):
            raise self._source.refusal(f"{operand.type} cannot be cast to {target}", node)
        return operand if operand.type is target else Operation(CAST, (operand,), target)

    def _anonymous(self, node: exp.Expr, depth: int) -> Typed:
        check_call(node, self._source)
        name = node.name.lower()
        operands = [self.of(each, depth) for each in node.expressions]
        if name in self._functions:
            return self._call(self._functions[name], operands, node)
        name = OTHER_NAMES.get(name, name)
        if name in SHORT_FORMS:
            return self._short(name, operands, node)
        given = SCALARS[name].left_out
        if given is not None and len(operands) == given[0]:
            operands.append(_constant(given[1]))
        return self._operation(name, operands, node)

    def _call(self, function: UserFunction, operands: Sequence[Typed], node: exp.Expr) -> Call:
        wanted = function.arguments
        pairs = zip(operands, wanted, strict=False)
        filled = [Constant(None, type_) if each is None else each for each, type_ in pairs]
        resolution = fixed(wanted, function.result)([each.type for each in filled])
        if resolution is None or len(operands) != len(wanted):
            given = ", ".join("null" if each is None else each.type for each in operands[:8])
            raise self._source.refusal(
                f"`{function.name}` is {function.signature}, not of ({given})", node
            )
        return Call(function, tuple(map(widened, filled, wanted)))

    def _short(self, name: str, operands: Sequence[Typed], node: exp.Expr) -> Typed:
        form = SHORT_FORMS[name]
        if len(operands) != form.count:
            raise self._source.refusal(f"`{name}` takes {form.takes}", node)

        def make(name: str, of: Sequence[Typed | Literal]) -> Operation:
            made = [_constant(each) if isinstance(each, Plain) else each for each in of]
            return self._choice(made, node) if name == "case" else self._operation(name, made, node)

        built: Typed = self._said(lambda: form.build(make, operands), node)
        return built

    def _escape(self, node: exp.Expr, depth: int) -> Typed:
        """`like` with an escape character: the pattern is written with backslashes."""
        like, sign = node.this, node.expression
        if not isinstance(like, exp.Like) or not isinstance(like.expression, exp.Literal):
            raise self._source.refusal(
                "`escape` stands behind the pattern of `like`, a string", node
            )
        pattern = self._said(lambda: with_backslashes(like.expression.name, sign.name), sign)
        said, negate = exp.Literal.string(pattern), like.args.get("negate")
        return self.of(exp.Like(this=like.this, expression=said, negate=negate), depth)

    def _binary(self, node: exp.Expr, depth: int) -> Typed:
        if isinstance(node, (exp.Add, exp.Sub)):
            for moment, other in ((node.this, node.expression), (node.expression, node.this)):
                interval = other.unnest()
                if isinstance(interval, exp.Interval):
                    return self._moved(node, moment, interval, depth)
        operands = [self.of(node.this, depth), self.of(node.expression, depth)]
        operation = self._operation(BINARY[type(node)], operands, node)
        negative = isinstance(node, exp.NullSafeNEQ) or node.args.get("negate")
        return self._operation("not", [operation], node) if negative else operation

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
        return self._operation(PLUS_INTERVAL, operands, node)

    def _operation(self, name: str, operands: Sequence[Typed], node: exp.Expr) -> Operation:
        filled = self._fill(operands, node)
        resolution = SCALARS[name].types([operand.type for operand in filled])
        if resolution is None:
            given = ", ".join(operand.type for operand in filled[:8])
            takes, said = SCALARS[name].takes, "||" if isinstance(node, exp.DPipe) else name
            mend = _one_type(name, {operand.type for operand in filled})
            raise self._source.refusal(f"`{said}` takes {takes}, not ({given}){mend}", node)
        self._check_constants(name, filled, node)
        wide = tuple(map(widened, filled, resolution.operands))
        return Operation(name, wide, resolution.result)

    def _check_constants(self, name: str, operands: Sequence[Expression], node: exp.Expr) -> None:
        row = SCALARS[name]
        values: list[Literal] = []
        for place in row.constants:
            if place < len(operands):
                operand = operands[place]
                if not isinstance(operand, Constant):
                    reason = f"operand {place + 1} of `{name}` must be a constant"
                    raise self._source.refusal(reason, node)
                values.append(operand.value)
        wrong = row.check(values)
        if wrong is not None:
            raise self._source.refusal(f"`{name}`: {wrong}", node)

    def _fill(self, operands: Sequence[Typed], node: exp.Expr) -> list[Expression]:
        """Give each bare null the type of its neighbours."""
        types = [operand.type for operand in operands if operand is not None]
        if len(types) == len(operands):
            return [operand for operand in operands if operand is not None]
        if not types:
            raise self._source.refusal(
                "null has no type here: write cast(null as int), or another", node
            )
        null = Constant(None, common_type(types) or types[0])
        return [null if operand is None else operand for operand in operands]

    def _said(self, make: Callable[[], T], node: exp.Expr) -> T:
        """The result of `make`; its ValueError becomes the reason of a refusal."""
        try:
            return make()
        except ValueError as error:
            raise self._source.refusal(str(error), node) from None


def _constant(value: Literal) -> Constant:
    """Make a constant of a row: an int, a double or a string."""
    if isinstance(value, str):
        return Constant(value, FieldType.STRING)
    return Constant(value, FieldType.DOUBLE if isinstance(value, float) else FieldType.INT)


def _one_type(operator: str, types: set[FieldType]) -> str:
    """Say how to mend operands if some are strings, and all others are of one other type."""
    others = types - {FieldType.STRING}
    if len(others) != 1 or others == types:
        return ""
    (other,) = others
    if operator == "concat":
        return f"; cast({other} AS STRING) is one" if can_cast(other, FieldType.STRING) else ""
    if other is FieldType.TIMESTAMP:
        return "; to_timestamp(string) is a timestamp"
    kind = other.upper()
    return f"; cast(string AS {kind}) is one" if can_cast(FieldType.STRING, other) else ""
