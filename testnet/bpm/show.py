"""The output of a run for people: a line that changes while it runs, the figures, the pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from medusa.testnet.bpm.experiment import ROUND_S, Progress, Result
from medusa.testnet.kit.picture import new_figure, save
from medusa.testnet.kit.report import Column, table_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MICROS: Final = 1_000_000
"""Micros in one of the money's units."""
BARS: Final = " ▁▂▃▄▅▆▇█"
SPARK_WIDTH: Final = 56
"""Characters of the curve in the summary."""
DECADES: Final = 4
"""Powers of ten between the curve's full height and its foot."""


def render_progress(name: str, progress: Progress) -> Text:
    """One line: the phase, and the remaining excess."""
    text = Text(f"{name} ", "bold")
    if progress.phase == "build":
        return text.append("signing contracts, starting Brains", "dim")
    minutes, seconds = divmod(int(progress.round * ROUND_S), 60)
    text.append(f"{progress.phase:<7}", "cyan")
    text.append(f"round {progress.round:,} ({minutes}:{seconds:02} simulated)  ", "dim")
    text.append(f"excess {progress.excess:,.0f} of {progress.initial:,.0f}  ")
    text.append(f"{progress.over:,} nodes over  ", "yellow" if progress.over else "green")
    return text.append(f"{progress.moves:,} moves", "dim")


