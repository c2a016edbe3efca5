"""The client's calls about schemas, streams and views, the catalog's names, and the peer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from medusa.engine.api.messages import (
    AlterStream,
    Created,
    CreateSchema,
    CreateStream,
    DeleteSchema,
    DeleteStream,
    ListObjects,
    Objects,
    Reopened,
    ReopenStream,
)
from medusa.engine.objects.alteration import Alteration
from medusa.engine.objects.definitions import StreamDefinition, StreamEntry
from medusa.engine.objects.schema import END, Schema
from medusa.engine.objects.view import View
from medusa.engine.replication.records.status import Snapshot, Status
from medusa.engine.replication.views.messages import CreateView, DeleteView, ViewCreated
from medusa.engine.streams.messages import Done, Subscribe, Tuples
from medusa.overlay.errors import NotFoundError, UnavailableError
from medusa.overlay.rpc import EndOfCall
from medusa.tools.client.dialling import Endpoint, dial_to, given_token
from medusa.tools.client.entries import entry_of
from medusa.tools.client.link import Patience, open_background, open_link
from medusa.tools.client.portal import in_trio
from medusa.tools.client.query_calls import QueryCalls
from medusa.tools.home.messages import (
    ADMIT,
    MARKET_STATUS,
    Admit,
    Admitted,
    AskMarket,
    MarketStatus,
)


class ClientCalls(QueryCalls):
    """The client's calls about schemas, streams and views, the catalog's names, and the peer.

    Most commands need only these calls. This module imports no Arrow, so that they start quickly;
    the calls that carry tuples are `AsyncMedusaClient`'s.
    """

    @in_trio
    async def create_schema(self, schema: Schema) -> None:
        """Define a schema.

        Args:
            schema: its name is of our participant: `medusa://mit.edu/alert`.

        Raises:
            InvalidInputError: it is not valid; the message names the field.
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
            stream: its spans are microseconds. Without `readers` it is for its owner alone.

        Raises:
            InvalidInputError: a name, a span or a list of participants is not valid.
            NotFoundError: there is no such schema.
            ConflictError: there is another stream of that name.

        Example:
            >>> alerts = StreamDefinition(
            ...     "medusa://mit.edu/alerts", "medusa://mit.edu/alert", readers=("utah.edu",)
            ... )
            >>> await medusa.create_stream(alerts)
            >>> medusa.readers
            {'medusa://mit.edu/alerts': 'mit.edu, utah.edu'}
        """
        await self._define("create_stream", CreateStream(stream), Created)

    @in_trio
    async def alter_stream(self, stream: str, alteration: Alteration) -> None:
        """Change the definition of a stream of ours while it runs; values that `alteration` leaves
        out stay.

        Returns when the change is in force and survives crashes; peers that read the stream learn
        of it within moments.

        Args:
            alteration: its spans are microseconds.

        Raises:
            NotFoundError: there is no such stream.
            NotAuthorisedError: the stream belongs to another participant. InvalidInputError: the
                stream cannot be defined so. UnavailableError: its leader cannot be reached.

        Example:
            >>> shared = Alteration(readers=("utah.edu", "brown.edu"))
            >>> await medusa.alter_stream("medusa://mit.edu/alerts", shared)
        """
        await self._define("alter_stream", AlterStream(stream, alteration), Done)

    @in_trio
    async def delete_stream(self, stream: str) -> None:
        """Delete a source stream of ours, its late tuples and its revisions.

        Args:
            stream: its name.

        Raises:
            NotFoundError: there is no such stream.
            ConflictError: the stream has readers; the message names them.

        Example:
            >>> await medusa.create_stream(
            ...     StreamDefinition("medusa://mit.edu/slip", "medusa://mit.edu/alert")
            ... )
            >>> await medusa.delete_stream("medusa://mit.edu/slip")
        """
        await self._define("delete_stream", DeleteStream(stream), Done)

    @in_trio
    async def reopen_stream(self, stream: str) -> bool:
        """Reopen a source stream of ours that has ended: it goes on after its last tuple.

        Args:
            stream: its name. A stream that has not ended is left unchanged.

        Returns:
            whether it had ended.

        Raises:
            NotFoundError: there is no such stream.
            ConflictError: readers have received its end; the message names them.

        Example:
            >>> await medusa.reopen_stream("medusa://mit.edu/alerts")
            False
        """
        return (await self._define("reopen_stream", ReopenStream(stream), Reopened)).had_ended

    @in_trio
    async def forget_subscriber(self, stream: str, subscriber: str) -> None:
        """Drop a named subscriber of ours that will not come back, so that the stream stops waiting
        for it.

        Args:
            stream, subscriber: the names with which it subscribed.

        Raises:
            NotFoundError: the stream waits for no subscriber of that name.

        Example:
            >>> async with medusa.subscribe("medusa://mit.edu/conns", subscriber="desk") as desk:
            ...     async for epoch in desk:
            ...         break
            >>> await medusa.forget_subscriber("medusa://mit.edu/conns", "desk")
        """
        connection = await self._link.connection()
        request = Subscribe(stream, END, subscriber)
        async with connection.open("subscribe", request) as duplex:
            with suppress(EndOfCall):
                await duplex.receive(Tuples)

    @in_trio
    async def delete_schema(self, schema: str) -> None:
        """Delete a schema of ours.

        Args:
            schema: its name.

        Raises:
            NotFoundError: there is no such schema.
            ConflictError: a stream has it; the message names the stream.

        Example:
            >>> slip = Schema("medusa://mit.edu/slip", (Field("id", FieldType.LONG),))
            >>> await medusa.create_schema(slip)
            >>> await medusa.delete_schema("medusa://mit.edu/slip")
        """
        await self._define("delete_schema", DeleteSchema(schema), Done)

    @in_trio
    async def create_view(self, view: View) -> View:
        """Create a view: a part of a stream's history under its own name, which clients can
        subscribe to and queries can read.

        Returns:
            the view, with its interval, microseconds.

        Raises:
            NotFoundError: there is no such stream.
            NotRetainedError: a part of it is no longer kept.

        Example:
            >>> view = View("medusa://mit.edu/latest", "medusa://mit.edu/conns", Last(10))
            >>> (await medusa.create_view(view)).name
            'medusa://mit.edu/latest'
        """
        return (await self._define("create_view", CreateView(view), ViewCreated)).view

    @in_trio
    async def delete_view(self, name: str) -> None:
        """Delete a view with its tuples, unless its stream keeps them.

        Raises:
            NotFoundError: there is no such view.

        Example:
            >>> await medusa.delete_view("medusa://mit.edu/latest")
        """
        await self._define("delete_view", DeleteView(name), Done)

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
        """The status of peers, as the monitor shows it: peers, streams, tasks and events.

        Args:
            federation: whether to return the status of every peer; else only that of the asked
                peer.

        Raises:
            UnavailableError: our own peer does not answer.

        Example:
            >>> [peer.state for peer in (await medusa.status(federation=False)).peers]
            ['running']
        """
        return await self._ask("status", Status(federation), Snapshot)

    @in_trio
    async def market_status(self) -> MarketStatus | None:
        """The market of our peer, which it shows only to its own participant; None if it has none.

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
        """Pass membership statements to the daemon, as `medusa-peer invite` and `revoke` do.

        Returns:
            the news in them, in words.

        Raises:
            UntrustedError: a statement does not have the required signature.

        Example:
            >>> await medusa.admit(())
            ()
        """
        return (await self._ask(ADMIT, Admit(statements), Admitted)).news

    @in_trio
    async def stream_entry(self, name: str) -> StreamEntry:
        """A stream's present definition and schema; a deleted output may come again with another
        schema. A peer that has met no other peer yet is asked again for a while.

        Raises:
            NotFoundError: there is no such stream.
            InvalidInputError: the name is another kind of object's.

        Example:
            >>> entry = await medusa.stream_entry("medusa://mit.edu/conns")
            >>> entry.schema.name, entry.stream.readers
            ('medusa://mit.edu/conn', ())
        """
        patience = Patience(self._patience_s)
        while True:
            try:
                return entry_of(await self.lookup_object(name, "stream"), "stream", StreamEntry)
            except UnavailableError as error:
                await patience.bear(error)


@asynccontextmanager
async def open_calls(
    home: str | None, *, endpoint: Endpoint | None = None, patience_s: float
) -> AsyncIterator[ClientCalls]:
    """`open_medusa`, under trio, for a command that neither posts nor subscribes: the modules that
    do import Arrow, which would double the command's time.

    Raises:
        UnavailableError: the peer does not run.
        MedusaError: the peer refuses the client.
    """
    dial = dial_to(home, endpoint, token=given_token())
    async with open_background() as nursery:
        link = await open_link(dial, nursery)
        yield ClientCalls(link, patience_s=patience_s, portal=None)
