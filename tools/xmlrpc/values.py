"""The values of XML-RPC, and their XML: a strict reader with limits, and the writer.

The reader takes what `xmlrpc.client` writes and what Apache's extensions add (`i8`, `nil`), and
nothing else. It has one error, `DecodeError`. It keeps no tree: values are made while the document
is parsed, so that limits hold from the first byte on.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from xml.etree.ElementTree import ParseError  # the parser itself is defusedxml's
from xmlrpc.client import Fault, Marshaller

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from medusa.overlay.errors import DecodeError, printable

Value: TypeAlias = (
    bool | int | float | str | bytes | datetime.datetime | list["Value"] | dict[str, "Value"] | None
)

MAX_DEPTH: Final = 32
"""Arrays and structs inside each other: a query has six."""

MAX_VALUES: Final = 200_000
"""Values in one document: ten thousand events of twenty fields. Each costs some hundred bytes."""

MAX_METHOD_CHARACTERS: Final = 128
"""Characters of a method's name, as of the peer's other calls."""

MAX_NUMBER: Final = 400
"""Characters of a number: the longest double is written with some 330."""

INT_BITS: Final = 31
"""Bits of the magnitude of an `int`; a larger number is an `i8`."""

LONG_BITS: Final = 63
"""Bits of the magnitude of an `i8`."""

EXTENSIONS: Final = "{http://ws.apache.org/xmlrpc/namespaces/extensions}"
"""The namespace in which Apache's libraries write `i8` and `nil`."""

_SCALARS: Final = frozenset(
    {
        "int",
        "i1",
        "i2",
        "i4",
        "i8",
        "boolean",
        "double",
        "float",
        "string",
        "base64",
        "dateTime.iso8601",
        "nil",
    }
)

_CHILDREN: Final[Mapping[str, frozenset[str]]] = {
    "": frozenset({"methodCall", "methodResponse"}),
    "methodCall": frozenset({"methodName", "params"}),
    "methodResponse": frozenset({"params", "fault"}),
    "params": frozenset({"param"}),
    "param": frozenset({"value"}),
    "fault": frozenset({"value"}),
    "value": _SCALARS | {"array", "struct"},
    "array": frozenset({"data"}),
    "data": frozenset({"value"}),
    "struct": frozenset({"member"}),
    "member": frozenset({"name", "value"}),
}
"""For each element, the elements that may be inside it."""

_MANY: Final = frozenset({"params", "data", "struct"})
"""Elements that may have any number of others inside."""

_PAIRS: Final = {"methodCall": ("methodName", "params"), "member": ("name", "value")}

_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "methodCall": ("methodName",),
    "member": ("name", "value"),
    "array": ("data",),
    "param": ("value",),
    "fault": ("value",),
}
"""For each element, the elements that must be inside it, in this order."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_MOMENT: Final = re.compile(
    r"([0-9]{4})-?([0-9]{2})-?([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})Z?"
)
_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""A pattern of characters that XML 1.0 cannot have."""


@dataclass(frozen=True)
class Call:
    """A call: the method's name and its arguments."""

    method: str
    arguments: list[Value]


def read_call(document: bytes) -> Call:
    """Read a `methodCall`; the caller has limited its bytes.

    Raises:
        DecodeError: the document is no call, or exceeds a limit. No bytes raise another error.
    """
    made = _read(document, "methodCall")
    assert isinstance(made, Call)
    return made


def read_answer(document: bytes) -> Value:
    """Read a `methodResponse`; the caller has limited its bytes.

    Raises:
        DecodeError: the document is no answer, or exceeds a limit.
        Fault: it is a fault.
    """
    made = _read(document, "methodResponse")
    if isinstance(made, Fault):
        raise made
    value: Value = made
    return value


def write_call(method: str, *arguments: Value) -> bytes:
    """A `methodCall`, UTF-8. The method's name needs no escapes."""
    return _document(f"<methodCall><methodName>{method}</methodName>", arguments, "</methodCall>")


