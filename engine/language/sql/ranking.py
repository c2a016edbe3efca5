"""The first n: `SELECT *, ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) AS place` in a
subquery, and `WHERE place <= n` over it.

Both together are one box: a rank if the partitions have a window's time, else a top, which keeps a
table. So the translation of the subquery waits for the condition. Without a condition the rows of a
stream are numbered, in the order of its time: windows of one tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from medusa.engine.expressions.printing import name_text
from medusa.engine.expressions.unread import read_whole
from medusa.engine.language.sql.errors import Source
from medusa.engine.language.sql.projection import Item
from medusa.engine.language.sql.relation import Column, Ranking, Relation
from medusa.engine.objects.query import (
    AggregateCall,
    OrderBy,
    Rank,
    Top,
    TupleWindows,
    order_by,
)
from medusa.engine.objects.schema import STIME, Schema
from medusa.engine.operators.top import MOST_PLACES

NUMBERED_BY: Final = "rank_key_"
"""The prefix of fields for expressions of a ROW_NUMBER that are no columns of its SELECT."""


def is_over(node: exp.Expr) -> bool:
    """Whether the node is `... OVER (...)`."""
    return isinstance(node, exp.Window) and node.args.get("over") == "OVER"


def is_number(node: exp.Expr) -> bool:
    """Whether the node is `ROW_NUMBER() OVER (...)`."""
    if not is_over(node) or not isinstance(node.this, exp.Anonymous):
        return False
    return node.this.name.upper() == "ROW_NUMBER"


@dataclass(frozen=True, slots=True)
class Numbered:
    """A SELECT with ROW_NUMBER.

    Attributes:
        items: its other items, and those expressions of the numbers' order that are no items.
            place: the name of the number.
        size_us, position: see `Ranking`.
    """

    items: tuple[Item, ...]
    place: str
    size_us: int | None
    partition: tuple[str, ...]
    order: tuple[OrderBy, ...]
    position: int

    def waiting(self, relation: Relation) -> Relation:
        """The relation of the items, which waits for the condition on the number."""
        columns = tuple(
            replace(each, shown=False) if each.name.startswith(NUMBERED_BY) else each
            for each in relation.columns
            if each.shown or each.name != self.place
        )
        tables = columns[0].tables
        place = Column(self.place, tables, name_text(self.place))
        ranking = Ranking(self.place, self.size_us, self.partition, self.order, self.position)
        return replace(relation, columns=(*columns, place), ranking=ranking)


def numbered(
    items: Sequence[Item],
    windows: Callable[[exp.Column], int | None],
    is_time: Callable[[exp.Column], bool],
    source: Source,
) -> Numbered:
    """The items of a SELECT of which one is ROW_NUMBER.

    Args:
        windows: the size, microseconds, of the window whose time a column is; None: the column is
            no time of a window.
        is_time: whether a column is the stream's time.

    Raises:
        PointedError: an item computes with the number, or the numbers have no partition or order
            that can be kept.
    """
    numbers = [(node, name) for node, name in items if is_number(node)]
    (node, place), *more = numbers
    if more:
        raise source.refusal("there is one ROW_NUMBER in a SELECT", more[0][0])
    if node.args.get("spec") is not None or node.this.expressions:
        raise source.refusal("ROW_NUMBER() takes neither arguments nor a frame", node)
    kept = [each for each in items if not is_number(each[0])]
    if place in {name for _, name in kept}:
        raise source.refusal(f"two columns would be called {place[:80]}", node)
    sizes: set[int] = set()
    partition = []
    for each in node.args.get("partition_by") or ():
        size = windows(each) if isinstance(each, exp.Column) else None
        if size is None:
            # in parentheses (ts) is a field, even if it is a time
            partition.append(_named(each.unnest(), kept))
        else:
            sizes.add(size)
    if len(sizes) > 1:
        raise source.refusal("PARTITION BY has the times of two windows", node)
    clause = node.args.get("order")
    ordered = clause.expressions if clause else []
    by_time = len(ordered) == 1 and not ordered[0].args.get("desc")
    by_time = by_time and isinstance(ordered[0].this, exp.Column) and is_time(ordered[0].this)
    if not sizes and not (ordered and (partition or by_time)):
        raise source.refusal(
            "OVER without a window keeps the first rows of each partition so far: it needs "
            "PARTITION BY and ORDER BY; or add window_start to its PARTITION BY",
            node,
        )
    position = next(number for number, (each, _) in enumerate(items) if each is node)
    order = [_ordered(each, kept) for each in ordered]
    first = {each.field: each for each in reversed(order)}  # the first mention of a field counts
    unique = tuple(first[name] for name in dict.fromkeys(each.field for each in order))
    size = sizes.pop() if sizes else None
    groups = tuple(dict.fromkeys(partition))
    return Numbered(tuple(kept), place, size, groups, unique, position)


def _ordered(node: exp.Expr, items: list[Item]) -> OrderBy:
    assert isinstance(node, exp.Ordered), "in ORDER BY"
    nulls_first: bool | None = node.args.get("nulls_first")
    name = _named(node.this, items)
    return order_by(name, descending=bool(node.args.get("desc")), nulls_first=nulls_first)


def _named(node: exp.Expr, items: list[Item]) -> str:
    """The name of an expression among the items, to which it is added if it is missing."""
    for each, name in items:
        if each == node:
            read_whole(node)
            return name
        if isinstance(each, exp.Column) and isinstance(node, exp.Column):
            same = each.name == node.name and not (each.table and node.table)
            if same and name == node.name:
                return name
    name = f"{NUMBERED_BY}{len(items)}"
    items.append((node, name))
    return name


def bounded(
    relation: Relation, conditions: Sequence[exp.Expr], source: Source, at: exp.Expr
) -> tuple[int | None, list[exp.Expr]]:
    """The number of places that a WHERE leaves, and the conditions beside that bound.

    Args:
        relation: numbered tuples that wait for a bound. conditions: the conditions that AND joins.
            at: the SELECT.

    Returns:
        None and all conditions, if WHERE has no bound and the tuples can be numbered without one;
            see `running`.

    Raises:
        PointedError: WHERE has no bound, and the tuples are not numbered in the order of time.
    """
    assert relation.ranking is not None, "a relation with places"
    place = relation.ranking.place
    column = next(each for each in reversed(relation.columns) if each.name == place)
    found: list[int] = []
    rest: list[exp.Expr] = []
    for each in conditions:
        most, whole = _most(each, column)
        if most is not None:
            found.append(most)
        if not whole:
            rest.append(each)
    kept = bool(relation.ranking.partition) and min(found, default=MOST_PLACES + 1) <= MOST_PLACES
    if is_running(relation) and not kept:
        return None, list(conditions)
    at = next((each for each in conditions if _names(each, place)), at)
    if not found:
        raise source.refusal(
            f"{place[:80]} numbers any number of tuples: say WHERE {place[:40]} <= n{IN_ORDER}", at
        )
    if min(found) < 1:
        raise source.refusal(f"places begin with 1: no tuple has a {place[:40]} below", at)
    return min(found), rest


def _most(node: exp.Expr, place: Column) -> tuple[int | None, bool]:
    """The greatest place that a condition allows (None: it does not bound the place), and whether
    the condition says nothing else."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Between) and _is(node.this, place):
        return _number(node.args["high"]), False
    sides = _SIDES.get(type(node))
    if sides is None:
        return None, False
    left, right = node.this, node.expression
    if _is(right, place):
        left, right, sides = right, left, _SIDES.get(_TURNED[type(node)], sides)
    number = _number(right)
    if not _is(left, place) or number is None or sides not in {"<", "<=", "="}:
        return None, False
    if sides == "=":
        return number, number == 1
    return number - (sides == "<"), True


