"""What a client was told while its federation was split, and the figures that come of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow.compute as pc

from engine.objects.schema import BEGINNING, STIME
from engine.streams.corrections import Change, Kind
from testnet.partition.chain import Row


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
