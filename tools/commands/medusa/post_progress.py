"""The progress of `medusa post`: a bar on a terminal, lines elsewhere, drawn once a second."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import click
import trio
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from medusa.overlay.errors import printable
from medusa.overlay.names import ObjectName
from medusa.tools.client.link import open_background
from medusa.tools.client.posting import Poster
from medusa.tools.client.times import show_duration
from medusa.tools.commands.medusa.file_position import decode_position
from medusa.tools.rows.row_process import Rows

DRAWN_S: Final = 1.0
"""Seconds between two drawings."""

LINES_S: Final = 10.0
"""Seconds between two lines if there is no terminal."""

AWAY_S: Final = 2.0
"""Seconds after which a missing answer is shown as a wait; shorter ones are part of the rate."""


class PostProgress:
    """The progress of posting a file.

    Attributes:
        rows: the file being read, once it is open.
        seen: rows of it that were queued, with those that the stream had before.
    """

    def __init__(self, poster: Poster) -> None:
        self.rows: Rows | None = None
        self.seen = 0
        self._poster = poster
        self._home = ObjectName.parse(poster.stream).participant
        self._began: tuple[float, int] | None = None

    def opened(self, rows: Rows, before: int) -> None:
        """Begin with a file. before: rows of it that the stream has."""
        self.rows, self.seen = rows, before
        self._began = trio.current_time(), before

    @property
    def name(self) -> str:
        return "" if self.rows is None else printable(Path(self.rows.asked.name).name)

    @property
    def stored(self) -> int:
        """Rows of the file that the stream has."""
        before = 0 if self._began is None else self._began[1]
        at = self._poster.stored
        return max(before, decode_position(at).rows) if at else before

    @property
    def share(self) -> tuple[float, float | None]:
        """The stored amount and the total: rows, or bytes if the number of rows is not known; None:
        the total is not known."""
        if self.rows is None:
            return 0.0, None
        if self.rows.rows is not None:
            return self.stored, self.rows.rows
        if self.rows.total is None:
            return self.stored, None
        return self.rows.position * min(1.0, self.stored / max(1, self.seen)), self.rows.total

    @property
    def state(self) -> tuple[str, bool, int, int]:
        """The values of a line that do not change by time alone."""
        return self.name, self._is_away, self.stored, self._poster.late

    @property
    def _is_away(self) -> bool:
        return self._poster.waiting_s >= AWAY_S

    @property
    def text(self) -> str:
        """`1,234 of 5,678 rows, 90,000 rows/s`, or the peer that it waits for."""
        if self._is_away:
            return f"waiting for {self._home}, {show_duration(self._poster.waiting_s)}"
        stored, whole = f"{self.stored:,}", self.share[1]
        if self.rows is not None and self.rows.rows is not None:
            stored += f" of {self.rows.rows:,}"
        late = f", {self._poster.late:,} of them late" if self._poster.late else ""
        said = f"{stored} rows{late}{self._rate}"
        if self.rows is not None and self.rows.rows is None and whole:
            said += f", {self.share[0] / 1e6:,.1f} of {whole / 1e6:,.1f} MB"
        return said

    @property
    def _rate(self) -> str:
        if self._began is None:
            return ""
        since, before = self._began
        took = trio.current_time() - since
        return f", {(self.stored - before) / took:,.0f} rows/s" if took >= DRAWN_S else ""


@asynccontextmanager
async def open_progress(poster: Poster, *, quiet: bool) -> AsyncIterator[PostProgress]:
    """Draw the progress on standard error until the block ends; not if `quiet`."""
    progress = PostProgress(poster)
    if quiet:
        yield progress
        return
    console = Console(stderr=True)
    async with open_background() as nursery:
        nursery.start_soon(_draw if console.is_terminal else _say, progress)
        yield progress


async def _draw(progress: PostProgress) -> None:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[text]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as bar:
        task = bar.add_task("", total=None, text="")
        try:
            while True:
                _update(bar, task, progress)
                await trio.sleep(DRAWN_S)
        finally:
            _update(bar, task, progress)


def _update(bar: Progress, task: TaskID, progress: PostProgress) -> None:
    done, whole = progress.share
    bar.update(
        task,
        description=progress.name,
        completed=done,
        total=whole,
        text=progress.text,
        refresh=True,
    )


async def _say(progress: PostProgress) -> None:
    told = None
    while True:
        await trio.sleep(LINES_S)
        if progress.state != told:  # otherwise the log of a follower would grow for ever
            told = progress.state
            click.echo(f"{progress.name}: {progress.text}", err=True)
