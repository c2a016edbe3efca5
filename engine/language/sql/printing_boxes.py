"""A box as the SELECT that `medusa.engine.language.sql.script` reads as the same box."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from sqlglot import Token, TokenType

from medusa.engine.aggregates.rows import aggregate_named
from medusa.engine.language.aggregates import call_of, constant_of
from medusa.engine.language.box_texts import nulls_words
from medusa.engine.language.expression_tokens import tokens_of
from medusa.engine.language.sql.expressions import name_text
from medusa.engine.language.sql.printing_matches import match_sql
from medusa.engine.language.sql.relation import WINDOW_TIME
from medusa.engine.language.sql.writing import (
    conjuncts_in,
    conjuncts_of,
    expression_sql,
    interval_sql,
    name_sql,
    object_sql,
    outermost,
    tokens_sql,
    without_parentheses,
)
from medusa.engine.objects.query import (
    WINDOW_END,
    WINDOW_START,
    Aggregate,
    AggregateCall,
    Box,
    Cumulate,
    Filter,
    Join,
    JoinKind,
    Map,
    Match,
    OrderBy,
    Rank,
    Sessions,
    Top,
    Totals,
    TupleWindows,
    Union,
)
from medusa.engine.objects.schema import STIME, FieldType, Schema
from medusa.overlay.names import ObjectName

_JOINS: Final = {
    JoinKind.INNER: "JOIN",
    JoinKind.LEFT: "LEFT JOIN",
    JoinKind.RIGHT: "RIGHT JOIN",
    JoinKind.FULL: "FULL JOIN",
    JoinKind.SEMI: "LEFT SEMI JOIN",
    JoinKind.ANTI: "LEFT ANTI JOIN",
    JoinKind.ASOF: "ASOF JOIN",
    JoinKind.LEFT_ASOF: "ASOF LEFT JOIN",
}

_SIDES: Final = ("left", "right")

_OF_WINDOWS: Final = frozenset({WINDOW_START, WINDOW_END, WINDOW_TIME})
"""Names that mean a window's own times, unless the stream stands before them."""

Schemas = Mapping[str, Schema]
"""The schemas of streams, by stream."""


def select_sql(box: Box, schemas: Schemas) -> str:
    """The SELECT of a box: CREATE STREAM has it behind AS.

    Args:
        schemas: of the streams that it reads.

    Raises:
        InvalidInputError: one of its expressions is none.
    """
    match box:
        case Filter():
            return _filter(box)
        case Map():
            items = _items(_mapped(box, schemas[box.input]))
            return f"SELECT {items} FROM {object_sql(box.input)}"
        case Union():
            return " UNION ALL ".join(f"SELECT * FROM {object_sql(each)}" for each in box.inputs)
        case Aggregate() | Sessions() | Cumulate() | TupleWindows():
            return _windows(box, schemas[box.input])
        case Rank() | Top():
            return _first(box, schemas[box.input])
        case Totals():
            return _totals(box, schemas[box.input])
        case Match():
            return match_sql(box)
        case Join():
            return _join(box, schemas)


def _filter(box: Filter) -> str:
    conditions = list(map(expression_sql, box.predicates))
    if len(conditions) == 1 and not box.pass_on_false:
        return f"SELECT * FROM {object_sql(box.input)} WHERE {conditions[0]}"
    rest = " ELSE" if box.pass_on_false else ""
    return f"SPLIT {object_sql(box.input)} BY {', '.join(conditions)}{rest}"


