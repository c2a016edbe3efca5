"""Datagrams between nodes: whatever the bytes, a frame or DecodeError."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dht.wire import (
    MAX_DATAGRAM,
    FindNode,
    FindValue,
    Found,
    Frame,
    Ping,
    Pong,
    Reply,
    Request,
    Store,
    Stored,
    decode_frame,
    encode_reply,
    encode_request,
)
from overlay.errors import DecodeError

CALL = bytes(range(20))


@pytest.mark.parametrize(
    "message", [Ping(), Store(CALL, b"v" * 1024), FindNode(CALL), FindValue(CALL)]
)
def test_requests_round_trip(message: Request) -> None:
    assert decode_frame(encode_request(CALL, message)) == Frame(CALL, message)


@pytest.mark.parametrize(
    "message",
    [Pong(), Stored(), Stored("conflict", "why"), Found([CALL] * 20, [b"v" * 1024] * 6)],
)
def test_replies_round_trip_and_fit_a_datagram(message: Reply) -> None:
    data = encode_reply(CALL, message)
    assert len(data) <= MAX_DATAGRAM
    assert decode_frame(data) == Frame(CALL, message)


@pytest.mark.parametrize(
    "message",
    [
        Store(b"short", b"v"),
        Store(CALL, b"v" * 1025),
        FindNode(CALL + b"x"),
    ],
)
def test_requests_out_of_bounds_are_malformed(message: Request) -> None:
    with pytest.raises(DecodeError):
        decode_frame(encode_request(CALL, message))


@pytest.mark.parametrize(
    "message",
    [Found([CALL] * 21), Found([b"short"]), Found([], [b"v"] * 7), Stored("c", "r" * 1025)],
)
def test_replies_out_of_bounds_are_malformed(message: Reply) -> None:
    with pytest.raises(DecodeError):
        decode_frame(encode_reply(CALL, message))


def test_a_reply_is_no_request() -> None:
    with pytest.raises(DecodeError):
        decode_frame(b"\x00" + encode_reply(CALL, Pong())[1:])


def test_too_long_a_datagram_is_not_read() -> None:
    with pytest.raises(DecodeError, match="8193"):
        decode_frame(bytes(MAX_DATAGRAM + 1))


@given(st.sampled_from([b"\x00", b"\x01", b""]), st.binary(max_size=200))
def test_any_bytes_decode_or_raise_decode_error(head: bytes, data: bytes) -> None:
    with suppress(DecodeError):
        decode_frame(head + data)


@given(st.binary(max_size=64))
def test_any_content_after_a_good_head_decodes_or_raises_decode_error(data: bytes) -> None:
    with suppress(DecodeError):
        decode_frame(b"\x01" + CALL + b"\x91\x93\xa5found" + data)
