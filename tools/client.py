"""The blocking client, for programs without an event loop; `AsyncMedusaClient` is its trio twin."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa
import trio

from engine.alteration import Alteration
from engine.availability_request import AvailabilityRequest
from engine.definitions import StreamDefinition
from engine.messages import ObjectDescription, Objects, Snapshot
from engine.modifying.messages import BoxChange, Modified
from engine.moves.messages import MoveRecord
from engine.query import Query, QueryStatus
from engine.schema import BEGINNING, END, Schema
from engine.view import View
from overlay.errors import ClosedError, MedusaError
from tools.async_client import (
    PATIENCE_S,
    AsyncMedusaClient,
    Change,
    CorrectedSubscription,
    Corrections,
    Endpoint,
    Epoch,
    Subscription,
    dial_to,
    given_token,
    open_client_over,
    open_medusa,
)
from tools.link import Dial
from tools.subscription import Following

__all__ = [
    "AsyncMedusaClient",
    "BlockingFollowing",
    "BlockingSubscription",
    "Change",
    "Corrections",
    "Endpoint",
    "Epoch",
    "MedusaClient",
    "Subscription",
    "open_medusa",
]

T = TypeVar("T")
Item = TypeVar("Item")


class MedusaClient:
    """A client of the peer in `home`; use it in a `with` block, which when left without an error
    waits until everything posted is stored. Its calls are those of
    `AsyncMedusaClient`, and may come from any thread; its event loop runs in a thread of its own.
    """

    def __init__(
        self,
        home: Path | str | None = None,
        *,
        endpoint: Endpoint | None = None,
        token: str | None = None,
        producer: str | None = None,
        patience_s: float = PATIENCE_S,
        dial: Dial | None = None,
    ) -> None:
        """See `open_medusa`. dial: how connections are made, where not to a home or an endpoint.

        Raises:
            UnavailableError: the peer does not run.
            MedusaError: it does not let us in.
        """
        self._opening = open_client_over(
            dial or dial_to(home, endpoint, token=given_token(token)),
            producer=producer,
            patience_s=patience_s,
        )
        self._ready = threading.Event()
        self._failure: MedusaError | None = None
        self._client: AsyncMedusaClient
        self._token: trio.lowlevel.TrioToken
        self._stop: trio.Event
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="medusa-client", daemon=True)
        self._thread.start()
        self._ready.wait()
        self._raise_failure()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None and not self._closed:
                self._run(self._client.finish)
        finally:
            self.close()

    def close(self) -> None:
        """Hang up; posts that were not flushed may be lost. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        self._token.run_sync_soon(self._stop.set)
        self._thread.join()

    @property
    def producer(self) -> str:
        return self._client.producer

    def create_schema(self, schema: Schema) -> None:
        self._run(self._client.create_schema, schema)

    def create_stream(self, stream: StreamDefinition) -> None:
        self._run(self._client.create_stream, stream)

    def alter_stream(self, stream: str, alteration: Alteration) -> None:
        self._run(self._client.alter_stream, stream, alteration)

    def create_query(self, query: Query) -> tuple[str, ...]:
        return self._run(self._client.create_query, query)

    def create_query_xml(
        self, text: str, availability: AvailabilityRequest | None = None
    ) -> tuple[str, ...]:
        return self._run(self._client.create_query_xml, text, availability)

    def set_query_status(self, query: str, status: QueryStatus) -> str:
        """Gives why a query that is to run computes nothing yet, and the mend, or nothing."""
        return self._run(self._client.set_query_status, query, status)

    def start_query(self, query: str) -> str:
        """Let it run; gives why it computes nothing yet, Spark not starting say, or nothing."""
        return self._run(self._client.start_query, query)

    def stop_query(self, query: str) -> None:
        self._run(self._client.stop_query, query)

    def delete_query(self, query: str) -> None:
        self._run(self._client.delete_query, query)

    def copy_query(
        self, query: str, new: str, after: int = BEGINNING, until: int = END
    ) -> tuple[str, ...]:
        """See `AsyncMedusaClient.copy_query`."""
        return self._run(self._client.copy_query, query, new, after, until)

    def create_view(self, view: View) -> View:
        """See `AsyncMedusaClient.create_view`."""
        return self._run(self._client.create_view, view)

    def delete_view(self, name: str) -> None:
        self._run(self._client.delete_view, name)

    def modify_query(
        self,
        query: str,
        changes: Sequence[BoxChange],
        at: int | None = None,
        *,
        alone: bool = False,
    ) -> Modified:
        """See `AsyncMedusaClient.modify_query`."""
        modify = partial(self._client.modify_query, query, changes, at, alone=alone)
        return self._run(modify)

    def move_task(self, stream: str, to: str = "") -> MoveRecord:
        return self._run(self._client.move_task, stream, to)

    def lookup_object(self, name: str) -> ObjectDescription:
        return self._run(self._client.lookup_object, name)

    def list_objects(self) -> Objects:
        return self._run(self._client.list_objects)

    def status(self, *, federation: bool = True) -> Snapshot:
        return self._run(lambda: self._client.status(federation=federation))

    def post_event(
        self,
        stream: str,
        table: pa.Table | None,
        *,
        boundary: int | None = None,
        end: bool = False,
    ) -> None:
        """See `AsyncMedusaClient.post_event`: pipelined; `flush` waits until all is stored."""
        self._run(lambda: self._client.post_event(stream, table, boundary=boundary, end=end))

    def post_revisions(
        self, stream: str, table: pa.Table, *, boundary: int | None = None, end: bool = False
    ) -> list[int]:
        """See `AsyncMedusaClient.post_revisions`."""
        return self._run(
            lambda: self._client.post_revisions(stream, table, boundary=boundary, end=end)
        )

    def receive_events(
        self, stream: str, after: int = BEGINNING, timeout_s: float = 0.0
    ) -> Epoch | None:
        """See `AsyncMedusaClient.receive_events`."""
        return self._run(self._client.receive_events, stream, after, timeout_s)

    def flush(self) -> None:
        self._run(self._client.flush)

    def subscribe(
        self, stream: str, after: int = BEGINNING, subscriber: str = ""
    ) -> BlockingSubscription:
        """See `AsyncMedusaClient.subscribe`."""

        async def begin() -> Subscription:
            return self._client.subscribe(stream, after, subscriber)

        return BlockingSubscription(self._run(begin), self._run)

    def follow(
        self,
        stream: str,
        corrections: Corrections,
        after: int = BEGINNING,
        subscriber: str = "",
    ) -> BlockingFollowing[Change]:
        """See `AsyncMedusaClient.follow`."""

        async def begin() -> CorrectedSubscription:
            return self._client.follow(stream, corrections, after, subscriber)

        return BlockingFollowing(self._run(begin), self._run)

    def _run(self, call: Callable[..., Awaitable[T]], *arguments: object) -> T:
        if self._closed:
            raise ClosedError("this client was closed")
        try:
            return trio.from_thread.run(call, *arguments, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled):
            raise ClosedError("this client was closed") from None

    def _raise_failure(self) -> None:
        if self._failure is not None:
            self._closed = True
            self._thread.join()
            raise self._failure

    def _loop(self) -> None:
        try:
            trio.run(self._serve)
        except MedusaError as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        async with self._opening as client:
            self._client = client
            self._token = trio.lowlevel.current_trio_token()
            self._stop = trio.Event()
            self._ready.set()
            await self._stop.wait()


class BlockingFollowing(Generic[Item]):
    """Iterate over it for what comes: epochs, or changes."""

    def __init__(self, following: Following[Item], run: Callable[..., Any]) -> None:
        self._following = following
        self._run = run

    @property
    def boundary(self) -> int:
        """Everything up to it was given out for good, microseconds."""
        return self._following.boundary

    def __iter__(self) -> Iterator[Item]:
        while (item := self._run(self._next)) is not None:
            yield item

    async def _next(self) -> Item | None:
        return await anext(self._following, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Unsubscribe."""

        async def close() -> None:
            self._following.close()

        self._run(close)


class BlockingSubscription(BlockingFollowing[Epoch]):
    """Iterate over it for epochs, or take tuples with `receive_events`."""

    def __init__(self, subscription: Subscription, run: Callable[..., Any]) -> None:
        super().__init__(subscription, run)
        self._subscription = subscription

    @property
    def ended(self) -> bool:
        """Whether every tuple there will ever be was given out."""
        return self._subscription.ended

    def receive_events(self, rows: int, timeout_s: float) -> pa.Table:
        """The tuples that have arrived: at most `rows`, none if none comes within `timeout_s`."""
        return self._run(self._subscription.receive_events, rows, timeout_s)
