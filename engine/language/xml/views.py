"""Views in XML, in both dialects, as Borealis wrote them:

    <connection_point_view name="..." stream="..." frozen="1">
      <order field="ts"/>
      <size value="100"/>
    </connection_point_view>

`<size>` is the number of most recent tuples, or with `<order>` of seconds of that field. The view
moves with the stream unless it is `frozen`. `<range start end/>` instead, in seconds since 1970, is
a part that never changes. `frozen` is ours, and so are the attributes of a query over the past:

    <query name="..." from="1521903600" until="1521907200" version="1">
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from engine.language.history_range import check_history_range
from engine.language.xml.boxes import seconds_to_us
from engine.language.xml.tree import Node
from engine.objects.query import Query
from engine.objects.schema import BEGINNING, END
from engine.objects.view import Last, Range, Recent, Shows, View, check_view
from overlay.errors import InvalidInputError

TAG: Final = "connection_point_view"

HISTORY_RANGE: Final = ("from", "until", "version")
"""The attributes of a `<query>` that is computed over a part of the past."""


def read_view(node: Node, qualify: Callable[[str], str]) -> View:
    """The view in an element. Raises: InvalidInputError: names line and reason."""
    given = node.checked(("name", "stream"), ("frozen",))
    frozen = given.get("frozen", "0")
    if frozen not in {"0", "1", "true", "false"}:
        raise node.error("frozen must be 0 or 1")
    children = _children(node)
    order_on = ""
    if (order := children.pop("order", None)) is not None:
        order_on = order.checked(("field",))["field"]
        if not order_on:
            raise order.error("the field has no name")
    with node.about():
        shows = _shown(node, children, ordered=bool(order_on))
        view = View(
            qualify(given["name"]),
            qualify(given["stream"]),
            shows,
            frozen in {"1", "true"} or isinstance(shows, Range),
            order_on,
        )
        check_view(view)
    return view


def _children(node: Node) -> dict[str, Node]:
    found: dict[str, Node] = {}
    for child in node.children:
        child.childless()
        if child.tag not in {"order", "size", "range"}:
            raise child.error("a view has only <order>, and <size> or <range>")
        if child.tag in found:
            raise child.error("it occurs twice")
        found[child.tag] = child
    return found


def _shown(node: Node, children: Mapping[str, Node], *, ordered: bool) -> Shows:
    size, range_ = children.get("size"), children.get("range")
    if size is not None and range_ is not None:
        raise range_.error("a view has a <size> or a <range>, not both")
    if range_ is not None:
        given = range_.checked(("start", "end"))
        with range_.about():
            return Range(seconds_to_us(given["start"]), seconds_to_us(given["end"]))
    if size is None:
        raise node.error(
            'it shows nothing yet: <size value="..."/> or <range start end/> says what'
        )
    value = size.checked(("value",))["value"]
    with size.about():
        return Recent(seconds_to_us(value)) if ordered else Last(_count(value))


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidInputError(f"{text[:40]!a} is not a number of tuples, like 100")
    return int(text)


def over_history(query: Query, given: Mapping[str, str]) -> Query:
    """The query over the part of the past that its attributes name.

    Args:
        given: attributes of the query, checked to be among those known.

    Raises:
        InvalidInputError: names the attribute and the reason.
    """
    after, until = _moment(given, "from", BEGINNING), _moment(given, "until", END)
    version = given.get("version", "0")
    if not (version.isascii() and version.isdigit() and len(version) <= 9):
        raise InvalidInputError(f"version {version[:40]!a} is not a number")
    query = msgspec.structs.replace(query, after=after, until=until, version=int(version))
    check_history_range(query)
    return query


def _moment(given: Mapping[str, str], name: str, default: int) -> int:
    if name not in given:
        return default
    try:
        return seconds_to_us(given[name])
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}, since 1970") from None
