"""Queries, streams and schemas as a script of SQL that defines the same.

Each box is one CREATE STREAM. The words of expressions stay, but for blanks, the case of keywords,
and forms that SQL has other words for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
from msgspec import UNSET

from medusa.engine.expressions.printing import name_text, string_text
from medusa.engine.expressions.sql_texts import interval_sql, object_sql, options_sql, type_sql
from medusa.engine.language.check import check_query, ordered_boxes
from medusa.engine.language.document import Document
from medusa.engine.language.same_query import is_same
from medusa.engine.language.sql.errors import PointedError
from medusa.engine.language.sql.script import Script
from medusa.engine.language.tables import tables_of, tables_read
from medusa.engine.objects.availability import Mode
from medusa.engine.objects.definitions import (
    DEFAULT_HISTORY_US,
    DEFAULT_IDLE_TIMEOUT_US,
    DEFAULT_MAX_AHEAD_US,
    Idle,
    StreamDefinition,
)
from medusa.engine.objects.functions import UserFunction, unpinned
from medusa.engine.objects.query import (
    Box,
    Query,
    streams_read,
    streams_written,
)
from medusa.engine.objects.schema import BEGINNING, END, Field, FieldType, Schema
from medusa.engine.operators.registry import operator_of
from medusa.overlay.errors import InvalidInputError
from medusa.overlay.names import ObjectName

Schemas = Mapping[str, Schema]
"""The schemas of streams, by stream."""


def query_as_sql(query: Query, inputs: Schemas, tables: Collection[str] | None = None) -> str:
    """The query as one CREATE QUERY, without its panes.

    `medusa.engine.language.sql.script` reads the same query from it: see
    `medusa.engine.language.same_query.is_same`.

    Args:
        inputs: the schemas of the streams that it reads from elsewhere.
        tables: the tables among them; None: the streams that it reads as tables.

    Raises:
        InvalidInputError: it does not type-check, or SQL has no form for a part of it.
    """
    text = _query(query, check_query(query, inputs))
    read = frozenset(streams_read(query) - streams_written(query))
    known = {name: inputs[name] for name in read}
    given = read & (tables_read(query) if tables is None else frozenset(tables))
    _check_tables(query, given)
    try:
        (again,) = Script(text, None).complete(known, {}, given).queries
    except PointedError as error:
        # the query was never a text that a person saw
        reason = str(error).rpartition(", at line ")[0]
        raise InvalidInputError(f"query {query.name} cannot be written as SQL: {reason}") from None
    if not is_same(query, again, inputs):  # one check finds every mistake of the printing
        raise InvalidInputError(f"query {query.name} cannot be written as SQL")
    return text


def document_as_sql(
    document: Document, inputs: Schemas, tables: Collection[str] | None = None
) -> str:
    """The script that defines what the document does.

    Args:
        inputs: the schemas of the streams that its queries read and that it does not define.
        tables: the tables among them; None: the streams that are read as tables.

    Raises:
        InvalidInputError: it does not type-check, or has views, for which SQL has no form.
    """
    if document.views:
        raise InvalidInputError(f"{document.views[0].name}: SQL has no views; XML has")
    named = {schema.name: schema for schema in document.schemas}
    known = dict(inputs)
    kept = {stream.name for stream in document.streams if stream.table}
    kept |= set().union(*map(tables_read, document.queries)) if tables is None else {*tables}
    texts = [*map(schema_as_sql, document.schemas), *map(stream_as_sql, document.streams)]
    for stream in document.streams:
        if stream.schema in named:
            known[stream.name] = msgspec.structs.replace(named[stream.schema], name=stream.name)
    for query in document.queries:
        read = streams_read(query) - streams_written(query)
        mine = {name: schema for name, schema in known.items() if name in read}
        texts.append(query_as_sql(query, mine, kept))
        known |= check_query(query, mine)
        kept |= tables_of(query, frozenset(kept & read))
    return "\n".join(texts)


def schema_as_sql(schema: Schema) -> str:
    """A CREATE SCHEMA.

    Raises:
        InvalidInputError: the printed statement does not read back as the same schema.
    """
    never = {schema.time, *schema.key}
    parts = []
    for field in schema.fields:
        size = "" if field.size is None else f"({field.size})"
        null = "" if field.nullable or field.name in never else " NOT NULL"
        null = " NULL" if field.nullable and field.name in never else null
        parts.append(f"{name_text(field.name)} {type_sql(field.type)}{size}{null}")
    if schema.time is not None:
        time = name_text(schema.time)
        parts.append(f"WATERMARK FOR {time} AS {time}")
    if schema.key:
        parts.append(f"PRIMARY KEY ({', '.join(map(name_text, schema.key))})")
    inside = ",\n  ".join(parts)
    text = f"CREATE SCHEMA {object_sql(schema.name)} (\n  {inside}\n);\n"
    if Script(text, None).complete({}, {}).schemas != (schema,):
        raise InvalidInputError(f"schema {schema.name} cannot be written as SQL")
    return text


def stream_as_sql(stream: StreamDefinition) -> str:
    """The CREATE STREAM or TABLE of a source stream; defaults are left out.

    Raises:
        InvalidInputError: it is no source stream.
    """
    options = []
    for name, us, usual in (
        ("slack", stream.slack_us, 0),
        ("lateness", stream.lateness_us, 0),
        ("history", stream.history_us, DEFAULT_HISTORY_US),
        ("max_ahead", stream.max_ahead_us, DEFAULT_MAX_AHEAD_US),
        ("idle_timeout", stream.idle_timeout_us, DEFAULT_IDLE_TIMEOUT_US),
    ):
        if us != usual:
            options.append((name, "none" if us is None else interval_sql(us)))
    if stream.idle is not Idle.EXPLICIT:
        options.append(("idle", string_text(stream.idle)))
    for name, given, usual_members in (
        ("readers", stream.readers, UNSET),
        ("writers", stream.writers, ()),
        ("declassify", stream.declassify, ()),
    ):
        if given is not UNSET and given != usual_members:
            options.append((name, _members(given)))
    if stream.leader:
        options.append(("leader", string_text(stream.leader)))
    if stream.k_safety:
        options.append(("k_safety", str(stream.k_safety)))
    kind = "TABLE" if stream.table else "STREAM"
    head = f"CREATE {kind} {object_sql(stream.name)} USING {object_sql(stream.schema)}"
    text = f"{head}{options_sql(options)};\n"
    any_schema = {stream.schema: Schema(stream.schema, (Field("k", FieldType.INT),), key=("k",))}
    if Script(text, None).complete({}, any_schema).streams != (stream,):
        raise InvalidInputError(f"stream {stream.name} cannot be written as SQL")
    return text


def _check_tables(query: Query, given: frozenset[str]) -> None:
    """Refuse boxes that read a table as the stream of its changes. given: the tables it reads."""
    tables = tables_of(query, given) | given
    for box in query.boxes:
        for stream in operator_of(box).changes_read:
            if stream in tables:
                raise InvalidInputError(
                    f"box {box.name!a} reads the changes of the table {stream}, and SQL reads its "
                    "rows: it has no form in SQL; XML has one"
                )


def function_as_sql(function: UserFunction) -> str:
    """The CREATE FUNCTION of a function that the operators of its peers allow."""
    numbered = enumerate(function.arguments, 1)
    arguments = ", ".join(f"a{number} {type_sql(type_)}" for number, type_ in numbered)
    sure = " DETERMINISTIC" if function.deterministic else ""
    return (
        f"CREATE FUNCTION {name_text(function.name)}({arguments}) "
        f"RETURNS {type_sql(function.result)}{sure}\n"
        f"  LANGUAGE PYTHON AS {string_text(function.source)};"
    )


def _query(query: Query, schemas: Schemas) -> str:
    lines = [function_as_sql(each) for each in unpinned(query.functions)]
    lines.append(f"CREATE QUERY {object_sql(query.name)}{options_sql(_of_query(query))} AS BEGIN")
    lines += [f"  {_statement(query, box, schemas)};" for box in ordered_boxes(query)]
    return "\n".join([*lines, "END;", ""])


def _of_query(query: Query) -> list[tuple[str, str]]:
    """The options for its availability and for the part of history that it reads."""
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
    streams, read = box.outputs, streams_read(query)
    hidden = [stream in read and stream not in query.outputs for stream in streams]
    options = (
        []
        if box.name == ObjectName.parse(streams[0]).path.rpartition("/")[2]
        else [("box", string_text(box.name))]
    )
    options += operator_of(box).options_sql
    declared = dict(query.readers)
    for port, stream in enumerate(streams, 1):
        if stream in declared:
            name = "readers" if len(streams) == 1 else f"readers.{port}"
            options.append((name, _members(declared[stream])))
    kind = "TABLE" if streams[0] in tables_of(query, tables_read(query)) else "STREAM"
    if all(hidden):
        head, names = f"CREATE TEMPORARY {kind}", [object_sql(stream) for stream in streams]
    else:
        head = f"CREATE {kind}"
        names = [
            f"TEMPORARY {object_sql(stream)}" if inside else object_sql(stream)
            for stream, inside in zip(streams, hidden, strict=True)
        ]
    select = operator_of(box).select_sql(schemas)
    return f"{head} {', '.join(names)}{options_sql(options)} AS\n    {select}"


def _members(names: Sequence[str]) -> str:
    return string_text(", ".join(names))
