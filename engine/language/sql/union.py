"""UNION ALL: one box over the streams of all sides."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from medusa.engine.expressions.printing import name_text
from medusa.engine.language.sql.errors import Source
from medusa.engine.language.sql.network import Boxes
from medusa.engine.language.sql.relation import Relation, of_stream
from medusa.engine.objects.query import Map, Union


def union_of(
    node: exp.Union, relation_of: Callable[[exp.Expr], Relation], boxes: Boxes, source: Source
) -> Relation:
    """The relation with the tuples of all sides; the first side names the columns. Args:
    relation_of: makes the relation of a side. Raises: PointedError: the node is no UNION ALL, or
        the sides have different columns.
    """
    if node.args.get("distinct"):
        raise source.refusal("UNION needs all rows of both sides: say UNION ALL", node.expression)
    sides: list[exp.Expr] = []
    left: exp.Expr = node
    while isinstance(left, exp.Union) and not left.args.get("distinct"):
        sides.append(left.expression)
        left = left.this
    relations = [relation_of(each) for each in [left, *reversed(sides)]]
    if any(each.stream in boxes.tables for each in relations):
        raise source.refusal("UNION ALL is of streams, and one of these is a table", node)
    first = relations[0]
    names = [field.name for field in first.schema.fields]
    streams = [first.stream]
    for each, side in zip(relations[1:], reversed(sides), strict=True):
        fields = [field.name for field in each.schema.fields]
        if len(fields) != len(names):
            raise source.refusal(
                f"the first SELECT has {len(names)} columns, this one {len(fields)}", side
            )
        if fields != names:
            outputs = tuple(
                (name, name_text(given)) for name, given in zip(names, fields, strict=True)
            )
            box = Map("rename", each.stream, "", outputs)
            streams.append(boxes.add(box, side).name)
        else:
            streams.append(each.stream)
    if len(set(streams)) < len(streams):
        raise source.refusal("a stream is twice in this UNION ALL", node)
    return of_stream(boxes.add(Union("union", tuple(streams), ""), node), "")
