"""The epochs that a subscriber received, and checks of their order.

The checks read the history alone, not how the epochs were made.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from medusa.engine.objects.schema import BEGINNING, END, STIME
from medusa.engine.streams.log.recent import Epoch
from medusa.engine.streams.revisions.corrections import Change, Corrections, Kind
from medusa.overlay.errors import InternalError
from medusa.tools.client.async_client import AsyncMedusaClient


@dataclass(frozen=True)
class Received:
    """One received epoch.

    Attributes:
        at: when, seconds of the run.
        first, last: the least and the greatest stime of its rows; None without rows.
    """

    at: float
    after: int
    upto: int
    first: int | None = None
    last: int | None = None

    @staticmethod
    def of(epoch: Epoch, at: float) -> Received:
        ends = pc.min_max(epoch.table.column("stime")).as_py()
        return Received(at, epoch.after, epoch.upto, ends["min"], ends["max"])


@dataclass
class History:
    """Received epochs by stream, in the order of arrival."""

    streams: dict[str, list[Received]] = field(default_factory=dict)

    def add(self, stream: str, received: Received) -> None:
        self.streams.setdefault(stream, []).append(received)

    def faults(self) -> tuple[str, ...]:
        """Violations of a stream's rules: no boundary goes back, no epoch is left out or repeated,
        no tuple breaks a boundary's promise."""
        return tuple(
            f"{stream}: {fault}"
            for stream, received in self.streams.items()
            for fault in _faults(received)
        )

    def longest_pause_s(self, since: float) -> float:
        """The longest time for which any of the streams stood still, seconds; from `since` on."""
        return max((_longest_pause(each, since) for each in self.streams.values()), default=0.0)

    def last_at(self) -> float | None:
        """When the last epoch of any stream arrived; None before the first."""
        return max((each[-1].at for each in self.streams.values() if each), default=None)


def _faults(received: Sequence[Received]) -> list[str]:
    faults = []
    boundary = BEGINNING
    for epoch in received:
        span = f"({epoch.after}, {epoch.upto}]"
        if epoch.after < boundary:
            faults.append(f"{span} goes back behind {boundary}")
        elif epoch.after > boundary:
            faults.append(f"{span} leaves out what follows {boundary}")
        if epoch.upto <= epoch.after:
            faults.append(f"{span} is no interval")
        if epoch.first is not None and epoch.first <= epoch.after:
            faults.append(f"{span} has a tuple of stime {epoch.first}")
        if epoch.last is not None and epoch.last > epoch.upto:
            faults.append(f"{span} has a tuple of stime {epoch.last}")
        boundary = max(boundary, epoch.upto)
    return faults


def _longest_pause(received: Sequence[Received], since: float) -> float:
    times = [since, *(epoch.at for epoch in received if epoch.at > since)]
    return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)


def tuples_in(table: pa.Table, columns: Sequence[str]) -> list[Any]:
    """The rows of a part of an output, as tuples of these columns; times in microseconds."""
    found = (table.column(name) for name in columns)
    plain = (each.cast(pa.int64()) if pa.types.is_timestamp(each.type) else each for each in found)
    return list(zip(*(each.to_pylist() for each in plain), strict=True))


async def to_its_end(
    client: AsyncMedusaClient, stream: str, after: int = BEGINNING, subscriber: str = ""
) -> AsyncIterator[Epoch]:
    """The epochs of a stream from there to its end.

    Raises:
        InternalError: the subscription ended before the stream.
    """
    upto = after
    async for epoch in client.subscribe(stream, after, subscriber):
        yield epoch
        upto = epoch.upto
    if upto != END:
        raise InternalError(f"the subscription to {stream} ended before the stream")


Row = TypeVar("Row")


class Final(NamedTuple, Generic[Row]):
    """Tuples that have become final: those with after < stime <= upto, microseconds."""

    after: int
    upto: int
    rows: tuple[Row, ...]


