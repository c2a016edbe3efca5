"""Load of each peer over time, as in figure 2 of the 2004 demonstration: capacities as dashed
lines, steps as bands, moves as arrows from the load of the one peer to that of the other."""

from __future__ import annotations

import bisect
from pathlib import Path
from typing import TYPE_CHECKING, Final

from testnet.kit.picture import new_figure, save
from testnet.load.board import LoadBoard
from testnet.load.script import EVERYBODY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS: Final = {"A": "#1f5fa8", "B": "#c8541b", "C": "#2b8a3e", "D": "#7a3ea1"}
GREY: Final = "#666666"
STEPS: Final = ("calibrate", "shed", "rise", "join", "flow")

Lines = dict[str, tuple[list[float], list[float]]]
"""By participant: times and loads."""


def write_plot(path: Path, board: LoadBoard) -> None:
    """Draw what the board has seen. Blocking, a second."""
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
        colour = GREY if len(names) > 1 else _colour(names[0])
        begin = min(lines[name][0][0] for name in names)
        axes.plot(
            [begin, board.samples[-1].at], [capacity, capacity], color=colour, lw=1.2, ls="--"
        )
    axes.plot([], [], color=GREY, label="capacity", lw=1.2, ls="--")


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
