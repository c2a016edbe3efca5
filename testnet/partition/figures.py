"""The changes that a client received while its federation was split, and the figures computed from
them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.compute as pc
from msgspec import Struct

from medusa.engine.objects.schema import BEGINNING, STIME
from medusa.engine.streams.revisions.corrections import Change, Corrections, Kind
from medusa.engine.tasks.fork import ALPHA
from medusa.testnet.kit.answers import Fold
from medusa.testnet.partition.cast import Row, expected, rows_in


@dataclass(frozen=True)
class Options:
    """
    Attributes:
        seconds: of the split. bound_s: X. chain: servers one after the other.
        missing: share of the readings on the far side.
        replica: the poster's demonstration: A, B and C, and a replica R of B.
        netns: cut cables between network namespaces, not sockets.
        keep: leave homes and logs behind. plot: where the picture goes, if anywhere.
    """

    seconds: float = 10.0
    bound_s: float = 2.0
    chain: int = 2
    corrections: Corrections = Corrections.UNDO
    missing: float = 1 / 3
    replica: bool = False
    netns: bool = False
    keep: bool = False
    plot: Path | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """One received change. at: when, seconds since the epoch."""

    at: float
    change: Change


@dataclass(frozen=True, slots=True)
class NewTuples:
    """Tuples later than all earlier ones.

    Attributes:
        at: when they came, seconds since the epoch. delay_s: of the oldest of them.
    """

    at: float
    delay_s: float
    tentative: bool


@dataclass
class Observations:
    """The data of the run.

    Attributes:
        posted: every queued reading. heard: every change, in order.
        steady_at, cut_at, healed_at: begin of the measurement of the usual delay, of the split, and
            of the heal, seconds since the epoch; 0.0: not yet.
        read_from: with a replica: the peer from which C read at the end of the split, and of the
            run.
    """

    posted: list[Row] = field(default_factory=list)
    heard: list[Heard] = field(default_factory=list)
    steady_at: float = 0.0
    cut_at: float = 0.0
    healed_at: float = 0.0
    read_from: list[str] = field(default_factory=list)

    def new_tuples(self) -> list[NewTuples]:
        """The arrivals of new tuples, in order; corrections are not among them."""
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
        """The first time after the split without tentative tuples; the split's end if there were
        none."""
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
        """Whether no tentative tuple is left, and some tuple from after the split is stable."""
        if not self.heard:
            return False
        seen = max(e.change.upto for e in self.heard if e.change.kind is not Kind.UNDO)
        boundary = self.heard[-1].change.boundary
        return boundary >= seen and boundary > 1e6 * self.healed_at


class Check(Struct, frozen=True):
    """A claim, the measurement, and whether it holds."""

    claim: str
    good: bool
    found: str


class PartitionResult(Struct, frozen=True):
    """The result of the run.

    Attributes:
        seconds: duration of the split. chain: number of servers.
        corrections: their form. missing: share of the input on the far side.
        bound_ms: X, by how much longer than usual new results may take.
        max_new_tuple_delay_ms_stable, _failure, _stabilization: longest time from a tuple's posting
            to its arrival, or a later tuple's, at the client: before the split and after the
            corrections; during the split; from its end until all was corrected.
        first_tentative_ms: after the cut; null: there was none.
        tentative: tentative tuples. undone: of those, taken back by UNDO and REC_DONE.
        revised: tuples in DELETION, INSERTION and REPLACEMENT revisions.
        undos, rec_dones: their numbers.
        corrected_ms: from the end of the split until no tentative tuple was left.
        duplicates, losses: of the client's final stream, against a failure-free answer.
        exact: there is neither.
        expected: tuples of that answer.
        read_from: with a replica: the peer from which C read at the end of the split, and of the
            run.
    """

    seconds: float
    chain: int
    corrections: str
    missing: float
    netns: bool
    bound_ms: float
    max_new_tuple_delay_ms_stable: float
    max_new_tuple_delay_ms_failure: float
    max_new_tuple_delay_ms_stabilization: float
    first_tentative_ms: float | None
    tentative: int
    undone: int
    revised: int
    undos: int
    rec_dones: int
    corrected_ms: float
    duplicates: int
    losses: int
    exact: bool
    expected: int
    read_from: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    plot: str | None = None
    folder: str | None = None

    @property
    def good(self) -> bool:
        return all(check.good for check in self.checks)


RECONNECT_S: Final = 1.0
"""Seconds until cut links work again, at most."""

REPLICA: Final = "replica"
"""The name of R's peer."""

