"""The dialect of Medusa's paper: documents whose root is a schema, a stream, a query, or several.

    <medusa>
      <schema name="medusa://mit.edu/conn" time="ts" key="ts,src_ip">
        <field name="ts" type="double"/> <field name="src_ip" type="string" size="64"/>
        <field name="dst_port" type="int" nullable="1"/>
      </schema>
      <stream name="medusa://mit.edu/conns" schema="medusa://mit.edu/conn" slack="2" history="3600"
              idle="explicit" readers="utah.edu" writers="utah.edu" declassify="utah.edu"
              max_ahead="3600" idle_timeout="30"/>
      <query name="medusa://mit.edu/web" ha="active_standby" recovery="precise" bound="2">
        <box name="web" type="filter">
          <input port="1" stream="medusa://mit.edu/conns"/>
          <output port="1" stream="medusa://mit.edu/web/conns"/>
          <param name="expression.0" value="dst_port = 80"/>
        </box>
        <output stream="medusa://mit.edu/web/conns" readers="brown.edu"/>
      </query>
    </medusa>

Times are seconds; `max_ahead` may be `none`. `ha` also takes Borealis' words (amnesia, upstream,
passive, active); with it come `checkpoint` and `secondary`, a peer's id. An `<output>` of a query
names a stream that others may read although one of the query's own boxes reads it. Its `readers`
are some of those that may read the inputs (`engine/language/labels.py`).

Views, in both dialects, are as Borealis wrote them:

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

from msgspec import UNSET

from medusa.engine.language.check import completed
from medusa.engine.language.labels import Readers
from medusa.engine.objects.availability import requested
from medusa.engine.objects.definitions import (
    DEFAULT_HISTORY_US,
    DEFAULT_IDLE_TIMEOUT_US,
    DEFAULT_MAX_AHEAD_US,
    Idle,
    StreamDefinition,
    check_stream,
)
from medusa.engine.objects.query import Box, Query
from medusa.engine.objects.schema import BEGINNING, END, Field, FieldType, Schema, check_schema
from medusa.engine.objects.view import Last, Range, Recent, Shows, View, check_view
from medusa.engine.operators.reading import read_box
from medusa.engine.operators.shared.parameters import seconds_to_us
from medusa.engine.xml.tree import Node
from medusa.overlay.alternatives import alternatives
from medusa.overlay.errors import InvalidInputError

_AVAILABILITY: Final = ("ha", "recovery", "bound", "checkpoint", "secondary")
"""The attributes of a query for its high availability, in both dialects."""

VIEW_TAG: Final = "connection_point_view"

HISTORY_RANGE: Final = ("from", "until", "version")
"""The attributes of a `<query>` that is computed over a part of the past."""

NO_LIMIT: Final = "none"
"""The value of `max_ahead` for streams whose times are generated, or come from a recorded trace."""

Qualify = Callable[[str], str]
"""A function: the checked object name for a name in the document.

Raises:
    InvalidInputError: the name is invalid.
