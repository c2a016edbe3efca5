"""The detector's figures by the number of peers, beside what the papers predict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from testnet.detection.figures import Result, title_of
from testnet.picture import new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BLUE, _RED, _GREEN, _GREY = "#2364aa", "#c8553d", "#3d8361", "#8a8a8a"


def draw(results: list[Result], path: Path) -> None:
    """Two panels: seconds until a crash is known, and traffic.

    Raises:
        InvalidInputError: the file cannot be written.
    """
    figure = new_figure(10.0, 4.6)
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
        axes.grid(alpha=0.25)
    figure.suptitle(title_of(ordered), fontsize=11)
    save(figure, path)


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
