"""The blocking client, for programs without an event loop; `AsyncMedusaClient` is its twin."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial, wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

import pyarrow as pa

from medusa.engine.objects.schema import BEGINNING
from medusa.overlay.errors import ClosedError
from medusa.tools.client.arguments import checked
from medusa.tools.client.async_client import (
    PATIENCE_S,
    AsyncMedusaClient,
    Change,
    Corrections,
    Endpoint,
    Epoch,
    Subscription,
    dial_to,
    given_token,
    open_client_over,
    open_medusa,
)
from medusa.tools.client.portal import Portal
from medusa.tools.client.subscription import Following

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

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")


def _blocking(
    call: Callable[Concatenate[AsyncMedusaClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[MedusaClient, P], T]:
    """The blocking twin of an asynchronous call."""

    @wraps(call)
    def wait(self: MedusaClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(partial(call, self._client, *args, **kwargs))

    wait.__doc__ = _without_loop(call.__doc__)
    return wait


def _without_loop(text: str | None) -> str | None:
    """The docstring of an asynchronous call, with examples for its blocking twin."""
    return text and text.replace("await ", "").replace("async ", "")


class MedusaClient:
    """A blocking client of the peer in `home`, for a `with` block. Leaving the block without an
    error waits until all posts are stored. Its calls are those of `AsyncMedusaClient`, and may come
    from any thread; its event loop runs in a thread of its own.

    All times are microseconds UTC of the stream's own time (`stime`), all waits seconds.

    Example:
        >>> with MedusaClient(home, producer="loader") as loader:
        ...     print(loader.producer)
        loader
    """

    @checked
    def __init__(
        self,
        home: Path | str | None = None,
        *,
        endpoint: Endpoint | None = None,
        also: Sequence[Path | str | Endpoint] = (),
        token: str | None = None,
        producer: str | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Connect; the arguments are those of `open_medusa`.

        Raises:
            InvalidInputError: an argument is of another type.
            UnavailableError: the peer does not run.
            MedusaError: the peer refuses the client.
        """
        opening = partial(
            open_client_over,
            dial_to(home, endpoint, also, given_token(token)),
            producer=producer,
            patience_s=patience_s,
        )
        self._closed = False
        self._portal = Portal(lambda portal: opening(portal=portal))
        try:
            self._client = self._portal.opened.result()
        except BaseException:
            self.close()
            raise

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
                self.finish()
        finally:
            self.close()

    def close(self) -> None:
        """Disconnect; posts that were not flushed may be lost. Closing twice does nothing."""
        if not self._closed:
            self._closed = True
            self._portal.stop()
            self._portal.join()

    @property
    def producer(self) -> str:
        """The producer that numbers the posts of this client."""
        return self._client.producer

    @property
    def remarks(self) -> tuple[str, ...]:
        """The peer's warnings about the last definition, one sentence each."""
        return self._client.remarks

    @property
    def readers(self) -> dict[str, str]:
        """The readers of the streams that the last definition made, by name, in words."""
        return self._client.readers

    create_schema = _blocking(AsyncMedusaClient.create_schema)
    create_stream = _blocking(AsyncMedusaClient.create_stream)
    alter_stream = _blocking(AsyncMedusaClient.alter_stream)
    delete_stream = _blocking(AsyncMedusaClient.delete_stream)
    reopen_stream = _blocking(AsyncMedusaClient.reopen_stream)
    forget_subscriber = _blocking(AsyncMedusaClient.forget_subscriber)
    delete_schema = _blocking(AsyncMedusaClient.delete_schema)
    create_query = _blocking(AsyncMedusaClient.create_query)
    create_query_xml = _blocking(AsyncMedusaClient.create_query_xml)
    set_query_status = _blocking(AsyncMedusaClient.set_query_status)
    start_query = _blocking(AsyncMedusaClient.start_query)
    stop_query = _blocking(AsyncMedusaClient.stop_query)
    copy_query = _blocking(AsyncMedusaClient.copy_query)
    delete_query = _blocking(AsyncMedusaClient.delete_query)
    modify_query = _blocking(AsyncMedusaClient.modify_query)
    create_view = _blocking(AsyncMedusaClient.create_view)
    delete_view = _blocking(AsyncMedusaClient.delete_view)
    move_task = _blocking(AsyncMedusaClient.move_task)
    lookup_object = _blocking(AsyncMedusaClient.lookup_object)
    list_objects = _blocking(AsyncMedusaClient.list_objects)
    status = _blocking(AsyncMedusaClient.status)
    market_status = _blocking(AsyncMedusaClient.market_status)
    admit = _blocking(AsyncMedusaClient.admit)
    stream_entry = _blocking(AsyncMedusaClient.stream_entry)
    receive_events = _blocking(AsyncMedusaClient.receive_events)
    post_event = _blocking(AsyncMedusaClient.post_event)
    post_revisions = _blocking(AsyncMedusaClient.post_revisions)
    flush = _blocking(AsyncMedusaClient.flush)
    finish = _blocking(AsyncMedusaClient.finish)

    def subscribe(
        self, stream: str, after: int = BEGINNING, subscriber: str = ""
    ) -> BlockingSubscription:
        subscription = self._open().subscribe(stream, after, subscriber)
        return BlockingSubscription(subscription, self._run)

    def follow(
        self,
        stream: str,
        corrections: Corrections,
        after: int = BEGINNING,
        subscriber: str = "",
    ) -> BlockingFollowing[Change]:
        following = self._open().follow(stream, corrections, after, subscriber)
        return BlockingFollowing(following, self._run)

    subscribe.__doc__ = _without_loop(AsyncMedusaClient.subscribe.__doc__)
    follow.__doc__ = _without_loop(AsyncMedusaClient.follow.__doc__)

    def _open(self) -> AsyncMedusaClient:
        if self._closed:
            raise ClosedError("this client was closed")
        return self._client

    def _run(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._open()
        return self._portal.wait(call)


class BlockingFollowing(Generic[Item]):
    """The blocking iterator of a subscription's items: epochs, or changes."""

    def __init__(self, following: Following[Item], run: Callable[..., Any]) -> None:
        self._following = following
        self._run = run

    @property
    def boundary(self) -> int:
        """All tuples up to this boundary were received, and are final; microseconds."""
        return self._following.boundary

    def __iter__(self) -> Iterator[Item]:
        """The items, in order, until the stream ends.

        Raises:
            MedusaError: the subscription has failed for good.
        """
        while self._run(self._following.fetch):
            yield self._following.take()

    def schema(self) -> pa.Schema:
        """The Arrow schema of the tables.

        Raises:
            NotFoundError: there is no such stream.
            MedusaError: the subscription has failed.
        """
        return self._run(self._following.schema)

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
        """Unsubscribe; closing twice does nothing."""
        self._following.close()


class BlockingSubscription(BlockingFollowing[Epoch]):
    """A blocking subscription: iterate over its epochs, or take tuples with `receive_events`."""

    def __init__(self, subscription: Subscription, run: Callable[..., Any]) -> None:
        super().__init__(subscription, run)
        self._subscription = subscription

    @property
    def ended(self) -> bool:
        """Whether the stream has ended and all its tuples were received."""
        return self._subscription.ended

    def receive_events(self, rows: int, timeout_s: float) -> pa.Table:
        """The tuples that have arrived.

        Args:
            rows: how many at most.
            timeout_s: seconds to wait for the first of them; then an empty table is returned.

        Raises:
            MedusaError: the subscription has failed for good.
        """
        return self._run(partial(self._subscription.receive_events, rows, timeout_s))
