"""The API of the first paper's Table 1 for trio programs, over one connection to a peer."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import pyarrow as pa
import trio

from engine.alteration import Alteration
from engine.availability_request import AvailabilityRequest
from engine.definitions import QueryEntry, StreamDefinition, StreamEntry
from engine.messages import (
    AlterStream,
    Created,
    CreateQuery,
    CreateSchema,
    CreateStream,
    CreateXml,
    Done,
    ListObjects,
    LookupObject,
    ObjectDescription,
    Objects,
    QueryStatusSet,
    ReceiveEvents,
    SetQueryStatus,
    Snapshot,
    Status,
    Tuples,
)
from engine.modifying.messages import BoxChange, Modified, ModifyQuery
from engine.moves.messages import MoveRecord, MoveTask
from engine.past import copy_of
from engine.query import Query, QueryStatus
from engine.schema import BEGINNING, END, Schema
from engine.streams.feed import Assembler
from engine.view import View
from engine.views.messages import CreateView, DeleteView
from overlay.errors import NotFoundError, UnavailableError
from tools.corrected_subscription import Change, CorrectedSubscription, Corrections
from tools.dialling import Endpoint, dial_to, given_token
from tools.entries import entry_of
from tools.link import Dial, Link, Patience, call, open_background
from tools.messages import ADMIT, MARKET_STATUS, Admit, Admitted, AskMarket, MarketStatus
from tools.posting import Poster
from tools.subscription import Epoch, Subscription

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

Answer = TypeVar("Answer", bound=msgspec.Struct)

PATIENCE_S: Final = 60.0
"""A peer that restarts, its Spark included, is back by then."""
CALL_S: Final = 15.0
"""A call that looks something up: several tries of a question to the DHT."""
DEFINE_S: Final = 60.0
"""A call that defines or starts something: it may be handed on, and Spark may be starting."""

MOVE_S: Final = 120.0
"""Patience with a move, seconds: the new worker starts a JVM and takes over open windows."""


class AsyncMedusaClient:
    """Any peer takes any call and routes it by the catalog.

    Reconnects by itself. Posts are exactly once: numbered, kept until answered, sent again in
    order. Calls raise what the peer answered, as the same class, or `UnavailableError` when it
    could not be reached within the patience.

    Attributes:
        producer: who numbers the posts of this client.
    """

    def __init__(
        self, link: Link, nursery: trio.Nursery, *, producer: str, patience_s: float
    ) -> None:
        self.producer = producer
        self._link = link
        self._nursery = nursery
        self._patience_s = patience_s
        self._posters: dict[str, Poster] = {}

    async def create_schema(self, schema: Schema) -> None:
        await self._define("create_schema", CreateSchema(schema), Created)

    async def create_stream(self, stream: StreamDefinition) -> None:
        await self._define("create_stream", CreateStream(stream), Created)

    async def alter_stream(self, stream: str, alteration: Alteration) -> None:
        """Define a stream of ours otherwise, while it runs; what `alteration` leaves out stays.

        Returns when it counts, and survives crashes; peers that read the stream hear of it within
        moments.

        Raises:
            NotFoundError: there is no such stream. NotAuthorisedError: it is another's.
            InvalidInputError: it cannot be defined so.
            UnavailableError: its home cannot be reached.
        """
        await self._define("alter_stream", AlterStream(stream, alteration), Done)

    async def create_query(self, query: Query) -> tuple[str, ...]:
        """Define a query network; gives the names it defined. It runs once set RUNNING."""
        return (await self._define("create_query", CreateQuery(query), Created)).names

    async def create_query_xml(
        self, text: str, availability: AvailabilityRequest | None = None
    ) -> tuple[str, ...]:
        """Everything in a document of either dialect: schemas, streams and queries.

        Args:
            availability: overrides the attributes of all its queries.
        """
        request = CreateXml(text, availability)
        return (await self._define("create_query_xml", request, Created)).names

    async def set_query_status(self, query: str, status: QueryStatus) -> str:
        """Gives why a query that is to run computes nothing yet, and the mend, or nothing."""
        request = SetQueryStatus(query, status)
        return (await self._define("set_query_status", request, QueryStatusSet)).trouble

    async def start_query(self, query: str) -> str:
        """Let it run; gives why it computes nothing yet, Spark not starting say, or nothing."""
        return await self.set_query_status(query, QueryStatus.RUNNING)

    async def stop_query(self, query: str) -> None:
        await self.set_query_status(query, QueryStatus.STOPPED)

    async def delete_query(self, query: str) -> None:
        await self.set_query_status(query, QueryStatus.DELETED)

    async def copy_query(
        self, query: str, new: str, after: int = BEGINNING, until: int = END
    ) -> tuple[str, ...]:
        """Run a copy of a query over its inputs' history, beside the original; gives the names that
        were defined: the copy's, and those of its streams.

        Args:
            new: the copy's name; its streams are called after it.
            after, until: boundaries, microseconds: what it reads lies between them. With END it
                goes on with its inputs.

        Raises:
            NotRetainedError: the history of an input does not reach back so far.
        """
        entry = entry_of(await self.lookup_object(query), "query", QueryEntry)
        copy = copy_of(entry, new, after, until)
        names = await self.create_query(copy)
        await self.start_query(new)
        return names

    async def create_view(self, view: View) -> View:
        """Give a part of a stream's history a name of its own, under which it can be subscribed to
        and read by queries; gives it with its interval.

        Raises:
            NotRetainedError: some of it is not kept any more.
        """
        return await self._define("create_view", CreateView(view), View)

    async def delete_view(self, name: str) -> None:
        await self._define("delete_view", DeleteView(name), Done)

    async def modify_query(
        self,
        query: str,
        changes: Sequence[BoxChange],
        at: int | None = None,
        *,
        alone: bool = False,
    ) -> Modified:
        """Let a query go on with other parameters, exactly from one boundary on.

        Args:
            changes: of its boxes; what is not named stays.
            at: tuples with stime > at are made by the new ones, microseconds; None: from the
                earliest boundary on that is safe.
            alone: a peer that had a part in the query, and cannot be told, is gone for good: else
                it may go on with the query as it is, on the other side of a split.

        Raises:
            InvalidInputError: no such box or parameter, or a value or boundary that cannot be.
            UnavailableError: somebody who must know of it cannot be reached.
        """
        wish = ModifyQuery(query, tuple(changes), at, alone)
        return await self._define("modify_query", wish, Modified)

    async def move_task(self, stream: str, to: str = "") -> MoveRecord:
        """Let another peer of our participant compute a stream that a query of this peer makes, or
        this peer again; the load market, where it is on, may move it on.

        Args:
            to: the peer's id (hex); "": the peer asked.
        """
        connection = await self._link.connection()
        request = MoveTask(stream, to)
        return await connection.call("move_task", request, MoveRecord, timeout_s=MOVE_S)

    async def receive_events(
        self, stream: str, after: int = BEGINNING, timeout_s: float = 0.0
    ) -> Epoch | None:
        """Pull what follows a boundary: whole tuples up to a later boundary, or None if none comes.

        Args:
            after: the boundary reached so far, microseconds; the epoch's `upto` is the next one.
            timeout_s: how long to wait for tuples, seconds.
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

    async def lookup_object(self, name: str) -> ObjectDescription:
        """
        Raises:
            NotFoundError: nothing has that name.
        """
        return await self._ask("lookup_object", LookupObject(name), ObjectDescription)

    async def list_objects(self) -> Objects:
        """The objects of every participant that answers."""
        return await self._ask("list_objects", ListObjects(), Objects)

    async def status(self, *, federation: bool = True) -> Snapshot:
        """What the monitor draws. federation: of every peer, not of the one asked alone."""
        return await self._ask("status", Status(federation), Snapshot)

    async def market_status(self) -> MarketStatus | None:
        """The peer's market, for its own participant alone; None where it has none."""
        try:
            return await self._ask(MARKET_STATUS, AskMarket(), MarketStatus)
        except NotFoundError:
            return None

    async def admit(self, statements: tuple[bytes, ...]) -> tuple[str, ...]:
        """Hand membership statements to the daemon; gives what was new in them."""
        return (await self._ask(ADMIT, Admit(statements), Admitted)).news

    async def stream_entry(self, name: str) -> StreamEntry:
        """A stream's definition and schema now; an output that was deleted may come again with
        another schema. A peer that knows nobody yet who could tell is asked again for a while.

        Raises:
            NotFoundError: there is no such stream.
        """
        patience = Patience(self._patience_s)
        while True:
            try:
                return entry_of(await self.lookup_object(name), "stream", StreamEntry)
            except UnavailableError as error:
                await patience.bear(error)

    async def post_event(
        self,
        stream: str,
        table: pa.Table | None,
        *,
        boundary: int | None = None,
        end: bool = False,
    ) -> None:
        """Post tuples; pipelined: `flush` waits until they are stored.

        Args:
            table: columns by the names of the schema's fields; None for a promise alone.
            boundary: no later tuple has stime <= boundary (microseconds).
            end: no tuple follows at all.

        Raises:
            InvalidInputError: naming the row and the field that do not fit the schema.
            MedusaError: this post or an earlier one to this stream has failed for good.
        """
        poster = await self.poster(stream)
        await poster.post(table, boundary=boundary, end=end)

    async def post_revisions(
        self, stream: str, table: pa.Table, *, boundary: int | None = None, end: bool = False
    ) -> list[int]:
        """Delete or replace tuples posted earlier: of each key the newest. Returns when it is
        stored.

        Args:
            table: `revision_kind`, DELETION or REPLACEMENT; the fields of the schema's key; and for
                replacements the other fields.
            boundary, end: as of `post_event`.

        Returns:
            the numbers of the rows, from 0, that found no tuple with their key: there was none, or
            it is behind the stream's history. They changed nothing.

        Raises:
            InvalidInputError: naming the row and the field that do not fit; or the schema declares
                no key.
            MedusaError: posting to this stream has failed for good.
        """
        poster = await self.poster(stream)
        return await poster.revise(table, boundary=boundary, end=end)

    async def flush(self) -> None:
        """Wait until everything posted is stored where it survives a crash.

        Raises:
            MedusaError: a post has failed for good.
        """
        for poster in tuple(self._posters.values()):
            await poster.flush()

    async def finish(self) -> None:
        """`flush`, of those streams whose posting has not failed to our caller's knowledge."""
        for poster in tuple(self._posters.values()):
            if not poster.failure_told:
                await poster.flush()

    async def poster(self, stream: str) -> Poster:
        """What posts to that stream: for its counts, and to flush it alone."""
        if stream in self._posters:
            return self._posters[stream]
        entry = await self.stream_entry(stream)
        if stream not in self._posters:  # by another task, meanwhile
            poster = Poster(self._link, stream, entry.schema, self.producer, self._patience_s)
            self._posters[stream] = poster
            self._nursery.start_soon(poster.run)
        return self._posters[stream]

    def subscribe(self, stream: str, after: int = BEGINNING, subscriber: str = "") -> Subscription:
        """The epochs of a stream whose tuples have stime > after, until it ends.

        Iterate over it; errors (no such stream, not for us, no longer kept) come from the
        iteration. It lasts until it is closed (`async with`, or `close`) or this client is.

        Args:
            after: a boundary, microseconds.
            subscriber: a name under which the stream keeps what we have not acknowledged while we
                are away; an epoch is acknowledged when the next one is asked for.
        """
        subscription = Subscription(
            self._link,
            stream,
            self._arrow_schema,
            after=after,
            subscriber=subscriber,
            patience_s=self._patience_s,
        )
        self._nursery.start_soon(subscription.run)
        return subscription

    def follow(
        self,
        stream: str,
        corrections: Corrections,
        after: int = BEGINNING,
        subscriber: str = "",
    ) -> CorrectedSubscription:
        """As `subscribe`, and within the bound of the stream's query also where some of its input
        is missing: tentative tuples, which are corrected later. And what is revised of stable ones.

        Args:
            corrections: by an UNDO and all stable tuples, or by the difference alone.
        """
        subscription = CorrectedSubscription(
            self._link,
            stream,
            self._arrow_schema,
            after=after,
            subscriber=subscriber,
            patience_s=self._patience_s,
            corrections=corrections,
            entry_of=self.stream_entry,
        )
        self._nursery.start_soon(subscription.run)
        return subscription

    async def _arrow_schema(self, stream: str) -> pa.Schema:
        return arrow_schema(await self.stream_entry(stream))

    async def _ask(self, method: str, request: msgspec.Struct, response: type[Answer]) -> Answer:
        return await call(
            self._link, method, request, response, timeout_s=CALL_S, patience_s=self._patience_s
        )

    async def _define(self, method: str, request: msgspec.Struct, response: type[Answer]) -> Answer:
        # Defining the same thing twice is no error, so these calls may be made again as well.
        return await call(
            self._link, method, request, response, timeout_s=DEFINE_S, patience_s=self._patience_s
        )


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
    """A client of the peer in `home` ($MEDUSA_HOME, ~/.medusa), or of the peer at `endpoint`.

    Leaving the block without an error waits until everything posted is stored.

    Args:
        also: homes or endpoints of other peers of the participant, asked in this order while the
            first does not answer: posts without an answer are sent again there.
        token: a client token that `medusa-peer token add` printed; with an address in it no home
            is needed. By default $MEDUSA_TOKEN, else the owner's, which the home has.
        producer: who numbers the posts. A client that posts the same things in the same pieces
            again under the same name, after a crash, posts only what is missing. Random by default.
        patience_s: how long a broken connection or a busy peer is borne, seconds.

    Raises:
        UnavailableError: the peer does not run.
        MedusaError: it does not let us in.
    """
    dial = dial_to(home, endpoint, also, given_token(token))
    async with open_client_over(dial, producer=producer, patience_s=patience_s) as client:
        yield client
        await client.finish()


@asynccontextmanager
async def open_client_over(
    dial: Dial, *, producer: str | None = None, patience_s: float = PATIENCE_S
) -> AsyncIterator[AsyncMedusaClient]:
    """A client over whatever connections `dial` makes."""
    async with open_background() as nursery:
        link = Link(dial)
        nursery.start_soon(link.run)
        await link.connection()  # a peer that is not there is said at once
        yield AsyncMedusaClient(
            link, nursery, producer=producer or secrets.token_hex(8), patience_s=patience_s
        )


def arrow_schema(entry: StreamEntry) -> pa.Schema:
    """What a subscriber of the stream gets: source streams have their arrival numbers as well."""
    return entry.schema.derived if entry.stream.query else entry.schema.source
