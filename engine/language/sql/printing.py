"""Queries, streams and schemas as a script of SQL that defines the same.

Each box is one CREATE STREAM. The words of expressions stay, but for blanks, the case of keywords,
and forms that SQL has other words for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from sqlglot import Token, TokenType

from engine.language.aggregates import call_of
from engine.language.check import check_query, ordered_boxes
from engine.language.document import Document
from engine.language.same_query import is_same
from engine.language.sql.expressions import string_text
from engine.language.sql.relation import WINDOW_END, WINDOW_TIME
from engine.language.sql.script import Script
from engine.language.sql.writing import (
    conjuncts_in,
    conjuncts_of,
    expression_sql,
    interval_sql,
    name_sql,
    object_sql,
    options_sql,
    outermost,
    tokens_sql,
    type_sql,
    without_parentheses,
)
from engine.objects.availability import Mode
from engine.objects.definitions import (
    ANY,
    DEFAULT_HISTORY_US,
    DEFAULT_MAX_AHEAD_US,
    Idle,
    StreamDefinition,
)
from engine.objects.functions import UserFunction, unpinned
from engine.objects.query import (
    WINDOW_START,
    Aggregate,
    AggregateFunction,
    Box,
    Filter,
    Join,
    JoinKind,
    Map,
    Query,
    Top,
    Totals,
    Union,
    outputs_of,
    streams_read,
    streams_written,
)
from engine.objects.schema import BEGINNING, END, STIME, FieldType, Schema
from overlay.errors import InvalidInputError
from overlay.names import ObjectName

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

Schemas = Mapping[str, Schema]
"""The schemas of streams, by stream."""


def query_as_sql(query: Query, inputs: Schemas) -> str:
    """The query as one CREATE QUERY, without its panes.

    `engine.language.sql.script` reads the same query from it: see
    `engine.language.same_query.is_same`.

    Args:
        inputs: the schemas of the streams that it reads from elsewhere.

    Raises:
        InvalidInputError: it does not type-check, or something of it has no form in SQL.
    """
    text = _query(query, check_query(query, inputs))
    read = frozenset(streams_read(query) - streams_written(query))
    (again,) = Script(text, None).complete({name: inputs[name] for name in read}, {}).queries
    if not is_same(query, again, inputs):  # one test for all that could go wrong on the way
        raise InvalidInputError(f"query {query.name} cannot be written as SQL")
    return text


def document_as_sql(document: Document, inputs: Schemas) -> str:
    """The script that defines what the document does.

    Args:
        inputs: the schemas of the streams that its queries read and that it does not define.

    Raises:
        InvalidInputError: it does not type-check, or has views, which SQL has not.
    """
    if document.views:
        raise InvalidInputError(f"{document.views[0].name}: SQL has no views; XML has")
    named = {schema.name: schema for schema in document.schemas}
    known = dict(inputs)
    texts = [*map(schema_as_sql, document.schemas), *map(stream_as_sql, document.streams)]
    for stream in document.streams:
        if stream.schema in named:
            known[stream.name] = msgspec.structs.replace(named[stream.schema], name=stream.name)
    for query in document.queries:
        read = streams_read(query) - streams_written(query)
        mine = {name: schema for name, schema in known.items() if name in read}
        texts.append(query_as_sql(query, mine))
        known |= check_query(query, mine)
    return "\n".join(texts)


def schema_as_sql(schema: Schema) -> str:
    """A CREATE SCHEMA.

    Raises:
        InvalidInputError: SQL does not read the same from it.
    """
    never = {schema.time, *schema.key}
    parts = []
    for field in schema.fields:
        size = "" if field.size is None else f"({field.size})"
        null = "" if field.nullable or field.name in never else " NOT NULL"
        null = " NULL" if field.nullable and field.name in never else null
        parts.append(f"{name_sql(field.name)} {type_sql(field.type)}{size}{null}")
    if schema.time is not None:
        time = name_sql(schema.time)
        parts.append(f"WATERMARK FOR {time} AS {time}")
    if schema.key:
        parts.append(f"PRIMARY KEY ({', '.join(map(name_sql, schema.key))})")
    inside = ",\n  ".join(parts)
    text = f"CREATE SCHEMA {object_sql(schema.name)} (\n  {inside}\n);\n"
    if Script(text, None).complete({}, {}).schemas != (schema,):
        raise InvalidInputError(f"schema {schema.name} cannot be written as SQL")
    return text


def stream_as_sql(stream: StreamDefinition) -> str:
    """The CREATE STREAM of a source stream; what is as it is without being said is not said.

    Raises:
        InvalidInputError: it is no source stream.
    """
    options = []
    for name, us, usual in (
        ("slack", stream.slack_us, 0),
        ("history", stream.history_us, DEFAULT_HISTORY_US),
        ("max_ahead", stream.max_ahead_us, DEFAULT_MAX_AHEAD_US),
    ):
        if us != usual:
            options.append((name, "none" if us is None else interval_sql(us)))
    if stream.idle is not Idle.EXPLICIT:
        options.append(("idle", string_text(stream.idle)))
    for name, given, usual_members in (
        ("readers", stream.readers, (ANY,)),
        ("writers", stream.writers, ()),
        ("declassify", stream.declassify, ()),
    ):
        if given != usual_members:
            options.append((name, _members(given)))
    if stream.leader:
        options.append(("leader", string_text(stream.leader)))
    if stream.k_safety:
        options.append(("k_safety", str(stream.k_safety)))
    head = f"CREATE STREAM {object_sql(stream.name)} USING {object_sql(stream.schema)}"
    text = f"{head}{options_sql(options)};\n"
    any_schema = {stream.schema: Schema(stream.schema, ())}
    if Script(text, None).complete({}, any_schema).streams != (stream,):
        raise InvalidInputError(f"stream {stream.name} cannot be written as SQL")
    return text


def function_as_sql(function: UserFunction) -> str:
    """The CREATE FUNCTION of a function that the operators of its peers allow."""
    numbered = enumerate(function.arguments, 1)
    arguments = ", ".join(f"a{number} {type_sql(type_)}" for number, type_ in numbered)
    sure = " DETERMINISTIC" if function.deterministic else ""
    return (
        f"CREATE FUNCTION {name_sql(function.name)}({arguments}) "
        f"RETURNS {type_sql(function.result)}{sure}\n"
        f"  LANGUAGE PYTHON AS {string_text(function.source)};"
    )


def _query(query: Query, schemas: Schemas) -> str:
    lines = [function_as_sql(each) for each in unpinned(query.functions)]
    lines.append(f"CREATE QUERY {object_sql(query.name)}{options_sql(_of_query(query))} AS BEGIN")
    lines += [f"  {_statement(query, box, schemas)};" for box in ordered_boxes(query)]
    return "\n".join([*lines, "END;", ""])


def _of_query(query: Query) -> list[tuple[str, str]]:
    """The options of its availability and its part of the past."""
    asked, options = query.availability, []
    if asked.mode is not Mode.NONE:
        options += [("ha", string_text(asked.mode)), ("recovery", string_text(asked.recovery))]
    if asked.bound_s:
        options.append(("bound", interval_sql(round(asked.bound_s * 1e6))))
    if asked.mode is Mode.PASSIVE_STANDBY:
        options.append(("checkpoint", interval_sql(round(asked.checkpoint_s * 1e6))))
    if asked.secondary:
        options.append(("secondary", string_text(asked.secondary)))
    for name, moment, usual in (("from", query.after, BEGINNING), ("until", query.until, END)):
        if moment != usual:
            options.append((name, interval_sql(moment)))
    if query.version:
        options.append(("version", str(query.version)))
    return options


def _statement(query: Query, box: Box, schemas: Schemas) -> str:
    """The CREATE STREAM of one box."""
    streams, read = outputs_of(box), streams_read(query)
    hidden = [stream in read and stream not in query.outputs for stream in streams]
    options = (
        []
        if box.name == ObjectName.parse(streams[0]).path.rpartition("/")[2]
        else [("box", string_text(box.name))]
    )
    declared = dict(query.readers)
    for port, stream in enumerate(streams, 1):
        if stream in declared:
            name = "readers" if len(streams) == 1 else f"readers.{port}"
            options.append((name, _members(declared[stream])))
    if all(hidden):
        head, names = "CREATE TEMPORARY STREAM", [object_sql(stream) for stream in streams]
    else:
        head = "CREATE STREAM"
        names = [
            f"TEMPORARY {object_sql(stream)}" if inside else object_sql(stream)
            for stream, inside in zip(streams, hidden, strict=True)
        ]
    return f"{head} {', '.join(names)}{options_sql(options)} AS\n    {_made_of(box, schemas)}"


def _made_of(box: Box, schemas: Schemas) -> str:
    match box:
        case Filter(predicates=(predicate,), pass_on_false=False):
            return f"SELECT * FROM {object_sql(box.input)} WHERE {expression_sql(predicate)}"
        case Filter():
            conditions = ", ".join(map(expression_sql, box.predicates))
            rest = " ELSE" if box.pass_on_false else ""
            return f"SPLIT {object_sql(box.input)} BY {conditions}{rest}"
        case Map():
            return f"SELECT {_items(box.expressions)} FROM {object_sql(box.input)}"
        case Union():
            return " UNION ALL ".join(f"SELECT * FROM {object_sql(each)}" for each in box.inputs)
        case Aggregate():
            return _aggregate(box, schemas[box.input])
        case Totals() | Top() | Join(table=True):
            raise InvalidInputError(f"box {box.name!a}: tables have no form in SQL yet")
        case Join():
            return _join(box, schemas)


def _items(expressions: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{expression_sql(text)} AS {name_sql(name)}" for name, text in expressions)


def _aggregate(box: Aggregate, schema: Schema) -> str:
    size, advance = interval_sql(box.size_us), interval_sql(box.advance_us)
    time = f"DESCRIPTOR({name_sql(schema.time or STIME)})"
    table = f"TABLE {object_sql(box.input)}"
    window = (
        f"TUMBLE({table}, {time}, {size})"
        if box.size_us == box.advance_us
        else f"HOP({table}, {time}, {advance}, {size})"
    )
    groups = [WINDOW_START, *(_group(name, box.input) for name in box.group_by)]
    calls = [f"{_call(each)} AS {name_sql(each.output)}" for each in box.functions]
    return (
        f"SELECT {', '.join([*groups, *calls])}\n    FROM {window}\n"
        f"    GROUP BY {', '.join(groups)}"
    )


def _group(name: str, stream: str) -> str:
    """A field that is grouped by; the bare names of a window's times are those of this window."""
    if name not in {WINDOW_END, WINDOW_TIME}:
        return name_sql(name)
    return f"{name_sql(ObjectName.parse(stream).path)}.{name}"


