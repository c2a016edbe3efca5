"""The stages of a scenario, one after the other, and how a person sees them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from rich import box
from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from testnet.board import Stage, State

_ICONS: Final = {
    State.WAITING: ("·", "dim"),
    State.DONE: ("✓", "green"),
    State.FAILED: ("✗", "red"),
}


class Stages:
    """
    Args:
        words: by stage, in order, what a person reads.
        seconds: a monotonic clock.

    Attributes:
        on_stage: called when a stage begins, ends or fails.
    """

    def __init__(
        self, words: Mapping[str, str], seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self.words = words
        self.all = {name: Stage(name) for name in words}
        self.on_stage: Callable[[Stage], None] = lambda _: None
        self._seconds = seconds
        self._zero = seconds()

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self._seconds() - self._zero

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """A stage, from here to the end of the block."""
        stage = self.all[name]
        stage.state, stage.began = State.RUNNING, self.now
        self.on_stage(stage)
        finished = False
        try:
            yield stage
            finished = True
        finally:
            stage.state = State.DONE if finished else State.FAILED
            stage.ended = self.now
            self.on_stage(stage)

    def print_each(self, console: Console) -> None:
        """A line whenever a stage begins or ends: where there is no screen to draw on."""

        def print_one(stage: Stage) -> None:
            words = self.words[stage.name]
            if stage.state is State.RUNNING:
                console.print(f"{words} ...", style="dim", highlight=False)
                return
            word = "failed" if stage.state is State.FAILED else "done"
            detail = f": {stage.detail}" if stage.detail else ""
            took_s = stage.ended - stage.began
            text = f"{words} {word} in {took_s:.1f} s{detail}"
            console.print(text, highlight=False, soft_wrap=True)

        self.on_stage = print_one

    def render(self, title: str) -> RenderableType:
        """A row a stage."""
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(width=1)
        table.add_column(no_wrap=True)
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        table.add_column(justify="right", no_wrap=True)
        for stage in self.all.values():
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
            title=f"[bold]{title}[/]",
            title_align="left",
            box=box.ROUNDED,
            border_style="dim",
        )


def _icon(stage: Stage) -> RenderableType:
    if stage.state is State.RUNNING:
        return Spinner("dots", style="cyan")
    sign, style = _ICONS[stage.state]
    return Text(sign, style)
