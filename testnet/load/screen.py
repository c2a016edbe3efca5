"""The demonstration's output for people: a live screen on a terminal, else a line for each stage;
the figures, and the picture."""

from __future__ import annotations

import bisect
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from medusa.testnet.kit import stages
from medusa.testnet.kit.checks import add_places
from medusa.testnet.kit.picture import new_figure, save
from medusa.testnet.kit.stages import about
from medusa.testnet.load.board import Load, LoadBoard, LoadResult, Moved
from medusa.testnet.load.script import EVERYBODY

if TYPE_CHECKING:
    from matplotlib.axes import Axes


FRAME_S: Final = 0.25
"""Seconds between two frames: the peers need the cores."""
MOVES_SHOWN: Final = 8
BAR: Final = 30
"""Columns of a bar of load; capacity is at two thirds."""

_LETTERS: Final = {place.participant: place.letter for place in EVERYBODY}


def open_screen(board: LoadBoard, console: Console) -> AbstractAsyncContextManager[None]:
    """Show the board during the block; the stages stay."""
    return stages.open_screen(
        board,
        console,
        partial(render, board),
        partial(render_stages, board),
        FRAME_S,
        after=lambda: _loads(board) + _left(board),
    )


def _left(board: LoadBoard) -> str:
    return f", {about(board.left_s)} left" if board.left_s else ""


def _loads(board: LoadBoard) -> str:
    loads = ", ".join(
        f"{_letter(name)} {load.load:.1f}/{load.capacity:.0f}"
        for name, load in board.recent.means().items()
    )
    return f" ({loads})" if loads else ""


def render(board: LoadBoard) -> RenderableType:
    """Stages, loads against capacities, and the latest moves."""
    parts = [render_stages(board)]
    means = board.recent.means()
    if means:
        parts.append(render_loads(means))
    if board.moves:
        parts.append(render_moves(board.moves[-MOVES_SHOWN:]))
    return Group(*parts)


def render_stages(board: LoadBoard) -> RenderableType:
    done = f"{board.rows:,} connections, {board.answers:,} answers"
    return board.render("load", done + _left(board))


def render_loads(loads: dict[str, Load]) -> RenderableType:
    """A bar for each peer, with a mark at its capacity."""
    table = Table.grid(padding=(0, 1))
    for name, load in loads.items():
        table.add_row(
            Text(_letter(name), "bold"),
            Text(name, "dim"),
            _bar(load),
            Text(f"{load.load:5.1f}", "red" if load.is_above else "green", justify="right"),
            Text(f"of {load.capacity:.0f}", "dim"),
            Text(f"{sum(task > 0 for task in load.tasks):2} tasks", "dim"),
        )
    return table


def _bar(load: Load) -> Text:
    mark = BAR * 2 // 3
    filled = min(round(load.load / max(load.capacity, 0.01) * mark), BAR)
    colour = "red" if load.is_above else "green"
    text = Text()
    for column in range(BAR):
        sign = "┃" if column == mark else "━" if column < filled else "─"
        text.append(sign, "bold" if column == mark else colour if column < filled else "dim")
    return text


def render_moves(moves: list[Moved]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for move in moves:
        table.add_row(
            Text(f"{move.at:.0f} s", "dim", justify="right"),
            Text(f"{_letter(move.origin)} → {_letter(move.to)}", "bold"),
            Text(move.task, no_wrap=True, overflow="ellipsis"),
            Text(f"at {move.price / 1e6:.3f}", "yellow"),
            Text(f"stall {move.stall_ms:.0f} ms", "dim"),
        )
    return table


def _letter(participant: str) -> str:
    return _LETTERS.get(participant, participant)


def render_result(result: LoadResult) -> RenderableType:
    """The summary: each step's loads, the moves, and whether the answers are exact."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False)
    table.add_column("step", no_wrap=True)
    names = tuple(dict.fromkeys(name for step in result.steps for name in step.capacities))
    for name in names:
        table.add_column(_letter(name), justify="right", no_wrap=True)
    table.add_column("s", justify="right", style="dim")
    table.add_column("")
    for step in result.steps:
        cells = [
            f"{step.loads[name]:.1f}/{step.capacities[name]:.0f}" if name in step.loads else ""
            for name in names
        ]
        table.add_row(step.name, *cells, f"{step.seconds:.0f}", _verdict(step.acceptable, step.due))
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
