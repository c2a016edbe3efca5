"""Table 1 of the first paper, call by call, for one connected client that speaks XML-RPC.

Each call is the client's of `import medusa`, inside the peer: one way to the handlers, whichever
protocol a client speaks.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias, cast

from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.query import Query, QueryStatus
from medusa.engine.objects.schema import BEGINNING, Schema
from medusa.overlay.errors import NotFoundError
from medusa.overlay.threads import Threads
from medusa.tools.client.async_client import AsyncMedusaClient
from medusa.tools.client.link import Link
from medusa.tools.xmlrpc.arguments import Arguments
from medusa.tools.xmlrpc.events import batches, boundary_of, no_events, table_of
from medusa.tools.xmlrpc.posting import Posting, PostOptions
from medusa.tools.xmlrpc.sinks import Operation, Sink, SinkOptions, Sinks, Subscriber
from medusa.tools.xmlrpc.values import Call, Value

Answer: TypeAlias = dict[str, Value]

Made: TypeAlias = Callable[[], Value]
"""A function that makes the value of an answer: in a thread, when it is this answer's turn."""


@dataclass(frozen=True, eq=False)
class Calls:
    """The calls of one client.

    Attributes:
        client, link: its way to this peer's own handlers.
        subscriber: the client as the owner of sinks.
        threads: read events.
    """

    client: AsyncMedusaClient
    link: Link
    subscriber: Subscriber
    posting: Posting
    sinks: Sinks
    threads: Threads

    async def answer(self, call: Call) -> Made:
        """Carry out a call. Returns: the function that makes the answer's value; it may raise an
        error of the call, too.

        Raises:
            NotFoundError: there is no such method.
            MedusaError: the call's error.
        """
        method = METHODS.get(call.method)
        if method is None:
            raise NotFoundError(
                f"no method {call.method!a} is served here; those that are: {', '.join(METHODS)}"
            )
        made = await method(self, call)
        return made if callable(made) else lambda: made

    async def create_schema(self, call: Call) -> Answer:
        schema = Arguments(call, "create_schema(schema)", 1, 1).take(Schema)
        await self.client.create_schema(schema)
        return self._created(schema.name)

    async def create_stream(self, call: Call) -> Answer:
        stream = Arguments(call, "create_stream(stream)", 1, 1).take(StreamDefinition)
        await self.client.create_stream(stream)
        return self._created(stream.name)

    async def create_query(self, call: Call) -> Answer:
        query = Arguments(call, "create_query(query)", 1, 1).take(Query)
        return self._created(*await self.client.create_query(query))

    async def create_query_xml(self, call: Call) -> Answer:
        text = Arguments(call, "create_query_xml(text)", 1, 1).take(str)
        return self._created(*await self.client.create_query_xml(text))

    async def set_query_status(self, call: Call) -> Answer:
        arguments = Arguments(call, "set_query_status(query, status)", 2, 2)
        query, status = arguments.take(str), arguments.take(QueryStatus)
        return {"trouble": await self.client.set_query_status(query, status)}

    async def post_event(self, call: Call) -> Answer:
        arguments = Arguments(call, "post_event(stream, events[, options])", 2, 3)
        stream = arguments.take(str)
        events = cast("list[dict[str, Value]]", arguments.take(list[dict[str, object]]))
        options = arguments.take(PostOptions, PostOptions())
        entry = await self.client.stream_entry(stream)
        table = None
        if events:
            work = partial(table_of, events, entry.schema)
            table = await self.threads.run(self.subscriber.holder, work)
        token = self.subscriber.token
        posted = await self.posting.post(self.link, stream, token, table, options)
        return {
            "sequence": posted.sequence,
            "rows": posted.rows,
            "late": posted.late,
            "inserted": posted.inserted,
            "boundary": posted.boundary,
            "duplicate": posted.duplicate,
        }

    async def receive_events(self, call: Call) -> Made:
        arguments = Arguments(call, "receive_events(stream[, after[, timeout_s]])", 1, 3)
        stream = arguments.take(str)
        after = boundary_of(arguments.value(), BEGINNING)
        timeout_s = arguments.take(float, 0.0)
        epoch = await self.client.receive_events(stream, after, timeout_s)
        if epoch is None:
            return lambda: no_events(stream, after)
        return lambda: next(batches(stream, epoch))

    async def subscribe(self, call: Call) -> Answer:
        signature = "subscribe(stream, protocol, address, sink[, operation[, options]])"
        arguments = Arguments(call, signature, 4, 6)
        stream, protocol = arguments.take(str), arguments.take(str)
        address, name = arguments.take(str), arguments.take(str)
        sink = Sink.of(stream, protocol, address, name)
        operation = arguments.take(Operation, Operation.ADD)
        options = arguments.take(SinkOptions, SinkOptions())
        if operation is Operation.ADD:
            after = boundary_of(options.after, BEGINNING)
            # the call raises the errors of a subscription
            await self.client.receive_events(stream, after)
            self.sinks.add(self.subscriber, sink, after, options.certificate)
        else:
            self.sinks.remove(self.subscriber, sink)
        return {"sinks": self.sinks.count(self.subscriber)}

    async def lookup_object(self, call: Call) -> Answer:
        arguments = Arguments(call, "lookup_object(name[, kind])", 1, 2)
        name, kind = arguments.take(str), arguments.take(str, "")
        found = await self.client.lookup_object(name, kind)
        return {
            "name": found.name,
            "entries": {kind: json.loads(text) for kind, text in found.entries.items()},
            "private": list(found.private),
            "unavailable": dict(found.unavailable),
        }

    def _created(self, *names: str) -> Answer:
        readers = dict[str, Value](self.client.readers)
        return {"names": list(names), "remarks": list(self.client.remarks), "readers": readers}


METHODS: Final[Mapping[str, Callable[[Calls, Call], Awaitable[Answer | Made]]]] = {
    each.__name__: each
    for each in (
        Calls.create_schema,
        Calls.create_stream,
        Calls.create_query,
        Calls.create_query_xml,
        Calls.set_query_status,
        Calls.subscribe,
        Calls.receive_events,
        Calls.post_event,
        Calls.lookup_object,
    )
}
"""The calls of Table 1, by their names there."""