def write_answer(value: Value) -> bytes:
    """A `methodResponse` with that value, UTF-8."""
    return _document("<methodResponse>", (value,), "</methodResponse>")


def write_fault(number: int, text: str) -> bytes:
    """A `methodResponse` that is a fault, UTF-8."""
    fault = Fault(number, printable(text))
    return _document("<methodResponse>", fault, "</methodResponse>")


def _document(start: str, content: tuple[Value, ...] | Fault, end: str) -> bytes:
    body = _Writer("utf-8", allow_none=True).dumps(content)
    return f'<?xml version="1.0"?>{start}{body}{end}'.encode()


def _write_integer(_: Marshaller, value: int, write: Callable[[str], object]) -> None:
    kind = "int" if -(2**INT_BITS) <= value < 2**INT_BITS else "i8"
    write(f"<value><{kind}>{value}</{kind}></value>")


def _write_text(_: Marshaller, value: str, write: Callable[[str], object]) -> None:
    if _FORBIDDEN.search(value):
        coded = base64.b64encode(value.encode(errors="surrogatepass")).decode()
        write(f"<value><base64>{coded}</base64></value>")
        return
    text = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = text.replace("\r", "&#13;")  # otherwise a parser would read it as the end of a line
    write(f"<value><string>{text}</string></value>")


class _Writer(Marshaller):
    """The standard library's writer, extended by whole numbers of 64 bits and any text."""

    dispatch = {  # noqa: RUF012 - as in the base class
        **Marshaller.dispatch,
        int: _write_integer,
        str: _write_text,
    }


def _read(document: bytes, kind: str) -> Any:  # noqa: ANN401 - a Call, a Fault or a Value
    builder = _Builder(kind)
    parser = DefusedXMLParser(target=builder, forbid_dtd=True)
    try:
        parser.feed(document)
        return parser.close()
    except DecodeError:
        raise
    except DefusedXmlException as error:
        raise DecodeError(f"XML-RPC: {type(error).__name__}: send no DTD and no entities") from None
    except (ParseError, ValueError, LookupError) as error:  # a name of an encoding may be anything
        raise DecodeError(f"XML-RPC: not well-formed: {printable(str(error))[:200]}") from None


@dataclass
class _Open:
    """An element whose end was not read yet. children: the names of elements inside; made: the
    values built so far."""

    tag: str
    text: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    made: list[Any] = field(default_factory=list)


