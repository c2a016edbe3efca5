"""The client's calls about queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from medusa.engine.api.messages import (
    Created,
    CreateDocument,
    CreateQuery,
    QueryStatusSet,
    SetQueryStatus,
)
from medusa.engine.language.history_range import copy_of
from medusa.engine.language.modification import BoxChange, Modified, ModifyQuery
from medusa.engine.objects.availability import AvailabilityRequest
from medusa.engine.objects.definitions import QueryEntry
from medusa.engine.objects.query import Query, QueryStatus
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.replication.moves.messages import MoveRecord, MoveTask
from medusa.tools.client.asking import Asking
from medusa.tools.client.entries import entry_of
from medusa.tools.client.portal import in_trio

MOVE_S: Final = 120.0
"""Seconds for a move: the new worker starts a JVM and takes over open windows."""


class QueryCalls(Asking):
    """The client's calls that define, run, modify, copy, move and delete queries."""

    @in_trio
    async def create_query(self, query: Query) -> tuple[str, ...]:
        """Define a query network; `start_query` runs it.

        Returns:
            the defined names: its own, and those of the streams that it makes.

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
            the defined names.

        Raises:
            InvalidInputError: the document is wrong, or SQL reads what does not exist; names the
                line.
            NotFoundError: an input, or the schema of a stream, of XML does not exist.
            ConflictError: there is another object of one of its names.

        Example:
            >>> document = '''<medusa>
            ...     <stream name="medusa://mit.edu/more" schema="medusa://mit.edu/conn"/>
            ... </medusa>'''
            >>> await medusa.create_query_xml(document)
            ('medusa://mit.edu/more',)
        """
        request = CreateDocument(text, availability)
        return (await self._define("create_document", request, Created)).names

    @in_trio
    async def set_query_status(self, query: str, status: QueryStatus) -> str:
        """Start, stop or delete a query: RUNNING, STOPPED or DELETED.

        Returns:
            why a started query computes nothing yet, and the mend; or "".

        Raises:
            NotFoundError: there is no such query.
            ConflictError: the query to delete has readers.

        Example:
            >>> await medusa.set_query_status("medusa://mit.edu/web_only", QueryStatus.RUNNING)
            ''
        """
        request = SetQueryStatus(query, status)
        return (await self._define("set_query_status", request, QueryStatusSet)).trouble

    @in_trio
    async def start_query(self, query: str) -> str:
        """Start a query, or continue it from its last boundary.

        Returns:
            why it computes nothing yet (for example because Spark does not start), and the mend; or
            "".

        Raises:
            NotFoundError: there is no such query.

        Example:
            >>> await medusa.start_query("medusa://mit.edu/busy_sources")
            ''
        """
        return await self.set_query_status(query, QueryStatus.RUNNING)

    @in_trio
    async def stop_query(self, query: str) -> None:
        """Stop a query; when it is started again, it continues from its last boundary.

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
            after, until: boundaries, microseconds, of the interval that it reads. With END it
                continues with its inputs.

        Returns:
            the defined names: the copy's, and those of its streams.

        Raises:
            NotFoundError: there is no such query.
            NotRetainedError: the history of an input does not reach back so far.

        Example:
            >>> query, copy = "medusa://mit.edu/busy_sources", "medusa://mit.edu/again"
            >>> (await medusa.copy_query(query, copy))[0]
            'medusa://mit.edu/again'
        """
        entry = entry_of(await self.lookup_object(query, "query"), "query", QueryEntry)
        copy = copy_of(entry, new, after, until)
        names = await self.create_query(copy)
        told = self.remarks, self.readers
        await self.start_query(new)
        self.remarks, self.readers = told  # the remarks and readers of the created object
        return names

    @in_trio
    async def delete_query(self, query: str) -> None:
        """Delete a query and the streams that it makes.

        Raises:
            NotFoundError: there is no such query.
            ConflictError: its streams have readers.

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
        """Change parameters of a running query, exactly from one boundary on.

        Args:
            changes: the changes of its boxes; parameters that are not named stay.
            at: tuples with stime > at are made by the new parameters, microseconds; None: from the
                earliest safe boundary on.
            alone: whether peers that have a part in the query and cannot be reached are gone for
                good. Otherwise they might continue the old query, on the other side of a split.

        Returns:
            the boundary from which on the change is in force, microseconds.

        Raises:
            InvalidInputError: no such box or parameter, or an impossible value or boundary.
            NotFoundError: there is no such query.
            UnavailableError: a peer that must get the change cannot be reached.

        Example:
            >>> busier = BoxChange("busy", (("expression.0", "conns > 2"),))
            >>> (await medusa.modify_query("medusa://mit.edu/busy_sources", [busier])).query
            'medusa://mit.edu/busy_sources'
        """
        wish = ModifyQuery(query, tuple(changes), at, alone)
        return await self._define("modify_query", wish, Modified)

    @in_trio
    async def move_task(self, stream: str, to: str = "") -> MoveRecord:
        """Move the task that makes a stream, of a query of this peer, to another peer of our
        participant or back to this peer. The load market, if it is on, may move it again.

        Args:
            to: the peer's id (hex); "": the peer asked.

        Raises:
            NotFoundError: no query of this peer makes such a stream, or there is no such peer.
            DeadlineError: the move was not complete within two minutes.

        Example:
            >>> seen = await medusa.status()
            >>> other = next(peer.peer for peer in seen.peers if peer.peer != seen.by)
            >>> (await medusa.move_task("medusa://mit.edu/busy", other)).target == other
            True
        """
        connection = await self._link.connection()
        request = MoveTask(stream, to)
        return await connection.call("move_task", request, MoveRecord, timeout_s=MOVE_S)
