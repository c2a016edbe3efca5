"""The demonstration's output for people: the figures beside the original's, and the picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from medusa.engine.streams.revisions.corrections import Kind
from medusa.testnet.kit.checks import add_places, render_checks
from medusa.testnet.kit.picture import new_figure, save
from medusa.testnet.partition.figures import Observations, PartitionResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes


GOLDEN: Final = (
    ("1 server, X = 2 s, 5 s (Borealis)", "0.72 s", "1.83 s", "0.66 s"),
    ("2 servers, X = 2 s, 10 s (Borealis)", "0.17 s", "2.22 s", "0.19 s"),
    ("2 servers, each delays (Borealis)", "0.17 s", "3.74 s", "0.14 s"),
)
"""The original's measurements at its client: usually, during the failure, afterwards. Its servers
took tuples one by one, with buckets of 0.5 s in the first line and 0.1 s in the others."""


def render_result(result: PartitionResult) -> RenderableType:
    """The figures beside the original's, and the checks."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("longest delay of new results", no_wrap=True)
    for name in ("usually", "split", "corrections"):
        table.add_column(name, justify="right", no_wrap=True)
    servers = f"{result.chain} server{'s' if result.chain > 1 else ''}"
    table.add_row(
        f"{servers}, X = {result.bound_ms / 1e3:g} s, {result.seconds:g} s",
        *(
            f"{ms / 1e3:.2f} s"
            for ms in (
                result.max_new_tuple_delay_ms_stable,
                result.max_new_tuple_delay_ms_failure,
                result.max_new_tuple_delay_ms_stabilization,
            )
        ),
        style="bold",
    )
    for row in GOLDEN:
        table.add_row(*row, style="dim")
    checks = render_checks((each.claim, each.good, True, each.found) for each in result.checks)
    words = Text(
        f"{result.tentative:,} tentative, {result.undone:,} undone, {result.revised:,} revised; "
        f"all corrected {result.corrected_ms / 1e3:.2f} s after the split"
    )
    add_places(words, result.plot, result.folder)
    return Group(table, checks, words)


BLUE: Final = "#1f5fa8"
RED: Final = "#b3261e"
ORANGE: Final = "#d98324"
GREY: Final = "#8a8a8a"
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
        axes.axvspan(healed, corrected, color=ORANGE, alpha=0.18, lw=0)
        axes.set_xlim(FROM_S, corrected + BEHIND_S)
        axes.set_ylim(bottom=0)
    tuples.set_xlabel("seconds after the split began")
    servers = f"{result.chain} server{'s' if result.chain > 1 else ''}"
    bound = f"X = {result.bound_ms / 1e3:g} s"
    figure.suptitle(f"{servers}, {bound}, split for {result.seconds:g} s", size=11)
    save(figure, path)


def _draw_delays(axes: Axes, run: Observations, result: PartitionResult) -> None:
    new = run.new_tuples()
    for tentative, color, label in ((False, BLUE, "stable"), (True, ORANGE, "tentative")):
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
    axes.step(times, known, where="post", color=ORANGE, lw=1.4, label="known, tentative or not")
    axes.step(times, final, where="post", color=BLUE, lw=1.6, label="final")
    axes.set_ylabel("time of the stream, s")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
