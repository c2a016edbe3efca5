"""Parse an expression's text: sqlglot's grammar, our allow-list and types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias, TypeVar, cast

from sqlglot import Dialect, Token, exp
from sqlglot.errors import ParseError, SqlglotError

from medusa.engine.language.constants import folded, number, widened
from medusa.engine.language.expression_tokens import FUNCTION, TYPE_TOKENS, refusal, tokens_of
from medusa.engine.language.typed import Call, Constant, Expression, FieldRef, Operation
from medusa.engine.language.unread import unread, watch
from medusa.engine.language.user_functions import Declared
from medusa.engine.language.words import OURS, NotingParser, own_words, position_of
from medusa.engine.language.written_forms import INTERVAL
from medusa.engine.objects.functions import UserFunction
from medusa.engine.objects.schema import STIME, FieldType
from medusa.engine.scalars.casts import CAST, can_cast
from medusa.engine.scalars.moments import PLUS_INTERVAL, interval_us
from medusa.engine.scalars.rows import OTHER_NAMES, SCALARS, SHORT_FORMS
from medusa.engine.scalars.signs import IS_SAME, with_backslashes
from medusa.engine.scalars.type_rules import INTEGER_RANGE, Literal, common_type, fixed
from medusa.overlay.errors import InvalidInputError

T = TypeVar("T")

Typed: TypeAlias = Expression | None
"""None: a bare `null`; it gets the type of its neighbours."""

Plain = bool | int | float | str
"""The constants that short forms have."""

MAX_DEPTH: Final = 100
"""Levels of a typed expression: code that walks it recurses. A chain of `and`, `or`, `||`: one."""

MAX_NODES: Final = 4096
"""Nodes of a typed expression: a text that is within the limits of
`medusa.engine.language.expression_tokens` and repeats nothing has no more. Measured: Spark takes 4
s to build so many, and 0.4 s of an epoch."""

SHORT_TEXT: Final = 64
"""Characters of a text whose tree is remembered: a `*` writes the same names in each box, and
parsing is most of what they cost. 512 such trees take 5 MB at most."""

_BINARY: Final[dict[type[exp.Expression], str]] = {
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
    exp.NullSafeEQ: IS_SAME,
    exp.NullSafeNEQ: IS_SAME,
}

_CHAINS: Final[dict[type[exp.Expression], str]] = {
    exp.And: "and",
    exp.Or: "or",
    exp.DPipe: "concat",
}

_TYPES: Final = {kind.name: type_ for type_, kind in TYPE_TOKENS.items()}

_KINDS: Final[frozenset[type[exp.Expression]]] = frozenset(
    {
        *_BINARY,
        *_CHAINS,
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
        exp.Case,
        exp.Cast,
        exp.Anonymous,
    }
)
"""The kinds of nodes that the language has."""


class _Plain(Dialect):
    """sqlglot's own, without a setting that it writes into each `||`."""

    STRICT_STRING_CONCAT = True


