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
the stream that the query makes. Views are as in `medusa.py`. docs/borealis.md has all elements,
boxes and parameters, and what each is here. These attributes are ours: `time` (Borealis: each
window names the field that is in order; see `inferred_time`); `key` (Borealis: the `anchor` of a
box); `ha` and those with it (`engine/language/xml/medusa.py`; Borealis: the command line of its
nodes); of an `<input>` those of a `<stream>`; `readers` and `declassify`, which mean the same as in
the other dialect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final

from msgspec.structs import replace

from medusa.engine.borealis import deployment
from medusa.engine.borealis.boxes import boxes_of
from medusa.engine.borealis.changes import CHANGES, UPDATE, Changing, writers_of
from medusa.engine.borealis.deployment import REMARK, replicated
from medusa.engine.borealis.streams import (
    OldBox,
    Streams,
    inferred_time,
    ordered_fields,
)
from medusa.engine.borealis.tables import TABLE_TAG, read_table
from medusa.engine.language.check import MAX_BOXES, check_query
from medusa.engine.language.document import Document
from medusa.engine.language.gaps import gaps
from medusa.engine.language.labels import Readers
from medusa.engine.language.xml.medusa import (
    VIEW_TAG,
    Qualify,
    made_query,
    members,
    read_schema,
    read_stream,
    read_view,
)
from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.query import Box, Query, streams_written
from medusa.engine.objects.schema import Schema
from medusa.engine.objects.view import View
from medusa.engine.xml.tree import Node

_OURS: Final = {
    "input": ("readers", "declassify", "slack", "history", "idle", "max_ahead"),
    "output": ("readers",),
}
"""Attributes of Medusa's own, by element."""

DEPLOY_TAG: Final = deployment.TAG

_TAGS: Final = ("input", "output", "schema", "table", "query", VIEW_TAG, DEPLOY_TAG)


def read_borealis(root: Node, qualify: Qualify) -> Document:
    """Read the definitions of a document of Borealis.

    Raises:
        InvalidInputError: names line and reason.
    """
    root.checked(())
    for child in root.children:
        if child.tag not in _TAGS:
            known = ", ".join(f"<{tag}>" for tag in _TAGS)
            raise child.error(f"only {known} are supported here")
    old = [(node, _old_boxes(node, qualify)) for node in _tagged(root, "query")]
    boxes = [box for _, found in old for box in found]
    schemas = _read_schemas(root, qualify, boxes)
    changed = frozenset(writers_of(boxes))
    tables = [read_table(node, qualify, schemas, changed) for node in _tagged(root, TABLE_TAG)]
    schemas |= {each.schema.name: each.schema for each in tables if not each.made}
    sources = [_read_input(node, qualify, schemas) for node in _tagged(root, "input")]
    sources += [each for table in tables if (each := table.source) is not None]
    views = [read_view(node, qualify) for node in _tagged(root, VIEW_TAG)]
    streams = Streams(
        {stream.name: schemas[stream.schema] for stream in sources},
        {stream.name for stream in sources if stream.slack_us},
        {table.name: table for table in tables},
    )
    queries = _read_queries(root, qualify, old, views, streams)
    for node in _tagged(root, "output"):
        made, declared = streams.schemas.get(_stream(node, qualify)), _schema(node, qualify)
        _check_output(node, made, schemas.get(declared))
    return Document(
        tuple(schemas.values()),
        tuple(sources),
        tuple(queries),
        tuple(views),
        remarks=(*streams.remarks, *gaps(queries)),
    )


