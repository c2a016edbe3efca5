"""A client's one connection to its peer, dialled again when it is needed and broken."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, TypeVar

import trio
from msgspec import Struct

from medusa.overlay.backoff import Backoff
from medusa.overlay.concurrency import Bell, Watched
from medusa.overlay.connection import Connection
from medusa.overlay.errors import (
    BrokenError,
    BusyError,
    DeadlineError,
    MedusaError,
    UnavailableError,
)

Answer = TypeVar("Answer", bound=Struct)
Dial = Callable[[], AbstractAsyncContextManager[Connection]]

FIRST_WAIT_S: Final = 0.05
"""Seconds before the second try: few, because a peer that restarts on this machine is back soon."""
LONGEST_WAIT_S: Final = 2.0
"""Seconds between tries, at most: a waiting client should notice its peer's return."""
SETTLING_S: Final = 5.0
"""Seconds for which a call is repeated whose peer cannot reach the peer that it must ask: a peer
that has just joined, or has just learnt of another, may know that peer but not reach it yet. After
that time the client gets the error."""


class Patience:
    """Limits how long failures in a row are tolerated, with jittered waits between tries.

    Args:
        limit_s: seconds after the first failure, from which the next one is raised.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since: float | None = None
        self._backoff = Backoff(FIRST_WAIT_S, LONGEST_WAIT_S)
        self._random = random.SystemRandom()

    def progress(self) -> None:
        """The connection works: the next failure counts as a first one."""
        self._since = None
        self._backoff.succeeded()

    async def bear(self, error: MedusaError) -> None:
        """Wait before the next try.

        Raises:
            MedusaError: `error`, if another try cannot help or the limit is reached.
        """
        if not isinstance(error, UnavailableError | BusyError):
            raise error
        now = trio.current_time()
        if self._since is None:
            self._since = now
        left_s = self._since + self._limit_s - now
        if left_s <= 0:
            raise error
        await trio.sleep(min(left_s, self._backoff.failed(self._random)))


class Link:
    """The connection, owned by one task; any other task may ask for it."""

    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._current: Connection | None = None
        self._failure: MedusaError | None = None
        self._wanted = Bell()
        self._over = Bell()
        self._tries = Watched(0)

    async def run(self) -> None:
        """Dial whenever a connection is asked for; cancel to disconnect."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self._over.clear()
            try:
                async with self._dial() as connection:
                    self._settle(connection, None)
                    await self._over.wait()
            except MedusaError as error:
                self._settle(None, error)
            finally:
                self._current = None

    async def connection(self) -> Connection:
        """The present connection, or the outcome of one try to make it.

        Raises:
            MedusaError: that try failed.
        """
        if self._current is not None:
            if not self._current.closed.is_set():
                return self._current
            self._current = None
            self._over.ring()
        self._wanted.ring()
        await self._tries.changed()
        return self._outcome()

    def _outcome(self) -> Connection:
        if self._current is None:
            raise self._failure or BrokenError("the connection broke as soon as it was made")
        return self._current

    def _settle(self, connection: Connection | None, failure: MedusaError | None) -> None:
        self._current, self._failure = connection, failure
        self._tries.set(self._tries.value + 1)


async def open_link(dial: Dial, nursery: trio.Nursery) -> Link:
    """Start a link in the nursery, and return it once its first connection is made.

    Raises:
        MedusaError: the first try failed.
    """
    link = Link(dial)
    nursery.start_soon(link.run)
    await link.connection()
    return link


async def call(
    link: Link,
    method: str,
    request: Struct,
    response: type[Answer],
    *,
    timeout_s: float,
    patience_s: float,
) -> Answer:
    """Make a call that has no effect if it is repeated. It is repeated when the connection breaks,
    and for a while if the peer cannot reach the peer that it must ask.

    Raises:
        MedusaError: the peer's error, or the last failure to reach it.
    """
    patience = Patience(patience_s)
    settling = Patience(min(SETTLING_S, patience_s))
    while True:
        try:
            connection = await link.connection()
        except UnavailableError as error:
            await patience.bear(error)
            continue
        try:
            return await connection.call(method, request, response, timeout_s=timeout_s)
        except BrokenError as error:
            await patience.bear(error)
        except DeadlineError:
            raise
        except UnavailableError as error:
            await settling.bear(error)


@asynccontextmanager
async def open_background() -> AsyncIterator[trio.Nursery]:
    """A nursery for services that never raise, cancelled when the block ends.

    Only the block can raise. Its exception is not put into a group, so that our caller can write
    `except NotFoundError`.
    """
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise
