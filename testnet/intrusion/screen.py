"""The scenario's output for people: a live screen on a terminal, else a line for each stage."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from functools import partial
from typing import Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from medusa.testnet.connections.query import COLUMNS
from medusa.testnet.intrusion.board import STAGES, Board
from medusa.testnet.intrusion.kills import KillsResult
from medusa.testnet.intrusion.run import AnswerResult, Result
from medusa.testnet.kit import stages
from medusa.tools.monitor.render import render as render_monitor

FRAME_S: Final = 0.125
"""Seconds between two frames of the live screen: smooth enough for a bar, cheap enough for a core
that the peers need."""


_MEANINGS: Final = {
    "busy": "addresses with > 100 connections a minute",
    "scan": "addresses with > 10 ports a minute",
    "cluster": "quiet /24s with > 100 a minute",
}


def open_screen(board: Board, console: Console) -> AbstractAsyncContextManager[None]:
    """Show the board while the body runs; the last frame stays."""
    return stages.open_screen(
        board,
        console,
        lambda: render(board, console.width, console.height),
        partial(render_stages, board),
        FRAME_S,
    )


def render(board: Board, width: int, height: int) -> RenderableType:
    """The whole live screen, with the monitor below if there is room."""
    parts: list[RenderableType] = [render_stages(board)]
    if board.posting:
        parts.append(render_posting(board))
    if board.toll.planned:
        parts.append(render_toll(board))
    room = height - _lines_above(board)
    if board.snapshot is not None and room >= MONITOR_LINES:
        parts.append(Rule(style="dim"))
        parts.append(render_monitor(board.snapshot, width, room))
    return Group(*parts)


MONITOR_LINES: Final = 8
"""Least lines for the monitor: fewer show nothing useful of the federation."""


def _lines_above(board: Board) -> int:
    return len(STAGES) + len(board.posting) + 5 + bool(board.toll.planned)


def render_stages(board: Board) -> RenderableType:
    """The stages, their details, and durations."""
    return board.render("intrusion")


def render_posting(board: Board) -> RenderableType:
    """A bar for each participant that posts, and the answers so far beside them."""
    bars = Table.grid(padding=(0, 1))
    for participant, posting in board.posting.items():
        bars.add_row(
            Text(participant),
            ProgressBar(max(posting.total, 1), posting.rows, width=24, complete_style="cyan"),
            Text(f"{posting.rows:,}", justify="right"),
        )
    counts = Table.grid(padding=(0, 1))
    for answer, rows in board.answers.items():
        counts.add_row(Text(answer, "bold"), Text(f"{rows:,}", "yellow", justify="right"))
    both = Table.grid(padding=(0, 4))
    both.add_row(bars, counts)
    return both


def render_toll(board: Board) -> Text:
    """The kills so far, and the peers that are down."""
    toll = board.toll
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{toll.kills} of {_count(toll.planned, 'kill')}", "bold red")
    text.append(f", {_count(toll.restarts, 'restart')}; ")
    if not toll.down:
        text.append("all peers are up", "green")
    for index, (peer, state) in enumerate(toll.down.items()):
        text.append(", " if index else "")
        text.append(peer, "bold")
        text.append(f" {state}", "red" if state == "down" else "yellow")
    return text


def render_result(result: Result) -> RenderableType:
    """The summary: each answer against the batch run, and the speed."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False)
    table.add_column("answer", style="bold", no_wrap=True)
    table.add_column("what it lists", style="dim")
    table.add_column("received", justify="right")
    table.add_column("batch", justify="right")
    table.add_column("")
    for name, answer in result.answers.items():
        table.add_row(
            name,
            _MEANINGS[name],
            f"{answer.rows:,}",
            f"{answer.expected:,}",
            "[green]equal[/]" if answer.exact else "[red]different[/]",
        )
    parts: list[RenderableType] = [table, _found(result), _figures(result)]
    if isinstance(result, KillsResult):
        parts.append(_kills(result))
    for name, answer in result.answers.items():
        if not answer.exact:
            parts.append(_differences(name, answer))
    if result.generated and result.exact:
        parts.append(_next())
    return Group(*parts)


_FOUND: Final = {
    "busy": "opened {count:,} connections in that minute",
    "scan": "tried {count:,} different ports in that minute",
    "cluster": "opened {count:,} together, none of its addresses more than 100",
}


def _found(result: Result) -> RenderableType:
    """The strongest row of each answer: address, time, and reason."""
    table = Table.grid(padding=(0, 2))
    for name, answer in result.answers.items():
        if answer.strongest is not None:
            begins, who, count = answer.strongest
            at = datetime.fromtimestamp(begins, UTC)
            who = f"{who}.0/24" if name == "cluster" else who
            why = _FOUND[name].format(count=count)
            table.add_row(Text(name, "bold"), Text(who, "yellow"), f"{at:%H:%M}", why)
    return table


def _figures(result: Result) -> RenderableType:
    *posters, owner = result.peers
    text = Text()
    kind = "generated connections" if result.generated else "connections"
    text.append(f"{result.rows:,} {kind}", "bold")
    text.append(f" posted at {_listed(posters)}, processed at {owner}, received at {posters[0]}\n")
    text.append(f"{result.seconds:.1f} s", "bold")
    text.append(" from the first post to the last answer: ")
    text.append(f"{result.rows_per_second:,.0f} rows/s", "bold")
    if result.first_answer_seconds is not None:
        text.append("; first answer ")
        text.append(f"{result.first_answer_seconds:.1f} s", "bold")
        text.append(" after the command's start")
    files = ", ".join(f"{name}.csv" for name in COLUMNS)
    text.append(f"\n{files} are in {result.out}/")
    if result.folder is not None:
        text.append(f"\nhomes and logs are in {result.folder}")
    return text


def _next() -> RenderableType:
    """Suggestions for the next step after a run with synthetic connections."""
    testnet = sys.argv[0]
    text = Text("\nnext, your own connections, and a network that splits:\n")
    text.append(f"  {testnet} intrusion --trace your_conn.log\n", "bold")
    text.append(f"  {testnet} partition --seconds 10", "bold")
    return text


def _kills(result: KillsResult) -> RenderableType:
    text = Text()
    text.append(f"{_listed(sorted({*result.victims}))} killed with -9", "bold red")
    text.append(f": {_count(result.kills, 'kill')}, ")
    text.append(f"{_count(result.restarts, 'restart')}; an answer stood still for at most ")
    text.append(f"{result.longest_pause_seconds:.1f} s", "bold")
    text.append(f", a JVM outlived its peer by at most {result.longest_afterlife_seconds:.1f} s")
    for fault in result.faults:
        text.append(f"\n{fault}", "red")
    return text


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _differences(name: str, answer: AnswerResult) -> RenderableType:
    lines = [f"{name}: missing {row}" for row in answer.missing]
    lines += [f"{name}: not expected {row}" for row in answer.extra]
    return Text("\n".join(lines), "red")
