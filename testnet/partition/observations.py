"""What a client was told while its federation was split, and the figures that come of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow.compute as pc

from engine.schema import BEGINNING, STIME
from engine.tentative.corrections import Change, Kind
from testnet.partition.chain import Row, rows_in


@dataclass(frozen=True, slots=True)
class Heard:
    """One change. at: when, seconds since the epoch."""

    at: float
    change: Change


@dataclass(frozen=True, slots=True)
class NewTuples:
    """Tuples later than all that were heard of before.

    Attributes:
        at: when they came, seconds since the epoch. delay_s: of the oldest of them.
    """

    at: float
    delay_s: float
    tentative: bool


@dataclass
class Observations:
    """
    Attributes:
        posted: every reading handed over. heard: every change, in order.
        steady_at, cut_at, healed_at: from when on the usual delay is measured, when the federation
            was split and when that was over, seconds since the epoch; 0.0: not yet.
        read_from: with a replica: whom C read from at the end of the split, and of the run.
    """

    posted: list[Row] = field(default_factory=list)
    heard: list[Heard] = field(default_factory=list)
    steady_at: float = 0.0
    cut_at: float = 0.0
    healed_at: float = 0.0
    read_from: list[str] = field(default_factory=list)

    def new_tuples(self) -> list[NewTuples]:
        """What was heard of new tuples, in order; corrections are none."""
        found: list[NewTuples] = []
        seen = BEGINNING
        for heard in self.heard:
            table = heard.change.table
            if table.num_rows:
                stimes = table.column(STIME)
                new = stimes.filter(pc.greater(stimes, seen))
                if len(new):
                    delay = heard.at - pc.min(new).as_py() / 1e6
                    found.append(NewTuples(heard.at, delay, heard.change.kind is Kind.TENTATIVE))
            if heard.change.kind not in {Kind.UNDO, Kind.REC_DONE, Kind.DELETION}:
                seen = max(seen, heard.change.upto)
        return found

    def corrected_at(self) -> float:
        """When nothing tentative was left for the first time after the split; the split's end where
        nothing ever was."""
        reached, corrected = BEGINNING, self.healed_at
        outstanding = False
        for heard in self.heard:
            if heard.change.kind is Kind.TENTATIVE:
                reached = max(reached, heard.change.upto)
                outstanding = True
            elif outstanding and heard.change.boundary >= reached:
                outstanding = False
                if heard.at > self.healed_at:
                    return heard.at
        return corrected

    @property
    def outstanding(self) -> int:
        """Tentative tuples since the split."""
        since = (each for each in self.heard if each.at > self.cut_at)
        return sum(e.change.table.num_rows for e in since if e.change.kind is Kind.TENTATIVE)

    @property
    def corrected(self) -> bool:
        """Whether nothing tentative is left, and something of after the split is stable."""
        if not self.heard:
            return False
        seen = max(e.change.upto for e in self.heard if e.change.kind is not Kind.UNDO)
        boundary = self.heard[-1].change.boundary
        return boundary >= seen and boundary > 1e6 * self.healed_at

    def count(self, *kinds: Kind) -> int:
        """Tuples in changes of these kinds."""
        return sum(each.change.table.num_rows for each in self.heard if each.change.kind in kinds)

    def times(self, kind: Kind) -> int:
        """How many changes of a kind there were."""
        return sum(each.change.kind is kind for each in self.heard)


@dataclass
class Fold:
    """The tuples that a client has, change by change, as the protocol says.

    Attributes:
        rows: how often it has each. undone: tentative ones that were taken back whole.
        revised: tuples of corrections.
    """

    rows: Counter[Row] = field(default_factory=Counter)
    undone: int = 0
    revised: int = 0
    _tentative: list[tuple[int, Row]] = field(default_factory=list)
    _seen: int = BEGINNING

    def heed(self, change: Change, *, by_undo: bool) -> None:
        rows = rows_in(change.table)
        match change.kind:
            case Kind.TENTATIVE:
                stimes = change.table.column(STIME).to_pylist()
                self._tentative += zip(stimes, rows, strict=True)
                self.rows.update(rows)
            case Kind.INSERTION:
                self.rows.update(rows)
                if not by_undo and change.upto <= self._seen:
                    self.revised += len(rows)
            case Kind.DELETION:
                self.rows.subtract(rows)
                self.revised += len(rows)
            case Kind.REPLACEMENT:
                raise AssertionError("readings have no key")
            case Kind.UNDO:
                self._take_back(change.after, change.upto)
            case Kind.REC_DONE:
                self._take_back(BEGINNING, change.upto)
        if not by_undo:  # what is final by now is not taken back any more
            self._tentative = [each for each in self._tentative if each[0] > change.boundary]
        if change.kind in {Kind.TENTATIVE, Kind.INSERTION}:
            self._seen = max(self._seen, change.upto)

    def _take_back(self, after: int, upto: int) -> None:
        gone = [row for stime, row in self._tentative if after < stime <= upto]
        self._tentative = [each for each in self._tentative if not after < each[0] <= upto]
        self.rows.subtract(gone)
        self.undone += len(gone)


def folded(heard: Iterable[Heard], *, by_undo: bool) -> Fold:
    """What a client has in the end."""
    fold = Fold()
    for each in heard:
        fold.heed(each.change, by_undo=by_undo)
    return fold
