"""Parts of the SELECTs of boxes, from which `medusa.engine.language.sql.script` reads the same
boxes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from sqlglot import exp

from medusa.engine.aggregates.rows import aggregate_named
from medusa.engine.expressions.aggregates import call_of, constant_of
from medusa.engine.expressions.printing import expression_sql, name_text
from medusa.engine.objects.query import (
    WINDOW_END,
    WINDOW_START,
    WINDOW_TIME,
    Aggregate,
    AggregateCall,
    Cumulate,
    OrderBy,
    Rank,
    Sessions,
    Top,
    TupleWindows,
)
from medusa.engine.objects.schema import STIME, FieldType, Schema
from medusa.engine.operators.shared.texts import nulls_words
from medusa.overlay.names import ObjectName

_OF_WINDOWS: Final = frozenset({WINDOW_START, WINDOW_END, WINDOW_TIME})
"""Names that mean a window's times, unless the stream's name stands before them."""


def items_sql(expressions: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{expression_sql(text)} AS {name_text(name)}" for name, text in expressions)


def is_same(expressions: Sequence[tuple[str, str]], schema: Schema) -> bool:
    """Whether a map's outputs are exactly the fields of its input."""
    same = [(each.name, name_text(each.name)) for each in schema.fields]
    return [(name, expression_sql(text)) for name, text in expressions] == same


# -- windows ---------------------------------------------------------------------------------------


def windows_sql(
    box: Aggregate | Sessions | Cumulate | TupleWindows,
    groups: Sequence[str],
    windows: str,
    more: Sequence[str] = (),
    *,
    of_time: bool = True,
) -> str:
    """The SELECT of functions over windows; SELECT and GROUP BY name the times and the groups.

    Args:
        windows: the table of the windows. more: further results.
    """
    functions = box.functions
    if of_time:
        functions = tuple(_of_stream(each, box.input) for each in functions)
    by = f"\n    GROUP BY {', '.join(groups)}" if groups else ""
    items = ", ".join([*groups, *calls_sql(functions), *more])
    return f"SELECT {items}\n    FROM {windows}{by}"


def time_sql(schema: Schema) -> str:
    """The column of the time by which windows are made."""
    return f"DESCRIPTOR({name_text(schema.time or STIME)})"


def fields_sql(names: Sequence[str], stream: str) -> list[str]:
    """Fields of a stream, for a SELECT that also has the times of windows."""
    return [_field(name, stream) for name in names]


def _field(name: str, stream: str) -> str:
    """A field of a stream. A bare name like `window_start` would mean the time of the window, so
    the stream's name stands before it."""
    if name not in _OF_WINDOWS:
        return name_text(name)
    return f"{name_text(ObjectName.parse(stream).path)}.{name}"


def _of_stream(function: AggregateCall, stream: str) -> AggregateCall:
    """The function, with the stream's name before fields of its argument that have the name of a
    window's time."""
    text = function.argument
    if text is None:
        return function
    before = f"{name_text(ObjectName.parse(stream).path)}."

    def named(node: exp.Expr) -> str | None:
        of_window = isinstance(node, exp.Column) and node.name in _OF_WINDOWS
        return f"{before}{node.name}" if of_window else None

    return msgspec.structs.replace(function, argument=expression_sql(text, named))


def calls_sql(functions: Iterable[AggregateCall]) -> list[str]:
    return [f"{_call(each)} AS {name_text(each.output)}" for each in functions]


def _call(each: AggregateCall) -> str:
    if each.argument is None:
        return f"{each.function}(*)"
    argument = expression_sql(each.argument)
    if not each.descending:
        return call_of(msgspec.structs.replace(each, argument=argument))
    order = f"ORDER BY {argument} DESC"
    constant = constant_of(each)
    if aggregate_named(each.function).within_group:
        return f"{each.function}({constant}) WITHIN GROUP ({order})"
    given = argument if constant is None else f"{argument}, {constant}"
    return f"{each.function}({given} {order})"


# -- tables and places -----------------------------------------------------------------------------


def no_window(name: str, text: str, schema: Schema) -> str:
    """A field to group by, or of a partition; a time is in parentheses, so that it does not mean
    its window."""
    return f"({text})" if name in times_of(schema) else text


def first_sql(box: Rank | Top, schema: Schema, table: str, of: str = "") -> str:
    """A subquery that numbers the tuples, and around it the bound of the numbers. Args: of: a
    further field of the partition, which tells windows or instants apart.
    """
    windowed = of == WINDOW_START
    names = [each.name for each in schema.fields]
    fields = fields_sql(names, box.input) if windowed else [*map(name_text, names)]
    known = dict(zip(names, fields, strict=True))
    partition = [*([of] if of else [])]
    partition += [no_window(name, known[name], schema) for name in box.partition_by]
    order = [
        " ".join([known[each.field], *(["DESC"] if each.descending else []), *_nulls(each)])
        for each in box.order_by
    ]
    place = box.place or _free("place", schema)
    over = f"PARTITION BY {', '.join(partition)}"
    over += f" ORDER BY {', '.join(order)}" if order else ""
    inner = ", ".join(fields) if windowed else "*"
    outer = "*" if box.place else ", ".join(map(name_text, names))
    return (
        f"SELECT {outer} FROM (\n"
        f"      SELECT {inner},\n        ROW_NUMBER() OVER ({over}) AS {name_text(place)}\n"
        f"      FROM {table}\n"
        f"    ) WHERE {name_text(place)} <= {box.most}"
    )


def _nulls(order: OrderBy) -> list[str]:
    return [each.upper() for each in nulls_words(order)]


def _free(word: str, schema: Schema) -> str:
    """A name that no field has."""
    taken = {each.name.lower() for each in schema.fields}
    while word in taken:
        word += "_"
    return word


def times_of(schema: Schema) -> set[str]:
    """The names of the fields that are moments."""
    moments = {each.name for each in schema.fields if each.type is FieldType.TIMESTAMP}
    return {STIME, *moments} | ({schema.time} if schema.time else set())
