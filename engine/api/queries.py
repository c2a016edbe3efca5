from __future__ import annotations

from functools import partial

from engine.api.administration import Administration
from engine.api.messages import Created, CreateQuery, QueryStatusSet, SetQueryStatus
from engine.language.classes import check_secondary
from engine.language.modification import Modified, ModifyQuery
from engine.objects.alteration import Alteration, queries_differ
from engine.objects.catalog_records import QUERY, find
from engine.objects.query import Query, QueryStatus
from engine.replication.modifier import Modifier
from engine.replication.queries import QueryHost
from engine.replication.views.locating import Locator
from overlay.errors import ConflictError, InvalidInputError
from overlay.identity import parse_peer_id
from overlay.rpc import MAX_STRUCT_BYTES, Caller


class QueryCalls:
    """Calls that create, start, stop and modify queries; `Administration` finds the peer."""

    def __init__(
        self, ours: Administration, queries: QueryHost, locator: Locator, modifier: Modifier
    ) -> None:
        self._ours = ours
        self._queries = queries
        self._locator = locator
        self._modifier = modifier

    def register(self) -> None:
        service = self._ours.overlay.service
        ours = partial(service.unary, clients=True, own=True)
        ours("set_query_status", SetQueryStatus, self.set_query_status)
        ours("create_query", CreateQuery, self.create_query, limit=MAX_STRUCT_BYTES)
        ours("modify_query", ModifyQuery, self.modify_query, limit=MAX_STRUCT_BYTES)

    async def create_query(self, caller: Caller, request: CreateQuery, _: bytes) -> Created:
        name = self._ours.own_name(request.query.name)
        existing = await find(self._ours.catalog, QUERY, name)
        if existing is not None:
            if existing.value.query != request.query:
                how = queries_differ(existing.value.query, request.query)
                raise ConflictError(f"{name} exists and differs ({how}): delete it first or rename")
            return Created((str(name), *existing.value.outputs))
        self._check_secondary(request.query)
        inputs = await self._queries.inputs(request.query)
        await self._locator.check_history_range(request.query, inputs)
        entry = await self._queries.create(request.query)
        remarks = [
            remark
            for stream, readers in request.query.readers
            for remark in self._ours.strangers(stream, Alteration(readers=readers))
        ]
        return Created((str(name), *entry.outputs), tuple(remarks))

    async def set_query_status(
        self, caller: Caller, request: SetQueryStatus, _: bytes
    ) -> QueryStatusSet:
        name = self._ours.own_name(request.query)
        if request.status is QueryStatus.SETUP:
            raise InvalidInputError("a query is SETUP only before it first runs")

        async def set_status() -> QueryStatusSet:
            await self._queries.set_status(str(name), request.status)
            runs = request.status is QueryStatus.RUNNING
            return QueryStatusSet(await self._queries.trouble() if runs else "")

        return await self._ours.at_its_peer(
            name, "set_query_status", request, QueryStatusSet, set_status
        )

    async def modify_query(self, caller: Caller, request: ModifyQuery, _: bytes) -> Modified:
        name = self._ours.own_name(request.query)

        async def modify() -> Modified:
            return await self._modifier.modify(request)

        return await self._ours.at_its_peer(name, "modify_query", request, Modified, modify)

    def _check_secondary(self, query: Query) -> None:
        """Refuse a requested secondary that cannot be it. Raises: InvalidInputError."""
        asked = query.availability.secondary
        check_secondary(query, self._ours.overlay.identity.peer_id.hex())
        if asked:
            self._ours.check_sibling(f"query {query.name}: its secondary", parse_peer_id(asked))