def _call(each: AggregateFunction) -> str:
    if each.argument is None:
        return f"{each.function}(*)"
    argument = expression_sql(each.argument)
    return call_of(msgspec.structs.replace(each, argument=argument))


def _join(box: Join, schemas: Schemas) -> str:
    tables = " ".join(
        f"{word} {object_sql(stream)} AS {name_sql(side)}"
        for word, stream, side in zip(
            ("FROM", _JOINS[box.kind]), (box.left, box.right), _SIDES, strict=True
        )
    )
    conditions = _conditions(box, schemas)
    bounds = f"right.stime BETWEEN {_moved(-box.before_us)} AND {_moved(box.after_us)}"
    conditions.append(bounds)
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
    """How many a condition of ON needs: in one pair a comparison of times is no bound of the join,
    and BETWEEN and OR are as they are; in two pairs so is AND."""
    if len(conjuncts_in(inner)) > 1:
        return 2
    kinds = outermost(inner)
    names = {each.text for each in inner if each.token_type is TokenType.IDENTIFIER}
    return 1 if names & times or kinds & {TokenType.OR, TokenType.BETWEEN} else 0


def _times(schema: Schema) -> set[str]:
    return {STIME, *(each.name for each in schema.fields if each.type is FieldType.TIMESTAMP)}


def _moved(microseconds: int) -> str:
    """The stime of the left tuple, earlier or later."""
    if microseconds == 0:
        return "left.stime"
    sign = "+" if microseconds > 0 else "-"
    return f"left.stime {sign} {interval_sql(abs(microseconds))}"


def _members(names: Sequence[str]) -> str:
    return string_text(", ".join(names))
