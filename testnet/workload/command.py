"""The frame of a workload's command."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NoReturn

from rich.console import Console

from testnet.kit.command import run_scenario
from testnet.kit.stages import Stages, open_screen
from testnet.workload.run import run_workload
from testnet.workload.screen import render_result
from testnet.workload.workload import STAGES, Workload


def run_command(name: str, make: Callable[[], Workload], *, as_json: bool) -> NoReturn:
    """Run a workload, show its outcomes, and end the process: with 0 if every answer is exact, with
    1 if one is not, with 2 if a query failed.

    Args:
        name: of the command. make: generates the rows.
    """
    console = Console(stderr=as_json)
    stages = Stages(STAGES)
    run_scenario(
        partial(run_workload, make, stages),
        open_screen(stages, console, partial(stages.render, name)),
        console,
        as_json=as_json,
        render=render_result,
        failed=lambda result: result.failed,
    )