_SIDES: Final[dict[type[exp.Expr], str]] = {
    exp.LT: "<",
    exp.LTE: "<=",
    exp.EQ: "=",
    exp.GT: ">",
    exp.GTE: ">=",
}

_TURNED: Final[dict[type[exp.Expr], type[exp.Expr]]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}
"""The comparison that means the same with its sides exchanged."""


def _is(node: exp.Expr, place: Column) -> bool:
    """Whether a node is the place, under any of its names."""
    if not isinstance(node, exp.Column) or node.name.lower() != place.name.lower():
        return False
    return not node.table or node.table in place.tables


def _names(node: exp.Expr, place: str) -> bool:
    return any(each.name.lower() == place.lower() for each in node.find_all(exp.Column))


def _number(node: exp.Expr) -> int | None:
    if not isinstance(node, exp.Literal) or node.args.get("is_string"):
        return None
    return int(node.name) if node.name.isdecimal() and len(node.name) < 10 else None


IN_ORDER: Final = ", or number them in the order of the stream's time"
"""The end of the refusal of numbers without a bound; it names another way to write the query."""


def is_running(relation: Relation) -> bool:
    """Whether the relation numbers a stream's tuples in the order of its time."""
    ranking = relation.ranking
    if ranking is None or ranking.size_us is not None or len(ranking.order) != 1:
        return False
    (by,) = ranking.order
    return not by.descending and any(
        each.name == by.field and each.time for each in relation.columns
    )


