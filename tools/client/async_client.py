"""The client for programs with an event loop, of trio or asyncio: the API of the first paper's
Table 1 over one connection to a peer."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import trio

from medusa.engine.objects.definitions import StreamEntry
from medusa.engine.objects.schema import BEGINNING
from medusa.engine.streams.messages import ReceiveEvents, Tuples
from medusa.engine.streams.reading.assembling import Assembler
from medusa.engine.streams.revisions.columns import request_schema
from medusa.tools.client.arguments import checked
from medusa.tools.client.asking import CALL_S
from medusa.tools.client.calls import ClientCalls
from medusa.tools.client.corrected_subscription import Change, CorrectedSubscription, Corrections
from medusa.tools.client.dialling import Endpoint, dial_to, given_token
from medusa.tools.client.link import Dial, Link, open_background, open_link
from medusa.tools.client.portal import Portal, in_trio
from medusa.tools.client.posting import Poster
from medusa.tools.client.subscription import Epoch, Source, Subscription
from medusa.tools.rows.given_rows import Rows, to_table

__all__ = [
    "AsyncMedusaClient",
    "Change",
    "CorrectedSubscription",
    "Corrections",
    "Endpoint",
    "Epoch",
    "Subscription",
    "dial_to",
    "given_token",
    "open_medusa",
]

PATIENCE_S: Final = 60.0
"""Seconds for which a client tries to reach its peer by default: a restarting peer, its Spark
included, is back by then."""

OpenOver = Callable[..., AbstractAsyncContextManager["AsyncMedusaClient"]]
"""`open_client_over`, of one peer."""


class AsyncMedusaClient(ClientCalls):
    """A client of one peer, made by `open_medusa`; any peer takes any call.

    It reconnects by itself. Posts are exactly once: numbered, kept until answered, sent again in
    order. Calls raise the peer's error, as the same class, or `UnavailableError` if the peer could
    not be reached within the patience. All times are microseconds UTC of the stream's own time
    (`stime`), all waits seconds.

    Attributes:
        producer: the producer that numbers the posts of this client.
        portal: leads to trio's event loop, if the program runs on another one.
    """

    def __init__(
        self,
        link: Link,
        nursery: trio.Nursery,
        *,
        producer: str,
        patience_s: float,
        portal: Portal[Any] | None = None,
    ) -> None:
        super().__init__(link, patience_s=patience_s, portal=portal)
        self.producer = producer
        self._nursery = nursery
        self._posters: dict[str, Poster] = {}
        self._source = Source(link, self._arrow_schema, self.stream_entry, patience_s, portal)

    @in_trio
    async def post_event(
        self,
        stream: str,
        rows: Rows | None,
        *,
        boundary: int | None = None,
        end: bool = False,
    ) -> None:
        """Post tuples; pipelined: `flush` waits until they are stored.

        Args:
            rows: columns by the names of the schema's fields: a table of pyarrow, pandas or polars,
                a list of dictionaries, a dictionary of columns; None to promise a boundary without
                tuples.
            boundary: no later tuple has stime <= boundary (microseconds).
            end: no tuple follows at all.

        Raises:
            NotFoundError: there is no such stream.
            InvalidInputError: rows do not fit the schema; names the row (from 1) and the field.
            MedusaError: this post or an earlier one to this stream has failed for good.

        Example:
            >>> rows = [{"ts": 1521905406.5, "src_ip": "10.0.0.1", "dst_port": 80}]
            >>> await medusa.post_event("medusa://mit.edu/conns", rows)
        """
        poster = await self.poster(stream)
        table = None if rows is None else to_table(rows, poster.schema)
        await poster.post(table, boundary=boundary, end=end)

    @in_trio
    async def post_revisions(
        self, stream: str, rows: Rows, *, boundary: int | None = None, end: bool = False
    ) -> list[int]:
        """Delete or replace earlier tuples: the newest one of each key. Returns when the revisions
        are stored.

        Args:
            rows: `revision_kind`, DELETION or REPLACEMENT; the fields of the schema's key; and for
                replacements the other fields.
            boundary, end: as of `post_event`; the boundary is microseconds.

        Returns:
            the numbers of the rows, from 0, that found no tuple with their key: there was none, or
                it is behind the stream's history. They changed nothing.

        Raises:
            NotFoundError: there is no such stream.
            InvalidInputError: rows do not fit the schema (names the row and the field), or the
                schema declares no key.
            MedusaError: posting to this stream has failed for good.

        Example:
            >>> alerts = {"id": [1, 2], "text": ["a scan", "a mistake"]}
            >>> await medusa.post_event("medusa://mit.edu/alerts", alerts)
            >>> gone = {"revision_kind": ["DELETION", "DELETION"], "id": [2, 3]}
            >>> await medusa.post_revisions("medusa://mit.edu/alerts", gone)
            [1]
        """
        poster = await self.poster(stream)
        table = to_table(rows, request_schema(poster.schema))
        return await poster.revise(table, boundary=boundary, end=end)

    @in_trio
    async def flush(self) -> None:
        """Wait until all posts are stored and survive a crash.

        Raises:
            MedusaError: a post has failed for good.

        Example:
            >>> await medusa.flush()
        """
        for poster in tuple(self._posters.values()):
            await poster.flush()

    @in_trio
    async def finish(self) -> None:
        """`flush`, without the streams whose failure the caller already knows; then say that no
        posts follow for now, so that the boundaries of these streams do not wait for this client.

        Raises:
            MedusaError: a post has failed for good.

        Example:
            >>> await medusa.finish()
        """
        for poster in tuple(self._posters.values()):
            if not poster.failure_told:
                await poster.flush()
                await poster.leave()

    async def poster(self, stream: str) -> Poster:
        """The poster of that stream: for its counts, and to flush it alone. Under trio."""
        if stream in self._posters:
            return self._posters[stream]
        entry = await self.stream_entry(stream)
        if stream not in self._posters:  # another task may have created it meanwhile
            poster = Poster(self._link, stream, entry.schema, self.producer, self._patience_s)
            self._posters[stream] = poster
            self._nursery.start_soon(poster.run)
        return self._posters[stream]

    @in_trio
    async def receive_events(
        self, stream: str, after: int = BEGINNING, timeout_s: float = 0.0
    ) -> Epoch | None:
        """Pull the tuples after a boundary: whole tuples up to a later boundary, or None if none
        come.

        Args:
            after: the boundary reached so far, microseconds; the epoch's `upto` is the next one.
            timeout_s: how long to wait for tuples, seconds.

        Raises:
            NotFoundError: there is no such stream.
            NotRetainedError: the tuples after the boundary are no longer kept.

        Example:
            >>> epoch = await medusa.receive_events("medusa://mit.edu/conns", timeout_s=10)
            >>> epoch.table.column_names
            ['stime', 'seq', 'ts', 'src_ip', 'dst_port']
        """
        schema = await self._arrow_schema(stream)
        connection = await self._link.connection()
        message, body = await connection.call_with_body(
            "receive_events",
            ReceiveEvents(stream, after, timeout_s),
            Tuples,
            timeout_s=timeout_s + CALL_S,
        )
        return None if message.upto is None else Assembler(schema, after).add(message, body)

    async def _arrow_schema(self, stream: str) -> pa.Schema:
        return arrow_schema(await self.stream_entry(stream))

    @checked
    def subscribe(self, stream: str, after: int = BEGINNING, subscriber: str = "") -> Subscription:
        """Subscribe to the epochs of a stream whose tuples have stime > after, until it ends.

        Iterate over the subscription; errors (no such stream, no right to read it, no longer kept)
        are raised by the iteration. It lasts until it is closed (`async with`, or `close`) or this
        client is.

        Args:
            after: a boundary, microseconds.
            subscriber: a name under which the stream keeps unacknowledged tuples while this client
                is away. An epoch is acknowledged when the next one is asked for.

        Raises:
            InvalidInputError: an argument is of another type.
            ClosedError: this client was closed.

        Example:
            >>> async with medusa.subscribe("medusa://mit.edu/conns") as subscription:
            ...     async for epoch in subscription:
            ...         print(epoch.table.column_names)
            ...         break
            ['stime', 'seq', 'ts', 'src_ip', 'dst_port']
        """
        subscription = Subscription(self._source, stream, after=after, subscriber=subscriber)
        self._start(subscription)
        return subscription

    @checked
    def follow(
        self,
        stream: str,
        corrections: Corrections,
        after: int = BEGINNING,
        subscriber: str = "",
    ) -> CorrectedSubscription:
        """Subscribe to the changes of a stream:

        * stable tuples;
        * while an input is missing, tentative tuples within the bound of the query, and later their
          correction;
        * revisions of stable tuples.

        Args:
            corrections: by an UNDO and all stable tuples, or by the difference alone.
            after: a boundary, microseconds.
            subscriber: as of `subscribe`.

        Raises:
            InvalidInputError: an argument is of another type.
            ClosedError: this client was closed.

        Example:
            >>> async with medusa.follow("medusa://mit.edu/conns", Corrections.UNDO) as changes:
            ...     async for change in changes:
            ...         print(change.kind)
            ...         break
            INSERTION
        """
        subscription = CorrectedSubscription(
            self._source, stream, corrections, after=after, subscriber=subscriber
        )
        self._start(subscription)
        return subscription

    def _start(self, subscription: Subscription | CorrectedSubscription) -> None:
        if self.portal is None or self.portal.is_here:
            self._nursery.start_soon(subscription.run)
        else:
            self.portal.soon(self._nursery.start_soon, subscription.run)


def arrow_schema(entry: StreamEntry) -> pa.Schema:
    """The Arrow schema of a subscription to the stream: source streams have arrival numbers as
    well."""
    return entry.schema.derived if entry.stream.query else entry.schema.source


@checked
@asynccontextmanager
async def open_medusa(
    home: Path | str | None = None,
    *,
    endpoint: Endpoint | None = None,
    also: Sequence[Path | str | Endpoint] = (),
    token: str | None = None,
    producer: str | None = None,
    patience_s: float = PATIENCE_S,
) -> AsyncIterator[AsyncMedusaClient]:
    """Open a client of the peer in `home` ($MEDUSA_HOME, ~/.medusa), or of the peer at `endpoint`,
    for a program on trio or on asyncio.

    Leaving the block without an error waits until all posts are stored.

    Args:
        also: homes or endpoints of other peers of the participant, tried in this order while the
            first does not answer; unanswered posts are sent again there.
        token: a client token that `medusa-peer token add` printed; with an address in it no home is
            needed. By default $MEDUSA_TOKEN, else the owner's, which the home has.
        producer: the name under which the posts are numbered. After a crash, a client that posts
            the same rows in the same pieces under the same name posts only the missing ones. Random
            by default.
        patience_s: how long a broken connection or a busy peer is tolerated, seconds.

    Raises:
        InvalidInputError: an argument is of another type.
        UnavailableError: the peer does not run.
        MedusaError: the peer refuses the client.

    Example:
        >>> async with open_medusa(home, producer="loader") as loader:
        ...     print(loader.producer)
        loader
    """
    dial = dial_to(home, endpoint, also, given_token(token))
    opening = partial(open_client_over, dial, producer=producer, patience_s=patience_s)
    opened = opening() if trio.lowlevel.in_trio_task() else _open_from_asyncio(opening)
    async with opened as client:
        yield client
        await client.finish()


@asynccontextmanager
async def open_client_over(
    dial: Dial,
    *,
    producer: str | None = None,
    patience_s: float = PATIENCE_S,
    portal: Portal[AsyncMedusaClient] | None = None,
) -> AsyncIterator[AsyncMedusaClient]:
    """Open a client over the connections that `dial` makes, under trio. portal: set if its calls
    come from another event loop."""
    async with open_background() as nursery:
        yield AsyncMedusaClient(
            await open_link(dial, nursery),
            nursery,
            producer=producer or secrets.token_hex(8),
            patience_s=patience_s,
            portal=portal,
        )


@asynccontextmanager
async def _open_from_asyncio(opening: OpenOver) -> AsyncIterator[AsyncMedusaClient]:
    import asyncio  # imported here: see `medusa.tools.client.portal`

    portal = Portal(lambda portal: opening(portal=portal))
    try:
        yield await asyncio.wrap_future(portal.opened)
    finally:
        portal.stop()
        await asyncio.shield(asyncio.wrap_future(portal.closed))
        portal.join()  # the portal has nothing more to do
