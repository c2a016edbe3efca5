"""Answers received over time, a panel for each run, all with the kill at second 0."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final

from engine.objects.availability import Mode
from testnet.ha.chain import ADVANCE_US, LANES
from testnet.ha.figures import ModeResult, Observations
from testnet.kit.picture import new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE: Final = "#1f5fa8"
RED: Final = "#b3261e"
GREY: Final = "#8a8a8a"
FROM_S: Final = -6.0
UPTO_S: Final = 20.0
"""Seconds shown after the kill; more if a secondary took longer to continue."""
COLUMNS: Final = 2
DUE_PER_S: Final = LANES * 1_000_000 / ADVANCE_US
"""Answers due per second."""


def write_plot(path: Path, runs: Sequence[Observations], results: Sequence[ModeResult]) -> None:
    """Draw the runs that reached the kill. Blocking, a second.

    Args:
        results: of the runs, in the same order.
    """
    drawn = [pair for pair in zip(runs, results, strict=True) if pair[0].killed_at]
    rows = max(-(-len(drawn) // COLUMNS), 1)
    figure = new_figure(11.0, 1.0 + 2.1 * rows)
    grid = figure.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False)
    panels = [axes for row in grid for axes in row]
    taken_over = (result for run, result in drawn if run.variant.mode is not Mode.NONE)
    latest = max((result.first_new_ms or 0.0 for result in taken_over), default=0.0) / 1e3
    upto = max(UPTO_S, latest + 4.0)
    for axes, (run, result) in zip(panels, drawn, strict=False):
        _draw(axes, run, result, upto)
    for axes in panels[len(drawn) :]:
        axes.set_axis_off()
    for axes in panels[max(len(drawn) - COLUMNS, 0) : len(drawn)]:
        axes.tick_params(labelbottom=True)
    if drawn:
        _legend(panels[len(drawn)] if len(drawn) < len(panels) else panels[0])
    figure.supxlabel("seconds after B, C, D and E were killed", size=10)
    figure.supylabel("answers received", size=10)
    save(figure, path)


def received_by(run: Observations) -> tuple[list[float], list[int]]:
    """Seconds after the kill, and the number of answers by then: from `FROM_S` on."""
    after = [(each.at - run.killed_at, len(each.stimes)) for each in run.arrivals]
    shown = [(at, count) for at, count in after if at >= FROM_S]
    return [at for at, _ in shown], list(accumulate(count for _, count in shown))


def _draw(axes: Axes, run: Observations, result: ModeResult, upto: float) -> None:
    times, counts = received_by(run)
    due = [DUE_PER_S * (at - FROM_S) for at in (FROM_S, upto)]
    axes.plot([FROM_S, upto], due, color=GREY, lw=1, ls=":")
    axes.step([FROM_S, *times], [0, *counts], color=BLUE, lw=1.6, where="post")
    axes.axvline(0.0, color=RED, lw=1.2)
    if result.first_new_ms is not None:
        axes.axvspan(0.0, min(result.first_new_ms / 1e3, upto), color=RED, alpha=0.12, lw=0)
    axes.set_xlim(FROM_S, upto)
    axes.set_ylim(0, due[1] * 1.12)
    axes.set_title(run.variant.label, size=10, loc="left", fontweight="bold")
    paper = {"facecolor": "white", "alpha": 0.6, "edgecolor": "none", "pad": 2.0}
    axes.text(  # a line may pass behind it
        0.98,
        0.06,
        _words(result),
        ha="right",
        va="bottom",
        size=8,
        transform=axes.transAxes,
        bbox=paper,
    )
    axes.tick_params(labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _words(result: ModeResult) -> str:
    recovered = "no recovery"
    if result.recovery_ms is not None and result.first_new_ms is not None:
        recovered = (
            f"recovers in {result.recovery_ms / 1e3:.2f} s\n"
            f"first new answer after {result.first_new_ms / 1e3:.2f} s"
        )
    errors = f"{result.lost} lost, {result.duplicated} duplicated"
    if result.wrong:
        errors += f", {result.wrong} wrong"
    return f"{recovered}\n{errors}\nusual delay {result.delay_ms / 1e3:.2f} s"


def _legend(axes: Axes) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Line2D([], [], color=BLUE, lw=1.6, label="answers received"),
        Line2D([], [], color=GREY, lw=1, ls=":", label="answers due"),
        Line2D([], [], color=RED, lw=1.2, label="kill -9 of B, C, D and E"),
        Patch(color=RED, alpha=0.12, lw=0, label="until the first answer of after the kill"),
    ]
    if axes.axison:
        axes.legend(handles=handles, loc="lower right", frameon=False, fontsize=8)
    else:
        axes.legend(handles=handles, loc="center", frameon=False, fontsize=9)