_PLAIN: Final = _Plain()


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
        InvalidInputError: it is not of the language, or does not type-check; names the part, the
            reason and the position in `text`.
    """
    tree = _tree_of(text, functions or {})
    watched = watch(tree)
    typed = _Typer(text, fields, nodes or {}, functions or {}).of(tree, 0)
    for part in unread(watched):
        words, at = own_words(f"({text})", part.node)
        raise refusal(text, f"`{words}` is not part of the language", at - 1)
    if typed is None:
        raise refusal(text, "null has no type: write cast(null as int), or another type", 0)
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
        raise refusal(text, f"it gives {predicate.type}; a condition must be true or false", 0)
    return predicate


def _tree_of(text: str, functions: Declared) -> exp.Expression:
    if functions or len(text) > SHORT_TEXT:
        return _parse(text, tokens_of(text, functions))
    return tree_of_short_text(text).copy()  # readers note in a tree what they have read


@lru_cache(maxsize=512)
def tree_of_short_text(text: str) -> exp.Expression:
    """A tree that is remembered, and must not be changed: copy it."""
    return _parse(text, tokens_of(text))


def _parse(text: str, tokens: list[Token]) -> exp.Expression:
    try:
        trees = NotingParser(dialect=_PLAIN).parse_into(exp.Condition, tokens, f"({text})")
    except ParseError as error:
        raise refusal(text, *_syntax_error(error, tokens)) from None
    except RecursionError:
        raise refusal(text, "nested too deeply", 0) from None
    except (SqlglotError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        # sqlglot fails so on some texts that are no expression: still the sender's mistake
        raise refusal(text, "it cannot be parsed", 0) from None
    if len(trees) != 1 or not isinstance(trees[0], exp.Expression):
        raise refusal(text, "it is not one expression", 0)
    return trees[0]


def _syntax_error(error: ParseError, tokens: list[Token]) -> tuple[str, int]:
    """Reason and position of an error of sqlglot."""
    details = error.errors[0] if error.errors else {}
    reason = str(details.get("description") or "")
    place = (details.get("line"), details.get("col"))
    for index, token in enumerate(tokens):
        if (token.line, token.col) == place:
            if reason.startswith(OURS):
                return reason.removeprefix(OURS), token.start - 1
            if index == len(tokens) - 1:
                return "it ends too early", token.start - 1
            shown = token.text.removeprefix(FUNCTION)
            return f"syntax error at {shown[:40]!a}", token.start - 1
    return "syntax error", 0


class _Typer:
    """Walks the tree once: checks the node types and widens the operands."""

    def __init__(
        self,
        text: str,
        fields: Mapping[str, FieldType],
        nodes: Mapping[str, int],
        functions: Declared,
    ) -> None:
        self._text = text
        self._fields = fields
        self._nodes = nodes
        self._functions = functions

    def of(self, node: exp.Expression, depth: int) -> Typed:
        typed = self._made(node, depth)
        if typed is not None and typed.nodes > MAX_NODES:
            raise self._refusal(
                f"written out it has {typed.nodes:,} parts, at most {MAX_NODES:,} allowed: "
                "`between`, `case x when`, `floor` and `ceil` repeat their x, as other functions "
                "do; fields that an earlier box makes are written out as well, unless their "
                "stream is an output of the query",
                node,
            )
        return typed

    def _made(self, node: exp.Expression, depth: int) -> Typed:
        while isinstance(node, exp.Paren):
            self._check_node(node)
            node = node.this
        self._check_node(node)
        if depth > MAX_DEPTH:
            raise self._refusal(f"more than {MAX_DEPTH} operations within each other", node)
        below = depth + 1
        kind = type(node)
        if kind in _CHAINS:
            return self._operation(_CHAINS[kind], self._chain(node, below), node)
        if kind in _BINARY:
            return self._binary(node, below)
        build = cast(
            "Callable[[exp.Expression, int], Typed]", getattr(self, f"_{kind.__name__.lower()}")
        )
        return build(node, below)

    def _check_node(self, node: exp.Expression) -> None:
        kind = type(node)
        if kind not in _KINDS:
            words, at = own_words(f"({self._text})", node)
            raise refusal(self._text, f"`{words}` is not part of the language", at - 1)
        if kind is exp.Column and node.args.get("db"):
            raise self._refusal("a qualified name is not part of the language", node)

    # one method per node type, named after it

    def _column(self, node: exp.Expression, _: int) -> Typed:
        table = node.args.get("table")
        name = node.name if table is None else f"{table.name}.{node.name}"
        type_ = FieldType.TIMESTAMP if name == STIME else self._fields.get(name)
        if table is not None and type_ is None and "." not in "".join(self._fields):
            raise self._refusal("a qualified name is not part of the language", node)
        if not isinstance(node.this, exp.Identifier) or type_ is None:
            known = ", ".join((STIME, *self._fields))
            known = known if len(known) <= 200 else known[:197] + "..."
            raise self._refusal(f"there is no field {name[:80]!a}; there are {known}", node)
        return FieldRef(name, type_, self._nodes.get(name, 1))

    def _literal(self, node: exp.Expression, _: int) -> Typed:
        text = str(node.this)
        if node.args.get("is_string"):
            return Constant(text, FieldType.STRING)
        return self._said(lambda: number(text), node)

    def _boolean(self, node: exp.Expression, _: int) -> Typed:
        return Constant(bool(node.this), FieldType.BOOL)

    def _null(self, _node: exp.Expression, _: int) -> Typed:
        return None

    def _not(self, node: exp.Expression, depth: int) -> Typed:
        return self._operation("not", [self.of(node.this, depth)], node)

    def _neg(self, node: exp.Expression, depth: int) -> Typed:
        if isinstance(node.this, exp.Literal) and not node.this.args.get("is_string"):
            return self._said(lambda: number(f"-{node.this.this}"), node)
        return self._operation("neg", [self.of(node.this, depth)], node)

    def _is(self, node: exp.Expression, depth: int) -> Typed:
        if not isinstance(node.expression, exp.Null):
            raise self._refusal("after `is` comes null or not null", node)
        return self._operation("is_null", [self.of(node.this, depth)], node)

    def _in(self, node: exp.Expression, depth: int) -> Typed:
        members = node.expressions
        if not members:
            raise self._refusal("`in` takes a list of values in parentheses", node)
        return self._operation("in", [self.of(each, depth) for each in (node.this, *members)], node)

    def _between(self, node: exp.Expression, depth: int) -> Typed:
        value, low, high = (self.of(node.args[key], depth + 1) for key in ("this", "low", "high"))
        bounds = [
            self._operation(">=", [value, low], node),
            self._operation("<=", [value, high], node),
        ]
        return self._operation("and", bounds, node)

    def _case(self, node: exp.Expression, depth: int) -> Typed:
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

    def _choice(self, operands: Sequence[Typed], node: exp.Expression) -> Operation:
        """A `case`; a bare null among its values has their type."""
        values = self._fill([*operands[1::2], operands[-1]], node)
        conditions = [each or Constant(None, FieldType.BOOL) for each in operands[:-1:2]]
        pairs = [each for pair in zip(conditions, values, strict=False) for each in pair]
        return self._operation("case", [*pairs, values[-1]], node)

    def _cast(self, node: exp.Expression, depth: int) -> Typed:
        target = _TYPES[node.args["to"].this.name]
        operand = self.of(node.this, depth)
        if operand is None:
            return Constant(None, target)
        if isinstance(operand, Constant):
            constant = self._said(lambda: folded(operand, target), node)
            if constant is not None:
                return constant
        if not can_cast(operand.type, target):
            raise self._refusal(f"{operand.type} cannot be cast to {target}", node)
        return operand if operand.type is target else Operation(CAST, (operand,), target)

    def _anonymous(self, node: exp.Expression, depth: int) -> Typed:
        name = node.name
        if name == INTERVAL:
            raise self._refusal("an interval stands only after the + or - of a timestamp", node)
        if not name.startswith(FUNCTION):
            raise self._refusal(f"there is no function {name[:80]!a}", node)
        name = name.removeprefix(FUNCTION)
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

    def _call(
        self, function: UserFunction, operands: Sequence[Typed], node: exp.Expression
    ) -> Call:
        wanted = function.arguments
        pairs = zip(operands, wanted, strict=False)
        filled = [Constant(None, type_) if each is None else each for each, type_ in pairs]
        resolution = fixed(wanted, function.result)([each.type for each in filled])
        if resolution is None or len(operands) != len(wanted):
            given = ", ".join("null" if each is None else each.type for each in operands[:8])
            raise self._refusal(
                f"`{function.name}` is {function.signature}, not of ({given})", node
            )
        return Call(function, tuple(map(widened, filled, wanted)))

    def _short(self, name: str, operands: Sequence[Typed], node: exp.Expression) -> Typed:
        form = SHORT_FORMS[name]
        if len(operands) != form.count:
            raise self._refusal(f"`{name}` takes {form.takes}", node)

        def make(name: str, of: Sequence[Typed | Literal]) -> Operation:
            made = [_constant(each) if isinstance(each, Plain) else each for each in of]
            return self._choice(made, node) if name == "case" else self._operation(name, made, node)

        built: Typed = self._said(lambda: form.build(make, operands), node)
        return built

    def _escape(self, node: exp.Expression, depth: int) -> Typed:
        """`like` with an escape character: the pattern is written with backslashes."""
        like, sign = node.this, node.expression
        if not isinstance(like, exp.Like) or not isinstance(like.expression, exp.Literal):
            raise self._refusal("`escape` stands behind the pattern of `like`, a string", node)
        pattern = self._said(lambda: with_backslashes(like.expression.name, sign.name), sign)
        said, negate = exp.Literal.string(pattern), like.args.get("negate")
        return self.of(exp.Like(this=like.this, expression=said, negate=negate), depth)

    def _binary(self, node: exp.Expression, depth: int) -> Typed:
        kind = type(node)
        if isinstance(node, (exp.Add, exp.Sub)):
            for moment, other in ((node.this, node.expression), (node.expression, node.this)):
                interval = other.unnest()
                if isinstance(interval, exp.Anonymous) and interval.name == INTERVAL:
                    return self._moved(node, moment, interval, depth)
        operands = [self.of(node.this, depth), self.of(node.expression, depth)]
        operation = self._operation(_BINARY[kind], operands, node)
        negative = isinstance(node, exp.NullSafeNEQ) or node.args.get("negate")
        return self._operation("not", [operation], node) if negative else operation

    def _moved(
        self, node: exp.Expression, moment: exp.Expression, interval: exp.Expression, depth: int
    ) -> Typed:
        """A timestamp plus or minus an interval."""
        amount, unit = (each.name for each in interval.expressions)
        length = self._said(lambda: interval_us(amount, unit), interval)
        if isinstance(node, exp.Sub):
            if moment is not node.this:
                raise self._refusal("a timestamp cannot be taken from an interval", node)
            length = -length
        if length not in INTEGER_RANGE[FieldType.LONG]:
            raise self._refusal("the interval does not fit", interval)
        operands = [self.of(moment, depth), Constant(length, FieldType.LONG)]
        return self._operation(PLUS_INTERVAL, operands, node)

    def _chain(self, node: exp.Expression, depth: int) -> list[Typed]:
        """The operands of `a and b and c`, which sqlglot nests to the left."""
        parts: list[exp.Expression] = []
        left = node
        while type(left) is type(node):
            self._check_node(left)
            parts.append(left.expression)
            left = left.this
        parts.append(left)
        return [self.of(part, depth) for part in reversed(parts)]

    def _operation(self, name: str, operands: Sequence[Typed], node: exp.Expression) -> Operation:
        filled = self._fill(operands, node)
        resolution = SCALARS[name].types([operand.type for operand in filled])
        if resolution is None:
            given = ", ".join(operand.type for operand in filled[:8])
            takes, said = SCALARS[name].takes, "||" if isinstance(node, exp.DPipe) else name
            mend = _one_type(name, {operand.type for operand in filled})
            raise self._refusal(f"`{said}` takes {takes}, not ({given}){mend}", node)
        self._check_constants(name, filled, node)
        wide = tuple(map(widened, filled, resolution.operands))
        return Operation(name, wide, resolution.result)

    def _check_constants(
        self, name: str, operands: Sequence[Expression], node: exp.Expression
    ) -> None:
        row = SCALARS[name]
        values: list[Literal] = []
        for place in row.constants:
            if place < len(operands):
                operand = operands[place]
                if not isinstance(operand, Constant):
                    raise self._refusal(f"operand {place + 1} of `{name}` must be a constant", node)
                values.append(operand.value)
        wrong = row.check(values)
        if wrong is not None:
            raise self._refusal(f"`{name}`: {wrong}", node)

    def _fill(self, operands: Sequence[Typed], node: exp.Expression) -> list[Expression]:
        """Give each bare null the type of its neighbours."""
        types = [operand.type for operand in operands if operand is not None]
        if len(types) == len(operands):
            return [operand for operand in operands if operand is not None]
        if not types:
            raise self._refusal("null has no type here: write cast(null as int), or another", node)
        null = Constant(None, common_type(types) or types[0])
        return [null if operand is None else operand for operand in operands]

    def _said(self, make: Callable[[], T], node: exp.Expression) -> T:
        """Return the result of `make`; its ValueError is the reason of a refusal."""
        try:
            return make()
        except ValueError as error:
            raise self._refusal(str(error), node) from None

    def _refusal(self, reason: str, node: exp.Expression) -> InvalidInputError:
        return refusal(self._text, reason, _position_of(node))


def _constant(value: Literal) -> Constant:
    """Make a constant of a row: an int, a double or a string."""
    if isinstance(value, str):
        return Constant(value, FieldType.STRING)
    return Constant(value, FieldType.DOUBLE if isinstance(value, float) else FieldType.INT)


def _position_of(node: exp.Expr) -> int:
    """Return where a node begins, in the text without the parentheses around it."""
    return max(position_of(node), 1) - 1


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
