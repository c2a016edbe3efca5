"""Definitions as XML, in our dialect: `medusa.engine.reading.read_document` gives the same back."""

from __future__ import annotations

from xml.sax.saxutils import quoteattr  # this function writes XML, it does not parse

import msgspec
from msgspec import UNSET

from medusa.engine.language.check import ordered_boxes
from medusa.engine.language.document import Document
from medusa.engine.language.xml.documents import qualifier, read_medusa, refuse_repeated
from medusa.engine.language.xml.medusa import NO_LIMIT, VIEW_TAG
from medusa.engine.objects.availability import Availability, Mode
from medusa.engine.objects.definitions import (
    DEFAULT_HISTORY_US,
    DEFAULT_IDLE_TIMEOUT_US,
    DEFAULT_MAX_AHEAD_US,
    Idle,
    StreamDefinition,
)
from medusa.engine.objects.query import Query, streams_read
from medusa.engine.objects.schema import BEGINNING, END, Schema
from medusa.engine.objects.view import Last, Range, Recent, View
from medusa.engine.operators.registry import operator_of
from medusa.engine.operators.shared.parameters import us_to_seconds
from medusa.engine.xml.tree import parse_xml
from medusa.overlay.errors import InvalidInputError


def document_as_xml(document: Document) -> str:
    """The document's schemas, streams, queries and views.

    Raises:
        InvalidInputError: a part of it has no form in XML.
    """
    lines = ["<medusa>"]
    for schema in document.schemas:
        lines += _schema(schema)
    lines += map(_stream, document.streams)
    before, behind = document.views_by_streams()
    for view in before:
        lines += _view(view)
    for query in document.queries:
        lines += _query(msgspec.structs.replace(query, panes=(), functions=()))
    for view in behind:
        lines += _view(view)
    return _checked([*lines, "</medusa>", ""], document, "the document")


def query_as_xml(query: Query) -> str:
    """The query, without its panes and its functions, which its peer decides.

    Raises:
        InvalidInputError: it is no query, or has characters that XML cannot carry.
    """
    query = msgspec.structs.replace(query, panes=(), functions=())
    ordered_boxes(query)
    return _checked([*_query(query), ""], Document(queries=(query,)), f"query {query.name}")


def _checked(lines: list[str], document: Document, what: str) -> str:
    """The text of these lines. It is read back, and must give the same document: that finds every
    mistake of the writer."""
    text = "\n".join(lines)
    root = parse_xml(text)
    found = read_medusa(root, qualifier(None))
    refuse_repeated(root, found)
    if _plain(found) != _plain(document):
        raise InvalidInputError(f"{what} cannot be written as XML")
    return text


def _plain(document: Document) -> tuple[object, ...]:
    """Return the query without panes, and without outputs that no box reads: such streams are
    outputs anyway."""
    return (
        document.schemas,
        document.streams,
        [
            msgspec.structs.replace(
                query,
                outputs=tuple(each for each in query.outputs if each in streams_read(query)),
                readers=tuple(sorted(query.readers)),
                panes=(),
                functions=(),
            )
            for query in document.queries
        ],
        sorted(document.views, key=lambda view: view.name),
    )


def _outputs(query: Query) -> tuple[str, ...]:
    """Write the outputs; an element also has the readers."""
    declared = (stream for stream, _ in query.readers if stream not in query.outputs)
    return (*query.outputs, *declared)


def _schema(schema: Schema) -> list[str]:
    attributes = [("name", schema.name)]
    if schema.time is not None:
        attributes.append(("time", schema.time))
    if schema.key:
        attributes.append(("key", ",".join(schema.key)))
    lines = [_element("schema", attributes, "  ", has_more=True)]
    for field in schema.fields:
        told = [("name", field.name), ("type", str(field.type))]
        told += [] if field.size is None else [("size", str(field.size))]
        told += [("nullable", "1")] if field.nullable else []
        lines.append(_element("field", told, "    "))
    return [*lines, "  </schema>"]


