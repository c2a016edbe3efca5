"""The detector's figures for people: a line that changes, then a table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.text import Text

from medusa.testnet.detection.experiment import Progress
from medusa.testnet.detection.figures import Check, Result, title_of
from medusa.testnet.kit.picture import new_figure, save
from medusa.testnet.kit.report import new_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NONE: Final = "-"


def render_progress(name: str, progress: Progress) -> Text:
    """One line: the virtual time, and the known crashes."""
    text = Text(f"{name} ", "bold")
    if progress.worlds > 1:
        text.append(f"world {progress.world}/{progress.worlds}  ", "dim")
    text.append(f"{progress.now:.1f} s simulated  ", "cyan")
    text.append(f"{progress.crashed} crashed, {progress.known} known to all  ")
    alarms = progress.false_positives
    return text.append(f"{alarms} false alarms", "yellow" if alarms else "green")


def render_results(results: list[Result], checks: list[tuple[str, Check]]) -> RenderableType:
    """A line for each size, the papers' predictions below it, and the failed checks. Seconds after
    the crash: medians and percentiles.

    Args:
        checks: each with the name of its run.
    """
    headings = "peers", "", "suspect", "detect", "p99", "known", "p99", "false", "B/s", "msg/s"
    table = new_table(headings, gap=1, title=title_of(results))
    table.title_justify = "center"
    for result in results:
        table.add_row(*_figures(result))
        table.add_row(*_predicted(result), style="dim")
    return Group(table, render_verdict(checks))


def _figures(result: Result) -> Iterator[str]:
    yield f"{result.nodes:,}"
    yield "measured"
    for value in (
        result.suspect_median_s,
        result.detect_median_s,
        result.detect_p99_s,
        result.disseminate_median_s,
        result.disseminate_p99_s,
    ):
        yield NONE if value is None else f"{value:.2f}"
    yield f"{result.false_positives:,}"
    yield f"{result.bytes_per_peer_per_s:,.0f}"
    yield f"{result.messages_per_peer_per_s:.1f}"


def _predicted(result: Result) -> Iterator[str]:
    expected = result.predicted
    yield ""
    yield "predicted"
    yield f"{expected.suspect_median_s:.2f}"
    yield f"{expected.detect_median_s:.2f}"
    yield f"{expected.detect_p99_s:.2f}"
    yield f"{expected.detect_median_s + expected.spread_s:.2f}"
    yield f"{expected.disseminate_p99_s:.2f}"


def render_verdict(checks: list[tuple[str, Check]]) -> Text:
    """The failed checks."""
    broken = [(name, check) for name, check in checks if not check.holds]
    if not broken:
        return Text(f"all {len(checks)} checks hold", "green")
    text = Text()
    for name, check in broken:
        text.append(f"{name}: {check.name}: {check.value:,g}, at most {check.limit:,g}\n", "red")
    text.rstrip()
    return text


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
    spread = [each.detect_median_s + each.spread_s for each in expected]
    for colour, label, figure, predicted in (
        (_GREY, "first suspicion", "suspect", [each.suspect_median_s for each in expected]),
        (_BLUE, "first declared dead", "detect", [each.detect_median_s for each in expected]),
        (_RED, "known to everybody", "disseminate", spread),
    ):
        median = [getattr(result, f"{figure}_median_s") for result in results]
        p99 = [getattr(result, f"{figure}_p99_s") for result in results]
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
    # from zero and with room above, to show that it is flat
    axes.set_ylim(0, 1.6 * max(rates, default=1.0) or 1.0)
