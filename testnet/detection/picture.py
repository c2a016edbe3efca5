"""The detector's figures by the number of peers, beside what the papers predict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from overlay.errors import InvalidInputError
from testnet.bpm.picture import check_picture
from testnet.detection.figures import Result, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DPI: Final = 110
_BLUE, _RED, _GREEN, _GREY = "#2364aa", "#c8553d", "#3d8361", "#8a8a8a"

__all__ = ["check_picture", "draw"]


def draw(results: list[Result], path: Path) -> None:
    """Two panels: seconds until a crash is known, and traffic.

    Raises:
        InvalidInputError: the file cannot be written, or there is no matplotlib.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InvalidInputError(
            "pictures need matplotlib: pip install 'medusa-federation[testnet]'"
        ) from error
    figure = Figure(figsize=(10.0, 4.6), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    ordered = sorted(results, key=lambda result: result.nodes)
    times, traffic = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_times(times, ordered)
    _draw_traffic(traffic, ordered)
    for axes in (times, traffic):
        axes.set_xscale("log")
        axes.set_xlabel("peers")
        axes.set_xticks([result.nodes for result in ordered])
        axes.set_xticklabels([f"{result.nodes:,}" for result in ordered])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    figure.suptitle(title_of(ordered), fontsize=11)
    try:
        figure.savefig(path)
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be written: {error.strerror}") from error


def _draw_times(axes: Axes, results: list[Result]) -> None:
    nodes = [result.nodes for result in results]
    expected = [result.predicted for result in results]
    for colour, label, median, p99, predicted in (
        (
            _GREY,
            "first suspicion",
            [result.suspect_median_s for result in results],
            [result.suspect_p99_s for result in results],
            [each.suspect_median_s for each in expected],
        ),
        (
            _BLUE,
            "first declared dead",
            [result.detect_median_s for result in results],
            [result.detect_p99_s for result in results],
            [each.detect_median_s for each in expected],
        ),
        (
            _RED,
            "known to everybody",
            [result.disseminate_median_s for result in results],
            [result.disseminate_p99_s for result in results],
            [each.detect_median_s + each.spread_s for each in expected],
        ),
    ):
        points = [(n, m, p) for n, m, p in zip(nodes, median, p99, strict=True) if m and p]
        if not points:
            continue
        axes.plot(nodes, predicted, "--", color=colour, linewidth=1)
        axes.plot([n for n, _, _ in points], [m for _, m, _ in points], "o-", color=colour, ms=5)
        axes.plot([n for n, _, _ in points], [p for _, _, p in points], "^", color=colour, ms=5)
        axes.plot([], [], "o-", color=colour, label=label)
    axes.plot([], [], "^", color="black", label="its 99th percentile")
    axes.plot([], [], "--", color="black", label="median predicted")
    axes.set_ylabel("seconds after the crash")
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def _draw_traffic(axes: Axes, results: list[Result]) -> None:
    nodes = [result.nodes for result in results]
    rates = [result.bytes_per_peer_per_s for result in results]
    axes.plot(nodes, rates, "o-", color=_GREEN, ms=5)
    axes.set_ylabel("bytes per peer and second, when all is quiet")
    # From zero, and with room above: that it is flat is to be seen.
    axes.set_ylim(0, 1.6 * max(rates, default=1.0) or 1.0)
