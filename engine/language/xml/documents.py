"""Documents of our own dialect of XML."""

from __future__ import annotations

from collections.abc import Sequence

from medusa.engine.expressions.unsaid import Unsaid
from medusa.engine.language.document import Document
from medusa.engine.language.gaps import gaps
from medusa.engine.language.xml import medusa
from medusa.engine.language.xml.medusa import (
    Qualify,
    read_query,
    read_schema,
    read_stream,
    read_view,
)
from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.query import Query, longest_session
from medusa.engine.objects.schema import Schema
from medusa.engine.objects.view import View
from medusa.engine.operators.shared.parameters import seconds_to_us
from medusa.engine.xml.tree import Node
from medusa.overlay.names import SCHEME, ObjectName


def read_medusa(root: Node, qualify: Qualify) -> Document:
    """The definitions in an element. Raises: InvalidInputError: names the line and the reason."""
    schemas: list[Schema] = []
    streams: list[StreamDefinition] = []
    queries: list[Query] = []
    views: list[View] = []
    nodes = [root]
    if root.tag == "medusa":
        root.checked(())
        nodes = root.children
    for node in nodes:
        match node.tag:
            case "schema":
                schemas.append(read_schema(node, qualify))
            case "stream":
                streams.append(read_stream(node, qualify))
            case "query":
                queries.append(read_query(node, qualify))
            case medusa.VIEW_TAG:
                views.append(read_view(node, qualify))
            case _:
                raise node.error(
                    "expected <schema>, <stream>, <query>, <connection_point_view>, several of "
                    "them in <medusa>, or <borealis>"
                )
    remarks = (*_unsaid(nodes, qualify).remarks(), *gaps(queries))
    return Document(tuple(schemas), tuple(streams), tuple(queries), tuple(views), remarks=remarks)


def _unsaid(nodes: Sequence[Node], qualify: Qualify) -> Unsaid:
    """The default bounds of these definitions, for which the document names none."""
    found = Unsaid()
    for box in (child for node in nodes for child in node.children if child.tag == "box"):
        given = {
            each.attributes["name"]: each.attributes["value"]
            for each in box.children
            if each.tag == "param"
        }
        if box.attributes["type"] == "sessions" and "longest" not in given:
            stream = next(each for each in box.children if each.tag == "input")
            longest = longest_session(seconds_to_us(given["gap"]))
            found.sessions(qualify(stream.attributes["stream"]), longest)
    return found


def qualifier(base: str | None) -> Qualify:
    """Return the function that completes a document's names. base: see
    `medusa.engine.reading.read_document`."""

    def qualify(name: str) -> str:
        if not name.startswith(SCHEME) and base is not None and ":" not in name:
            name = f"{base.rstrip('/')}/{name}"
        return str(ObjectName.parse(name))

    return qualify


def refuse_repeated(root: Node, document: Document) -> None:
    """Refuse two definitions of one name. Raises: InvalidInputError: a name is defined twice."""
    named = (document.schemas, document.streams, document.queries, document.views)
    seen: set[str] = set()
    for name in (each.name for definitions in named for each in definitions):
        if name in seen:
            raise root.error(f"{name} is defined twice")
        seen.add(name)