SMALL: Final = 0.02
"""Share of the input below which the difference must be small, too."""

PER_MISSING: Final = 5
"""Revisions, as a share of the tuples that UNDO would take back, per share of the missing input."""


def figures(run: Observations, options: Options) -> PartitionResult:
    """Compute the figures, and judge them."""
    fold: Fold[Row] = Fold(options.corrections, rows_in)
    finals = [fold.apply(heard.change) for heard in run.heard]
    got = Counter(row for final in finals if final is not None for row in final.rows)
    wanted = expected(run.posted, options.chain)
    duplicates = sum(max(0, count - (row in wanted)) for row, count in got.items())
    losses = sum(row not in got for row in wanted)
    new, corrected_at = run.new_tuples(), run.corrected_at()
    first = next((each.at for each in new if each.tentative), None)
    result = PartitionResult(
        seconds=options.seconds,
        chain=options.chain,
        corrections=options.corrections.value,
        missing=options.missing,
        netns=options.netns,
        bound_ms=1e3 * options.bound_s,
        max_new_tuple_delay_ms_stable=_longest(
            [
                each
                for each in new
                if each.at >= run.steady_at and not run.cut_at <= each.at <= corrected_at
            ]
        ),
        max_new_tuple_delay_ms_failure=_longest(
            [each for each in new if run.cut_at <= each.at < run.healed_at]
        ),
        max_new_tuple_delay_ms_stabilization=_longest(
            [each for each in new if run.healed_at <= each.at <= corrected_at]
        ),
        first_tentative_ms=None if first is None else round(1e3 * (first - run.cut_at), 1),
        tentative=fold.given,
        undone=fold.undone,
        revised=fold.revised,
        undos=fold.undos,
        rec_dones=fold.rec_dones,
        corrected_ms=round(1e3 * (corrected_at - run.healed_at), 1),
        duplicates=duplicates,
        losses=losses,
        exact=not duplicates and not losses,
        expected=len(wanted),
        read_from=tuple(run.read_from),
    )
    return _judged(result)


def _longest(new: list[NewTuples]) -> float:
    return round(1e3 * max((each.delay_s for each in new), default=0.0), 1)


def _judged(run: PartitionResult) -> PartitionResult:
    usual, bound = run.max_new_tuple_delay_ms_stable, run.bound_ms
    checks = [
        Check(
            "the client ends with the stream of a failure-free run",
            run.exact and run.expected > 0,
            f"{run.expected} tuples, {run.duplicates} duplicates, {run.losses} losses",
        )
    ]
    for phase in ("failure", "stabilization"):
        delay: float = getattr(run, f"max_new_tuple_delay_ms_{phase}")
        found = f"{delay:.0f} ms, usually {usual:.0f} ms at most, X = {bound:.0f} ms"
        claim = f"new results within X of the usual during {phase}"
        checks.append(Check(claim, delay <= usual + bound, found))
    if run.read_from:
        stays = run.read_from == (REPLICA, REPLICA)
        claim = "C reads from R from the split on, and stays there"
        checks.append(Check(claim, stays, " then ".join(run.read_from)))
        claim = "the replica hides the split"
        checks.append(Check(claim, run.tentative == 0, f"{run.tentative} tentative tuples"))
    elif run.seconds + RECONNECT_S < ALPHA * bound / 1e3:
        masked = run.tentative == 0 and not run.undos and not run.rec_dones
        claim = "a split shorter than the bound shows nowhere"
        checks.append(Check(claim, masked, f"{run.tentative} tentative tuples"))
    elif run.seconds > bound / 1e3:
        claim = "results go on during the split"
        checks.append(Check(claim, run.tentative > 0, f"{run.tentative} tentative tuples"))
        if run.corrections == Corrections.UNDO:
            once = run.undos == run.rec_dones == 1
            found = f"{run.undos} UNDO, {run.rec_dones} REC_DONE"
            checks.append(Check("one UNDO and one REC_DONE", once, found))
        elif run.missing <= SMALL:
            share = run.revised / max(run.tentative, 1)
            claim = "corrections carry only the difference"
            found = f"{run.revised} revisions for {run.tentative} tentative tuples: {share:.1%}"
            checks.append(Check(claim, share <= PER_MISSING * run.missing, found))
    return msgspec.structs.replace(run, checks=tuple(checks))
