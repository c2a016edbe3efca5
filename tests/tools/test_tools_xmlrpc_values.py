"""XML-RPC's XML: the standard library writes what the peer reads, and reads what the peer writes;
all other input gives a `DecodeError`."""

from __future__ import annotations

import contextlib
import datetime
import math
from typing import Any
from xmlrpc.client import Binary, Fault, dumps, loads

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.overlay.errors import DecodeError
from medusa.tools.xmlrpc.values import (
    MAX_DEPTH,
    MAX_VALUES,
    Value,
    read_answer,
    read_call,
    write_answer,
    write_call,
    write_fault,
)

WRITABLE = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])).filter(
    lambda text: not any(0xFDD0 <= ord(c) <= 0xFDEF or ord(c) & 0xFFFE == 0xFFFE for c in text)
)
"""Texts that XML can contain unchanged."""

MOMENTS = st.datetimes(
    min_value=datetime.datetime(1000, 1, 1),  # noqa: DTZ001 - XML-RPC has no zones
    max_value=datetime.datetime(9999, 12, 31),  # noqa: DTZ001
).map(lambda moment: moment.replace(microsecond=0))


def nested(scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WRITABLE, inner, max_size=4),
        max_leaves=12,
    )


SCALARS = st.none() | st.booleans() | st.floats(allow_nan=False) | WRITABLE | st.binary() | MOMENTS
SENT = nested(SCALARS | st.integers(-(2**31), 2**31 - 1))
ANSWERED = nested(SCALARS | st.integers(-(2**63), 2**63 - 1))


def in_utc(value: Any) -> Any:
    """Return the value in the peer's form: moments in UTC."""
    match value:
        case datetime.datetime():
            return value.replace(tzinfo=datetime.UTC)
        case list():
            return [in_utc(each) for each in value]
        case dict():
            return {name: in_utc(each) for name, each in value.items()}
        case _:
            return value


@given(st.lists(SENT, max_size=4))
def test_the_peer_reads_what_the_standard_library_writes(arguments: list[Any]) -> None:
    document = dumps(tuple(arguments), "a.method", allow_none=True).encode()
    call = read_call(document)
    assert (call.method, call.arguments) == ("a.method", in_utc(arguments))


@given(ANSWERED)
def test_the_standard_library_reads_what_the_peer_writes(value: Any) -> None:
    (read,), _ = loads(write_answer(value), use_builtin_types=True)
    assert read == value
    assert read_answer(write_answer(value)) == in_utc(value)
    arguments, method = loads(write_call("sink.receive_events", value), use_builtin_types=True)
    assert (arguments, method) == ((value,), "sink.receive_events")


@given(st.text(st.characters(exclude_categories=[])))
def test_every_text_arrives(text: str) -> None:
    (read,), _ = loads(write_answer(text))
    if isinstance(read, Binary):
        assert read.data == text.encode(errors="surrogatepass")
    else:
        assert read == text


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_doubles_that_are_no_numbers(number: float) -> None:
    (read,), _ = loads(write_answer(number))
    assert read == number or (math.isnan(read) and math.isnan(number))


@given(st.integers(1, 2**31 - 1), st.text())
def test_a_fault_is_read_as_a_fault(number: int, text: str) -> None:
    for read in (loads, read_answer):
        with pytest.raises(Fault) as raised:
            read(write_fault(number, text))
        assert raised.value.faultCode == number
        assert "\n" not in raised.value.faultString


CALL = "<methodCall><methodName>m</methodName><params><param>{}</param></params></methodCall>"


def value(inner: str) -> bytes:
    return CALL.format(f"<value>{inner}</value>").encode()


