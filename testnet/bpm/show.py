"""The output of a run for people: a line that changes while it runs, then the figures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from testnet.bpm.experiment import ROUND_S, Progress, Result

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
    left = result.excess_final / result.excess_initial if result.excess_initial else 0.0
    yield "excess left", f"{result.excess_final:,.0f}", f"{left:.2%}, {result.nodes_over:,} nodes"
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


_HEADINGS: Final = (
    "load",
    "range",
    "least\ncontr.",
    "seed",
    "excess\nleft",
    "nodes\nover",
    "unused",
    "moves/\nexcess",
    "at\nleast",
    "rounds",
    "s",
)


def render_results(results: list[Result]) -> RenderableType:
    """Several runs, with a line for each."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for heading in _HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        left = result.excess_final / result.excess_initial if result.excess_initial else 0.0
        table.add_row(
            f"{result.load:.0%}",
            str(result.range_tasks),
            str(result.contracts),
            str(result.seed),
            Text(f"{left:.2%}", "green" if not result.nodes_over else "yellow"),
            f"{result.nodes_over:,}",
            f"{result.unused_capacity / (result.nodes * result.capacity):.2%}",
            f"{result.moves_per_excess:.2f}",
            "" if result.least_per_excess is None else f"{result.least_per_excess:.2f}",
            f"{result.rounds:,}",
            f"{result.seconds:,.1f}",
        )
    return table
