"""Both parts of a stream to a subscriber, and from a producer: the stable prefix and the tentative
suffix, each in its own order, side by side."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

import msgspec
import pyarrow as pa

from engine.kept import KeptStream
from engine.messages import Tuples
from engine.schema import BEGINNING, END
from engine.streams.feed import Assembler, messages_of, serve
from engine.streams.log import READ_ROWS
from engine.streams.recent import Epoch
from overlay.concurrency import until_one_ends

FED_ROWS: Final = READ_ROWS // 4
"""Stable rows between two looks at the suffix: new results must not wait behind corrections."""


def serve_to(
    kept: KeptStream, after: int, seen: int | None
) -> AsyncGenerator[tuple[Tuples, memoryview]]:
    """What a subscriber asks for; see `serve` and `serve_all`. seen: None: no tentative tuples."""
    return serve(kept.log, after) if seen is None else serve_all(kept, after, seen)


async def serve_all(
    kept: KeptStream, after: int, seen: int
) -> AsyncGenerator[tuple[Tuples, memoryview]]:
    """As `engine.streams.feed.serve`, and in between what is tentative.

    Args:
        seen: so far the subscriber has tentative tuples, microseconds.
    """
    log, suffix = kept.log, kept.suffix
    if after == BEGINNING:
        await log.wait_beyond(BEGINNING)
        after = log.oldest
    while after < END:
        seen = max(seen, after)
        # who has not come as far as where it began still reads history
        tentative = await suffix.next(seen) if after >= suffix.began_at else None
        if tentative is not None:
            seen = tentative.upto
            for message, body in await messages_of(tentative):
                yield msgspec.structs.replace(message, tentative=True), body
        if log.boundary > after:
            epoch = await log.next(after, FED_ROWS)
            after = epoch.upto
            for message, body in await messages_of(epoch):
                yield message, body
        elif tentative is None:
            await _news(kept, after, seen)


async def _news(kept: KeptStream, after: int, seen: int) -> None:
    async def stable() -> None:
        await kept.log.wait_beyond(after)

    async def tentative() -> None:
        await kept.suffix.wait_beyond(seen)

    await until_one_ends(stable, tentative)


class Incoming:
    """Puts both parts of a stream together again: messages in, whole epochs out; sans IO.

    Attributes:
        boundary: every stable tuple up to it was given out. seen: and so the tentative ones.
    """

    def __init__(self, schema: pa.Schema, after: int, seen: int) -> None:
        self._stable = Assembler(schema, after)
        self._tentative = Assembler(schema, max(after, seen), gaps=True)

    @property
    def boundary(self) -> int:
        return self._stable.boundary

    @property
    def seen(self) -> int:
        return max(self._stable.boundary, self._tentative.boundary)

    def reconnected(self) -> None:
        """What is incomplete comes again."""
        self._stable.reconnected()
        self._tentative.reconnected()

    def add(self, message: Tuples, body: bytes | bytearray | memoryview) -> Epoch | None:
        """One part; gives the epoch when it is the last part of one that was not given out.

        Raises:
            DecodeError: not what a sender of this stream can have sent; close the connection.
        """
        return (self._tentative if message.tentative else self._stable).add(message, body)
