"""The demonstration's output for people: a live screen on a terminal, else a line for each stage;
the figures, and the picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from medusa.engine.objects.availability import Mode
from medusa.testnet.ha.chain import ADVANCE_US, LANES, Variant
from medusa.testnet.ha.figures import HaResult, ModeResult, Observations
from medusa.testnet.kit import stages
from medusa.testnet.kit.checks import add_places, render_checks
from medusa.testnet.kit.picture import new_figure, save
from medusa.testnet.kit.stages import Stages, about

if TYPE_CHECKING:
    from matplotlib.axes import Axes


STAGES: Final[dict[str, str]] = {
    "start": "start the peers",
    "define": "publish the chain",
    "warm": "until the chain is warm",
    "steady": "measure delay and costs",
    "kill": "kill B, C, D and E; watch",
    "return": "the killed come back",
    "end": "end and compare",
}
"""By stage of a run, its text for people."""


RUN_S: Final = 110.0
SHORT_RUN_S: Final = 100.0


@dataclass
class HaBoard(Stages):
    """The state of the demonstration.

    Attributes:
        planned: the runs; the stages are those of the present run.
        runs: observations of each run so far. results: of the completed ones.
        run_s: estimated duration of a run on two cores, seconds.
    """

    words: Mapping[str, str] = field(default_factory=lambda: STAGES)
    planned: Sequence[Variant] = ()
    runs: list[Observations] = field(default_factory=list)
    results: list[ModeResult] = field(default_factory=list)
    run_s: float = RUN_S

    def begin(self, run: Observations) -> None:
        """Begin another run, with all its stages to come."""
        self.runs.append(run)
        self.begin_again()

    @property
    def left_s(self) -> float:
        """Estimated remaining time, seconds, by the runs so far."""
        took = [result.seconds for result in self.results if result.begun]
        each = sum(took) / len(took) if took else self.run_s
        since = self.now - sum(result.seconds for result in self.results)
        return max(each * (len(self.planned) - len(self.results)) - since, 0.0)


SHOWN_S: Final = 40
"""Seconds of arrivals on the screen, with a column for each."""
BLOCKS: Final = " ▁▂▃▄▅▆▇█"


def open_screen(board: HaBoard, console: Console) -> AbstractAsyncContextManager[None]:
    """Show the board while the body runs; the table of figures stays."""
    return stages.open_screen(
        board,
        console,
        partial(render, board),
        partial(render_stages, board),
        before=partial(_before, board),
    )


def render(board: HaBoard) -> RenderableType:
    """The present run, its answers second by second, and the table so far."""
    parts = [render_stages(board)]
    if board.runs and board.runs[-1].arrivals:
        parts.append(render_arrivals(board.runs[-1]))
    if board.results:
        parts.append(render_modes(board.results))
    return Group(*parts)


def render_stages(board: HaBoard) -> RenderableType:
    label = _label(board)
    run = f"run {len(board.runs)} of {len(board.planned)}, {about(board.left_s)} left"
    return board.render(f"ha{f': {label}' if label else ''}", run)


def _before(board: HaBoard) -> str:
    if len(board.planned) < 2:
        return f"{_label(board)}: "
    run = f"run {len(board.runs)} of {len(board.planned)}, {about(board.left_s)} left"
    return f"{_label(board)} ({run}): "


def _label(board: HaBoard) -> str:
    return board.runs[-1].variant.label if board.runs else ""


def render_arrivals(run: Observations) -> Text:
    """Answers received in each of the last seconds; the kill is a red bar."""
    last = int(run.arrivals[-1].at)
    counts = per_second(run, last - SHOWN_S + 1, last)
    top = max(*counts, 1)
    text = Text(" ")
    for second, count in enumerate(counts, last - SHOWN_S + 1):
        if run.killed_at and int(run.killed_at) == second:
            text.append("┃", "bold red")
        level = -(-count * (len(BLOCKS) - 1) // top)
        text.append(BLOCKS[level], "cyan")
    text.append(f"  {len(run.answers):,} answers", "dim")
    return text


def per_second(run: Observations, first: int, last: int) -> list[int]:
    """Answers received in each whole second from first to last, seconds since the epoch."""
    counts = [0] * (last - first + 1)
    for arrival in reversed(run.arrivals):
        index = int(arrival.at) - first
        if index < 0:
            break
        if index < len(counts):
            counts[index] += len(arrival.stimes)
    return counts


def render_modes(modes: Sequence[ModeResult]) -> RenderableType:
    """A table with a row for each run."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for name in ("lost", "twice", "wrong", "recovers", "delay", "added", "CPU", "network"):
        table.add_column(name, justify="right", no_wrap=True)
    for mode in modes:
        recovery = "never" if mode.recovery_ms is None else f"{mode.recovery_ms / 1e3:.2f} s"
        table.add_row(
            Text(mode.label, "red" if mode.failure else ""),
            *(_count(count) for count in (mode.lost, mode.duplicated, mode.wrong)),
            Text(recovery, "red" if mode.recovery_ms is None else ""),
            f"{mode.delay_ms:.0f} ms",
            _more(mode.added_delay_ms, "ms"),
            _more(mode.cpu_overhead and 100 * mode.cpu_overhead, "%"),
            _more(mode.network_overhead and 100 * mode.network_overhead, "%"),
        )
    return table


def _more(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{round(value):+d} {unit}"


def _count(count: int | None) -> Text:
    if count is None:
        return Text("-", "dim")
    return Text(f"{count:,}", "yellow" if count else "dim")


def render_result(result: HaResult) -> RenderableType:
    """The table, the checks, and the verdict."""
    checks = render_checks((e.claim, e.good, e.certain, e.found) for e in result.checks)
    text = Text(f"{result.rate} readings/s; {result.seconds:.0f} s")
    add_places(text, result.plot, *result.folders)
    return Group(render_modes(result.modes), checks, text)


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
