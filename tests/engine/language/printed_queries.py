"""The comparison in the tests of printed queries: a query as its tasks compute it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Any

import msgspec
from boxes_of_scripts import check_typed

import medusa
from medusa.engine.language.check import check_query
from medusa.engine.language.python.printing import query_as_python
from medusa.engine.language.sql.printing import query_as_sql
from medusa.engine.language.sql.script import Script
from medusa.engine.language.xml.writing import query_as_xml
from medusa.engine.objects.query import Aggregate, Query, streams_read, streams_written
from medusa.engine.objects.schema import Schema
from medusa.engine.operators.typing import type_box
from medusa.engine.reading import read_document

MIT = "medusa://mit.edu/"


class Language(StrEnum):
    XML = "xml"
    SQL = "sql"
    PYTHON = "python"


def renamed(query: Query, change: Callable[[str], str]) -> Query:
    """Return the query without panes, with other names of its streams and of itself."""
    return msgspec.structs.replace(
        query,
        name=change(query.name),
        boxes=tuple(box.renamed(change) for box in query.boxes),
        outputs=tuple(map(change, query.outputs)),
        panes=(),
    )


def named(query: Query, prefix: str = MIT) -> Query:
    """Return the query with full object names."""
    return renamed(query, lambda name: prefix + name)


def reread(
    query: Query, known: Mapping[str, Schema], language: Language, tables: Collection[str] = ()
) -> Query:
    """Print the query in a language, read it back, and give it its former names.

    Args:
        known: the schemas of its inputs. tables: the inputs that are tables.
    """
    whole = named(query)
    inputs = inputs_for(whole, known)
    match language:
        case Language.XML:
            (made,) = read_document(query_as_xml(whole)).queries
        case Language.SQL:
            of_tables = {MIT + name for name in tables}
            made = read_sql(query_as_sql(whole, inputs, of_tables), inputs, of_tables)
        case Language.PYTHON:
            made = run(query_as_python(whole))
    back = renamed(made, lambda name: name.removeprefix(MIT))
    return msgspec.structs.replace(back, panes=query.panes)


def inputs_for(query: Query, known: Mapping[str, Schema], prefix: str = MIT) -> dict[str, Schema]:
    """Return the schemas, by object names, of the streams that a query of `named` reads from
    elsewhere."""
    read = streams_read(query) - streams_written(query)
    return {
        prefix + name: msgspec.structs.replace(schema, name=prefix + name)
        for name, schema in known.items()
        if prefix + name in read
    }


def read_sql(text: str, inputs: Mapping[str, Schema], tables: Collection[str] = ()) -> Query:
    """Return the one query of a script."""
    document = Script(text, None).complete(inputs, {}, tables)
    check_typed(document, inputs)
    (query,) = document.queries
    return query


def run(text: str) -> Query:
    """Run a program that sees `medusa` alone; return its query."""
    variables: dict[str, Any] = {"__builtins__": {"__import__": _only_medusa}}
    exec(text, variables)
    found = variables["query"]
    assert isinstance(found, Query)
    return found


def _only_medusa(name: str, *_: object) -> object:
    assert name == "medusa"
    return medusa


def meaning(query: Query, inputs: Mapping[str, Schema]) -> object:
    """Return all that matters of a query: boxes by name, with their typed steps."""
    schemas = check_query(query, inputs)
    boxes = {}
    for box in query.boxes:
        steps = dict(type_box(box, schemas).steps)
        sizes = (box.size_us, box.advance_us) if isinstance(box, Aggregate) else ()
        boxes[box.name] = (type(box), box.inputs, box.outputs, sizes, steps)
    assert len(boxes) == len(query.boxes)
    read = streams_read(query)
    unread = streams_written(query) - read
    whole = {
        "name": query.name,
        "boxes": boxes,
        "outputs": unread | (set(query.outputs) & read),
        "readers": dict(query.readers),
    }
    rest = (query.availability, query.after, query.until, query.version)
    return whole, rest