def _read_queries(
    root: Node,
    qualify: Qualify,
    old: Sequence[tuple[Node, Sequence[OldBox]]],
    views: Sequence[View],
    streams: Streams,
) -> list[Query]:
    """The queries; each may read the outputs of earlier ones, and views of these."""
    shown: dict[str, list[str]] = {}
    for view in views:
        shown.setdefault(view.stream, []).append(view.name)
    _learn(streams.schemas, dict(streams.schemas), shown)
    readers = _readers({_stream(node, qualify): node for node in _tagged(root, "output")})
    active = _deployed(root, qualify, [_query_name(node, qualify) for node, _ in old], streams)
    queries = []
    for node, boxes in old:
        before = dict(streams.schemas)
        query = _read_query(_with_standby(node, qualify, active), qualify, boxes, streams, readers)
        with node.about():
            _learn(streams.schemas, check_query(query, before), shown)
        queries.append(query)
    return queries


def read_deploy(root: Node) -> Document:
    """Read a document that is only a `<deploy>`, for the queries of another document.

    Raises:
        InvalidInputError: it would change those queries, or is wrong; the message names line and
            reason.
    """
    if replicated(root, str, None):
        raise root.error(
            "put a <deploy> with replica sets into the <borealis> of its queries, or create them "
            "with `--ha active_standby`"
        )
    return Document(remarks=(REMARK,))


def _deployed(root: Node, qualify: Qualify, queries: Collection[str], streams: Streams) -> set[str]:
    """The queries that are computed by two peers at once."""
    found: set[str] = set()
    for node in _tagged(root, DEPLOY_TAG):
        found |= replicated(node, qualify, queries)
        streams.remark(REMARK)
    return found


def _read_schemas(root: Node, qualify: Qualify, boxes: Sequence[OldBox]) -> dict[str, Schema]:
    """The schemas; if an `<input>` declares no time, it is the field that the boxes are ordered
    on."""
    schemas: dict[str, Schema] = {}
    for node in _tagged(root, "schema"):
        schema = read_schema(node, qualify)
        if schema.name in schemas:
            raise node.error(f"schema {schema.name} occurs twice")
        schemas[schema.name] = schema
    ordered = ordered_fields(boxes)
    for node in _tagged(root, "input"):
        _stream(node, qualify)
    for name in {_schema(node, qualify) for node in _tagged(root, "input")} & schemas.keys():
        schema = schemas[name]
        if schema.time is None:
            schemas[name] = replace(schema, time=inferred_time(schema, ordered))
    return schemas


def _learn(
    known: dict[str, Schema], streams: Mapping[str, Schema], shown: Mapping[str, Sequence[str]]
) -> None:
    """Add streams and their views to `known`; `shown`: the names of views, by stream."""
    found = list(streams.items())
    seen: set[str] = set()
    while found:
        name, schema = found.pop()
        if name not in seen:
            seen.add(name)
            known.setdefault(name, schema)
            found += [(view, schema) for view in shown.get(name, ())]


def _tagged(root: Node, tag: str) -> Iterable[Node]:
    return (child for child in root.children if child.tag == tag)


def _stream(node: Node, qualify: Qualify) -> str:
    node.childless()
    with node.about():
        return qualify(node.checked(("stream", "schema"), _OURS[node.tag])["stream"])


def _schema(node: Node, qualify: Qualify) -> str:
    with node.about():
        return qualify(node.attributes["schema"])


def _read_input(node: Node, qualify: Qualify, schemas: dict[str, Schema]) -> StreamDefinition:
    _stream(node, qualify)
    given = {name: value for name, value in node.attributes.items() if name != "stream"}
    stream = read_stream(
        Node(node.tag, {**given, "name": node.attributes["stream"]}, node.line), qualify
    )
    if stream.schema not in schemas:
        raise node.error(f"there is no schema {node.attributes['schema'][:80]!a} in the document")
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
    """The readers of each output; None: the document declares none."""
    return {
        name: members(node.attributes["readers"]) if "readers" in node.attributes else None
        for name, node in outputs.items()
    }


def _old_boxes(query: Node, qualify: Qualify) -> list[OldBox]:
    found = []
    for child in query.children:
        if child.tag != "box":
            raise child.error("a query has only <box> elements")
        found.append(_old_box(child, qualify))
    return found