"""


def read_schema(node: Node, qualify: Qualify) -> Schema:
    attributes = node.checked(("name",), ("time", "key"))
    fields = []
    for child in node.children:
        if child.tag != "field":
            raise child.error("a schema has only <field> elements")
        fields.append(_read_field(child))
    with node.about():
        key = members(attributes.get("key", ""))
        schema = Schema(qualify(attributes["name"]), tuple(fields), attributes.get("time"), key)
        check_schema(schema)
    return schema


def read_stream(node: Node, qualify: Qualify) -> StreamDefinition:
    node.childless()
    optional = (
        "table",
        "slack",
        "lateness",
        "history",
        "idle",
        "idle_timeout",
        "readers",
        "writers",
        "declassify",
        "max_ahead",
    )
    given = node.checked(("name", "schema"), (*optional, "leader", "k_safety"))
    idle = given.get("idle", Idle.EXPLICIT)
    if idle not in set(Idle):
        raise node.error(f"idle is {' or '.join(Idle)}, not {idle[:40]!a}")
    history, ahead = given.get("history"), given.get("max_ahead")
    idle_timeout = given.get("idle_timeout")
    with node.about():
        stream = StreamDefinition(
            name=qualify(given["name"]),
            schema=qualify(given["schema"]),
            slack_us=seconds_to_us(given.get("slack", "0")),
            history_us=DEFAULT_HISTORY_US if history is None else seconds_to_us(history),
            idle=Idle(idle),
            readers=members(given["readers"]) if "readers" in given else UNSET,
            writers=members(given.get("writers", "")),
            declassify=members(given.get("declassify", "")),
            leader=given.get("leader", ""),
            k_safety=_number(given.get("k_safety", "0"), "k_safety ", 1, " of peers"),
            max_ahead_us=DEFAULT_MAX_AHEAD_US if ahead is None else max_ahead(ahead),
            table=given.get("table", "0") in {"1", "true"},
            lateness_us=seconds_to_us(given.get("lateness", "0")),
            idle_timeout_us=(
                DEFAULT_IDLE_TIMEOUT_US if idle_timeout is None else seconds_to_us(idle_timeout)
            ),
        )
        check_stream(stream)
    return stream


def max_ahead(text: str) -> int | None:
    """Microseconds; None: `none`. Raises: InvalidInputError: neither `none` nor seconds."""
    return None if text == NO_LIMIT else seconds_to_us(text)


def members(text: str) -> tuple[str, ...]:
    """Participants, separated by commas or blanks."""
    return tuple(text.replace(",", " ").split())


def read_query(node: Node, qualify: Qualify) -> Query:
    boxes = []
    outputs: list[str] = []
    readers: dict[str, tuple[str, ...]] = {}
    for child in node.children:
        if child.tag == "box":
            boxes.append(_read_box(child, qualify))
        elif child.tag == "output":
            child.childless()
            given = child.checked(("stream",), ("readers",))
            with child.about():
                outputs.append(qualify(given["stream"]))
                if "readers" in given:
                    readers[outputs[-1]] = members(given["readers"])
        else:
            raise child.error("a query has only <box> and <output> elements")
    return made_query(node, qualify, boxes, outputs, readers)


def made_query(
    node: Node,
    qualify: Qualify,
    boxes: list[Box],
    outputs: list[str],
    readers: Mapping[str, Readers],
) -> Query:
    """The checked query of a `<query>` element."""
    given = node.checked(("name",), (*_AVAILABILITY, *HISTORY_RANGE))
    with node.about():
        query = Query(
            qualify(given["name"]), tuple(boxes), tuple(outputs), readers=tuple(readers.items())
        )
        bound_us, checkpoint_us = (_us(given, name) for name in ("bound", "checkpoint"))
        ha, recovery, secondary = map(given.get, ("ha", "recovery", "secondary"))
        request = requested(ha, recovery, bound_us, checkpoint_us, secondary)
        after, until = (_us(given, name, ", since 1970") for name in ("from", "until"))
        return completed(
            query,
            request,
            after=BEGINNING if after is None else after,
            until=END if until is None else until,
            version=_number(given.get("version", "0"), "version ", 9),
        )


def _read_field(node: Node) -> Field:
    node.childless()
    given = node.checked(("name", "type"), ("size", "nullable"))
    if given["type"] not in set(FieldType):
        known = alternatives(given["type"], FieldType)
        raise node.error(f"unknown type {given['type'][:40]!a}; {known}")
    size = None
    if "size" in given:
        with node.about():
            size = _number(given["size"], "size ", 9, " of bytes")
    type_ = FieldType(given["type"])
    # the first paper gives sizes to strings alone, Borealis' files sometimes to numbers as well
    size = size if type_ is FieldType.STRING else None
    return Field(given["name"], type_, size, _flag(node, "nullable"))


def _read_box(node: Node, qualify: Qualify) -> Box:
    ports: dict[str, dict[int, str]] = {"input": {}, "output": {}}
    parameters = []
    for child in node.children:
        if child.tag == "param":
            parameters.append(child)
        elif child.tag in ports:
            number, stream = _read_port(child, qualify)
            if number in ports[child.tag]:
                raise child.error(f"port {number} occurs twice")
            ports[child.tag][number] = stream
        else:
            raise child.error("a box has only <input>, <output> and <param> elements")
    for tag, found in ports.items():
        if set(found) != set(range(1, len(found) + 1)):
            raise node.error(f"its {tag} ports are not 1 to {len(found)}")
    streams = {tag: tuple(found[port] for port in sorted(found)) for tag, found in ports.items()}
    return read_box(node, streams["input"], streams["output"], parameters)


def _read_port(node: Node, qualify: Qualify) -> tuple[int, str]:
    node.childless()
    given = node.checked(("port", "stream"))
    with node.about():
        return _number(given["port"], "port ", 4, " from 1"), qualify(given["stream"])


def _us(given: Mapping[str, str], name: str, since: str = "") -> int | None:
    """Microseconds; None: there is no such attribute."""
    if name not in given:
        return None
    try:
        return seconds_to_us(given[name])
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}{since}") from None


def _number(text: str, name: str, digits: int, of: str = "") -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= digits):
        raise InvalidInputError(f"{name}{text[:40]!a} is not a number{of}")
    return int(text)


def _flag(node: Node, name: str) -> bool:
    said = node.attributes.get(name, "0")
    if said not in {"0", "1", "true", "false"}:
        raise node.error(f"{name} must be 0 or 1")
    return said in {"1", "true"}


def read_view(node: Node, qualify: Callable[[str], str]) -> View:
    """The view in an element. Raises: InvalidInputError: names line and reason."""
    given = node.checked(("name", "stream"), ("frozen",))
    frozen = _flag(node, "frozen")
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
            frozen or isinstance(shows, Range),
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
        return (
            Recent(seconds_to_us(value))
            if ordered
            else Last(_number(value, "", 18, " of tuples, like 100"))
        )
