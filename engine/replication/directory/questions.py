from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias

import trio

from medusa.overlay.errors import MedusaError

LOOK_UP_S: Final = 0.25
"""How long the catalog is waited for if an earlier answer of it is known, seconds: it is slow when
peers die, and consumers must not wait then."""

Ask: TypeAlias = Callable[[str], Awaitable[object]]
"""A function that asks about a stream, and notes the answer."""


class Questions:
    """Questions to the catalog, one at a time about each stream, whose answers may come late.

    Args:
        nursery: runs them.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._asked: dict[tuple[str, str], trio.Event] = {}

    async def wait_for(self, stream: str, ask: Ask) -> None:
        """Ask, and wait a little. A later answer counts as well."""
        answered = self.ask_soon(stream, ask)
        with trio.move_on_after(LOOK_UP_S):
            await answered.wait()

    def ask_soon(self, stream: str, ask: Ask) -> trio.Event:
        """Ask in the background, unless the question is under way; returns an event that is set by
        the answer."""
        question = (ask.__name__, stream)
        if question not in self._asked:
            self._asked[question] = trio.Event()
            self._nursery.start_soon(self._ask, question, ask)
        return self._asked[question]

    async def _ask(self, question: tuple[str, str], ask: Ask) -> None:
        try:
            with suppress(MedusaError):  # the last answer counts
                await ask(question[1])
        finally:
            self._asked.pop(question).set()