def _items(expressions: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{expression_sql(text)} AS {name_sql(name)}" for name, text in expressions)


def _mapped(box: Map, schema: Schema) -> Sequence[tuple[str, str]]:
    """The outputs of a map; of one that changes nothing one is in parentheses, so that it is not
    taken for its input."""
    same = [(each.name, name_text(each.name)) for each in schema.fields]
    if [(name, expression_sql(text)) for name, text in box.expressions] != [
        (name, expression_sql(text)) for name, text in same
    ]:
        return box.expressions
    (name, text), *more = box.expressions
    return [(name, f"({text})"), *more]


# -- windows ---------------------------------------------------------------------------------------


def _windows(box: Aggregate | Sessions | Cumulate | TupleWindows, schema: Schema) -> str:
    """The functions of windows, whose times and groups are named in SELECT and in GROUP BY."""
    match box:
        case Aggregate():
            times = [WINDOW_START]
        case Sessions() | Cumulate():
            times = [WINDOW_START, WINDOW_END]
        case TupleWindows():
            times = []
    fields = [_field(name, box.input) if times else name_sql(name) for name in box.group_by]
    groups = [*times, *fields]
    by = f"\n    GROUP BY {', '.join(groups)}" if groups else ""
    functions = box.functions
    if times:
        functions = tuple(_of_stream(each, box.input) for each in functions)
    items = [*groups, *_calls(functions)]
    if isinstance(box, TupleWindows) and box.number:
        items.append(f"ROW_NUMBER() AS {name_sql(box.number)}")
    return f"SELECT {', '.join(items)}\n    FROM {_window_table(box, schema, fields)}{by}"


def _window_table(
    box: Aggregate | Sessions | Cumulate | TupleWindows, schema: Schema, groups: Sequence[str]
) -> str:
    time = f"DESCRIPTOR({name_sql(schema.time or STIME)})"
    table = f"TABLE {object_sql(box.input)}"
    match box:
        case Aggregate(size_us=size, advance_us=advance) if size == advance:
            return f"TUMBLE({table}, {time}, {interval_sql(size)})"
        case Aggregate(size_us=size, advance_us=advance):
            return f"HOP({table}, {time}, {interval_sql(advance)}, {interval_sql(size)})"
        case Sessions():
            partition = f" PARTITION BY {', '.join(groups)}" if groups else ""
            return f"SESSION({table}{partition}, {time}, {interval_sql(box.gap_us)})"
        case Cumulate():
            lengths = f"{interval_sql(box.step_us)}, {interval_sql(box.size_us)}"
            return f"CUMULATE({table}, {time}, {lengths})"
        case TupleWindows(partial=False, size=rows, advance=advance) if rows == advance:
            return f"TUMBLE({table}, {rows} ROWS)"
        case TupleWindows():
            partial = ", PARTIAL" if box.partial else ""
            return f"HOP({table}, {box.advance} ROWS, {box.size} ROWS{partial})"


def _field(name: str, stream: str) -> str:
    """A field of a stream; the bare names of a window's times are those of the window."""
    if name not in _OF_WINDOWS:
        return name_sql(name)
    return f"{name_sql(ObjectName.parse(stream).path)}.{name}"


def _of_stream(function: AggregateCall, stream: str) -> AggregateCall:
    """The function, its argument with the stream's name before fields that are called like a time
    of its windows."""
    text = function.argument
    if text is None:
        return function
    before = f"{name_text(ObjectName.parse(stream).path)}."
    parts, end = [], 0
    for token in tokens_of(text, None)[1:-1]:
        if token.token_type is TokenType.IDENTIFIER and token.text in _OF_WINDOWS:
            parts += [text[end : token.start - 1], f"{before}{token.text}"]
            end = token.end  # one more than in the text
    return msgspec.structs.replace(function, argument="".join([*parts, text[end:]]))


def _calls(functions: Iterable[AggregateCall]) -> list[str]:
    return [f"{_call(each)} AS {name_sql(each.output)}" for each in functions]


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


def _totals(box: Totals, schema: Schema) -> str:
    groups = ", ".join(map(name_sql, box.group_by))
    by = ", ".join(_no_window(name, name_sql(name), schema) for name in box.group_by)
    items = ", ".join([groups, *_calls(box.functions)])
    return f"SELECT {items}\n    FROM {object_sql(box.input)} GROUP BY {by}"


def _no_window(name: str, text: str, schema: Schema) -> str:
    """A field to group by, or of a partition: in parentheses a time does not mean its window."""
    return f"({text})" if name in _times(schema) else text


def _first(box: Rank | Top, schema: Schema) -> str:
    """The numbers in a subquery, and their bound around it."""
    windowed = isinstance(box, Rank) and box.size_us > 1
    fields = [
        _field(each.name, box.input) if windowed else name_sql(each.name) for each in schema.fields
    ]
    of = dict(zip((each.name for each in schema.fields), fields, strict=True))
    partition = [_no_window(name, of[name], schema) for name in box.partition_by]
    if isinstance(box, Rank):
        partition.insert(0, WINDOW_START if windowed else STIME)
    order = [
        " ".join([of[each.field], *(["DESC"] if each.descending else []), *_nulls(each)])
        for each in box.order_by
    ]
    place = box.place or _free("place", schema)
    over = f"PARTITION BY {', '.join(partition)}"
    over += f" ORDER BY {', '.join(order)}" if order else ""
    table = object_sql(box.input)
    if isinstance(box, Rank) and windowed:
        time = f"DESCRIPTOR({name_sql(schema.time or STIME)})"
        table = f"TUMBLE(TABLE {table}, {time}, {interval_sql(box.size_us)})"
    inner = ", ".join(fields) if windowed else "*"
    outer = "*" if box.place else ", ".join(name_sql(each.name) for each in schema.fields)
    return (
        f"SELECT {outer} FROM (\n"
        f"      SELECT {inner},\n        ROW_NUMBER() OVER ({over}) AS {name_sql(place)}\n"
        f"      FROM {table}\n"
        f"    ) WHERE {name_sql(place)} <= {box.most}"
    )


def _nulls(order: OrderBy) -> list[str]:
    return [each.upper() for each in nulls_words(order)]


def _free(word: str, schema: Schema) -> str:
    """A name that no field has."""
    taken = {each.name.lower() for each in schema.fields}
    while word in taken:
        word += "_"
    return word


# -- joins -----------------------------------------------------------------------------------------


def _join(box: Join, schemas: Schemas) -> str:
    right = object_sql(box.right)
    conditions = _conditions(box, schemas)
    if box.table:
        right = f"{right} FOR SYSTEM_TIME AS OF left.stime"
        conditions = conditions or ["TRUE"]
    else:
        bounds = f"{_moved(-box.before_us)} AND {_moved(box.after_us)}"
        conditions.append(f"right.stime BETWEEN {bounds}")
    tables = (
        f"FROM {object_sql(box.left)} AS {name_sql(_SIDES[0])} "
        f"{_JOINS[box.kind]} {right} AS {name_sql(_SIDES[1])}"
    )
    on = "\n      AND ".join(conditions)
    return f"SELECT {_items(box.expressions)}\n    {tables}\n    ON {on}"


def _conditions(box: Join, schemas: Schemas) -> list[str]:
    """The parts of the predicate, in as many parentheses as keep each of them one condition."""
    if box.predicate.strip().lower() == "true":
        return []
    times = _times(schemas[box.left]) | _times(schemas[box.right])
    found = []
    for tokens in conjuncts_of(box.predicate):
        inner = without_parentheses(tokens)
        missing = _parentheses(inner, times) - (len(tokens) - len(inner)) // 2
        found.append(f"{'(' * missing}{tokens_sql(tokens)}{')' * missing}")
    return found


def _parentheses(inner: Sequence[Token], times: set[str]) -> int:
    """Return how many parentheses a condition of ON needs: in one pair a comparison of times is no
    bound of the join, and BETWEEN and OR are unchanged; in two pairs so is AND."""
    if len(conjuncts_in(inner)) > 1:
        return 2
    kinds = outermost(inner)
    names = {each.text for each in inner if each.token_type is TokenType.IDENTIFIER}
    return 1 if names & times or kinds & {TokenType.OR, TokenType.BETWEEN} else 0


def _times(schema: Schema) -> set[str]:
    moments = {each.name for each in schema.fields if each.type is FieldType.TIMESTAMP}
    return {STIME, *moments} | ({schema.time} if schema.time else set())


def _moved(microseconds: int) -> str:
    """The stime of the left tuple, earlier or later."""
    if microseconds == 0:
        return "left.stime"
    sign = "+" if microseconds > 0 else "-"
    return f"left.stime {sign} {interval_sql(abs(microseconds))}"
