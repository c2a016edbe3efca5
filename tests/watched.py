"""Events that a test can wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio
from deadline import DEADLINE_S

from medusa.overlay.events import Events, Level


class Watched(Events):
    """The events of one peer."""

    def __init__(self) -> None:
        super().__init__()
        self._noted = trio.Event()

    def note(self, level: Level, text: str, *more: Any, **fields: Any) -> None:
        super().note(level, text, *more, **fields)
        self.notify()

    def notify(self) -> None:
        """Wake the waiting tasks after a change that is not an event."""
        self._noted.set()
        self._noted = trio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return once the condition holds; check it after every event."""
        with trio.fail_after(DEADLINE_S):
            while not condition():
                await self._noted.wait()

    def told(self, text: str) -> bool:
        """Whether an event contains the text."""
        return any(text in event.text for event in self.recent())

    async def saw(self, text: str) -> None:
        """Return once an event contains the text."""
        await self.until(lambda: self.told(text))
