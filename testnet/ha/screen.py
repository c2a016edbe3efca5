"""The demonstration's output for people: a live screen on a terminal, else a line for each stage;
the figures, and the picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.text import Text

from medusa.engine.objects.availability import Mode
from medusa.testnet.ha.chain import ADVANCE_US, LANES, Variant
from medusa.testnet.ha.figures import HaResult, ModeResult, Observations
from medusa.testnet.kit.picture import BLUE, GREY, RED, new_figure, save
from medusa.testnet.kit.report import Column, add_places, render_checks, table_of
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
"""The text that the screen shows for each stage."""


RUN_S: Final = 110.0
SHORT_RUN_S: Final = 100.0


@dataclass
class HaBoard(Stages):
    """The state of the demonstration.

    Attributes:
        planned: the runs; the stages are those of the present run.
        runs: observations of each run so far. results: the results of the completed runs.
        run_s: estimated duration of a run on two cores, seconds.
    """

    words: Mapping[str, str] = field(default_factory=lambda: STAGES)
    name: str = "ha"
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

    @property
    def label(self) -> str:
        return self.runs[-1].variant.label if self.runs else ""

    @property
    def title(self) -> str:
        return f"{self.name}: {self.label}" if self.label else self.name

    @property
    def subtitle(self) -> str:
        return f"run {len(self.runs)} of {len(self.planned)}, {about(self.left_s)} left"

    @property
    def before(self) -> str:
        return f"{self.label} ({self.subtitle}): " if len(self.planned) > 1 else f"{self.label}: "

    def parts(self, width: int, height: int) -> list[RenderableType]:
        """The answers second by second, and the table so far."""
        answers = self.runs[-1:] if self.runs and self.runs[-1].arrivals else []
        table = [render_modes(self.results)] if self.results else []
        return [*map(render_arrivals, answers), *table]


SHOWN_S: Final = 40
"""Seconds of arrivals on the screen, with a column for each."""
BLOCKS: Final = " ▁▂▃▄▅▆▇█"


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
    table = table_of(modes, _TABLE, gap=1)
    table.columns[0].no_wrap = True
    return table


def _recovery(mode: ModeResult) -> Text:
    if mode.recovery_ms is None:
        return Text("never", "red")
    return Text(f"{mode.recovery_ms / 1e3:.2f} s")


def _more(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{round(value):+d} {unit}"


def _percent(share: float | None) -> str:
    return _more(share and 100 * share, "%")


def _count(count: int | None) -> Text:
    if count is None:
        return Text("-", "dim")
    return Text(f"{count:,}", "yellow" if count else "dim")


_TABLE: Final[tuple[Column[ModeResult], ...]] = (
    Column("", lambda mode: Text(mode.label, "red" if mode.failure else ""), words=True),
    Column("lost", lambda mode: _count(mode.lost)),
    Column("twice", lambda mode: _count(mode.duplicated)),
    Column("wrong", lambda mode: _count(mode.wrong)),
    Column("recovers", _recovery),
    Column("delay", lambda mode: f"{mode.delay_ms:.0f} ms"),
    Column("added", lambda mode: _more(mode.added_delay_ms, "ms")),
    Column("CPU", lambda mode: _percent(mode.cpu_overhead)),
    Column("network", lambda mode: _percent(mode.network_overhead)),
)


def render_result(result: HaResult) -> RenderableType:
    """The table, the checks, and the verdict."""
    checks = render_checks(result.checks)
    text = Text(f"{result.rate} readings/s; {result.seconds:.0f} s")
    add_places(text, result.plot, *result.folders)
    return Group(render_modes(result.modes), checks, text)


FROM_S: Final = -6.0
UPTO_S: Final = 20.0
"""Seconds shown after the kill; more if a secondary took longer to continue."""
COLUMNS: Final = 2
DUE_PER_S: Final = LANES * 1_000_000 / ADVANCE_US
"""Answers due per second."""


def write_plot(path: Path, runs: Sequence[Observations], results: Sequence[ModeResult]) -> None:
    """Draw the runs that reached the kill. Blocking, a second.

    Args:
        results: the results of the runs, in the same order.
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
    corner = partial(axes.text, ha="right", va="bottom", transform=axes.transAxes)
    # a line of the plot may pass behind the text
    corner(0.98, 0.06, _words(result), size=8, bbox=paper)
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
    legend = partial(axes.legend, handles=handles, frameon=False)
    if axes.axison:
        legend(loc="lower right", fontsize=8)
    else:
        legend(loc="center", fontsize=9)
