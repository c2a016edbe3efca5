"""The figures of the demonstration for people, and its picture."""

from __future__ import annotations

import bisect
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.text import Text

from medusa.testnet.kit.picture import new_figure, save
from medusa.testnet.kit.report import add_places, new_table
from medusa.testnet.load.board import LoadBoard, LoadResult, letter_of
from medusa.testnet.load.script import EVERYBODY

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def render_result(result: LoadResult) -> RenderableType:
    """The summary: each step's loads, the moves, and whether the answers are exact."""
    names = tuple(dict.fromkeys(name for step in result.steps for name in step.capacities))
    table = new_table(("step", *map(letter_of, names), "s", ""), ("step", ""))
    for step in result.steps:
        cells = [
            f"{step.loads[name]:.1f}/{step.capacities[name]:.0f}" if name in step.loads else ""
            for name in names
        ]
        table.add_row(
            step.name, *cells, f"[dim]{step.seconds:.0f}[/]", _verdict(step.acceptable, step.due)
        )
    text = Text(f"{len(result.moves)} moves", "bold")
    stalls = sorted(move.stall_ms for move in result.moves)
    if stalls:
        text.append(f", median stall {stalls[len(stalls) // 2]:.0f} ms")
    text.append(f"; {result.rows:,} connections; ")
    if result.answers_exact:
        text.append(f"all {result.answers} answers exactly equal to a batch run's", "green")
    else:
        differing = f"{len(result.different)} of {result.answers} answers"
        text.append(f"{differing} differ from a batch run's", "red")
    add_places(text, result.plot, result.folder)
    return Group(table, text)


def _verdict(acceptable: bool, due: bool) -> str:
    if acceptable:
        return "[green]acceptable[/]"
    return "[red]not acceptable[/]" if due else "[dim]not yet acceptable[/]"


DARK: Final = "#666666"
COLOURS: Final = {"A": "#1f5fa8", "B": "#c8541b", "C": "#2b8a3e", "D": "#7a3ea1"}
STEPS: Final = ("calibrate", "shed", "rise", "join", "flow")

Lines = dict[str, tuple[list[float], list[float]]]
"""The times and loads of each participant."""


def write_plot(path: Path, board: LoadBoard) -> None:
    """Draw the loads and moves that the board has seen. Blocking, for a second."""
    figure = new_figure(11.0, 6.0)
    axes = figure.add_subplot()
    lines = lines_of(board)
    _draw_steps(axes, board)
    _draw_loads(axes, board, lines)
    _draw_moves(axes, board, lines)
    axes.set_xlabel("seconds")
    axes.set_ylabel("load, 1 % of a core")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.01)
    figure.legend(loc="outside lower center", frameon=False, ncols=len(EVERYBODY) + 1)
    save(figure, path)


def lines_of(board: LoadBoard) -> Lines:
    """The reported loads of each peer, with their times."""
    lines: Lines = {}
    for sample in board.samples:
        for name, load in sample.loads.items():
            times, loads = lines.setdefault(name, ([], []))
            times.append(sample.at)
            loads.append(load.load)
    return lines


def _draw_steps(axes: Axes, board: LoadBoard) -> None:
    for index, key in enumerate(step for step in STEPS if step in board.stages):
        stage = board.stages[key]
        if stage.ended <= stage.began:
            continue
        axes.axvspan(
            stage.began, stage.ended, color="#000000", alpha=0.05 if index % 2 else 0.0, lw=0
        )
        label = "\n".join((board.words[key].replace(" to ", "\nto ", 1), stage.detail))
        # above the axes, where no line crosses it
        where = axes.get_xaxis_transform()
        axes.text(stage.began, 1.01, label, va="bottom", size=8, color="#333", transform=where)


def _draw_loads(axes: Axes, board: LoadBoard, lines: Lines) -> None:
    for place in EVERYBODY:
        if place.participant in lines:
            label = f"{place.letter} {place.participant}"
            axes.plot(*lines[place.participant], color=COLOURS[place.letter], lw=1.8, label=label)
    _draw_capacities(axes, board, lines)


def _draw_capacities(axes: Axes, board: LoadBoard, lines: Lines) -> None:
    """A line for each capacity, in the peer's colour if only one peer has it."""
    owners: dict[float, list[str]] = {}
    for name, load in (board.samples[-1].loads if board.samples else {}).items():
        owners.setdefault(round(load.capacity, 2), []).append(name)
    for capacity, names in owners.items():
        colour = DARK if len(names) > 1 else _colour(names[0])
        begin = min(lines[name][0][0] for name in names)
        axes.plot(
            [begin, board.samples[-1].at], [capacity, capacity], color=colour, lw=1.2, ls="--"
        )
    axes.plot([], [], color=DARK, label="capacity", lw=1.2, ls="--")


def _draw_moves(axes: Axes, board: LoadBoard, lines: Lines) -> None:
    for move in board.moves:
        if move.origin not in lines or move.to not in lines:
            continue
        start, end = load_at(lines, move.origin, move.at), load_at(lines, move.to, move.at)
        axes.annotate(
            "",
            xy=(move.at, end),
            xytext=(move.at, start),
            arrowprops={"arrowstyle": "-|>", "color": _colour(move.origin), "lw": 1, "alpha": 0.8},
        )
        axes.plot([move.at], [start], marker="o", ms=3, color=_colour(move.origin))


def load_at(lines: Lines, participant: str, at: float) -> float:
    """The load at that time, or at the next sample."""
    times, loads = lines[participant]
    return loads[min(bisect.bisect_left(times, at), len(loads) - 1)]


def _colour(participant: str) -> str:
    return next(
        (COLOURS[place.letter] for place in EVERYBODY if place.participant == participant),
        "#000000",
    )