@pytest.mark.parametrize(
    ("inner", "read"),
    [
        ("", ""),
        (" as it stands ", " as it stands "),
        ("<i8>-9223372036854775808</i8>", -(2**63)),
        ("<i4> 7 </i4>", 7),
        ("<boolean>1</boolean>", True),
        ("<nil/>", None),
        ('<ex:nil xmlns:ex="http://ws.apache.org/xmlrpc/namespaces/extensions"/>', None),
        ("<base64> AAE=\n </base64>", b"\x00\x01"),
        ("<array><data> </data></array>", []),
        ("<struct/>", {}),
        (
            "<dateTime.iso8601>20180324T14:06:00</dateTime.iso8601>",
            datetime.datetime(2018, 3, 24, 14, 6, tzinfo=datetime.UTC),
        ),
    ],
)
def test_the_peer_reads_the_values_that_libraries_write(inner: str, read: Value) -> None:
    assert read_call(value(inner)).arguments == [read]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"", "not well-formed"),
        (b"\xff\xfe\x00", "not well-formed"),
        (b'<?xml version="1.0" encoding="none-such"?><methodCall/>', "encoding"),
        (b"<html/>", "<html> as the document"),
        (b"<methodCall/>", "<methodCall> without <methodName>"),
        (b"<methodCall><methodName/></methodCall>", "<methodName> with ''"),
        (b"<methodResponse><params/></methodResponse>", "one value, or a fault"),
        (write_answer(1), "<methodResponse>, not <methodCall>"),
        (value("<int>1</int><int>2</int>"), "a second <int>"),
        (value("<int>1</int>two"), "text inside <value>: 'two'"),
        (value("<int/>"), "<int> with ''"),
        (value("<int>1_000</int>"), "<int> with"),
        (value("<int>\u0661</int>"), "<int> with"),
        (value("<int>9223372036854775808</int>"), "<int> with"),
        (value(f"<int>{'9' * 10_000}</int>"), "<int> with"),
        (value("<double>1_0.0</double>"), "<double> with"),
        (value("<boolean>true</boolean>"), "<boolean> with"),
        (value("<base64>====</base64>"), "<base64> with"),
        (value("<nil>x</nil>"), "<nil> with"),
        (value("<dateTime.iso8601>20181324T14:06:00</dateTime.iso8601>"), "<dateTime.iso8601>"),
        (value("<struct><member><name>a</name></member></struct>"), "without <name> and <value>"),
        (
            value(
                "<struct><member><name>a</name><value>1</value></member>"
                "<member><name>a</name><value>2</value></member></struct>"
            ),
            "a struct with two members 'a'",
        ),
        (value("<array/>"), "<array> without <data>"),
        (value("<int><int>1</int></int>"), "<int> inside <int>"),
        (value('<x:int xmlns:x="urn:x">1</x:int>'), "inside <value>"),
        (value("<array><data>" * 33 + "</data></array>" * 33), "inside <data>"),
        (
            value("<array><data><value>" * 33 + "</value></data></array>" * 33),
            f"more than {MAX_DEPTH} deep",
        ),
        (
            value("<array><data>" + "<value/>" * MAX_VALUES + "</data></array>"),
            f"more than {MAX_VALUES:,} values",
        ),
        (b'<!DOCTYPE a [<!ENTITY b "c">]>' + value("&b;"), "no DTD"),
        (b'<!DOCTYPE methodCall SYSTEM "http://127.0.0.1/x">' + value(""), "no DTD"),
    ],
)
def test_invalid_calls_are_refused(document: bytes, reason: str) -> None:
    with pytest.raises(DecodeError) as raised:
        read_call(document)
    assert reason in str(raised.value)
    assert str(raised.value).isprintable()


TAGS = st.sampled_from(
    [
        *("methodCall", "methodResponse", "methodName", "params", "param", "fault", "value"),
        *("array", "data", "struct", "member", "name"),
        *("int", "i8", "boolean", "double", "string", "base64", "nil", "dateTime.iso8601", "x"),
    ]
)


@st.composite
def trees(draw: st.DrawFn, depth: int = 5) -> str:
    """Draw XML of XML-RPC's elements, in any order."""
    tag = draw(TAGS)
    inner = draw(st.lists(trees(depth - 1), max_size=3)) if depth else []
    text = draw(st.sampled_from(["", "1", "a", "-1e999", "&#0;", "&lt;", "20180324T14:06:00"]))
    return f"<{tag}>{''.join(inner)}{text}</{tag}>"


@given(st.binary() | trees().map(str.encode))
def test_no_bytes_raise_anything_else(document: bytes) -> None:
    with contextlib.suppress(DecodeError):
        read_call(document)
    with contextlib.suppress(DecodeError, Fault):
        read_answer(document)


@given(SENT, st.data())
def test_damaged_documents_raise_nothing_else(argument: Any, data: st.DataObject) -> None:
    document = bytearray(dumps((argument,), "m", allow_none=True).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(document)))
        end = data.draw(st.integers(start, min(start + 40, len(document))))
        document[start:end] = data.draw(st.binary(max_size=8))
    with contextlib.suppress(DecodeError):
        read_call(bytes(document))
