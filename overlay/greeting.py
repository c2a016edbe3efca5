"""The greeting of a connection, after TLS and before the multiplexer: a hello and a `Verdict`.

* Between peers the greeting decides which of two connections is kept. Hello and verdict carry the
  start-up number of their peer, which distinguishes a restarted peer from a second dial. If both
  peers dial at once, the dial of the peer with the smaller id is kept.
* A client's hello is the proof of its token.
* Hello and verdict begin with the sender's number of the protocol: that never changes. Another
  number ends the connection, and each side says which of the two is too old.
* Both messages are short and of bounded size: a side that has proved nothing takes no memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct as Layout
from typing import Final

import trio

from medusa.overlay.errors import (
    BrokenError,
    BusyError,
    DecodeError,
    MedusaError,
    NotAuthorisedError,
    RefusedError,
    printable,
)
from medusa.overlay.tls import failure

PROTOCOL: Final = 1
"""The number of the protocol that this program speaks. A release counts it up if its
`docs/protocol.lock` is not that of the release before."""

INSTANCE_BYTES: Final = 16
"""Bytes of the random number that tells one start of a peer from the next. Its size is fixed, so a
sender that is not yet authenticated cannot make the peer reserve more memory."""

MAX_TEXT: Final = 1024
"""Bytes of the reason in a verdict: a sentence."""

_NUMBER: Final = Layout("!H")
_VERDICT: Final = Layout(f"!B{INSTANCE_BYTES}sH")


class Answer(IntEnum):
    ACCEPTED = 0
    DUPLICATE = 1
    """Another connection between the two is there, or about to be: use that."""
    UNTRUSTED = 2
    WRONG_TOKEN = 3
    BUSY = 4
    """The dialler's share of the connections is used up."""


@dataclass(frozen=True, slots=True)
class Verdict:
    answer: Answer
    instance: bytes = bytes(INSTANCE_BYTES)
    text: str = ""

    def error(self) -> MedusaError | None:
        """The error that the dialler raises; None if the connection stands."""
        match self.answer:
            case Answer.ACCEPTED | Answer.DUPLICATE:
                return None
            case Answer.UNTRUSTED:
                return RefusedError(printable(self.text))
            case Answer.WRONG_TOKEN:
                return NotAuthorisedError(printable(self.text))
            case Answer.BUSY:
                return BusyError(printable(self.text))


async def send_hello(stream: trio.abc.Stream, hello: bytes) -> None:
    await _send(stream, _NUMBER.pack(PROTOCOL) + hello)


async def receive_hello(stream: trio.abc.Stream, size: int = INSTANCE_BYTES) -> bytes:
    """The dialler's start-up number, or a client's proof.

    Raises:
        RefusedError: the dialler speaks another protocol; this peer has sent it our protocol's
            number.
        MedusaError: the connection broke.
    """
    try:
        await _receive_protocol(stream)
    except RefusedError:
        await _send(stream, _NUMBER.pack(PROTOCOL))
        raise
    return await _receive(stream, size)


async def send_verdict(stream: trio.abc.Stream, verdict: Verdict) -> None:
    text = verdict.text.encode()[:MAX_TEXT]
    head = _VERDICT.pack(verdict.answer, verdict.instance, len(text))
    await _send(stream, _NUMBER.pack(PROTOCOL) + head + text)


async def receive_verdict(stream: trio.abc.Stream) -> Verdict:
    """
    Raises:
        DecodeError: that is no verdict.
        RefusedError: the other side speaks another protocol.
        UntrustedError: it refused our certificate in TLS.
        MedusaError: the connection broke.
    """
    await _receive_protocol(stream)
    answer, instance, size = _VERDICT.unpack(await _receive(stream, _VERDICT.size))
    if answer not in set(Answer) or size > MAX_TEXT:
        raise DecodeError("its greeting is malformed")
    text = (await _receive(stream, size)).decode(errors="replace")
    return Verdict(Answer(answer), instance, text)


async def _receive_protocol(stream: trio.abc.Stream) -> None:
    (theirs,) = _NUMBER.unpack(await _receive(stream, _NUMBER.size))
    if theirs != PROTOCOL:
        older = "this side" if theirs > PROTOCOL else "the other side"
        raise RefusedError(
            f"the other side speaks protocol {theirs}, and this side speaks {PROTOCOL}: {older} is "
            "too old, and needs a newer Medusa"
        )


async def _send(stream: trio.abc.Stream, data: bytes) -> None:
    try:
        await stream.send_all(data)
    except trio.BrokenResourceError as error:
        raise failure(error) from None


async def _receive(stream: trio.abc.Stream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        try:
            more = await stream.receive_some(size - len(data))
        except trio.BrokenResourceError as error:
            raise failure(error) from None
        if not more:
            raise BrokenError("the connection ended in the greeting")
        data += more
    return data
