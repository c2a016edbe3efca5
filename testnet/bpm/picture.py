"""A run as a picture: excess, nodes above capacity, moves, prices over rounds; and a sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from testnet.bpm.experiment import Result
from testnet.kit.picture import new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MICROS: Final = 1_000_000
MARGIN: Final = 0.15
"""Rounds shown after the last move, as a share of those before, to show that it is quiet."""

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
        for axes, figure_of in ((excess, _left), (moves, _moves)):
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
    return 100 * result.excess_final / result.excess_initial if result.excess_initial else 0.0


def _moves(result: Result) -> float:
    return result.moves_per_excess


def _means(results: list[Result], of: Callable[[Result], float]) -> list[tuple[int, float]]:
    points: dict[int, list[float]] = {}
    for result in results:
        points.setdefault(result.contracts, []).append(of(result))
    return [(contracts, sum(values) / len(values)) for contracts, values in sorted(points.items())]


def _save(figure: Figure, path: Path) -> None:
    for axes in figure.axes:
        axes.grid(alpha=0.25)
    save(figure, path)