def _old_box(node: Node, qualify: Qualify) -> OldBox:
    given = node.checked(("name", "type"))
    streams: dict[str, list[str]] = {"in": [], "out": [], "access": []}
    parameters = []
    for child in node.children:
        if child.tag == "parameter":
            child.checked(("name", "value"))
            parameters.append(child)
        elif child.tag in streams:
            child.childless()
            wanted = "table" if child.tag == "access" else "stream"
            with child.about():
                streams[child.tag].append(qualify(child.checked((wanted,))[wanted]))
        else:
            raise child.error("a box has only <in>, <out>, <access> and <parameter> elements")
    return OldBox(
        node,
        given["type"],
        given["name"],
        tuple(streams["in"]),
        tuple(streams["out"]),
        tuple(parameters),
        tuple(streams["access"]),
    )


def _in_order(query: Node, boxes: Sequence[OldBox]) -> list[OldBox]:
    """The boxes in the order of dataflow: each after the boxes that it reads, or that change the
    table that it reads."""
    if len(boxes) > MAX_BOXES:
        raise query.error(f"it has {len(boxes)} boxes; at most {MAX_BOXES} are allowed")
    makers = {stream: number for number, box in enumerate(boxes) for stream in box.outputs}
    changes: dict[str, list[int]] = {}
    for number, box in enumerate(boxes):
        for table in box.tables if box.kind in CHANGES else ():
            changes.setdefault(table, []).append(number)

    def changed_before(box: OldBox) -> list[int]:
        """The boxes that change its tables; for an update only inserts and deletes."""
        found = [number for table in box.tables for number in changes.get(table, ())]
        if box.kind == UPDATE:
            return [number for number in found if boxes[number].kind != UPDATE]
        return [] if box.kind in CHANGES else found

    sorter = TopologicalSorter(
        {
            number: [
                *(makers[stream] for stream in box.inputs if stream in makers),
                *changed_before(box),
            ]
            for number, box in enumerate(boxes)
        }
    )
    try:
        return [boxes[number] for number in sorter.static_order()]
    except CycleError as error:
        names = ", ".join(boxes[number].name[:64] for number in sorted(set(error.args[1])))
        raise query.error(f"the boxes {names} form a loop") from None


def _lowered(node: Node, old: Sequence[OldBox], streams: Streams) -> list[Box]:
    """Translate boxes of Borealis. The boxes that make a table come after its last change."""
    changing = Changing(old, streams)
    boxes: list[Box] = []
    for each in _in_order(node, old):
        if each.kind not in CHANGES:
            boxes += boxes_of(each, streams)
            continue
        with each.node.about():
            found = changing.read(each)
            for box in found:
                streams.learn(box)
        boxes += found
    return boxes


def _read_query(
    node: Node,
    qualify: Qualify,
    old: Sequence[OldBox],
    streams: Streams,
    outputs: Mapping[str, Readers | None],
) -> Query:
    boxes = _lowered(node, old, streams)
    query = made_query(node, qualify, boxes, [], {})
    written = streams_written(query)
    named = (outputs.keys() | streams.tables.keys()) & written
    readers = {name: each for name in sorted(named) if (each := outputs.get(name)) is not None}
    return made_query(node, qualify, boxes, sorted(named), readers)


def _query_name(node: Node, qualify: Qualify) -> str:
    if "name" not in node.attributes:
        raise node.error('attribute name="..." is missing')
    with node.about():
        return qualify(node.attributes["name"])


def _with_standby(node: Node, qualify: Qualify, active: Collection[str]) -> Node:
    """The `<query>` with the availability of its replica set, unless it states its own."""
    name = _query_name(node, qualify)
    if name not in active or "ha" in node.attributes:
        return node
    return Node(node.tag, {**node.attributes, "ha": "active_standby"}, node.line, node.children)
