"""The items of a SELECT: their names, and the map that computes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from medusa.engine.expressions.printing import Substitute, expression_text, name_text
from medusa.engine.language.sql.aggregate_calls import substitute_of
from medusa.engine.language.sql.errors import Source
from medusa.engine.language.sql.network import Boxes
from medusa.engine.language.sql.relation import Column, Relation, hidden_columns, of_stream
from medusa.engine.objects.query import Map
from medusa.engine.objects.schema import STIME

Item = tuple[exp.Expr, str]
"""An expression of a SELECT, and its name."""


class Projecting:
    """Plans the items of a SELECT."""

    def __init__(self, boxes: Boxes, source: Source) -> None:
        self._boxes = boxes
        self._source = source

    def items(self, node: exp.Select, relation: Relation) -> list[Item]:
        """The expressions of a SELECT and their names; each `*` becomes the columns that it stands
        for."""
        items: list[Item] = []
        for each in node.expressions:
            inner = each.this if isinstance(each, exp.Alias) else each
            star = isinstance(inner, exp.Star) or (
                isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)
            )
            if star:
                if inner is not each:
                    raise self._source.refusal("* stands for many columns: it takes no AS", inner)
                table = inner.table if isinstance(inner, exp.Column) else ""
                of = inner.this if isinstance(inner, exp.Column) else inner
                if any(of.args.get(each) for each in ("except_", "replace", "rename")):
                    raise self._source.refusal(
                        "* has no EXCEPT, REPLACE or RENAME here: name the columns", inner
                    )
                shown = relation.shown(table)
                if not shown:
                    raise self._source.refusal(f"there is no {table[:80]} in FROM", inner)
                for column in shown:
                    name = exp.column(column.name, table=table or _table_of(column, relation))
                    name.meta.update(node.meta)
                    items.append((name, column.name))
            else:
                items.append((inner, each.alias or _name_of(inner, len(items))))
        return items

    def projected(self, node: exp.Select, relation: Relation, items: Sequence[Item]) -> Relation:
        """Return the SELECT of these items; if the items are exactly the columns, the tuples
        themselves."""
        whole = [field.name for field in relation.schema.fields]
        shown = [each.name for each in relation.columns if each.shown]
        substitute = substitute_of(relation, self._source)
        if [name for _, name in items] == whole:
            texts = [expression_text(each, self._source, substitute) for each, _ in items]
            if texts == [name_text(name) for name in whole]:
                return relation if shown == whole else _unwindowed(relation)
        return self.mapped(node, relation, items, substitute)

    def narrowed(self, relation: Relation, items: Sequence[Item], free: str) -> Relation | None:
        """The same tuples, with only these items visible. They keep their order of arrival, which
        the output of a map loses.

        None: an item is no field, or a field is called `free`, a name that must be unused."""
        fields = {field.name for field in relation.schema.fields}
        if relation.stream in self._boxes.tables or free in fields:
            return None
        seen: list[Column] = []
        for node, name in items:
            if not isinstance(node, exp.Column):
                return None
            column = relation.find(node, self._source)
            if name not in fields or column.text != name_text(name):
                return None
            seen.append(replace(column, name=name, shown=True, qualified=False))
        time = [each for each in relation.columns if each.text == STIME]
        made = of_stream(relation.schema, "").columns[0].tables
        return Relation(
            relation.schema, tuple(replace(each, tables=made) for each in (*seen, *time))
        )

    def mapped(
        self,
        node: exp.Expr,
        relation: Relation,
        items: Sequence[Item],
        substitute: Substitute,
    ) -> Relation:
        """A map of these items. substitute: gives the texts that replace names in them."""
        outputs = []
        for each, name in items:
            text = expression_text(each, self._source, substitute)
            with self._source.pointing(each):
                outputs.append((name, text))
        self.refuse_repeated(node, items)
        hidden = []
        if relation.stream in self._boxes.tables:
            hidden = hidden_columns(relation, outputs)
        outputs += hidden
        schema = self._boxes.add(Map("select", relation.stream, "", tuple(outputs)), node)
        known = {each.text: each for each in relation.columns}
        made = of_stream(schema, "")
        texts = dict(outputs)
        names = {name for name, _ in hidden}
        columns = tuple(
            replace(
                _as_before(each, known.get(texts.get(each.name, ""))),
                shown=each.shown and each.name not in names,
            )
            for each in made.columns
        )
        return replace(made, columns=columns)

    def refuse_repeated(self, node: exp.Expr, items: Sequence[Item]) -> None:
        """Refuse two columns of one name. Raises: PointedError: two have the same name."""
        for name, times in Counter(name.lower() for _, name in items).items():
            if times > 1:
                raise self._source.refusal(
                    f"{times} columns would be called {name[:80]}: name them by AS", node
                )


def _unwindowed(relation: Relation) -> Relation:
    """The tuples of windows without the times of the windows."""
    own = {name_text(field.name) for field in relation.schema.fields} | {STIME}
    columns = tuple(replace(each, qualified=False) for each in relation.columns if each.text in own)
    return replace(relation, columns=columns)


def _name_of(node: exp.Expr, number: int) -> str:
    """The name of a column that the text does not name."""
    if isinstance(node, exp.Column):
        return node.name
    return node.name.lower() if isinstance(node, exp.Anonymous) else f"column_{number}"


def _as_before(column: Column, before: Column | None) -> Column:
    """Return a column of a map's output, with the known properties of the column that it copies."""
    if before is None:
        return column
    return replace(column, offset=before.offset, time=before.time, pane=before.pane)


def _table_of(column: Column, relation: Relation) -> str:
    """The table that must stand before the name, if other columns have the same name; else ""."""
    same = [each for each in relation.columns if each.name == column.name]
    return column.tables[0] if len(same) > 1 and column.tables else ""
