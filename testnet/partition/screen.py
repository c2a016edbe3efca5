"""The demonstration's output for people: a live screen on a terminal, else a line for each
stage."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from testnet.kit import stages as screen
from testnet.kit.checks import add_places, render_checks
from testnet.kit.stages import Stages
from testnet.partition.figures import PartitionResult


def open_screen(stages: Stages, console: Console) -> AbstractAsyncContextManager[None]:
    """Show the stages during the block."""
    frame = partial(stages.render, "partition")
    return screen.open_screen(stages, console, frame, frame)


GOLDEN: Final = (
    ("1 server, X = 2 s, 5 s (Borealis)", "0.72 s", "1.83 s", "0.66 s"),
    ("2 servers, X = 2 s, 10 s (Borealis)", "0.17 s", "2.22 s", "0.19 s"),
    ("2 servers, each delays (Borealis)", "0.17 s", "3.74 s", "0.14 s"),
)
"""The original's measurements at its client: usually, during the failure, afterwards. Its servers
took tuples one by one, with buckets of 0.5 s in the first line and 0.1 s in the others."""


def render_result(result: PartitionResult) -> RenderableType:
    """The figures beside the original's, and the checks."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("longest delay of new results", no_wrap=True)
    for name in ("usually", "split", "corrections"):
        table.add_column(name, justify="right", no_wrap=True)
    servers = f"{result.chain} server{'s' if result.chain > 1 else ''}"
    table.add_row(
        f"{servers}, X = {result.bound_ms / 1e3:g} s, {result.seconds:g} s",
        *(
            f"{ms / 1e3:.2f} s"
            for ms in (
                result.max_new_tuple_delay_ms_stable,
                result.max_new_tuple_delay_ms_failure,
                result.max_new_tuple_delay_ms_stabilization,
            )
        ),
        style="bold",
    )
    for row in GOLDEN:
        table.add_row(*row, style="dim")
    checks = render_checks((each.claim, each.good, True, each.found) for each in result.checks)
    words = Text(
        f"{result.tentative:,} tentative, {result.undone:,} undone, {result.revised:,} revised; "
        f"all corrected {result.corrected_ms / 1e3:.2f} s after the split"
    )
    add_places(words, result.plot, result.folder)
    return Group(table, checks, words)
