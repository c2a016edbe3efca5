"""The first words between two peers after TLS: which of possibly two connections is kept.

The dialler says `Hello`, the side that accepted answers with a `Verdict`; then the multiplexer
speaks. Both carry the start-up number of their peer, so that a restarted peer is told from a second
dial. Where both dial at once, the dial of the peer with the smaller id is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct as Layout
from typing import Final

import trio

from overlay.errors import BrokenError, DecodeError, MedusaError, UntrustedError
from overlay.tls import failure

INSTANCE_BYTES: Final = 16
"""A random number of this size tells one start of a peer from the next."""

MAX_TEXT: Final = 1024
"""Bytes of the reason in a verdict: a sentence."""

_VERDICT: Final = Layout(f"!B{INSTANCE_BYTES}sH")


class Answer(IntEnum):
    ACCEPTED = 0
    DUPLICATE = 1
    """Another connection between the two is, or is about to be, there: use that."""
    UNTRUSTED = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    answer: Answer
    instance: bytes
    text: str = ""

    def error(self) -> MedusaError | None:
        """What the dialler raises."""
        match self.answer:
            case Answer.ACCEPTED | Answer.DUPLICATE:
                return None
            case Answer.UNTRUSTED:
                return UntrustedError(f"it refuses us: {self.text}")


async def send_hello(stream: trio.abc.Stream, instance: bytes) -> None:
    await _send(stream, instance)


async def receive_hello(stream: trio.abc.Stream) -> bytes:
    """The dialler's start-up number.

    Raises:
        MedusaError: the connection broke.
    """
    return await _receive(stream, INSTANCE_BYTES)


async def send_verdict(stream: trio.abc.Stream, verdict: Verdict) -> None:
    text = verdict.text.encode()[:MAX_TEXT]
    await _send(stream, _VERDICT.pack(verdict.answer, verdict.instance, len(text)) + text)


async def receive_verdict(stream: trio.abc.Stream) -> Verdict:
    """
    Raises:
        DecodeError: that is no verdict.
        UntrustedError: the other side refused our certificate in TLS.
        MedusaError: the connection broke.
    """
    answer, instance, size = _VERDICT.unpack(await _receive(stream, _VERDICT.size))
    if answer not in set(Answer) or size > MAX_TEXT:
        raise DecodeError("its greeting is malformed")
    text = (await _receive(stream, size)).decode(errors="replace")
    return Verdict(Answer(answer), instance, text)


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
