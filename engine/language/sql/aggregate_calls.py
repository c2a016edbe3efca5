"""The calls of aggregate functions in a SELECT: the function of each, and its argument."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from medusa.engine.aggregates.counts import COUNT
from medusa.engine.aggregates.distinct import COUNT_DISTINCT
from medusa.engine.aggregates.function import AggregateFunction
from medusa.engine.aggregates.rows import NAMES
from medusa.engine.expressions.aggregates import check_constant
from medusa.engine.expressions.printing import Substitute, expression_text
from medusa.engine.expressions.unread import read_whole
from medusa.engine.language.sql.errors import Source
from medusa.engine.language.sql.relation import Relation, Window
from medusa.engine.objects.query import AggregateCall

Constant = int | float | str | None

MAX_DIGITS: Final = 40
"""Digits of a function's constant: a double has 17, a long 19."""


def is_aggregate(node: exp.Expr) -> bool:
    """Whether the node is a call of an aggregate function."""
    if isinstance(node, (exp.Filter, exp.WithinGroup)):
        return is_aggregate(node.this)
    return isinstance(node, exp.Anonymous) and node.name.lower() in NAMES


def aggregates_in(nodes: Sequence[exp.Expr]) -> list[exp.Expr]:
    """The calls of aggregate functions, the outermost ones."""
    found: list[exp.Expr] = []
    for node in nodes:
        found += [
            each
            for each in node.walk(prune=is_aggregate)
            if is_aggregate(each) and not isinstance(each.parent, exp.Window)
        ]
    return found


def is_last_number(node: exp.Expr) -> bool:
    """Whether the node is ROW_NUMBER() without OVER: for a window of rows, the number of its last
    row."""
    return isinstance(node, exp.Anonymous) and node.name.upper() == "ROW_NUMBER"


def last_numbers(nodes: Sequence[exp.Expr]) -> list[exp.Expr]:
    """The calls of ROW_NUMBER() without OVER."""
    return [
        each
        for node in nodes
        for each in node.walk(prune=lambda part: isinstance(part, exp.Window))
        if is_last_number(each)
    ]


@dataclass(frozen=True, slots=True)
class Argument:
    """The arguments of an aggregate function: an expression, and a constant."""

    text: str | None
    constant: Constant = None
    descending: bool = False

    def of(self, function: AggregateFunction, output: str) -> AggregateCall:
        """The function, applied to this argument."""
        return AggregateCall(function.name, self.text, output, self.constant, self.descending)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call, taken apart: `name([DISTINCT] given [ORDER BY order]) [WITHIN GROUP (ORDER BY order)]
    [FILTER (WHERE condition)]`.

    Attributes:
        within: whether the order comes from WITHIN GROUP.
    """

    name: str
    given: tuple[exp.Expr, ...]
    distinct: bool
    order: exp.Order | None
    within: bool
    condition: exp.Expr | None


def _taken_apart(node: exp.Expr, source: Source) -> _Call:
    condition = order = None
    if isinstance(node, exp.Filter):
        condition, node = node.expression.this, node.this
    within = isinstance(node, exp.WithinGroup)
    if isinstance(node, exp.WithinGroup):
        order, node = node.expression, node.this
    given = list(node.expressions)
    if given and isinstance(given[-1], exp.Order):
        if order is not None:
            raise source.refusal(f"{node.name} has two ORDER BY", order)
        order, given[-1] = given[-1], given[-1].this
        if given[-1] is None:
            raise source.refusal(f"{node.name} takes a value before ORDER BY", order)
    distinct = len(given) == 1 and isinstance(given[0], exp.Distinct)
    if distinct:
        given = list(given[0].expressions)
    return _Call(node.name, tuple(given), distinct, order, within, condition)


class Values:
    """The texts that replace nodes of a SELECT, and all nodes equal to these."""

    def __init__(self) -> None:
        self._found: dict[exp.Expr, tuple[exp.Expr, str]] = {}

    def __contains__(self, node: exp.Expr) -> bool:
        return node in self._found

    def __setitem__(self, node: exp.Expr, text: str) -> None:
        # the first of equal nodes is the one that is translated
        first, _ = self._found.get(node, (node, ""))
        self._found[node] = first, text

    def of(self, node: exp.Expr) -> str | None:
        """The text that replaces a node. If only an equal node was translated, this one counts as
        read, too."""
        translated, text = self._found.get(node, (None, None))
        if translated is not None and translated is not node:
            read_whole(node)
        return text


def substitute_of(relation: Relation, source: Source) -> Substitute:
    def found(node: exp.Expr) -> str | None:
        if isinstance(node, exp.Column):
            time = relation.time_of_window(node, source)
            if time is not None and isinstance(relation.window, Window):
                _check_one_window(relation.window, time, node, source)
            return relation.find(node, source).text
        if is_aggregate(node):
            raise source.refusal("an aggregate function can be in SELECT and HAVING only", node)
        return None

    return found


def _check_one_window(window: Window, time: str, node: exp.Expr, source: Source) -> None:
    """Refuse a window's time in an expression over rows if a row is in several windows."""
    if window.is_tumbling:
        return
    why = "a row is in several of these windows"
    if window.kind == "SESSION":
        why = "which session a row is in is known when that is over"
    raise source.refusal(
        f"{why}: {time} can be selected, grouped by, in HAVING, and alone in min, max, firstval "
        "and lastval",
        node,
    )