def _stream(stream: StreamDefinition) -> str:
    """Write a source stream, without defaults."""
    spans = [
        ("slack", stream.slack_us, 0),
        ("lateness", stream.lateness_us, 0),
        ("history", stream.history_us, DEFAULT_HISTORY_US),
        ("idle_timeout", stream.idle_timeout_us, DEFAULT_IDLE_TIMEOUT_US),
    ]
    members = [
        ("readers", stream.readers, UNSET),
        ("writers", stream.writers, ()),
        ("declassify", stream.declassify, ()),
    ]
    attributes = [("name", stream.name), ("schema", stream.schema)]
    attributes += [(name, us_to_seconds(us)) for name, us, usual in spans if us != usual]
    attributes += [("idle", str(stream.idle))] if stream.idle is not Idle.EXPLICIT else []
    attributes += [
        (name, ",".join(given))
        for name, given, usual in members
        if given is not UNSET and given != usual
    ]
    attributes += [("leader", stream.leader)] if stream.leader else []
    attributes += [("k_safety", str(stream.k_safety))] if stream.k_safety else []
    attributes += [("table", "1")] if stream.table else []
    if stream.max_ahead_us != DEFAULT_MAX_AHEAD_US:
        ahead = stream.max_ahead_us
        attributes.append(("max_ahead", NO_LIMIT if ahead is None else us_to_seconds(ahead)))
    return _element("stream", attributes, "  ")


def _view(view: View) -> list[str]:
    attributes = [("name", view.name), ("stream", view.stream)]
    attributes += [("frozen", "1")] if view.frozen and not isinstance(view.shows, Range) else []
    lines = [_element(VIEW_TAG, attributes, "  ", has_more=True)]
    if view.order_on:
        lines.append(_element("order", [("field", view.order_on)], "    "))
    match view.shows:
        case Last(rows=rows):
            lines.append(_element("size", [("value", str(rows))], "    "))
        case Recent(span_us=span):
            lines.append(_element("size", [("value", us_to_seconds(span))], "    "))
        case Range(after=after, until=until):
            ends = [("start", us_to_seconds(after)), ("end", us_to_seconds(until))]
            lines.append(_element("range", ends, "    "))
    return [*lines, f"  </{VIEW_TAG}>"]


def _query(query: Query) -> list[str]:
    attributes = [("name", query.name), *_availability(query.availability), *_past(query)]
    lines = [_element("query", attributes, "", has_more=True)]
    for box in query.boxes:
        kind = [("name", box.name), ("type", operator_of(box).word)]
        lines.append(_element("box", kind, "  ", has_more=True))
        for tag, streams in (("input", box.inputs), ("output", box.outputs)):
            lines += [
                _element(tag, [("port", str(port)), ("stream", stream)], "    ")
                for port, stream in enumerate(streams, 1)
            ]
        lines += [
            _element("param", [("name", name), ("value", value)], "    ")
            for name, value in operator_of(box).parameters()
        ]
        lines.append("  </box>")
    declared = dict(query.readers)
    for stream in _outputs(query):
        readers = declared.get(stream)
        told = [] if readers is None else [("readers", ",".join(readers))]
        lines.append(_element("output", [("stream", stream), *told], "  "))
    return [*lines, "</query>"]


def _element(
    tag: str, attributes: list[tuple[str, str]], indent: str, *, has_more: bool = False
) -> str:
    told = "".join(f" {name}={quoteattr(value)}" for name, value in attributes)
    return f"{indent}<{tag}{told}{'>' if has_more else '/>'}"


def _availability(availability: Availability) -> list[tuple[str, str]]:
    """The attributes that are read back as this availability; none for the default."""
    found = []
    if availability.mode is not Mode.NONE:
        found += [("ha", availability.mode.value), ("recovery", availability.recovery.value)]
    if availability.bound_s:
        found.append(("bound", _seconds(availability.bound_s)))
    if availability.mode is Mode.PASSIVE_STANDBY:
        found.append(("checkpoint", _seconds(availability.checkpoint_s)))
    if availability.secondary:
        found.append(("secondary", availability.secondary))
    return found


def _past(query: Query) -> list[tuple[str, str]]:
    """The attributes that are read back as the query's part of history; none for a query over
    everything."""
    found = []
    if query.after > BEGINNING:
        found.append(("from", us_to_seconds(query.after)))
    if query.until < END:
        found.append(("until", us_to_seconds(query.until)))
    if query.version:
        found.append(("version", str(query.version)))
    return found


def _seconds(seconds: float) -> str:
    return us_to_seconds(round(seconds * 1e6))
