"""The dialect of Borealis: one `<borealis>` document with short names.

    <borealis>
      <input  stream="packet" schema="conn"/>
      <output stream="busy"   schema="counts"/>
      <schema name="conn" time="ts"> <field name="ts" type="double"/> ... </schema>
      <schema name="counts"> ... </schema>
      <query name="ids" ha="passive" recovery="precise" bound="2">
        <box name="count" type="aggregate">
          <in stream="packet"/> <out stream="busy"/>
          <parameter name="aggregate-function.0" value="count()"/> ...
        </box>
      </query>
    </borealis>

Ports are in the order listed. Names are relative to the participant. An `<output>` is compared with
the stream that the query makes. Views are as in `medusa.py`. These attributes are
ours: `time` (Borealis: each window names the field that is in order); `key` (Borealis: the `anchor`
of a box); `ha` and those with it (`engine/language/xml/medusa.py`; Borealis: the command line
of its nodes); `readers` and `declassify`, which mean the same as in the other dialect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from engine.language.check import check_query
from engine.language.labels import Readers
from engine.language.xml.boxes import read_box
from engine.language.xml.medusa import (
    VIEW_TAG,
    Qualify,
    made_query,
    members,
    read_schema,
    read_view,
)
from engine.language.xml.tree import Node
from engine.objects.definitions import ANY, StreamDefinition, check_stream
from engine.objects.query import Box, Query, streams_written
from engine.objects.schema import Schema
from engine.objects.view import View

_LISTS: Final = {"input": ("readers", "declassify"), "output": ("readers",)}
"""Attributes that name participants, by element."""


def read_borealis(
    root: Node, qualify: Qualify
) -> tuple[list[Schema], list[StreamDefinition], list[Query], list[View]]:
    """The schemas, streams, queries and views of a document of Borealis.

    Raises:
        InvalidInputError: names line and reason.
    """
    root.checked(())
    schemas: dict[str, Schema] = {}
    for node in _tagged(root, "schema"):
        schema = read_schema(node, qualify)
        if schema.name in schemas:
            raise node.error(f"schema {schema.name} occurs twice")
        schemas[schema.name] = schema
    outputs = {_stream(node, qualify): node for node in _tagged(root, "output")}
    queries = [
        (node, _read_query(node, qualify, _readers(outputs))) for node in _tagged(root, "query")
    ]
    streams = [_read_input(node, qualify, schemas) for node in _tagged(root, "input")]
    views = [read_view(node, qualify) for node in _tagged(root, VIEW_TAG)]
    for child in root.children:
        if child.tag not in {"schema", "input", "output", "query", VIEW_TAG}:
            raise child.error(
                f"only <input>, <output>, <schema>, <query> and <{VIEW_TAG}> are supported here"
            )
    shown: dict[str, list[str]] = {}
    for view in views:
        shown.setdefault(view.stream, []).append(view.name)
    known: dict[str, Schema] = {}
    _learn(known, {stream.name: schemas[stream.schema] for stream in streams}, shown)
    for node, query in queries:
        with node.about():
            _learn(known, check_query(query, known), shown)
    for name, node in outputs.items():
        _check_output(node, known.get(name), schemas.get(_schema(node, qualify)))
    return list(schemas.values()), streams, [query for _, query in queries], views


def _learn(
    known: dict[str, Schema], streams: Mapping[str, Schema], shown: Mapping[str, Sequence[str]]
) -> None:
    """Add streams and their views to `known`; `shown`: the names of views, by stream."""
    found = list(streams.items())
    while found:
        name, schema = found.pop()
        if name not in known:
            known[name] = schema
            found += [(view, schema) for view in shown.get(name, ())]


def _tagged(root: Node, tag: str) -> Iterable[Node]:
    return (child for child in root.children if child.tag == tag)


def _stream(node: Node, qualify: Qualify) -> str:
    node.childless()
    with node.about():
        return qualify(node.checked(("stream", "schema"), _LISTS[node.tag])["stream"])


def _schema(node: Node, qualify: Qualify) -> str:
    with node.about():
        return qualify(node.attributes["schema"])


def _read_input(node: Node, qualify: Qualify, schemas: dict[str, Schema]) -> StreamDefinition:
    given = node.attributes
    stream = StreamDefinition(
        name=_stream(node, qualify),
        schema=_schema(node, qualify),
        readers=members(given.get("readers", ANY)),
        declassify=members(given.get("declassify", "")),
    )
    if stream.schema not in schemas:
        raise node.error(f"there is no schema {node.attributes['schema'][:80]!a} in the document")
    with node.about():
        check_stream(stream)
    return stream


def _check_output(node: Node, made: Schema | None, declared: Schema | None) -> None:
    if made is None:
        raise node.error("no query in the document makes this stream")
    if declared is None:
        raise node.error(f"there is no schema {node.attributes['schema'][:80]!a} in the document")
    has = [f"{field.name} {field.type}" for field in made.fields]
    if has != [f"{field.name} {field.type}" for field in declared.fields]:
        raise node.error(f"the query gives this stream other fields: {', '.join(has)[:400]}")


def _readers(outputs: Mapping[str, Node]) -> dict[str, Readers | None]:
    """Readers by output; None: not declared."""
    return {
        name: members(node.attributes["readers"]) if "readers" in node.attributes else None
        for name, node in outputs.items()
    }


def _read_query(node: Node, qualify: Qualify, outputs: Mapping[str, Readers | None]) -> Query:
    boxes = []
    for child in node.children:
        if child.tag != "box":
            raise child.error("a query has only <box> elements")
        boxes.append(_read_box(child, qualify))
    query = made_query(node, qualify, boxes, [], {})
    named = outputs.keys() & streams_written(query)
    readers = {name: each for name in sorted(named) if (each := outputs[name]) is not None}
    return made_query(node, qualify, boxes, sorted(named), readers)


def _read_box(node: Node, qualify: Qualify) -> Box:
    streams: dict[str, list[str]] = {"in": [], "out": []}
    parameters = []
    for child in node.children:
        if child.tag == "parameter":
            parameters.append(child)
        elif child.tag in streams:
            child.childless()
            with child.about():
                streams[child.tag].append(qualify(child.checked(("stream",))["stream"]))
        else:
            raise child.error("a box has only <in>, <out> and <parameter> elements")
    return read_box(node, tuple(streams["in"]), tuple(streams["out"]), parameters)
