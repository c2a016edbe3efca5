"""Posts of clients that speak XML-RPC: numbered by the client, or else by this peer."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
from msgspec import Struct

from medusa.engine.streams.ipc import encode_parts
from medusa.engine.streams.messages import Post, Posted, PostEvent
from medusa.overlay.concurrency import Locks
from medusa.overlay.connection import BULK_WEIGHT
from medusa.overlay.errors import BrokenError, InvalidInputError, MedusaError
from medusa.overlay.rpc import EndOfCall
from medusa.tools.client.link import Link, Patience


class PostOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The last argument of `post_event`.

    Attributes:
        producer, sequence: the client numbers its own posts: 1, 2, 3... A number that the stream
            has already is answered and not stored again.
        boundary: no later tuple has stime <= boundary, microseconds.
        end: no tuple follows at all.
        done: whether no tuple of this producer follows for now, so that the boundary does not wait
            for it.
    """

    producer: str = ""
    sequence: int = 0
    boundary: int | None = None
    end: bool = False
    done: bool = False


@dataclass(frozen=True, eq=False)
class Posting:
    """Posts of all clients of one peer.

    Attributes:
        peer: its id, hex: part of the producer's name of posts that the client does not number.
        patience_s: how long the stream's leader may be away.
    """

    peer: str
    patience_s: float
    _turns: Locks = field(default_factory=Locks, init=False)

    async def post(
        self, link: Link, stream: str, token: str, table: pa.Table | None, options: PostOptions
    ) -> Posted:
        """Store tuples; returns when they survive a crash.

        Args:
            token: the name of the client's token. table: the schema's payload; None: only a
                boundary.

        Raises:
            InvalidInputError: there are too many tuples for one post, or a producer is named
                without a number. MedusaError: the tuples are not stored, or it is not known whether
                they are: then the client posts them again, with the same number if it has numbered
                them.
        """
        bodies = [] if table is None else [bytes(body) for _, body in encode_parts(table)]
        if len(bodies) > 1:
            raise InvalidInputError("too many events for one post: post fewer at a time")
        if bool(options.producer) != (options.sequence > 0):
            raise InvalidInputError("producer and sequence (from 1) belong together: give both")
        body = bodies[0] if bodies else b""
        producer = options.producer or f"xml-rpc {self.peer[:8]} {token}"
        async with self._turns.of(f"{producer} {stream}"):
            return await self._until_stored(link, stream, producer, options, body)

    async def _until_stored(
        self, link: Link, stream: str, producer: str, options: PostOptions, body: bytes
    ) -> Posted:
        patience = Patience(self.patience_s)
        sequence = options.sequence
        while True:
            try:
                connection = await link.connection()
                opened = connection.open(
                    "post_event", PostEvent(stream, producer), weight=BULK_WEIGHT
                )
                async with opened as duplex:
                    if not sequence:
                        await duplex.send(Post(0))
                        last, _ = await duplex.receive(Posted)
                        sequence = last.last + 1
                    post = Post(sequence, options.boundary, options.end, done=options.done)
                    await duplex.send(post, body)
                    posted, _ = await duplex.receive(Posted)
                    return posted
            except EndOfCall:
                await patience.bear(BrokenError(f"{stream}: its leader ended the call"))
            except MedusaError as error:
                await patience.bear(error)
