"""A trio event loop in a thread of its own, for programs on asyncio or without an event loop.

The transport is trio's, so such a program's client runs in this thread, and its calls cross over
(`docs/adr`: clients of any loop).
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

import trio

from medusa.overlay.errors import ClosedError
from medusa.tools.client.arguments import check_arguments

Opened = TypeVar("Opened")
T = TypeVar("T")
P = ParamSpec("P")


class Portal(Generic[Opened]):
    """Keeps a trio context manager open, in a thread of its own, until `stop`.

    Attributes:
        opened: the opened object, or the error of opening it.
        closed: done when the thread's work has ended; has its error.
    """

    def __init__(
        self, opening: Callable[[Portal[Opened]], AbstractAsyncContextManager[Opened]]
    ) -> None:
        """opening: called with this portal."""
        self.opened: Future[Opened] = Future()
        self.closed: Future[None] = Future()
        self._opening = opening
        self._stopped = False
        self._running = threading.Event()
        self._token: trio.lowlevel.TrioToken
        self._stop: trio.Event
        self._calls: trio.Nursery
        self._entering: trio.CancelScope
        self._thread = threading.Thread(target=self._run, name="medusa-client", daemon=True)
        self._thread.start()
        self._running.wait()

    @property
    def is_here(self) -> bool:
        """Whether the caller is in that thread."""
        return threading.get_ident() == self._thread.ident

    def submit(self, call: Callable[[], Awaitable[T]]) -> Future[T]:
        """Make the call in that thread. Cancelling the future cancels the call.

        Returns:
            a future with the result or error of the call; ClosedError if the portal was stopped
            first.

        Raises:
            ClosedError: it was stopped before.
        """
        future: Future[T] = Future()
        self._send(self._begin, call, future)
        return future

    def soon(self, call: Callable[..., object], *arguments: object) -> None:
        """Make a call in that thread, without waiting; nothing is done if it was stopped.

        Raises:
            ClosedError: it was stopped before.
        """
        self._send(self._unless_stopped, call, *arguments)

    def wait(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make the call in that thread, and block until it is done; Ctrl-C cancels it.

        Raises:
            ClosedError: it was stopped.
        """
        future = self.submit(call)
        try:
            return future.result()
        finally:
            future.cancel()

    def stop(self) -> None:
        """Ask the thread to end, even while it opens: see `closed`. Stopping twice does nothing."""
        with suppress(ClosedError):
            self.soon(self._end)

    def join(self) -> None:
        """Block until the thread has ended; raises the thread's error, unless `stop` ended it."""
        self._thread.join()
        self.closed.result()

    def _send(self, call: Callable[..., object], *arguments: object) -> None:
        try:
            self._token.run_sync_soon(call, *arguments)
        except trio.RunFinishedError:
            raise _closed() from None

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        except BaseException as error:  # noqa: BLE001 - the waiting caller is in another thread
            if self.opened.done():
                self.closed.set_exception(error)
            else:
                _settle(self.opened, self.opened.set_exception, error)
        finally:
            self._running.set()
        if not self.closed.done():
            self.closed.set_result(None)

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stop = trio.Event()
        with trio.CancelScope() as self._entering:
            self._running.set()
            async with self._opening(self) as opened, trio.open_nursery() as self._calls:
                _settle(self.opened, self.opened.set_result, opened)
                await self._stop.wait()
                self._calls.cancel_scope.cancel()
        if not self.opened.done():
            raise _closed()

    def _end(self) -> None:
        self._stopped = True
        self._stop.set()
        if not self.opened.done() or self.opened.cancelled():
            self._entering.cancel()

    def _unless_stopped(self, call: Callable[..., object], *arguments: object) -> None:
        if not self._stopped:
            call(*arguments)

    def _begin(self, call: Callable[[], Awaitable[T]], future: Future[T]) -> None:
        if self._stopped:
            _settle(future, future.set_exception, _closed())
        else:
            self._calls.start_soon(self._make, call, future)

    async def _make(self, call: Callable[[], Awaitable[T]], future: Future[T]) -> None:
        with trio.CancelScope() as scope:
            future.add_done_callback(partial(self._cancelled, scope))
            try:
                result = await call()
            except Exception as error:  # noqa: BLE001 - the error goes to the waiting caller
                _settle(future, future.set_exception, error)
            except BaseException:
                _settle(future, future.set_exception, _closed())
                raise
            else:
                _settle(future, future.set_result, result)

    def _cancelled(self, scope: trio.CancelScope, future: Future[T]) -> None:
        if future.cancelled():
            with suppress(ClosedError):
                self.soon(scope.cancel)


def _settle(future: Future[T], settle: Callable[[Any], None], outcome: object) -> None:
    """Set a future's outcome, unless it was cancelled."""
    if future.set_running_or_notify_cancel():
        settle(outcome)


def _closed() -> ClosedError:
    return ClosedError("this client was closed")


class Reached(Protocol):
    """An object with calls for programs of any event loop. portal: leads to the loop that makes the
    calls; None: the caller's own, under trio."""

    @property
    def portal(self) -> Portal[Any] | None: ...


Self = TypeVar("Self", bound=Reached)


def in_trio(
    call: Callable[Concatenate[Self, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Self, P], Coroutine[Any, Any, T]]:
    """Decorate a client's call: check its arguments, and make it in trio's loop, whatever the
    caller's loop."""

    @wraps(call)
    async def cross(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        check_arguments(call, (self, *args), kwargs)
        portal = self.portal
        if portal is None or portal.is_here:
            return await call(self, *args, **kwargs)
        import asyncio  # imported here: the caller runs in asyncio; commands start without it

        made = partial(call, self, *args, **kwargs)
        return await asyncio.wrap_future(portal.submit(made))

    return cross