def render_result(result: Result) -> RenderableType:
    """The figures of one run."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for row in _rows(result):
        table.add_row(*row)
    return Group(_verdict(result), Text(), table, Text(), _curve(result))


def _verdict(result: Result) -> Text:
    text = Text(f"{result.nodes:,} nodes, {result.tasks:,} tasks, load ", "bold")
    text.append(f"{result.load:.1%}: ", "bold")
    overloaded = result.load > 1
    if result.acceptable and overloaded:
        return text.append("acceptable: overloaded, and nobody is below capacity", "green")
    if result.acceptable:
        return text.append("acceptable: nobody is above capacity", "green")
    if overloaded:
        said = f"overloaded, {result.nodes_under:,} nodes are below capacity"
        return text.append(f"nearly: {said}" if _nearly(result) else said, "yellow")
    return text.append(f"not acceptable: {result.nodes_over:,} nodes above capacity", "red")


def _nearly(result: Result) -> bool:
    return result.unused_capacity < 0.01 * result.nodes * result.capacity


def _rows(result: Result) -> Iterator[tuple[str, str, str]]:
    width = "fixed" if not result.range_tasks else f"{result.range_tasks} tasks"
    low, high = result.min_price / MICROS, result.price / MICROS
    yield "price range", f"{low:.3f}-{high:.3f}", f"{width}, {result.prices}"
    yield "excess at first", f"{result.excess_initial:,.0f}", "units above capacity"
    yield (
        "excess left",
        f"{result.excess_final:,.0f}",
        f"{_left(result):.2f}%, {result.nodes_over:,} nodes",
    )
    yield "unused", f"{result.unused_capacity:,.0f}", f"units, {result.nodes_under:,} nodes"
    per = f"{result.moves_per_excess:.2f} per task of excess; {result.recalls:,} went home"
    yield "moves", f"{result.moves:,}", f"{per}, {result.failed:,} failed"
    minutes = result.rounds * ROUND_S / 60
    settled = f"{minutes:.0f} min simulated" if result.settled else "cut off: it never settled"
    if result.least_per_excess is not None and result.moves_least is not None:
        said = f"{result.least_per_excess:.2f}, for somebody who knew everything"
        yield "at least", f"{result.moves_least:,}", said
    yield "rounds", f"{result.rounds:,}", settled
    quiet = f"{result.messages_quiet:,} in the quiet after"
    yield "messages", f"{result.messages:,}", quiet
    yield "paid", f"{result.paid / MICROS:,.0f}", "a second, over all contracts"
    each = f"{result.bytes_per_node / 1024:,.0f} KiB a node"
    yield "this machine", f"{result.seconds:,.1f} s", each
    changes = result.changes
    if changes is not None:
        yield "changes", f"{changes.changed:,}", f"{changes.units:,.0f} units of load in all"
        per = f"{changes.moves_per_change:.2f} a change, {changes.moves_per_unit:.2f} a unit"
        yield "moves for them", f"{changes.moves:,}", per
        worst = f"at the end of the worst period; {changes.excess_end:,.1f} after all"
        yield "excess", f"{changes.excess_worst:,.1f}", worst


def _curve(result: Result) -> Text:
    """Excess over rounds, logarithmic, one column for several rounds."""
    values = result.series.excess[: max(result.rounds, 1) + 1]
    top = max(values)
    text = Text("excess ", "dim")
    if top <= 0:
        return text.append("none")
    width = min(SPARK_WIDTH, len(values))
    for column in range(width):
        value = values[column * (len(values) - 1) // max(width - 1, 1)]
        height = 1 + math.log10(value / top) / DECADES if value > 0 else 0.0
        text.append(BARS[max(min(round(height * 8), 8), 1 if value > 0 else 0)], "cyan")
    return text.append(f" round {result.rounds:,}", "dim")


def _share_left(run: Result) -> Text:
    return Text(f"{_left(run):.2f}%", "green" if not run.nodes_over else "yellow")


_RUNS: Final[tuple[Column[Result], ...]] = (
    Column("load", lambda run: f"{run.load:.0%}"),
    Column("range", lambda run: str(run.range_tasks)),
    Column("least\ncontr.", lambda run: str(run.contracts)),
    Column("seed", lambda run: str(run.seed)),
    Column("excess\nleft", _share_left),
    Column("nodes\nover", lambda run: f"{run.nodes_over:,}"),
    Column("unused", lambda run: f"{run.unused_capacity / (run.nodes * run.capacity):.2%}"),
    Column("moves/\nexcess", lambda run: f"{run.moves_per_excess:.2f}"),
    Column("at\nleast", lambda run: f"{run.least_per_excess:.2f}" if run.least_per_excess else ""),
    Column("rounds", lambda run: f"{run.rounds:,}"),
    Column("s", lambda run: f"{run.seconds:,.1f}"),
)


def render_results(results: list[Result]) -> RenderableType:
    """Several runs, with a line for each."""
    return table_of(results, _RUNS, gap=1)


MARGIN: Final = 0.15
"""Rounds shown after the last move, as a share of the rounds before it, to show that no more tasks
move."""

_BLUE, _RED, _GREEN, _GREY = "#2364aa", "#c8553d", "#3d8361", "#8a8a8a"
_LINES: Final = ("#8a8a8a", "#e0a030", "#c8553d", "#2364aa", "#3d8361", "#6b4c9a")


def draw(result: Result, path: Path) -> None:
    """Four panels over the rounds of one run.

    Raises:
        InvalidInputError: the file cannot be written.
    """
    figure = new_figure(9.5, 7.0)
    axes = figure.subplots(2, 2, sharex=True).flatten()
    series, shown = result.series, len(result.series.excess)
    if result.changes is None:
        shown = min(shown, result.rounds + max(10, int(result.rounds * MARGIN)))
    rounds = range(shown)

    unused = series.unused[:shown]
    axes[0].plot(rounds, unused, color=_GREY, linewidth=1, label="unused capacity")
    _logarithmic(axes[0], series.excess[:shown], "load above capacity", _RED)
    axes[0].set_ylabel("units of load")
    axes[0].legend(frameon=False, fontsize=8)
    _logarithmic(axes[1], [float(n) for n in series.over[:shown]], "nodes above capacity", _BLUE)
    axes[2].plot(rounds, series.moves[:shown], color=_GREEN)
    axes[2].set_ylabel("moves so far")
    if result.excess_initial:
        _level(axes[2], result.excess_initial, "initial excess")
    _prices(axes[3], result, shown)
    for panel in axes:
        panel.axvline(result.rounds, color=_GREY, linewidth=0.8, linestyle=":")
        panel.set_xlim(0, max(shown - 1, 1))
    for panel in axes[2:]:
        panel.set_xlabel("round (7 s)")
    least = f" (at least {result.least_per_excess:.2f})" if result.least_per_excess else ""
    figure.suptitle(
        f"{result.nodes:,} nodes, at least {result.contracts} contracts, load {result.load:.0%}, "
        f"price range: {_width(result.range_tasks)}\nexcess left {result.excess_final:,.0f} of "
        f"{result.excess_initial:,.0f}, {result.moves_per_excess:.2f} moves per task of it{least}",
        fontsize=11,
    )
    _save(figure, path)


def _prices(axes: Axes, result: Result, shown: int) -> None:
    known = [
        (now, price / MICROS)
        for now, price in enumerate(result.series.price[:shown])
        if price is not None
    ]
    axes.plot([now for now, _ in known], [price for _, price in known], ".", color=_BLUE, ms=4)
    _level(axes, result.price / MICROS, "highest price")
    if result.prices == "uniform":
        _level(axes, result.min_price / MICROS, "least price")
    axes.set_ylabel("mean price of the round's moves")
    # from zero, to show that prices are nearly the same, as the paper claims
    axes.set_ylim(0, 1.1 * result.price / MICROS)


def _level(axes: Axes, value: float, name: str) -> None:
    axes.axhline(value, color=_GREY, linewidth=1, linestyle="--")
    place = axes.get_yaxis_transform()
    axes.text(0.995, value, name, transform=place, ha="right", va="bottom", color=_GREY, fontsize=8)


def _logarithmic(axes: Axes, values: Sequence[float], label: str, colour: str) -> None:
    """A logarithmic axis with zero as the line at the bottom."""
    axes.plot(range(len(values)), values, color=colour, label=label)
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=-0.05)
    axes.set_ylabel(label)


def draw_sweep(results: list[Result], path: Path) -> None:
    """Remaining excess and moves by number of contracts, one line for each price range; means over
    seeds.

    Raises:
        InvalidInputError: the file cannot be written.
    """
    figure = new_figure(10.0, 4.4)
    excess, moves = figure.subplots(1, 2)
    for colour, width in zip(_LINES, sorted({r.range_tasks for r in results}), strict=False):
        of_width = [result for result in results if result.range_tasks == width]
        label = _width(width)
        for axes, figure_of in ((excess, _left), (moves, attrgetter("moves_per_excess"))):
            points = _means(of_width, figure_of)
            axes.plot(*zip(*points, strict=True), "o-", color=colour, label=label, ms=4)
    excess.set_ylabel("excess left (% of initial)")
    excess.set_yscale("symlog", linthresh=0.1)
    excess.set_ylim(bottom=-0.01)
    moves.set_ylabel("moves per task of initial excess")
    moves.set_ylim(bottom=0)
    for axes in (excess, moves):
        axes.set_xlabel("least contracts of a node")
        axes.legend(frameon=False, fontsize=8, title="price range")
    first = results[0]
    figure.suptitle(f"{first.nodes:,} nodes at {first.load:.0%} load", fontsize=11)
    _save(figure, path)


def _width(range_tasks: int) -> str:
    if not range_tasks:
        return "fixed price"
    return f"{range_tasks} task{'s' if range_tasks > 1 else ''}"


def _left(result: Result) -> float:
    """Percent of the initial excess."""
    return 100 * result.excess_final / result.excess_initial if result.excess_initial else 0.0


def _means(results: list[Result], of: Callable[[Result], float]) -> list[tuple[int, float]]:
    points: dict[int, list[float]] = {}
    for result in results:
        points.setdefault(result.contracts, []).append(of(result))
    return [(contracts, sum(values) / len(values)) for contracts, values in sorted(points.items())]


def _save(figure: Figure, path: Path) -> None:
    for axes in figure.axes:
        axes.grid(alpha=0.25)
    save(figure, path)