class _Builder:
    """Makes values from the parser's events."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._path = [_Open("")]
        self._values = 0
        self._depth = 0

    def start(self, tag: str, _attributes: Mapping[str, str]) -> None:
        tag = tag.removeprefix(EXTENSIONS)
        parent = self._path[-1]
        if tag not in _CHILDREN.get(parent.tag, ()):
            where = f"inside <{parent.tag}>" if parent.tag else "as the document"
            raise DecodeError(f"XML-RPC: <{printable(tag)[:40]}> {where}")
        if (
            parent.children
            and parent.tag not in _MANY
            and (parent.tag not in _PAIRS or (*parent.children, tag) != _PAIRS[parent.tag])
        ):
            raise DecodeError(f"XML-RPC: a second <{tag}> inside <{parent.tag}>")
        if tag == "value":
            self._values += 1
            if self._values > MAX_VALUES:
                raise DecodeError(f"XML-RPC: more than {MAX_VALUES:,} values: send fewer at a time")
        self._depth += tag in {"array", "struct"}
        if self._depth > MAX_DEPTH:
            raise DecodeError(f"XML-RPC: arrays and structs more than {MAX_DEPTH} deep")
        parent.children.append(tag)
        self._path.append(_Open(tag))

    def data(self, text: str) -> None:
        self._path[-1].text.append(text)

    def end(self, _tag: str) -> None:
        done = self._path.pop()
        self._depth -= done.tag in {"array", "struct"}
        self._path[-1].made.append(self._close(done))

    def close(self) -> Any:  # noqa: ANN401 - see `_read`
        (root,) = self._path[-1].children
        if root != self._kind:
            raise DecodeError(f"XML-RPC: <{root}>, not <{self._kind}>")
        return self._path[-1].made[0]

    def _close(self, done: _Open) -> Any:  # noqa: ANN401
        tag, made, text = done.tag, done.made, "".join(done.text)
        if tag in _SCALARS or tag in {"methodName", "name"}:
            return _scalar(tag, text)
        if tag == "value" and not made:
            return text
        if text.strip():
            raise DecodeError(f"XML-RPC: text inside <{tag}>: {printable(text.strip())[:40]!a}")
        needed = _NEEDED.get(tag, ())
        if tuple(done.children[: len(needed)]) != needed:
            raise DecodeError(f"XML-RPC: <{tag}> without <{'> and <'.join(needed)}>")
        return _MAKERS[tag](done)


def _fault(value: Value) -> Fault:
    match value:
        case {"faultCode": int(number), "faultString": str(text)}:
            return Fault(number, printable(text))
        case _:
            raise DecodeError("XML-RPC: a <fault> without faultCode and faultString")


def _answer(done: _Open) -> Any:  # noqa: ANN401 - a Fault or a Value
    if done.children == ["fault"]:
        return done.made[0]
    if done.children != ["params"] or len(done.made[0]) != 1:
        raise DecodeError("XML-RPC: a <methodResponse> has one value, or a fault")
    return done.made[0][0]


def _struct(members: list[tuple[str, Value]]) -> dict[str, Value]:
    struct = dict(members)
    if len(struct) < len(members):
        names = [name for name, _ in members]
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise DecodeError(f"XML-RPC: a struct with two members {printable(twice)[:40]!a}")
    return struct


_MAKERS: Final[Mapping[str, Callable[[_Open], Any]]] = {
    "methodCall": lambda done: Call(done.made[0], done.made[1] if len(done.made) > 1 else []),
    "methodResponse": _answer,
    "fault": lambda done: _fault(done.made[0]),
    "params": lambda done: done.made,
    "data": lambda done: done.made,
    "struct": lambda done: _struct(done.made),
    "member": lambda done: tuple(done.made),
    "array": lambda done: done.made[0],
    "param": lambda done: done.made[0],
    "value": lambda done: done.made[0],
}
"""For each element, the function that makes its value from checked content."""


def _scalar(tag: str, text: str) -> Value:
    try:
        match tag:
            case "string" | "name":
                return text
            case "methodName":
                return _method(text.strip())
            case "int" | "i1" | "i2" | "i4" | "i8":
                return _integer(text.strip())
            case "boolean":
                return {"0": False, "1": True}[text.strip()]
            case "double" | "float":
                return _double(text.strip())
            case "base64":
                return base64.b64decode("".join(text.split()), validate=True)
            case "nil":
                return {"": None}[text.strip()]
            case _:
                return _moment(text.strip())
    except (ValueError, KeyError, binascii.Error):
        raise DecodeError(f"XML-RPC: <{tag}> with {printable(text)[:40]!a}") from None


def _method(text: str) -> str:
    if not 0 < len(text) <= MAX_METHOD_CHARACTERS or not text.isprintable():
        raise ValueError
    return text


def _integer(text: str) -> int:
    if len(text) > MAX_NUMBER or _INTEGER.fullmatch(text) is None:
        raise ValueError
    number = int(text)
    if not -(2**LONG_BITS) <= number < 2**LONG_BITS:
        raise ValueError
    return number


def _double(text: str) -> float:
    if len(text) > MAX_NUMBER or "_" in text:
        raise ValueError
    return float(text)


def _moment(text: str) -> datetime.datetime:
    """A moment; XML-RPC has no time zone, so it is UTC."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError
    year, month, day, hour, minute, second = map(int, found.groups())
    return datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.UTC)
