"""The client's calls of one question and one answer: to define, to run, to look up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa

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
    DeleteSchema,
    DeleteStream,
    Done,
    ListObjects,
    LookupObject,
    ObjectDescription,
    Objects,
    QueryStatusSet,
    ReceiveEvents,
    ReopenStream,
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
from engine.streams.recent import Epoch
from engine.view import View
from engine.views.messages import CreateView, DeleteView
from overlay.errors import NotFoundError, UnavailableError
from tools.entries import entry_of
from tools.link import Link, Patience, call
from tools.messages import ADMIT, MARKET_STATUS, Admit, Admitted, AskMarket, MarketStatus
from tools.portal import Portal, in_trio

Answer = TypeVar("Answer", bound=msgspec.Struct)

CALL_S: Final = 15.0
"""A call that looks something up: several tries of a question to the DHT."""
DEFINE_S: Final = 60.0
"""A call that defines or starts something: it may be handed on, and Spark may be starting."""

MOVE_S: Final = 120.0
"""Patience with a move, seconds: the new worker starts a JVM and takes over open windows."""


class ClientCalls:
    """Any peer takes any call and routes it by the catalog.

    Each may raise, besides what it says:
        InvalidInputError: an argument is of another type, or no name of an object.
        NotAuthorisedError: it is another participant's to say.
        UnavailableError: who must answer could not be reached within the patience.
    """

    def __init__(self, link: Link, *, patience_s: float, portal: Portal[Any] | None) -> None:
        self.portal = portal
        self._link = link
        self._patience_s = patience_s

    @in_trio
    async def create_schema(self, schema: Schema) -> None:
        """Define a schema.

        Args:
            schema: its name is of our participant: `medusa://mit.edu/alert`.

        Raises:
            InvalidInputError: it is none; the message names the field.
            ConflictError: there is another one of that name.

        Example:
            >>> fields = (Field("id", FieldType.LONG), Field("text", FieldType.STRING, size=200))
            >>> await medusa.create_schema(Schema("medusa://mit.edu/alert", fields, key=("id",)))
        """
        await self._define("create_schema", CreateSchema(schema), Created)

    @in_trio
    async def create_stream(self, stream: StreamDefinition) -> None:
        """Define a source stream.

        Args:
            stream: its spans are microseconds.

        Raises:
            InvalidInputError: a name, a span or a list of participants is none.
            NotFoundError: there is no such schema.
            ConflictError: there is another stream of that name.

        Example:
            >>> alerts = StreamDefinition(
            ...     "medusa://mit.edu/alerts", "medusa://mit.edu/alert", readers=("utah.edu",)
            ... )
            >>> await medusa.create_stream(alerts)
        """
        await self._define("create_stream", CreateStream(stream), Created)

    @in_trio
    async def alter_stream(self, stream: str, alteration: Alteration) -> None:
        """Define a stream of ours otherwise, while it runs; what `alteration` leaves out stays.

        Returns when it counts, and survives crashes; peers that read the stream hear of it within
        moments.

        Args:
            alteration: its spans are microseconds.

        Raises:
            NotFoundError: there is no such stream.
            NotAuthorisedError: it is another's.
            InvalidInputError: it cannot be defined so.
            UnavailableError: its home cannot be reached.

        Example:
            >>> shared = Alteration(readers=("utah.edu", "brown.edu"))
            >>> await medusa.alter_stream("medusa://mit.edu/alerts", shared)
        """
        await self._define("alter_stream", AlterStream(stream, alteration), Done)

    @in_trio
    async def delete_stream(self, stream: str) -> None:
        """Leave nothing of a source stream of ours, its late tuples and its revisions included.

        Args:
            stream: its name.

        Raises:
            NotFoundError: there is no such stream.
            ConflictError: it is read; the message says by whom.

        Example:
            >>> await medusa.create_stream(
            ...     StreamDefinition("medusa://mit.edu/slip", "medusa://mit.edu/alert")
            ... )
            >>> await medusa.delete_stream("medusa://mit.edu/slip")
        """
        await self._define("delete_stream", DeleteStream(stream), Done)

    @in_trio
    async def reopen_stream(self, stream: str) -> None:
        """Let a source stream of ours that has ended go on, behind all that it has.

        Args:
            stream: its name. One that has not ended is left as it is.

        Raises:
            NotFoundError: there is no such stream.
            ConflictError: its end was told to somebody; the message says to whom.

        Example:
            >>> await medusa.reopen_stream("medusa://mit.edu/alerts")
        """
        await self._define("reopen_stream", ReopenStream(stream), Done)

    @in_trio
    async def delete_schema(self, schema: str) -> None:
        """Leave nothing of a schema of ours.

        Args:
            schema: its name.

        Raises:
            NotFoundError: there is none.
            ConflictError: a stream has it; the message says which.

        Example:
            >>> slip = Schema("medusa://mit.edu/slip", (Field("id", FieldType.LONG),))
            >>> await medusa.create_schema(slip)
            >>> await medusa.delete_schema("medusa://mit.edu/slip")
        """
        await self._define("delete_schema", DeleteSchema(schema), Done)

    @in_trio
    async def create_query(self, query: Query) -> tuple[str, ...]:
        """Define a query network, which runs once it is started.

        Returns:
            the names it defined: its own, and those of the streams that it makes.

        Raises:
            InvalidInputError: it does not type-check; the message names the box.
            NotFoundError: an input does not exist.
            ConflictError: there is another object of one of its names.

        Example:
            >>> read, made = "medusa://mit.edu/conns", "medusa://mit.edu/web"
            >>> web = Filter("web", read, (made,), ("dst_port = 80",))
            >>> await medusa.create_query(Query("medusa://mit.edu/web_only", (web,)))
            ('medusa://mit.edu/web_only', 'medusa://mit.edu/web')
        """
        return (await self._define("create_query", CreateQuery(query), Created)).names

    @in_trio
    async def create_query_xml(
        self, text: str, availability: AvailabilityRequest | None = None
    ) -> tuple[str, ...]:
        """Define everything in a document of either dialect: schemas, streams and queries.

        Args:
            text: XML, at most 1 MiB of it.
            availability: overrides the attributes of all its queries.

        Returns:
            the names it defined.

        Raises:
            InvalidInputError: with the line of what is wrong.
            NotFoundError: an input, or the schema of a stream, does not exist.
            ConflictError: there is another object of one of its names.

        Example:
            >>> document = '''<medusa>
            ...     <stream name="medusa://mit.edu/more" schema="medusa://mit.edu/conn"/>
            ... </medusa>'''
            >>> await medusa.create_query_xml(document)
            ('medusa://mit.edu/more',)
        """
        request = CreateXml(text, availability)
        return (await self._define("create_query_xml", request, Created)).names

    @in_trio
    async def set_query_status(self, query: str, status: QueryStatus) -> str:
        """Start, stop or delete a query: RUNNING, STOPPED or DELETED.

        Returns:
            why a query that is to run computes nothing yet, and the mend; or nothing.

        Raises:
            NotFoundError: there is no such query.
            ConflictError: somebody reads what would be deleted.

        Example:
            >>> await medusa.set_query_status("medusa://mit.edu/web_only", QueryStatus.RUNNING)
            ''
        """
        request = SetQueryStatus(query, status)
        return (await self._define("set_query_status", request, QueryStatusSet)).trouble

    @in_trio
    async def start_query(self, query: str) -> str:
        """Start a query, or let it go on from where it stood.

        Returns:
            why it computes nothing yet, Spark not starting say, and the mend; or nothing.

        Raises:
            NotFoundError: there is no such query.

        Example:
            >>> await medusa.start_query("medusa://mit.edu/busy_sources")
            ''
        """
        return await self.set_query_status(query, QueryStatus.RUNNING)

    @in_trio
    async def stop_query(self, query: str) -> None:
        """Stop a query; it goes on from where it stood when it is started again.

        Raises:
            NotFoundError: there is no such query.

        Example:
            >>> await medusa.stop_query("medusa://mit.edu/web_only")
        """
        await self.set_query_status(query, QueryStatus.STOPPED)

    @in_trio
    async def copy_query(
        self, query: str, new: str, after: int = BEGINNING, until: int = END
    ) -> tuple[str, ...]:
        """Run a copy of a query over its inputs' history, beside the original.

        Args:
            new: the copy's name; its streams are called after it.
            after, until: boundaries, microseconds: what it reads lies between them. With END it
                goes on with its inputs.

        Returns:
            the names that were defined: the copy's, and those of its streams.

        Raises:
            NotFoundError: there is no such query.
            NotRetainedError: the history of an input does not reach back so far.

        Example:
            >>> query, copy = "medusa://mit.edu/busy_sources", "medusa://mit.edu/again"
            >>> (await medusa.copy_query(query, copy))[0]
            'medusa://mit.edu/again'
        """
        entry = entry_of(await self.lookup_object(query), "query", QueryEntry)
        copy = copy_of(entry, new, after, until)
        names = await self.create_query(copy)
        await self.start_query(new)
        return names

    @in_trio
    async def delete_query(self, query: str) -> None:
        """Delete a query and the streams that it makes.

        Raises:
            NotFoundError: there is no such query.
            ConflictError: somebody reads them.

        Example:
            >>> await medusa.delete_query("medusa://mit.edu/again")
        """
        await self.set_query_status(query, QueryStatus.DELETED)

    @in_trio
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

        Returns:
            the boundary from which on it is so, microseconds.

        Raises:
            InvalidInputError: no such box or parameter, or a value or boundary that cannot be.
            NotFoundError: there is no such query.
            UnavailableError: somebody who must know of it cannot be reached.

        Example:
            >>> busier = BoxChange("busy", (("expression.0", "conns > 2"),))
            >>> (await medusa.modify_query("medusa://mit.edu/busy_sources", [busier])).query
            'medusa://mit.edu/busy_sources'
        """
        wish = ModifyQuery(query, tuple(changes), at, alone)
        return await self._define("modify_query", wish, Modified)

    @in_trio
    async def create_view(self, view: View) -> View:
        """Give a part of a stream's history a name of its own, under which it can be subscribed to
        and read by queries.

        Returns:
            the view, with the interval that it has, microseconds.

        Raises:
            NotFoundError: there is no such stream.
            NotRetainedError: some of it is not kept any more.

        Example:
            >>> view = View("medusa://mit.edu/latest", "medusa://mit.edu/conns", Last(10))
            >>> (await medusa.create_view(view)).name
            'medusa://mit.edu/latest'
        """
        return await self._define("create_view", CreateView(view), View)

    @in_trio
    async def delete_view(self, name: str) -> None:
        """Delete a view; what it kept is gone unless its stream keeps it.

        Raises:
            NotFoundError: there is no such view.

        Example:
            >>> await medusa.delete_view("medusa://mit.edu/latest")
        """
        await self._define("delete_view", DeleteView(name), Done)

    @in_trio
    async def move_task(self, stream: str, to: str = "") -> MoveRecord:
        """Let another peer of our participant compute a stream that a query of this peer makes, or
        this peer again; the load market, where it is on, may move it on.

        Args:
            to: the peer's id (hex); "": the peer asked.

        Raises:
            NotFoundError: no query of this peer makes such a stream, or there is no such peer.
            DeadlineError: it did not come about within two minutes.

        Example:
            >>> seen = await medusa.status()
            >>> other = next(peer.peer for peer in seen.peers if peer.peer != seen.by)
            >>> (await medusa.move_task("medusa://mit.edu/busy", other)).target == other
            True
        """
        connection = await self._link.connection()
        request = MoveTask(stream, to)
        return await connection.call("move_task", request, MoveRecord, timeout_s=MOVE_S)

    @in_trio
    async def lookup_object(self, name: str) -> ObjectDescription:
        """What the catalog has under a name.

        Raises:
            NotFoundError: nothing has that name.

        Example:
            >>> "stream" in (await medusa.lookup_object("medusa://mit.edu/conns")).entries
            True
        """
        return await self._ask("lookup_object", LookupObject(name), ObjectDescription)

    @in_trio
    async def list_objects(self) -> Objects:
        """The names of the objects of every participant that answers, by kind.

        Raises:
            UnavailableError: our own peer does not answer.

        Example:
            >>> "medusa://mit.edu/conns" in (await medusa.list_objects()).names["stream"]
            True
        """
        return await self._ask("list_objects", ListObjects(), Objects)

    @in_trio
    async def status(self, *, federation: bool = True) -> Snapshot:
        """What the monitor draws: peers, streams, tasks and events.

        Args:
            federation: of every peer, not of the one asked alone.

        Raises:
            UnavailableError: our own peer does not answer.

        Example:
            >>> [peer.state for peer in (await medusa.status(federation=False)).peers]
            ['running']
        """
        return await self._ask("status", Status(federation), Snapshot)

    @in_trio
    async def market_status(self) -> MarketStatus | None:
        """The market of our peer, which it tells its own participant alone; None where it has none.

        Raises:
            UnavailableError: our peer does not answer.

        Example:
            >>> market = await medusa.market_status()
        """
        try:
            return await self._ask(MARKET_STATUS, AskMarket(), MarketStatus)
        except NotFoundError:
            return None

    @in_trio
    async def admit(self, statements: tuple[bytes, ...]) -> tuple[str, ...]:
        """Hand membership statements to the daemon: what `medusa-peer invite` and `revoke` do.

        Returns:
            what was new in them, in words.

        Raises:
            UntrustedError: one of them is not signed by whom it must be.

        Example:
            >>> await medusa.admit(())
            ()
        """
        return (await self._ask(ADMIT, Admit(statements), Admitted)).news

    @in_trio
    async def stream_entry(self, name: str) -> StreamEntry:
        """A stream's definition and schema now; an output that was deleted may come again with
        another schema. A peer that knows nobody yet who could tell is asked again for a while.

        Raises:
            NotFoundError: there is no such stream.
            InvalidInputError: it is something else.

        Example:
            >>> entry = await medusa.stream_entry("medusa://mit.edu/conns")
            >>> entry.schema.name, entry.stream.readers
            ('medusa://mit.edu/conn', ('*',))
        """
        patience = Patience(self._patience_s)
        while True:
            try:
                return entry_of(await self.lookup_object(name), "stream", StreamEntry)
            except UnavailableError as error:
                await patience.bear(error)

    @in_trio
    async def receive_events(
        self, stream: str, after: int = BEGINNING, timeout_s: float = 0.0
    ) -> Epoch | None:
        """Pull what follows a boundary: whole tuples up to a later boundary, or None if none comes.

        Args:
            after: the boundary reached so far, microseconds; the epoch's `upto` is the next one.
            timeout_s: how long to wait for tuples, seconds.

        Raises:
            NotFoundError: there is no such stream.
            NotRetainedError: what follows the boundary is not kept any more.

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

    async def _ask(self, method: str, request: msgspec.Struct, response: type[Answer]) -> Answer:
        return await call(
            self._link, method, request, response, timeout_s=CALL_S, patience_s=self._patience_s
        )

    async def _define(self, method: str, request: msgspec.Struct, response: type[Answer]) -> Answer:
        # Defining the same thing twice is no error, so these calls may be made again as well.
        return await call(
            self._link, method, request, response, timeout_s=DEFINE_S, patience_s=self._patience_s
        )


def arrow_schema(entry: StreamEntry) -> pa.Schema:
    """What a subscriber of the stream gets: source streams have their arrival numbers as well."""
    return entry.schema.derived if entry.stream.query else entry.schema.source
