"""A SELECT as a chain of boxes: FROM, WHERE, GROUP BY, HAVING, SELECT, each of which is one or
none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from sqlglot import exp

from medusa.engine.expressions.printing import Substitute, expression_text, name_text
from medusa.engine.language.sql.aggregate_calls import (
    aggregates_in,
    is_aggregate,
    is_last_number,
    last_numbers,
    substitute_of,
)
from medusa.engine.language.sql.dialect import Split
from medusa.engine.language.sql.errors import Source
from medusa.engine.language.sql.framing import Framing, framed
from medusa.engine.language.sql.grouping import INSTANT, Grouped, Grouping, refuse_groupings
from medusa.engine.language.sql.joining import Joining, conjuncts
from medusa.engine.language.sql.match_grammar import MatchTable
from medusa.engine.language.sql.matching import Matching
from medusa.engine.language.sql.network import Boxes
from medusa.engine.language.sql.projection import Item, Projecting
from medusa.engine.language.sql.ranking import (
    IN_ORDER,
    Numbered,
    bounded,
    is_number,
    is_running,
    names_place,
    numbered,
    rank_of,
    ranked,
    run,
    running,
)
from medusa.engine.language.sql.relation import (
    Relation,
    RowWindow,
    of_stream,
)
from medusa.engine.language.sql.scopes import Scopes
from medusa.engine.language.sql.union import union_of
from medusa.engine.language.sql.window_grammar import RowsTable, WindowTable
from medusa.engine.language.sql.windowing import in_row_windows, in_windows, with_window
from medusa.engine.language.sql.within import Within
from medusa.engine.objects.query import WINDOW_END, WINDOW_START, Filter, Map
from medusa.engine.objects.schema import DELETED

FROM_TAKES: Final = (
    "FROM takes a stream, a window like TUMBLE(TABLE s, ...), or a SELECT in parentheses"
)

Resolve = Callable[[exp.Table], str]
"""The name of the stream that a table in the text means."""


class Selecting:
    """Plans the SELECTs of one statement.

    Args:
        resolve: see `Resolve`.
        relations: the streams that earlier statements made. within: the bound of joins, sessions
            and matches that have none.
    """

    def __init__(
        self,
        boxes: Boxes,
        source: Source,
        resolve: Resolve,
        relations: dict[str, Relation],
        within: Within,
    ) -> None:
        self._boxes = boxes
        self._source = source
        self._projecting = Projecting(boxes, source)
        self._resolve = resolve
        self._relations = relations
        self._within = within
        self._scopes = Scopes(source)

    def relation(self, node: exp.Expr) -> Relation:
        """The relation of a SELECT, of a UNION ALL, or of either in parentheses."""
        made = self._nested(node)
        settled = self._settled(made, node)
        if settled is made:
            return made
        shown = [(exp.column(each.name), each.name) for each in settled.shown()]
        return self._projecting.mapped(node, settled, shown, substitute_of(settled, self._source))

    def _nested(self, node: exp.Expr) -> Relation:
        """The relation of a query within another SELECT. That SELECT may bound the numbers of a
        ROW_NUMBER in it."""
        with self._scopes.opened():
            self._with(node)
            return self._rows(node)

    def _rows(self, node: exp.Expr) -> Relation:
        """The relation of a query, with the names of its WITH in scope."""
        match node:
            case exp.Select():
                return self._select(node)
            case exp.Union():
                return union_of(node, self.relation, self._boxes, self._source)
            case exp.Subquery() if not node.args.get("alias"):
                return self._nested(node.this)
            case exp.SetOperation():
                raise self._source.refusal(
                    f"{type(node).__name__.upper()} needs all rows of both sides, which an "
                    "endless stream never has: say LEFT SEMI JOIN or LEFT ANTI JOIN within a "
                    "bound of time",
                    node,
                )
            case _:
                raise self._source.refusal("here comes SELECT", node)

    def _with(self, node: exp.Expr) -> None:
        clause = node.args.get("with_")
        if clause is None:
            return
        if clause.args.get("recursive"):
            raise self._source.refusal("a network of boxes has no loops: no RECURSIVE", clause)
        for each in clause.expressions:
            name = each.alias
            if each.args["alias"].columns:
                raise self._source.refusal("say the names of the columns in the SELECT", each)
            self._scopes.add(name, self._nested(each.this), each)

    # -- SELECT ------------------------------------------------------------------------------------

    def _select(self, node: exp.Select) -> Relation:
        joining, relation, rest = self._from(node)
        if joining is not None:
            if not rest and node.args.get("group") is None and self._is_plain(node):
                return self._pairs(node, joining)
            relation = joining.all()
        relation = self._kept(node, relation, rest)
        items = self._projecting.items(node, relation)
        having = node.args.get("having")
        conditions = [] if having is None else [having.this]
        if overs := framed(items):
            framing = Framing(self._boxes, self._source, relation)
            rows = framing.plan(node, items, overs)
            made = self._projecting.mapped(
                node, rows.relation, items, rows.substitute(self._source)
            )
            return self._distinct(node, made)
        calls = aggregates_in([*(each for each, _ in items), *conditions])
        plain = node.args.get("group") is None and not calls
        if plain and having is not None:
            raise self._source.refusal("HAVING is for groups: say WHERE", having)
        if plain and relation.window is not None:
            relation = with_window(relation, node, self._source)
            items = self._projecting.items(node, relation)
        places = self._places(node, relation, items, grouped=not plain)
        items = items if places is None else list(places.items)
        narrowed = None
        if plain and places is not None:
            narrowed = self._projecting.narrowed(relation, items, places.place)
        if narrowed is not None:
            made = narrowed
        elif plain:
            made = self._projecting.projected(node, relation, items)
        else:
            made = self._results(node, self._grouped(node, relation, items), items)
        return self._distinct(node, made) if places is None else places.waiting(made)

    def _kept(self, node: exp.Select, relation: Relation, rest: Sequence[exp.Expr]) -> Relation:
        """The tuples that WHERE leaves. rest: the conditions of WHERE that no join took."""
        if relation.ranking is not None:
            relation, rest = self._first(node, relation, rest)
        if not rest:
            return relation
        condition = exp.and_(*rest, copy=False) if len(rest) > 1 else rest[0]
        substitute = substitute_of(relation, self._source)
        return self._where(relation, condition, "where", substitute)

    # -- places ------------------------------------------------------------------------------------

    def _places(
        self,
        node: exp.Select,
        relation: Relation,
        items: Sequence[Item],
        *,
        grouped: bool,
    ) -> Numbered | None:
        """The numbered items of a SELECT, over the tuples that FROM and WHERE leave; None: it has
        no ROW_NUMBER."""
        if not any(is_number(each) for each, _ in items):
            return None
        if node.args.get("distinct") is not None:
            raise self._source.refusal("ROW_NUMBER makes every row another: no DISTINCT", node)
        group = node.args.get("group")
        groups = set() if group is None else set(group.expressions)

        def size_of(column: exp.Column) -> int | None:
            found = relation.find(column, self._source)
            if isinstance(relation.window, RowWindow):
                # the time of a window becomes a column like others, not the time of the results
                return None
            is_grouped = column in groups or found.name in {WINDOW_START, WINDOW_END}
            if grouped:
                is_time = found.offset is not None or found.pane is not None
                return INSTANT.size_us if is_time and is_grouped else None
            if found.pane is not None:
                return found.pane[0]
            return None if found.offset is None else INSTANT.size_us

        def is_time(column: exp.Column) -> bool:
            return not grouped and relation.find(column, self._source).time

        return numbered(items, size_of, is_time, self._source)

    def _first(
        self, node: exp.Select, relation: Relation, rest: Sequence[exp.Expr]
    ) -> tuple[Relation, list[exp.Expr]]:
        """The tuples whose places the conditions allow, and the other conditions."""
        conditions = [each for condition in rest for each in conjuncts(condition)]
        most, left = bounded(relation, conditions, self._source, node)
        assert relation.ranking is not None, "it waits for the bound"
        if most is None:
            return self._settled(relation, node), left
        self._refuse_rows(relation, node)
        shown = names_place(node, left, relation.ranking.place)
        schema = self._boxes.add(rank_of(relation, most, shown=shown), node)
        return ranked(relation, schema, shown=shown), left

    def _settled(self, relation: Relation, node: exp.Expr) -> Relation:
        """The relation with all tuples numbered, if it waits for a bound that the SELECT does not
        have."""
        if relation.ranking is None:
            return relation
        if not is_running(relation):
            place = relation.ranking.place[:40]
            raise self._source.refusal(
                f"{place} numbers any number of tuples: say WHERE {place} <= n in a SELECT around "
                f"it{IN_ORDER}",
                node,
            )
        self._refuse_rows(relation, node)
        return run(relation, self._boxes.add(running(relation), node))

    def _refuse_rows(self, relation: Relation, node: exp.Expr) -> None:
        if relation.stream in self._boxes.tables:
            raise self._source.refusal(
                "the rows of a table change, and are not numbered: say ROW_NUMBER() of a stream",
                node,
            )

    def _where(
        self, relation: Relation, condition: exp.Expr, name: str, substitute: Substitute
    ) -> Relation:
        text = expression_text(condition, self._source, substitute)
        if relation.stream in self._boxes.tables:
            return self._kept_rows(relation, condition, text)
        box = Filter(name, relation.stream, ("",), (text,))
        return replace(relation, schema=self._boxes.add(box, condition))

    def _kept_rows(self, relation: Relation, condition: exp.Expr, text: str) -> Relation:
        """A table in which the rows that do not fulfil a condition are marked as deleted."""
        schema = relation.schema
        gone = f"not coalesce({text}, false)"
        if schema.deletes:
            gone += f" or coalesce({DELETED}, false)"
        outputs = [
            (each.name, name_text(each.name)) for each in schema.fields if each.name != DELETED
        ]
        box = Map("kept", relation.stream, "", (*outputs, (DELETED, gone)))
        return replace(relation, schema=self._boxes.add(box, condition))

    def _distinct(self, node: exp.Select, relation: Relation) -> Relation:
        distinct = node.args.get("distinct")
        if distinct is None:
            return relation
        if distinct.args.get("on"):
            raise self._source.refusal("DISTINCT ON is not part of the language", distinct)
        shown = relation.shown()
        if not any(each.offset is not None or each.pane is not None for each in shown):
            raise self._source.refusal(
                "an endless stream has no set of all its rows: make the set of a window, with "
                "window_start among the columns",
                distinct,
            )
        nodes = [exp.column(each.name) for each in shown]
        grouped = Grouping(self._boxes, self._source, relation, {}, self._within).plan(
            node, nodes, []
        )
        items = [(each, each.name) for each in nodes]
        return self._projecting.mapped(
            node, grouped.relation, items, grouped.substitute(self._source)
        )

    # -- groups ------------------------------------------------------------------------------------

    def _grouped(self, node: exp.Select, relation: Relation, items: Sequence[Item]) -> Grouped:
        """The relation of the groups that HAVING leaves."""
        clause, having = node.args.get("group"), node.args.get("having")
        conditions = [] if having is None else [having.this]
        calls = aggregates_in([*(each for each, _ in items), *conditions])
        groups = [] if clause is None else self._aliases(clause.expressions, items, relation)
        if clause is not None:
            refuse_groupings(clause, self._source)
            if clause.args.get("all") is not None:  # False means UNION DISTINCT
                reason = "GROUP BY ALL and GROUP BY DISTINCT are not part of the language"
                raise self._source.refusal(reason, clause)
        names: dict[exp.Expr, list[str]] = {}
        for each, name in items:
            if is_aggregate(each) or is_last_number(each):
                names.setdefault(each, []).append(name)
        numbers = last_numbers([*(each for each, _ in items), *conditions])
        grouping = Grouping(self._boxes, self._source, relation, names, self._within)
        grouped = grouping.plan(node, groups, calls, numbers)
        if having is not None:
            substitute = grouped.substitute(self._source)
            grouped.relation = self._where(grouped.relation, having.this, "having", substitute)
        return grouped

    def _aliases(
        self,
        groups: Sequence[exp.Expr],
        items: Sequence[Item],
        relation: Relation,
    ) -> list[exp.Expr]:
        """The expressions of GROUP BY; a name that SELECT gives to an expression is replaced by the
        expression."""
        fields = {each.name for each in relation.columns}
        named = {name: each for each, name in items if name not in fields}
        return [
            named.get(each.name, each) if isinstance(each, exp.Column) and not each.table else each
            for each in groups
        ]

    def _results(self, node: exp.Select, grouped: Grouped, items: Sequence[Item]) -> Relation:
        """Return the SELECT over the groups; the aggregate's output itself, if the items are
        exactly its fields."""
        substitute = grouped.substitute(self._source)
        if tuple(name for _, name in items) == grouped.natural:
            values = [grouped.values.of(each) for each, _ in items]
            texts = [
                name_text(name) if is_aggregate(each) else value
                for (each, name), value in zip(items, values, strict=True)
            ]
            if texts == [name_text(name) for _, name in items]:
                return grouped.relation
        return self._projecting.mapped(node, grouped.relation, items, substitute)

    # -- FROM --------------------------------------------------------------------------------------

    def _from(self, node: exp.Select) -> tuple[Joining | None, Relation, list[exp.Expr]]:
        """The last join, or the relation of a FROM without join; and the conditions of WHERE that
        it did not take."""
        clause, where = node.args.get("from_"), node.args.get("where")
        if clause is None:
            raise self._source.refusal("SELECT reads a stream: FROM is missing", node)
        rest = [] if where is None else [where.this]
        relation = self._table(clause.this)
        joins = [*(clause.this.args.get("joins") or []), *(node.args.get("joins") or [])]
        pattern = node.args.get("match")
        if isinstance(pattern, MatchTable):
            if joins:
                raise self._source.refusal("join the matches, or match the pairs, by WITH", pattern)
            relation = self._settled(relation, pattern)
            relation = Matching(
                self._boxes, self._source, relation, pattern, self._within
            ).relation()
        if joins:
            relation = self._settled(relation, clause)
        joining: Joining | None = None
        for join in joins:
            if joining is not None:
                relation = joining.all()
            right = self._table(join.this)
            self._check_tables(join, relation, right)
            right = self._settled(right, join)
            joining = Joining(
                self._boxes, self._source, relation, right, node=join, within=self._within
            )
            if joining.takes_where:
                rest = [each for condition in rest for each in conjuncts(condition)]
                for each in [each for each in rest if joining.knows(each)]:
                    joining.add(each)
                    rest.remove(each)
        return joining, relation, rest

    def _check_tables(self, join: exp.Join, left: Relation, right: Relation) -> None:
        """Refuse a join that does not read a table as of a time."""
        temporal = isinstance(join.this, exp.Table) and join.this.args.get("version") is not None
        if left.stream in self._boxes.tables:
            raise self._source.refusal(
                "the rows of a table change: it can be the right side of a join, FROM s JOIN t FOR "
                "SYSTEM_TIME AS OF s.stime ON ...",
                join,
            )
        if right.stream in self._boxes.tables and not temporal:
            raise self._source.refusal(
                "a table is joined as of the time of the row: JOIN t FOR SYSTEM_TIME AS OF s.stime",
                join,
            )
        if temporal and right.stream not in self._boxes.tables:
            raise self._source.refusal(
                "FOR SYSTEM_TIME AS OF reads a table, and this is a stream: CREATE TABLE, or ASOF "
                "JOIN",
                join,
            )

    def _is_plain(self, node: exp.Select) -> bool:
        """Whether a SELECT has neither groups, aggregates nor places, nor calls a function of a
        user."""
        if any(map(self._boxes.calls, node.expressions)):
            return False
        if any(each.find(exp.Window) is not None for each in node.expressions):
            return False
        return not node.args.get("having") and not aggregates_in(node.expressions)

    def _pairs(self, node: exp.Select, joining: Joining) -> Relation:
        """The relation of a SELECT over a join: its items become the join's own fields."""
        items = self._projecting.items(node, joining.relation)
        outputs = [
            (name, expression_text(each, self._source, joining.substitute()))
            for each, name in items
        ]
        self._projecting.refuse_repeated(node, items)
        return self._distinct(node, joining.box(outputs))

    def _table(self, node: exp.Expr) -> Relation:
        match node:
            case WindowTable():
                relation = self._settled(self._stream(node.args["table"]), node)
                return in_windows(relation, node, self._source, self._within)
            case RowsTable():
                relation = self._settled(self._stream(node.args["table"]), node)
                if relation.stream in self._boxes.tables:
                    raise self._source.refusal(
                        "the rows of a table change, and are not counted: GROUP BY without a "
                        "window, for its totals",
                        node,
                    )
                return in_row_windows(relation, node, self._source)
            case exp.Table():
                return self._stream(node)
            case exp.Subquery():
                relation = self._nested(node.this)
                return relation.named(node.alias) if node.alias else relation
            case _:
                raise self._source.refusal(FROM_TAKES, node)

    def _stream(self, node: exp.Table) -> Relation:
        named = None if node.args.get("db") else self._scopes.read(node.name)
        if named is not None:
            return named.named(node.alias or node.name)
        stream = self._resolve(node)
        table = node.alias or node.name
        if stream in self._relations:
            return self._relations[stream].named(table)
        if stream not in self._boxes.schemas:
            raise self._source.refusal(f"there is no stream {stream}", node)
        return of_stream(self._boxes.schemas[stream], table)

    # -- SPLIT -------------------------------------------------------------------------------------

    def split(self, node: Split, streams: Sequence[str], name: str) -> None:
        """A filter with several outputs."""
        relation = self._stream(node.this)
        substitute = substitute_of(relation, self._source)
        texts = [expression_text(each, self._source, substitute) for each in node.expressions]
        rest = bool(node.args.get("rest"))
        box = Filter(name, relation.stream, tuple(streams), tuple(texts), rest)
        self._boxes.add_split(box, node)
