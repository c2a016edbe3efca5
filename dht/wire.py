"""The datagrams between DHT nodes: rpcudp's frame (a byte, a call's 20 random bytes, MessagePack)
with typed content. The sender's id is not in them: the envelope's signature proves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Meta, Struct

from medusa.overlay.encoding import decode, encode
from medusa.overlay.errors import DecodeError
from medusa.overlay.names import PeerId

MAX_DATAGRAM: Final = 8192
"""Bytes of a payload: the limit of the overlay's datagrams."""

CALL_BYTES: Final = 20
"""Bytes of a call's id. It is random, so that a node that did not see the request cannot forge an
answer."""

MAX_VALUES: Final = 6
"""Values in one answer: six records of 1 KiB and 20 ids fill a datagram."""

MAX_NODES: Final = 20
"""Ids in one answer: the largest configurable number of copies."""

_REQUEST: Final = b"\x00"
_REPLY: Final = b"\x01"

Id = Annotated[bytes, Meta(min_length=20, max_length=20)]
Value = Annotated[bytes, Meta(max_length=1024)]
Code = Annotated[str, Meta(max_length=64)]
Reason = Annotated[str, Meta(max_length=1024)]
NodeId = Annotated[PeerId, Meta(min_length=20, max_length=20)]
Ids = Annotated[list[NodeId], Meta(max_length=MAX_NODES)]


class Ping(Struct, frozen=True, array_like=True, tag="ping"):
    """Asks whether the node is alive."""


class Store(Struct, frozen=True, array_like=True, tag="store"):
    """Asks the node to store this record under that key."""

    key: Id
    value: Value


class FindNode(Struct, frozen=True, array_like=True, tag="find_node"):
    """Asks for the nodes nearest to that key."""

    key: Id


class FindValue(Struct, frozen=True, array_like=True, tag="find_value"):
    """Asks for the records under that key."""

    key: Id


class Pong(Struct, frozen=True, array_like=True, tag="pong"):
    """The answer to `Ping`."""


class Stored(Struct, frozen=True, array_like=True, tag="stored"):
    """The answer to `Store`. code: the code of the error for which the record was refused, or "" if
    it is stored."""

    code: Code = ""
    reason: Reason = ""


class Found(Struct, frozen=True, array_like=True, tag="found"):
    """The answer to `FindNode` and `FindValue`.

    Attributes:
        values: the records under the key (FindValue).
        nodes: ids of the known nodes nearest to it.
    """

    nodes: Ids
    values: Annotated[list[Value], Meta(max_length=MAX_VALUES)] = []


Request = Ping | Store | FindNode | FindValue
Reply = Pong | Stored | Found


class _RequestBox(Struct, frozen=True, array_like=True):
    message: Request


class _ReplyBox(Struct, frozen=True, array_like=True):
    message: Reply


@dataclass(frozen=True, slots=True)
class Frame:
    """A request or an answer. call: the id that pairs them."""

    call: bytes
    message: Request | Reply


def encode_request(call: bytes, message: Request) -> bytes:
    return _REQUEST + call + encode(_RequestBox(message))


def encode_reply(call: bytes, message: Reply) -> bytes:
    return _REPLY + call + encode(_ReplyBox(message))


def decode_frame(payload: bytes) -> Frame:
    """
    Raises:
        DecodeError: the bytes are no request and no answer. No bytes raise another error.
    """
    if len(payload) > MAX_DATAGRAM:
        raise DecodeError(f"DHT datagram: {len(payload)} bytes, at most {MAX_DATAGRAM}")
    head, call, rest = payload[:1], payload[1 : 1 + CALL_BYTES], payload[1 + CALL_BYTES :]
    if head == _REQUEST:
        box: _RequestBox | _ReplyBox = decode(
            rest, _RequestBox, limit=MAX_DATAGRAM, what="DHT datagram"
        )
    elif head == _REPLY:
        box = decode(rest, _ReplyBox, limit=MAX_DATAGRAM, what="DHT datagram")
    else:
        raise DecodeError("DHT datagram: neither a question nor an answer")
    return Frame(call, box.message)
