"""The changes that a client received while its federation was split; the figures computed from
them, beside the figures of the original system; and the picture."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow.compute as pc
from msgspec import Struct
from rich.console import Group, RenderableType
from rich.text import Text

from medusa.engine.objects.schema import BEGINNING, STIME
from medusa.engine.streams.revisions.corrections import Change, Corrections, Kind
from medusa.engine.tasks.fork import ALPHA
from medusa.testnet.kit.answers import Fold
from medusa.testnet.kit.picture import AMBER, BLUE, GREY, RED, new_figure, save
from medusa.testnet.kit.report import Check, add_places, new_table, render_checks
from medusa.testnet.partition.chain import Row, expected, rows_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Options:
    """
    Attributes:
        seconds: the duration of the split. bound_s: the bound X. chain: the number of servers one
            after the other.
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
class ReceivedChange:
    """One received change. at: when, seconds since the epoch."""

    at: float
    change: Change


@dataclass(frozen=True, slots=True)
class NewTuples:
    """Tuples later than all earlier ones.

    Attributes:
        at: when the tuples came, seconds since the epoch.
        delay_s: `at` minus the stime of the oldest of them.
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
    heard: list[ReceivedChange] = field(default_factory=list)
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


class PartitionResult(Struct, frozen=True):
    """The result of the run.

    Attributes:
        seconds: duration of the split. chain: number of servers.
        corrections: their form. missing: share of the input on the far side.
        bound_ms: X, by how much longer than usual new results may take.
        max_new_tuple_delay_ms_stable, _failure, _stabilization: longest time from a tuple's posting
            to its arrival, or a later tuple's, at the client: before the split and after the
            corrections; during the split; from its end until all was corrected.
        first_tentative_ms: when the first tentative tuple came, after the cut; null: there was
            none.
        tentative: tentative tuples. undone: those of them that UNDO and REC_DONE took back.
        revised: tuples in DELETION, INSERTION and REPLACEMENT revisions.
        undos, rec_dones: the numbers of such changes.
        corrected_ms: the time from the end of the split until no tentative tuple was left.
        duplicates, losses: tuples that the client's final stream has too often, or lacks, compared
            with the answer without a failure.
        exact: whether there are no duplicates and no losses.
        expected: the number of tuples of the answer without a failure.
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


PHASES: Final = ("stable", "failure", "stabilization")
"""stable: before the split and after the corrections; failure: during the split; stabilization:
from the heal to the end of the corrections."""

RECONNECT_S: Final = 1.0
"""Seconds until cut links work again, at most."""

REPLICA: Final = "replica"
"""The name of R's peer."""

SMALL: Final = 0.02
"""The greatest share of missing input for which the number of revisions is checked by
`PER_MISSING`."""

PER_MISSING: Final = 5
"""The most revisions per tentative tuple, as a multiple of the share of the input that was
missing."""


