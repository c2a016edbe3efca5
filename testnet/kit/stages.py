"""The stages of a scenario, one after the other, and their output."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Final, TypeVar

import trio
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from medusa.overlay.listeners import Listeners

P = TypeVar("P")

FRAME_S: Final = 0.5
"""Seconds between two frames of a live screen: the peers need the cores."""


class State(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


_ICONS: Final = {
    State.WAITING: ("·", "dim"),
    State.DONE: ("✓", "green"),
    State.FAILED: ("✗", "red"),
}


@dataclass
class Stage:
    """One stage. Times are seconds since the scenario began; detail is its latest text."""

    name: str
    state: State = State.WAITING
    began: float = 0.0
    ended: float = 0.0
    detail: str = ""


@dataclass
class Stages:
    """The stages of a scenario. A scenario that shows more has a subclass, its board.

    Attributes:
        frame_s: seconds between two frames of a live screen.
        words: the text for people of each stage, in the order of the stages.
        name: the name of the command.
        seconds: a monotonic clock; zero: its reading when the scenario began.
        changed: called with a stage that begins, ends or fails.
        live: whether a terminal shows it.
    """

    frame_s: ClassVar[float] = FRAME_S

    words: Mapping[str, str]
    name: str = ""
    seconds: Callable[[], float] = time.monotonic
    changed: Listeners[[Stage]] = field(default_factory=Listeners)
    live: bool = False
    stages: dict[str, Stage] = field(init=False)
    zero: float = field(init=False)

    def __post_init__(self) -> None:
        self.zero = self.seconds()
        self.begin_again()

    def begin_again(self) -> None:
        """Reset all stages."""
        self.stages = {name: Stage(name) for name in self.words}

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self.seconds() - self.zero

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """A stage, from here to the end of the block."""
        stage = self.stages[name]
        stage.state, stage.began = State.RUNNING, self.now
        self.changed.notify(stage)
        finished = False
        try:
            yield stage
            finished = True
        finally:
            stage.state = State.DONE if finished else State.FAILED
            stage.ended = self.now
            self.changed.notify(stage)

    def say(self, name: str, detail: str) -> None:
        """Change a stage's detail."""
        self.stages[name].detail = detail

    @property
    def title(self) -> str:
        """The title of the screen."""
        return self.name

    @property
    def subtitle(self) -> str:
        """The text in the lower right corner of the screen."""
        return ""

    @property
    def before(self) -> str:
        """The beginning of each line, if there is no live screen."""
        return ""

    @property
    def after(self) -> str:
        """The text at the end of a stage's last line, if there is no live screen."""
        return ""

    def parts(self, width: int, height: int) -> list[RenderableType]:
        """The parts of the live screen below the stages.

        Args:
            width, height: the size of the terminal.
        """
        return []

    def screen(self, width: int = 80, height: int = 24) -> RenderableType:
        """The whole live screen."""
        return Group(self.render(), *self.parts(width, height))

    def print_each(self, console: Console) -> None:
        """Print a line whenever a stage begins or ends, if there is no live screen."""

        def print_one(stage: Stage) -> None:
            words = f"{self.before}{self.words[stage.name]}"
            if stage.state is State.RUNNING:
                console.print(f"{words} ...", style="dim", highlight=False, markup=False)
                return
            word = "failed" if stage.state is State.FAILED else "done"
            detail = f": {stage.detail}" if stage.detail else ""
            took_s = stage.ended - stage.began
            text = f"{words} {word} in {took_s:.1f} s{detail}{self.after}"
            console.print(text, highlight=False, soft_wrap=True, markup=False)

        self.changed.add(print_one)

    def render(self) -> RenderableType:
        """A row for each stage: its detail, and its duration."""
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(width=1)
        table.add_column(no_wrap=True)
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        table.add_column(justify="right", no_wrap=True)
        for stage in self.stages.values():
            waiting = stage.state is State.WAITING
            until = self.now if stage.state is State.RUNNING else stage.ended
            table.add_row(
                _icon(stage),
                Text(self.words[stage.name], "dim" if waiting else ""),
                Text(stage.detail, "cyan" if stage.state is State.RUNNING else "dim"),
                Text("" if waiting else f"{until - stage.began:.0f} s", "dim"),
            )
        return Panel(
            table,
            title=f"[bold]medusa-testnet {self.title}[/]",
            title_align="left",
            subtitle=f"[dim]{self.subtitle}[/]" if self.subtitle else None,
            subtitle_align="right",
            box=box.ROUNDED,
            border_style="dim",
        )


@contextmanager
def open_progress(
    console: Console, render: Callable[[str, P], Text]
) -> Iterator[Callable[[str, P], None]]:
    """Show the progress of the named run in a line, on a terminal only."""
    if not console.is_terminal:
        yield lambda name, progress: None
        return
    spinner = Spinner("dots", style="cyan")
    with Live(spinner, console=console, transient=True, refresh_per_second=8) as live:
        # the thread of Live draws, so that a large run does not wait for it
        yield lambda name, progress: spinner.update(text=render(name, progress))
        live.stop()


def about(seconds: float) -> str:
    """An estimated time in words: half a minute, minutes."""
    if seconds < 45:
        return "half a minute"
    minutes = round(seconds / 60)
    return f"about {minutes} minute{'s' if minutes > 1 else ''}"


def _icon(stage: Stage) -> RenderableType:
    if stage.state is State.RUNNING:
        return Spinner("dots", style="cyan")
    sign, style = _ICONS[stage.state]
    return Text(sign, style)


@asynccontextmanager
async def open_screen(stages: Stages, console: Console) -> AsyncIterator[None]:
    """Show the live screen during the block, and leave the stages. Without a terminal, print a line
    for each stage."""
    stages.live = console.is_terminal
    if not stages.live:
        stages.print_each(console)
        yield
        return
    with Live(
        console=console, auto_refresh=False, vertical_overflow="crop", redirect_stdout=False
    ) as live:

        async def draw() -> None:
            while True:
                live.update(stages.screen(console.width, console.height), refresh=True)
                await trio.sleep(stages.frame_s)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(draw)
            try:
                yield
            finally:
                nursery.cancel_scope.cancel()
        live.update(stages.render(), refresh=True)
