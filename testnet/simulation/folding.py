"""What a client has that heeds changes as the protocol says; knows nothing of how they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from engine.schema import STIME
from engine.tentative.corrections import Change, Corrections, Kind
from testnet.simulation.rows import Row, rows_of


@dataclass
class Fold:
    """
    Attributes:
        boundary: everything up to it is final, and was given out; microseconds.
        fault: what the last change should not have been.
    """

    how: Corrections
    boundary: int
    fault: str = ""
    _stable: list[Row] = field(default_factory=list)
    _tentative: list[Row] = field(default_factory=list)
    _undone: bool = False

    def heed(self, change: Change) -> Iterator[tuple[int, int, tuple[Row, ...]]]:
        """Gives what has become final by it: (after, upto, tuples in canonical order)."""
        self.fault = ""
        self._apply(change)
        if change.boundary < self.boundary:
            self.fault = f"boundary {change.boundary} after {self.boundary}"
        if change.boundary > self.boundary:
            yield self.boundary, change.boundary, self._final(change.boundary)
            self.boundary = change.boundary

    def _apply(self, change: Change) -> None:
        rows = list(rows_of(change.table))
        match change.kind:
            case Kind.INSERTION:
                self._stable += rows
            case Kind.TENTATIVE:
                self._tentative += rows
            case Kind.UNDO:
                self._once(done=False)
                self._forget(lambda row: change.after < row[STIME] <= change.upto)
            case Kind.REC_DONE:
                self._once(done=True)
                self._forget(lambda _: True)
            case Kind.DELETION:
                for row in rows:
                    if row not in self._tentative:
                        self.fault = f"a DELETION of what is not there: {row}"
                    else:
                        self._tentative.remove(row)
            case Kind.REPLACEMENT:
                self.fault = "a REPLACEMENT, though there is no key"

    def _once(self, *, done: bool) -> None:
        if self.how is Corrections.UNDO and self._undone is not done:
            self.fault = "REC_DONE without UNDO" if done else "UNDO twice"
        self._undone = not done

    def _forget(self, which: Callable[[Row], bool]) -> None:
        self._tentative = [row for row in self._tentative if not which(row)]

    def _final(self, upto: int) -> tuple[Row, ...]:
        """What is final up to there. By UNDO, no tentative tuple ever comes to be."""
        found = [row for row in self._stable if row[STIME] <= upto]
        self._stable = [row for row in self._stable if row[STIME] > upto]
        if self.how is Corrections.REVISIONS:
            found += [row for row in self._tentative if row[STIME] <= upto]
        self._forget(lambda row: self.how is Corrections.REVISIONS and row[STIME] <= upto)
        return tuple(sorted(found, key=lambda row: tuple(row.values())))