def figures(run: Observations, options: Options) -> PartitionResult:
    """Compute the figures, and judge them."""
    fold: Fold[Row] = Fold(options.corrections, rows_in)
    finals = [fold.apply(heard.change) for heard in run.heard]
    got = Counter(row for final in finals if final is not None for row in final.rows)
    wanted = expected(run.posted, options.chain)
    duplicates = sum(max(0, count - (row in wanted)) for row, count in got.items())
    losses = sum(row not in got for row in wanted)
    new, corrected_at = run.new_tuples(), run.corrected_at()
    after_all = math.nextafter(corrected_at, math.inf)  # the correction itself is one
    first = next((each.at for each in new if each.tentative), None)
    result = PartitionResult(
        seconds=options.seconds,
        chain=options.chain,
        corrections=options.corrections.value,
        missing=options.missing,
        netns=options.netns,
        bound_ms=1e3 * options.bound_s,
        max_new_tuple_delay_ms_stable=max(
            _longest(new, run.steady_at, run.cut_at), _longest(new, after_all, math.inf)
        ),
        max_new_tuple_delay_ms_failure=_longest(new, run.cut_at, run.healed_at),
        max_new_tuple_delay_ms_stabilization=_longest(new, run.healed_at, after_all),
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


def _longest(new: list[NewTuples], since: float, before: float) -> float:
    delays = (each.delay_s for each in new if since <= each.at < before)
    return round(1e3 * max(delays, default=0.0), 1)


def _judged(run: PartitionResult) -> PartitionResult:
    usual, bound = run.max_new_tuple_delay_ms_stable, run.bound_ms
    checks = [
        Check(
            "the client ends with the stream of a failure-free run",
            run.exact and run.expected > 0,
            f"{run.expected} tuples, {run.duplicates} duplicates, {run.losses} losses",
        )
    ]
    for phase in PHASES[1:]:
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


GOLDEN: Final = (
    ("1 server, X = 2 s, 5 s (Borealis)", "0.72 s", "1.83 s", "0.66 s"),
    ("2 servers, X = 2 s, 10 s (Borealis)", "0.17 s", "2.22 s", "0.19 s"),
    ("2 servers, each delays (Borealis)", "0.17 s", "3.74 s", "0.14 s"),
)
"""The original's measurements at its client: usually, during the failure, afterwards. Its servers
took tuples one by one, with buckets of 0.5 s in the first line and 0.1 s in the others."""


def render_result(result: PartitionResult) -> RenderableType:
    """The figures beside those of the original system, and the checks."""
    what = "longest delay of new results"
    table = new_table((what, "usually", "split", "corrections"), (what,), gap=1)
    delays = (getattr(result, f"max_new_tuple_delay_ms_{phase}") for phase in PHASES)
    row = (f"{_setting(result)}, {result.seconds:g} s", *(f"{ms / 1e3:.2f} s" for ms in delays))
    table.add_row(*row, style="bold")
    for row in GOLDEN:
        table.add_row(*row, style="dim")
    checks = render_checks(result.checks)
    words = Text(
        f"{result.tentative:,} tentative, {result.undone:,} undone, {result.revised:,} revised; "
        f"all corrected {result.corrected_ms / 1e3:.2f} s after the split"
    )
    add_places(words, result.plot, result.folder)
    return Group(table, checks, words)


def _setting(result: PartitionResult) -> str:
    servers = f"{result.chain} server{'s' if result.chain > 1 else ''}"
    return f"{servers}, X = {result.bound_ms / 1e3:g} s"


FROM_S: Final = -4.0
BEHIND_S: Final = 6.0
"""Seconds shown before the split and after the corrections."""


def write_plot(path: Path, run: Observations, result: PartitionResult) -> None:
    """Draw the picture. Blocking, a second."""
    figure = new_figure(9.0, 6.2)
    delays, tuples = figure.subplots(2, 1, sharex=True)
    _draw_delays(delays, run, result)
    _draw_tuples(tuples, run)
    healed, corrected = (at - run.cut_at for at in (run.healed_at, run.corrected_at()))
    for axes in (delays, tuples):
        axes.axvspan(0.0, healed, color=RED, alpha=0.10, lw=0)
        axes.axvspan(healed, corrected, color=AMBER, alpha=0.18, lw=0)
        axes.set_xlim(FROM_S, corrected + BEHIND_S)
        axes.set_ylim(bottom=0)
    tuples.set_xlabel("seconds after the split began")
    figure.suptitle(f"{_setting(result)}, split for {result.seconds:g} s", size=11)
    save(figure, path)


def _draw_delays(axes: Axes, run: Observations, result: PartitionResult) -> None:
    new = run.new_tuples()
    for tentative, color, label in ((False, BLUE, "stable"), (True, AMBER, "tentative")):
        shown = [e for e in new if e.tentative is tentative and e.at > run.cut_at + FROM_S]
        axes.scatter(
            [each.at - run.cut_at for each in shown],
            [each.delay_s for each in shown],
            s=9,
            color=color,
            label=label,
        )
    usual = result.max_new_tuple_delay_ms_stable / 1e3
    for height, label in ((usual, "usual"), (usual + result.bound_ms / 1e3, "usual + X")):
        axes.axhline(height, color=GREY, lw=1, ls=":")
        axes.annotate(label, (FROM_S, height), (4, 3), textcoords="offset points", size=8)
    axes.set_ylabel("delay of new results, s")
    axes.legend(frameon=False, fontsize=8, loc="center right")


def _draw_tuples(axes: Axes, run: Observations) -> None:
    """The lag of the latest result, and of the latest final one."""
    times: list[float] = []
    final: list[float] = []
    known: list[float] = []
    seen = 0.0
    for heard in run.heard:
        change = heard.change
        if change.kind is not Kind.UNDO and change.upto < 2**62:
            seen = max(seen, change.upto / 1e6)
        if heard.at < run.cut_at + FROM_S or change.boundary > 2**62:
            continue
        times.append(heard.at - run.cut_at)
        final.append(change.boundary / 1e6 - run.cut_at)
        known.append(seen - run.cut_at)
    axes.step(times, known, where="post", color=AMBER, lw=1.4, label="known, tentative or not")
    axes.step(times, final, where="post", color=BLUE, lw=1.6, label="final")
    axes.set_ylabel("time of the stream, s")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
