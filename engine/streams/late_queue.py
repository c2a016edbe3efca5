"""Late rows that the stream of late tuples does not have yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from engine.streams.journal import Position
from engine.streams.pending import taken_by
from overlay.errors import BusyError


class Taker(Protocol):
    """The source of `<stream>/late`."""

    def take_late(self, producer: str, number: int, payload: pa.Table, now: float) -> None: ...


@dataclass(frozen=True, slots=True)
class LateRows:
    """The late rows of one post.

    Attributes:
        number: of the post, among the posts with late rows.
        position: where its entry ends in the journal.
        taken: their time of arrival, seconds since the epoch; 0: when they are handed on.
    """

    number: int
    position: Position
    payload: pa.Table
    taken: float


class LateQueue:
    """Late rows in the order of their posts."""

    def __init__(self, name: str, late: Taker | None) -> None:
        self._name = name
        self._late = late
        self._waiting: deque[LateRows] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def bytes(self) -> int:
        return sum(taken_by(rows.payload) for rows in self._waiting)

    @property
    def segment(self) -> int:
        """The journal's segment with the first of them; the queue is not empty."""
        return self._waiting[0].position[0]

    def add(self, rows: LateRows) -> None:
        if self._late is not None:
            self._waiting.append(rows)

    def hand_on(self, now: float, may: Callable[[Position], bool]) -> None:
        """Give them to the stream of late tuples, as far as it takes them now.

        Args:
            may: whether the rows of the entry that ends there go now.
        """
        while self._waiting and self._late is not None:
            rows = self._waiting[0]
            if not may(rows.position):
                return
            try:
                self._late.take_late(self._name, rows.number, rows.payload, rows.taken or now)
            except BusyError:
                return
            self._waiting.popleft()
