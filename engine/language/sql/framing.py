"""Aggregates of the last rows of a partition, beside each row:
`avg(x) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN n PRECEDING AND CURRENT ROW)`.

They are one box of windows of n + 1 tuples that advance by one. The window's last tuple is the row
itself, so its other columns are the `lastval` of the window, and its ROW_NUMBER is the number of
the window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
from sqlglot import exp

from medusa.engine.expressions.printing import Substitute, expression_text, name_text
from medusa.engine.expressions.unread import read_whole, read_whole_parts
from medusa.engine.language.sql.aggregate_calls import (
    Values,
    argument_of,
    function_of,
    is_aggregate,
    substitute_of,
)
from medusa.engine.language.sql.errors import Source
from medusa.engine.language.sql.network import Boxes
from medusa.engine.language.sql.projection import Item
from medusa.engine.language.sql.ranking import is_number, is_over
from medusa.engine.language.sql.relation import Column, Relation, check_time, of_stream
from medusa.engine.objects.query import AggregateCall, Map, TupleWindows

_ENDLESS: Final = (
    "OVER would go over all rows so far: say ROWS BETWEEN n PRECEDING AND CURRENT ROW, or an "
    "overlapping window: HOP"
)


def framed(items: Sequence[Item]) -> list[exp.Window]:
    """The aggregates with OVER among the items, in order."""
    return [
        each
        for node, _ in items
        for each in node.find_all(exp.Window)
        if not is_number(each) and is_over(each) and is_aggregate(each.this)
    ]


@dataclass(frozen=True, slots=True)
class Framed:
    """Rows, each with the aggregates of the last rows. Attributes: values: the texts that replace
    nodes of the SELECT.
    """

    relation: Relation
    values: Values

    def substitute(self, source: Source) -> Substitute:
        """Return the function that gives the text in place of a node in the items of the SELECT."""

        def found(node: exp.Expr) -> str | None:
            value = self.values.of(node)
            if value is not None:
                return value
            if is_aggregate(node):
                raise source.refusal("an aggregate beside OVER: say both with OVER", node)
            return None

        return found


class Framing:
    """Plans the aggregates with OVER of a SELECT.

    Args:
        relation: the rows that FROM and WHERE leave.
    """

    def __init__(self, boxes: Boxes, source: Source, relation: Relation) -> None:
        self._boxes = boxes
        self._source = source
        self._relation = relation
        self._substitute = substitute_of(relation, source)

    def plan(self, select: exp.Select, items: Sequence[Item], calls: list[exp.Window]) -> Framed:
        """The box that computes these calls. calls: the result of `framed`.

        Raises:
            PointedError: their rows are not the last few of a partition, or not the same.
        """
        self._check_select(select, calls[0])
        size = self._size(calls)
        groups = [
            (each, f"by_{number}", expression_text(each, self._source, self._substitute))
            for number, each in enumerate(calls[0].args.get("partition_by") or ())
        ]
        functions: dict[str, AggregateCall] = {}
        values = Values()
        for call in calls:
            name = f"over_{len(functions)}"
            if call not in values:
                self._source.makes(call, name)
                functions[name] = self._function(call, name)
                values[call] = name
        columns: dict[str, Column] = {}
        for node, column in self._columns(items):
            name = next((n for n, each in columns.items() if each == column), f"row_{len(columns)}")
            columns[name] = column
            functions[name] = AggregateCall("lastval", column.text, name)
            values[node] = name
        number = self._number(items, calls[0], values)
        stream, names = self._grouped(select, groups, functions)
        parts = (size, 1, names, tuple(functions.values()), True, number)
        box = TupleWindows("over", stream, "", *parts)
        schema = self._boxes.add(box, select)
        return Framed(_dated(of_stream(schema, ""), columns), values)

    def _number(self, items: Sequence[Item], call: exp.Window, values: Values) -> str:
        """The field for the row's number, if an item asks for it; else "". Args: call: one of the
        aggregates. values: the texts that replace nodes; the numbers are added.
        """
        number = ""
        for node in (each for item, _ in items for each in item.find_all(exp.Window)):
            if not is_number(node):
                continue
            same = all(
                node.args.get(part) == call.args.get(part) for part in ("partition_by", "order")
            )
            if not same or node.args.get("spec") is not None or node.this.expressions:
                raise self._source.refusal(
                    "ROW_NUMBER() beside an aggregate with OVER has the same PARTITION BY and "
                    "ORDER BY, and no rows: take one of them in a subquery",
                    node,
                )
            read_whole(node)
            number = values[node] = "over_number"
        return number

    def _check_select(self, select: exp.Select, call: exp.Window) -> None:
        if self._relation.stream in self._boxes.tables:
            raise self._source.refusal(
                "the rows of a table change, and with each the last rows of its partition: OVER is "
                "for streams",
                call,
            )
        if self._relation.window is not None:
            raise self._source.refusal("OVER is for rows: group the windows by a subquery", call)
        if call.args.get("alias") is not None:
            raise self._source.refusal(
                "named windows are not part of the language: OVER (...)", call
            )
        if select.args.get("group") is not None or select.args.get("having") is not None:
            raise self._source.refusal("GROUP BY in a subquery, and OVER around it", call)

    def _size(self, calls: Sequence[exp.Window]) -> int:
        """The number of rows that each call aggregates; it is the same for all calls."""
        first, *others = calls
        parts = ("partition_by", "order", "spec")
        said = [[call.args.get(part) for part in parts] for call in calls]
        for call, each in zip(others, said[1:], strict=True):
            if each != said[0]:
                raise self._source.refusal(
                    "two different OVER: take one of them in a subquery", call
                )
            read_whole_parts(call, parts)
        order = first.args.get("order")
        ordered = [] if order is None else order.expressions
        column = ordered[0].this if len(ordered) == 1 else None
        if not isinstance(column, exp.Column) or ordered[0].args.get("desc"):
            raise self._source.refusal("OVER goes by the stream's time: ORDER BY it", first)
        check_time(self._relation, column, self._source)
        return self._rows(first) + 1

    def _rows(self, call: exp.Window) -> int:
        """The number of rows before the current one."""
        spec = call.args.get("spec")
        if spec is None:
            raise self._source.refusal(_ENDLESS, call)
        kind, start, side = (spec.text(name) for name in ("kind", "start", "start_side"))
        end = spec.text("end") if spec.args.get("end") else "CURRENT ROW"
        if spec.args.get("exclude"):
            raise self._source.refusal("a frame has no EXCLUDE: the current row is in it", call)
        if kind.upper() != "ROWS":
            raise self._source.refusal(
                "OVER takes ROWS; of a time: an overlapping window, HOP", call
            )
        if end.upper() != "CURRENT ROW" or side.upper() not in {"", "PRECEDING"}:
            raise self._source.refusal("OVER takes rows up to the current one: no FOLLOWING", call)
        if start.upper() == "CURRENT ROW":
            return 0
        if start.upper() == "UNBOUNDED":
            raise self._source.refusal(_ENDLESS, call)
        if not (start.isascii() and start.isdecimal() and len(start) < 10):
            raise self._source.refusal("n PRECEDING is a whole number of rows", call)
        return int(start)

    def _function(self, call: exp.Window, name: str) -> AggregateCall:
        function = function_of(call.this, self._source)
        argument = argument_of(call.this, function, self._relation, self._source)
        return argument.of(function, name)

    def _columns(self, items: Sequence[Item]) -> Iterator[tuple[exp.Expr, Column]]:
        """The columns that the SELECT uses outside of the aggregates' calls, each with its
        nodes."""
        for node, _ in items:
            for each in node.walk(prune=lambda part: isinstance(part, exp.Window)):
                if isinstance(each, exp.Column):
                    yield each, self._relation.find(each, self._source)

    def _grouped(
        self,
        select: exp.Select,
        groups: Sequence[tuple[exp.Expr, str, str]],
        functions: dict[str, AggregateCall],
    ) -> tuple[str, tuple[str, ...]]:
        """The stream with the partition's fields, their names, and the fields of the arguments, if
        a map has to compute them."""
        fields = {name_text(each.name): each.name for each in self._relation.schema.fields}
        if all(text in fields for _, _, text in groups):
            return self._relation.stream, tuple(fields[text] for _, _, text in groups)
        outputs = [(name, text) for _, name, text in groups]
        for name, each in functions.items():
            if each.argument is not None:
                outputs.append((f"of_{name}", each.argument))
                functions[name] = msgspec.structs.replace(each, argument=f"of_{name}")
        schema = self._boxes.add(Map("prepare", self._relation.stream, "", tuple(outputs)), select)
        return schema.name, tuple(name for _, name, _ in groups)


def _dated(relation: Relation, before: Mapping[str, Column]) -> Relation:
    """Return the rows, whose columns are marked as times where that is known.

    Args:
        before: the columns before the projection, by their new names.
    """
    columns = tuple(
        replace(each, offset=known.offset, time=known.time)
        if (known := before.get(each.name)) is not None
        else each
        for each in relation.columns
    )
    return replace(relation, columns=columns)