def running(relation: Relation) -> TupleWindows:
    """The box that numbers all tuples of a relation: see `is_running`."""
    ranking = relation.ranking
    assert ranking is not None, "a relation with places"
    names = [each.name for each in relation.schema.fields if not _is_order(each.name, ranking)]
    others = [name for name in names if name not in ranking.partition]
    functions = [AggregateCall("lastval", name_text(each), each) for each in others]
    if not functions:  # a window needs a function
        name = f"{NUMBERED_BY}time"
        functions.append(AggregateCall("lastval", STIME, name))
    parts = (1, 1, ranking.partition, tuple(functions))
    return TupleWindows("number", relation.stream, "", *parts, number=ranking.place)


def run(relation: Relation, schema: Schema) -> Relation:
    """A relation whose tuples have been numbered. schema: the schema of the output of `running`'s
    box."""
    ranking = relation.ranking
    assert ranking is not None, "a relation with places"
    columns = [each for each in relation.columns if not _is_order(each.name, ranking)]
    place = next(each for each in columns if each.name == ranking.place)
    columns.remove(place)
    columns.insert(ranking.position, place)
    return Relation(schema, tuple(columns))


def _is_order(name: str, ranking: Ranking) -> bool:
    """Whether a field exists only for the order of the numbers."""
    return name.startswith(NUMBERED_BY) and name not in ranking.partition


def rank_of(relation: Relation, most: int, *, shown: bool) -> Rank | Top:
    """The box that ranks a relation. Args: shown: whether the output has the place. A table's
    output has it anyway, unless its rows have one place only.
    """
    ranking = relation.ranking
    assert ranking is not None, "a relation with places"
    place = ranking.place if shown else ""
    if ranking.size_us is None:
        place = ranking.place if shown or most > 1 else ""
        return Top("top", relation.stream, "", ranking.partition, ranking.order, most, place)
    return Rank(
        "rank",
        relation.stream,
        "",
        ranking.size_us,
        ranking.partition,
        ranking.order,
        most,
        place,
    )


def ranked(relation: Relation, schema: Schema, *, shown: bool) -> Relation:
    """A relation whose ranking has become a box.

    Args:
        schema: the schema of the box's output. shown: whether the output has the place.
    """
    ranking = relation.ranking
    assert ranking is not None, "a relation with places"
    columns = [each for each in relation.columns if shown or each.name != ranking.place]
    if ranking.size_us is None:
        columns = [_of_table(each) for each in columns]
    elif ranking.size_us > 1:
        columns = [_at_the_end(each, ranking.size_us) for each in columns]
    return Relation(schema, tuple(columns))


def _of_table(column: Column) -> Column:
    """A column of a table of ranks. A tuple's stime is when it took its place, so only `stime`
    itself is a time."""
    return column if column.text == STIME else replace(column, offset=None, time=False, pane=None)


def _at_the_end(column: Column, size_us: int) -> Column:
    """A column of tuples whose stime is the last microsecond of their window."""
    if column.pane is not None and column.pane[0] == size_us:
        return replace(column, offset=column.pane[1], time=True, pane=None)
    return _of_table(column)


def names_place(node: exp.Select, rest: Sequence[exp.Expr], place: str) -> bool:
    """Whether a SELECT uses the place elsewhere than in the condition that bounds the place.

    Args:
        rest: its other conditions.
    """
    clauses = (node.args.get(name) for name in ("group", "having"))
    parts = [*node.expressions, *rest, *(each for each in clauses if each is not None)]
    return any(part.find(exp.Star) is not None or _names(part, place) for part in parts)