@dataclass
class Fold(Generic[Row]):
    """Applies changes to get the final stream, as a client would.

    Args:
        rows_of: the tuples of a table, for comparison.
        key_of: the key that distinguishes tuples of one stime; None: the stream has no key.

    Attributes:
        boundary: all tuples up to it are final, and were emitted; microseconds.
        given: the number of tentative tuples. undone: the number of these that an UNDO has removed.
        revised: the number of tuples in corrections, if these are given as differences.
        undos, rec_dones: the numbers of such changes.
        fault: why the last change is invalid.
    """

    how: Corrections
    rows_of: Callable[[pa.Table], Sequence[Row]]
    key_of: Callable[[Row], Hashable] | None = None
    boundary: int = BEGINNING
    given: int = 0
    undone: int = 0
    revised: int = 0
    undos: int = 0
    rec_dones: int = 0
    fault: str = ""
    _stable: list[tuple[int, Row]] = field(default_factory=list)
    _tentative: list[tuple[int, Row]] = field(default_factory=list)
    _seen: int = BEGINNING
    _began: int | None = None

    def apply(self, change: Change) -> Final[Row] | None:
        """Apply a change; returns the tuples that become final, or None."""
        self.fault = ""
        stimes = change.table.column(STIME).to_pylist()
        self._apply(change, list(zip(stimes, self.rows_of(change.table), strict=True)))
        if change.kind is not Kind.UNDO:
            self._seen = max(self._seen, change.upto)
            # a subscriber from the beginning learns where the stream begins
            if self._began is None:
                self._began = change.after if self.boundary == BEGINNING else BEGINNING
        if change.boundary < self.boundary:
            self.fault = f"boundary {change.boundary} after {self.boundary}"
        after = max(self.boundary, BEGINNING if self._began is None else self._began)
        if change.boundary <= after:
            return None
        final = Final(after, change.boundary, self._final(change.boundary))
        self.boundary = change.boundary
        return final

    def forget(self) -> None:
        """Drop all tuples that are not final, as a crashing client does."""
        self._stable.clear()
        self._tentative.clear()
        self.undos = self.rec_dones = 0

    def _apply(self, change: Change, rows: list[tuple[int, Row]]) -> None:
        by_difference = self.how is Corrections.REVISIONS
        match change.kind:
            case Kind.INSERTION:
                self._stable += rows
                if by_difference and change.upto <= self._seen:
                    self.revised += len(rows)
            case Kind.TENTATIVE:
                self._tentative += rows
                self.given += len(rows)
            case Kind.UNDO:
                self.undos += 1
                if not by_difference and self.undos != self.rec_dones + 1:
                    self.fault = "UNDO twice"
                self._take_back(lambda stime: change.after < stime <= change.upto)
            case Kind.REC_DONE:
                self.rec_dones += 1
                if self.undos != self.rec_dones:
                    self.fault = "REC_DONE without UNDO"
                self._take_back(lambda _: True)
            case Kind.DELETION:
                self.revised += len(rows)
                self._delete(rows)
            case Kind.REPLACEMENT:
                self.revised += len(rows)
                self._replace(rows)

    def _replace(self, rows: list[tuple[int, Row]]) -> None:
        key_of = self.key_of
        if key_of is None:
            self.fault = "a REPLACEMENT, though there is no key"
            return
        taken = {(stime, key_of(row)) for stime, row in rows}
        state = [each for each in self._tentative if (each[0], key_of(each[1])) not in taken]
        if len(self._tentative) - len(state) != len(rows):
            self.fault = f"a REPLACEMENT of what is not there, once each: {rows}"
        self._tentative = state
        self._stable += rows

    def _delete(self, rows: list[tuple[int, Row]]) -> None:
        for row in rows:
            if row in self._tentative:
                self._tentative.remove(row)
            else:
                self.fault = f"a DELETION of what is not there: {row}"

    def _take_back(self, which: Callable[[int], bool]) -> None:
        state = [row for row in self._tentative if not which(row[0])]
        self.undone += len(self._tentative) - len(state)
        self._tentative = state

    def _final(self, upto: int) -> tuple[Row, ...]:
        """The final tuples up to there. With UNDO, tentative tuples never become final
        themselves."""
        found = [row for row in self._stable if row[0] <= upto]
        self._stable = [row for row in self._stable if row[0] > upto]
        if self.how is Corrections.REVISIONS:
            found += [row for row in self._tentative if row[0] <= upto]
            self._tentative = [row for row in self._tentative if row[0] > upto]
        return tuple(row for _, row in found)