def time_of_window(node: exp.Expr, relation: Relation, source: Source) -> str | None:
    """The time of the window, if the call is an aggregate of it, like `max(window_end)`: all rows
    of a window have the same. None: the call is another one."""
    call = _taken_apart(node, source)
    plain = call.condition is None and call.order is None and not call.distinct
    if not plain or len(call.given) != 1 or not NAMES[call.name.lower()].chosen:
        return None
    return relation.time_of_window(call.given[0], source)


def function_of(node: exp.Expr, source: Source) -> AggregateFunction:
    """The function of a call.

    Raises:
        PointedError: it does not take DISTINCT.
    """
    call = _taken_apart(node, source)
    function = NAMES[call.name.lower()]
    if call.distinct:
        if function is not COUNT:
            raise source.refusal(f"{function.name} does not take DISTINCT; count does", node)
        return COUNT_DISTINCT
    return function


def argument_of(
    node: exp.Expr, function: AggregateFunction, relation: Relation, source: Source
) -> Argument:
    """The argument of a call, and its constant. relation: has the columns that it names.

    Raises:
        PointedError: the function takes no such argument.
    """
    substitute = substitute_of(relation, source)
    call = _taken_apart(node, source)
    given = list(call.given)
    key = None if call.order is None else _key(call, call.order, function, source)
    if key is not None and call.within and function.within_group:
        # the call has the form percentile_cont(0.5) WITHIN GROUP (ORDER BY x)
        given.insert(0, key.this)
    if len(given) > 2:
        raise source.refusal(f"{call.name} takes an argument and a constant", node)
    if function.within_group and len(given) == 1 and isinstance(given[0], exp.Literal):
        raise source.refusal(
            f"{call.name} does not say of what: write "
            f"{call.name}({given[0].sql()}) WITHIN GROUP (ORDER BY x)",
            node,
        )
    constant = _constant(given[1], source) if len(given) == 2 else None
    with source.pointing(given[1] if len(given) == 2 else node):
        check_constant(function, constant)
    bare = not given or isinstance(given[0], exp.Star)
    text = None if bare else expression_text(given[0], source, substitute)
    if key is not None and text != expression_text(key.this, source, substitute):
        raise source.refusal(
            f"{call.name} has its values in their own order: ORDER BY what it takes, or that DESC",
            key,
        )
    descending = key is not None and bool(key.args.get("desc"))
    if call.condition is None:
        return Argument(text, constant, descending)
    if not function.skips_nulls:  # the function counts nulls, so no CASE can leave a tuple out
        raise source.refusal(f"{function.name} takes no FILTER: filter in a subquery", node)
    chosen = expression_text(call.condition, source, substitute)
    kept = "1" if text is None else text
    return Argument(f"case when {chosen} then {kept} end", constant, descending)


def _key(call: _Call, order: exp.Order, function: AggregateFunction, source: Source) -> exp.Ordered:
    """Return the expression by which the values of a call are ordered."""
    if not function.ordered:
        why = "has no order" if function.skips_nulls else "goes by the stream's time"
        raise source.refusal(f"{call.name} {why}: leave out ORDER BY", order)
    key, *more = order.expressions
    if more:
        raise source.refusal(f"{call.name} is ordered by one expression: what it takes", more[0])
    assert isinstance(key, exp.Ordered), "in ORDER BY"
    nulls_first: bool | None = key.args.get("nulls_first")
    if nulls_first is not None:
        said = "NULLS FIRST" if nulls_first else "NULLS LAST"
        raise source.refusal(f"nulls do not count in {call.name}: leave out {said}", key)
    return key


def _constant(node: exp.Expr, source: Source) -> Constant:
    if isinstance(node, exp.Literal):
        if node.args.get("is_string"):
            return node.name
        if len(node.name) > MAX_DIGITS:
            raise source.refusal(f"a constant has at most {MAX_DIGITS} digits", node)
        return int(node.name) if node.name.isdecimal() else float(node.name)
    raise source.refusal("the second argument is a constant", node)
