"""Primitives on trio: watched values, a bell, a common beat, locks by name, tasks that end
together, and jobs."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

import trio

from medusa.overlay.errors import MedusaError

T = TypeVar("T")


class Watched(Generic[T]):
    """A value that is set repeatedly; any number of tasks can wait for its changes."""

    def __init__(self, value: T) -> None:
        self._value = value
        self._next_set = trio.Event()

    @property
    def value(self) -> T:
        return self._value

    def set(self, value: T) -> None:
        """Replace the value, even by an equal one, and wake all waiting tasks."""
        self._value = value
        self._next_set.set()
        self._next_set = trio.Event()

    async def changed(self) -> T:
        """Wait for the next `set`. Returns the value at the time that the task runs again."""
        await self._next_set.wait()
        return self._value

    async def changed_from(self, seen: T) -> T:
        """Wait for a value other than `seen`; returns at once if the value is another already."""
        return await self.until(lambda value: value != seen)

    async def until(self, fits: Callable[[T], bool]) -> T:
        """Wait for a value that fits; returns at once if the present one does. A value that is
        replaced before the task runs again is missed."""
        while not fits(self._value):
            await self._next_set.wait()
        return self._value


class Bell:
    """Notifies a looping task that there is work. A ring while the task is busy is kept until the
    task clears the bell."""

    def __init__(self, *, rung: bool = False) -> None:
        self._rung = trio.Event()
        if rung:
            self._rung.set()

    @property
    def is_rung(self) -> bool:
        """Whether the bell rang since it was last cleared."""
        return self._rung.is_set()

    def ring(self) -> None:
        self._rung.set()

    def clear(self) -> None:
        """Forget the rings so far: call it before the task looks at all its work."""
        if self._rung.is_set():
            self._rung = trio.Event()

    async def wait(self) -> None:
        """Wait for a ring; returns at once if one is kept."""
        await self._rung.wait()


def next_beat(period_s: float) -> float:
    """The next multiple of the period on trio's clock, seconds.

    Periodic loops wait for it, so that all of them wake the process at the same moments: waking an
    idle process costs more than a dozen of their checks.
    """
    now = trio.current_time()
    beat = (math.floor(now / period_s) + 1) * period_s
    return beat if beat > now else beat + period_s


class Locks:
    """One lock for each name, kept while a task holds it or waits for it. Slow work under one name
    does not delay another name."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()

    def of(self, name: str) -> trio.Lock:
        return self._locks.setdefault(name, trio.Lock())


class Job:
    """A background task that ends or is stopped, and can then be started again."""

    def __init__(self) -> None:
        self._scope: trio.CancelScope | None = None
        self._over = trio.Event()

    @property
    def started(self) -> bool:
        """Whether the task was started and not stopped since."""
        return self._scope is not None

    @property
    def going_on(self) -> bool:
        """Whether the task was started and is not over."""
        return self.started and not self._over.is_set()

    def start(self, nursery: trio.Nursery, run: Callable[[], Awaitable[None]]) -> None:
        """Start the task in the nursery; do nothing if it is started."""
        if self._scope is None:
            self._scope, self._over = trio.CancelScope(), trio.Event()
            nursery.start_soon(self._run, run, self._scope, self._over)

    def cancel(self) -> None:
        """Ask the task to end; `stop` waits for the end."""
        if self._scope is not None:
            self._scope.cancel()

    async def stop(self) -> None:
        """Cancel the task and wait for its end, even if the caller is cancelled: a half stopped job
        could not be started again."""
        if self._scope is not None:
            self._scope.cancel()
            with trio.CancelScope(shield=True):
                await self._over.wait()
            self._scope = None

    @staticmethod
    async def _run(
        run: Callable[[], Awaitable[None]], scope: trio.CancelScope, over: trio.Event
    ) -> None:
        try:
            with scope:
                await run()
        finally:
            over.set()


async def until_one_ends(*tasks: Callable[[], Awaitable[object]]) -> None:
    """Run the tasks together until the first of them returns or fails; cancel the others.

    Raises:
        MedusaError, EndOfChannel: the error of the first task that failed, outside of a group, so
            that a caller can tell which it was.
    """
    failures: list[MedusaError | trio.EndOfChannel] = []
    async with trio.open_nursery() as nursery:

        async def watch(task: Callable[[], Awaitable[object]]) -> None:
            try:
                await task()
            except (MedusaError, trio.EndOfChannel) as error:
                failures.append(error)
            nursery.cancel_scope.cancel()

        for task in tasks:
            nursery.start_soon(watch, task)
    if failures:
        raise failures[0]


@contextmanager
def one_error() -> Iterator[None]:
    """At the outermost nursery: turn a group of `MedusaError` into its first error.

    A group that has any other error, such as a bug or an interrupt, is raised as it is.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        ours, others = group.split(MedusaError)
        if others is not None or ours is None:
            raise
        first: BaseException = ours
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from group
