"""The demonstration's output for people: a live screen on a terminal, else a line for each
stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from testnet.ha.figures import HaResult, ModeResult, Observations
from testnet.ha.variants import Variant
from testnet.kit import stages
from testnet.kit.checks import add_places, render_checks
from testnet.kit.stages import Stages, about

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
